"""The fixed code book: one code a token, V x K, a pure function of the config.

Binary codes are uint8 (0 or 1); continuous ones float32. A code is looked up by integer id and never goes through
floating point on its way.
"""

import hashlib
from pathlib import Path

import numpy as np

from tokencodes.errors import UserError
from tokencodes.files import atomic_path
from tokencodes.interfaces import gf2
from tokencodes.interfaces.spec import Codebook, CodeInterface, TableInterface
from tokencodes.interfaces.vocabulary import bits_needed


def width(spec: Codebook, vocab_size: int) -> int:
    """The number of coordinates K of a code: what the config says, or ceil(log2 V)."""
    return spec.width if spec.width is not None else bits_needed(vocab_size)


def binary(ids: np.ndarray, n_bits: int) -> np.ndarray:
    """Little-endian bits, c_j(t) = floor(t / 2^j) mod 2 (paper, Binary16): int64 (n,) -> uint8 (n, n_bits)."""
    return ((ids[:, None] >> np.arange(n_bits, dtype=np.int64)) & 1).astype(np.uint8)


def permutation(vocab_size: int, seed: int) -> np.ndarray:
    """A seeded random order of the ids, int64 (V,): ids sorted by BLAKE2b-64 of (seed, id) (a control of ours)."""

    def key(token: int) -> bytes:
        return hashlib.blake2b(f"tokencodes permutation seed={seed} id={token}".encode("ascii"), digest_size=8).digest()

    return np.array(sorted(range(vocab_size), key=lambda token: (key(token), token)), dtype=np.int64)


def build(interface: CodeInterface, vocab_size: int) -> np.ndarray | None:
    """The code book (V, K): uint8 for binary codes, float32 for `gaussian`; None for `learned`, which is a parameter.

    Row t is the code of token t; with a permutation seed, the code that token permutation[t] would have had.
    """
    spec = interface.codebook
    n_coordinates = width(spec, vocab_size)
    ids = np.arange(vocab_size, dtype=np.int64)
    if interface.permutation_seed is not None:
        ids = permutation(vocab_size, interface.permutation_seed)
    match spec.kind:
        case "binary":
            return binary(ids, n_coordinates)
        case "gf2":
            rows = gf2.sample_invertible(n_coordinates, spec.seed, spec.min_weight)
            bias = gf2.sample_bias(n_coordinates, spec.seed) if spec.random_bias else 0
            return gf2.apply(rows, binary(ids, n_coordinates), bias)
        case "linear":
            n_bits = bits_needed(vocab_size)
            return gf2.apply(gf2.sample_redundant(n_coordinates, n_bits, spec.seed), binary(ids, n_bits))
        case "gaussian":
            stream = np.random.Generator(np.random.Philox(key=spec.seed))
            return stream.standard_normal((vocab_size, n_coordinates), dtype=np.float32)[ids]
        case "learned":
            return None


def command(interface: TableInterface | CodeInterface, vocab_size: int, name: str, out: Path) -> None:
    """`tokencodes codes`: write the code book as .npy."""
    codes = build(interface, vocab_size) if isinstance(interface, CodeInterface) else None
    if codes is None:
        raise UserError(f"interface {name!r} has no fixed code book: its input is trained; name a fixed one")
    with atomic_path(out) as temporary, open(temporary, "wb") as file:
        np.save(file, codes)
    print(f"{out}: {codes.shape[0]} x {codes.shape[1]} {codes.dtype}")
