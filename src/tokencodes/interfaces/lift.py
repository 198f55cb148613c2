"""From a code of K coordinates to a model input of width d, without a parameter.

- `tile`: x_i = c_{i mod K}. R = [I_K; I_K; ...], the last copy cut when K does not divide d (paper, Binary16).
- `orthogonal`: x = R c, R in R^(d x K) with orthogonal columns of the norm that `tile` gives a column when K divides d,
  sqrt(d / K); every input dimension sees every bit, the rank stays K (ours: a rank-matched control).
- `hadamard`: x_i = (-1)^<m_i, c>, the Walsh function of mask m_i. A parity is not linear in the bits over the reals, so
  the inputs of a binary code reach rank min(d, V) (ours: the full-rank control). The first K masks are the single
  bits, so the code stays readable; the rest are seeded and without repeats until all are used.
"""

import numpy as np

from tokencodes.interfaces import gf2

# R of `orthogonal` is rounded to this step, so that the last bits of a LAPACK do not reach the weights.
GRID = 2.0**-20


def tile_index(width: int, d_model: int) -> np.ndarray:
    """Which coordinate each input dimension repeats: int64 (d,), i mod K."""
    return np.arange(d_model, dtype=np.int64) % width


def orthogonal_matrix(width: int, d_model: int, seed: int) -> np.ndarray:
    """R of the `orthogonal` lift, float32 (d, K): R^T R = (d / K) I up to rounding."""
    draws = np.random.Generator(np.random.Philox(key=seed)).standard_normal((d_model, width))
    q, r = np.linalg.qr(draws)
    q = q * np.sign(np.diag(r))  # one Q for each draw, whatever sign convention LAPACK has
    return (np.round(q * np.sqrt(d_model / width) / GRID) * GRID).astype(np.float32)


def walsh_masks(width: int, d_model: int, seed: int) -> np.ndarray:
    """Masks m_i of the `hadamard` lift as bits, uint8 (d, K)."""
    return gf2.to_array(gf2.sample_redundant(d_model, width, seed)[:d_model], width)


def matrix(kind: str, width: int, d_model: int, seed: int) -> np.ndarray | None:
    """What a model stores, (d, K): R of `orthogonal`, float32; the masks of `hadamard`, uint8; None for `tile`."""
    match kind:
        case "orthogonal":
            return orthogonal_matrix(width, d_model, seed)
        case "hadamard":
            return walsh_masks(width, d_model, seed)
    return None


def lift(codes: np.ndarray, kind: str, d_model: int, seed: int) -> np.ndarray:
    """The lifted codes, float32 (n, K) or uint8 (n, K) -> float32 (n, d): the definition, in NumPy."""
    width = codes.shape[1]
    match kind:
        case "tile":
            return codes.astype(np.float32)[:, tile_index(width, d_model)]
        case "orthogonal":
            return codes.astype(np.float32) @ orthogonal_matrix(width, d_model, seed).T
        case "hadamard":
            parity = (codes.astype(np.int64) @ walsh_masks(width, d_model, seed).astype(np.int64).T) & 1
            return (1 - 2 * parity).astype(np.float32)
    raise ValueError(f"unknown lift {kind!r}")
