"""Linear maps over GF(2): the seeded sampler of the recoding matrix A, its rank and its inverse.

A K x K matrix over GF(2) is held as K row masks: Python integers whose bit j is the entry in column j.

The sampler is ours (the paper states the seed and the constraints, not the routine). It is written down so that any
language can repeat it. Candidate number n is the low K bits of the little-endian integer that SHAKE-256 gives for the
ASCII text "tokencodes gf2 {stream} K={K} seed={seed} n={n}". Candidates of weight below w are skipped; each K
accepted candidates in a row are the rows of one trial matrix; the first trial that is invertible and whose columns
all have weight at least w is A. So A is uniform over all matrices that satisfy the constraints. w is min(min_weight,
K - 1) (1 for K = 1), since K - 1 is the largest weight that every row and column of an invertible matrix can have at
least: all-ones rows are equal, while the rows 1 - e_1, ..., 1 - e_{K-1}, 1 are independent.
"""

import hashlib
from collections.abc import Iterator

import numpy as np

from tokencodes.errors import UserError

MAX_CANDIDATES = 5_000_000  # a constraint that is not met by then (about 10 s) is one that K does not allow


def candidates(stream: str, width: int, seed: int) -> Iterator[int]:
    """Endless uniform `width`-bit integers, a pure function of (stream, width, seed, position)."""
    n_bytes, mask = (width + 7) // 8, (1 << width) - 1
    n = 0
    while True:
        text = f"tokencodes gf2 {stream} K={width} seed={seed} n={n}"
        yield int.from_bytes(hashlib.shake_256(text.encode("ascii")).digest(n_bytes), "little") & mask
        n += 1


def weight_bound(width: int, min_weight: int) -> int:
    """The weight that every row and column must reach: `min_weight`, or what `width` allows if that is less."""
    return min(min_weight, max(1, width - 1))


def column_masks(rows: list[int], width: int) -> list[int]:
    """Transpose: bit i of column j is bit j of row i."""
    return [sum(((row >> j) & 1) << i for i, row in enumerate(rows)) for j in range(width)]


def rank(rows: list[int]) -> int:
    """Rank over GF(2) of the rows (a basis kept by highest bit)."""
    basis: dict[int, int] = {}
    for row in rows:
        while row and (pivot := row.bit_length()) in basis:
            row ^= basis[pivot]
        if row:
            basis[row.bit_length()] = row
    return len(basis)


def inverse(rows: list[int]) -> list[int]:
    """A^-1 by Gauss-Jordan elimination over GF(2). Raises ValueError if A is singular."""
    width = len(rows)
    left, right = list(rows), [1 << i for i in range(width)]
    for column in range(width):
        pivot = next((i for i in range(column, width) if (left[i] >> column) & 1), None)
        if pivot is None:
            raise ValueError("the matrix is singular over GF(2)")
        left[column], left[pivot] = left[pivot], left[column]
        right[column], right[pivot] = right[pivot], right[column]
        for i in range(width):
            if i != column and (left[i] >> column) & 1:
                left[i] ^= left[column]
                right[i] ^= right[column]
    return right


def sample_invertible(width: int, seed: int, min_weight: int) -> list[int]:
    """The matrix A of `seed` (module docstring): invertible, every row and column of weight >= weight_bound.

    Raises UserError if no such matrix is found (a `min_weight` so close to K that almost none exists).
    """
    bound = weight_bound(width, min_weight)
    rows: list[int] = []
    for n, candidate in enumerate(candidates("matrix", width, seed)):
        if n >= MAX_CANDIDATES:
            raise UserError(
                f"codebook.min_weight: no invertible {width} x {width} matrix over GF(2) with rows and columns of "
                f"weight >= {bound} in {MAX_CANDIDATES:,} draws of seed {seed}; lower min_weight"
            )
        if candidate.bit_count() < bound:
            continue
        rows.append(candidate)
        if len(rows) == width:
            if all(column.bit_count() >= bound for column in column_masks(rows, width)) and rank(rows) == width:
                return rows
            rows = []
    raise AssertionError("the stream of candidates has no end")


def sample_bias(width: int, seed: int) -> int:
    """A uniform b in GF(2)^K from a stream of its own, as a mask."""
    return next(candidates("bias", width, seed))


def sample_redundant(width: int, n_bits: int, seed: int) -> list[int]:
    """Row masks of a systematic generator: the first `n_bits` rows are the identity, the other `width` - `n_bits` are
    uniform non-zero combinations of the bits, without repeats until all 2^n_bits - 1 have been used."""
    rows = [1 << j for j in range(n_bits)]
    used = set(rows)
    stream = candidates("redundant", n_bits, seed)
    while len(rows) < width:
        if len(used) == (1 << n_bits) - 1:
            used.clear()
        candidate = next(stream)
        if candidate and candidate not in used:
            used.add(candidate)
            rows.append(candidate)
    return rows


def to_array(rows: list[int], width: int) -> np.ndarray:
    """Row masks as a uint8 array (len(rows), width) of 0 and 1."""
    return np.array([[(row >> j) & 1 for j in range(width)] for row in rows], dtype=np.uint8)


def apply(rows: list[int], bits: np.ndarray, bias: int = 0) -> np.ndarray:
    """A c + b over GF(2) for each code: uint8 (n, K) -> uint8 (n, len(rows)), in integers throughout."""
    matrix = to_array(rows, bits.shape[1]).astype(np.int64)
    offset = to_array([bias], len(rows)).astype(np.int64)
    return ((bits.astype(np.int64) @ matrix.T + offset) & 1).astype(np.uint8)


def parities(rows: list[int], n: int, bias: int = 0) -> np.ndarray:
    """The same for the numbers 0 to n - 1, computed with Python integers: uint8 (n, len(rows))."""
    flips = [(bias >> i) & 1 for i in range(len(rows))]
    pairs = list(zip(rows, flips, strict=True))
    return np.array([[(mask & number).bit_count() & 1 ^ flip for mask, flip in pairs] for number in range(n)], np.uint8)
