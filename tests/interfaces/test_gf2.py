"""The GF(2) algebra, held against NumPy's float rank and brute force, and the sampler's golden value."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencodes.errors import UserError
from tokencodes.interfaces import gf2

# A of the paper's setting (K = 16, seed 12345, weight >= 4) by the documented sampler: row masks, bit j is column j.
GOLDEN = [
    0x92FC, 0x7B8A, 0x87E6, 0x3563, 0xE410, 0x4CCE, 0x916A, 0xDAED,
    0xF4D5, 0x5082, 0xAC2D, 0x6B9D, 0xB16F, 0x5541, 0xC293, 0x4FBC,
]  # fmt: skip

matrices = st.integers(1, 10).flatmap(
    lambda width: st.lists(st.integers(0, 2**width - 1), min_size=width, max_size=width)
)


def test_golden_matrix():
    assert gf2.sample_invertible(16, 12345, 4) == GOLDEN


def test_golden_matrix_meets_the_paper_by_other_means():
    array = gf2.to_array(GOLDEN, 16)
    assert array.sum(0).min() >= 4 and array.sum(1).min() >= 4
    assert round(np.linalg.det(array.astype(float))) % 2 == 1  # odd determinant over the integers: invertible mod 2
    assert len({gf2.apply(GOLDEN, np.array([[(t >> j) & 1 for j in range(16)]])).tobytes() for t in range(512)}) == 512


@given(matrices)
def test_rank_is_the_size_of_the_span(rows):
    span = {0}
    for row in rows:
        span |= {row ^ other for other in span}
    assert 2 ** gf2.rank(rows) == len(span)


@given(matrices)
def test_inverse_undoes_and_singular_is_refused(rows):
    width = len(rows)
    if gf2.rank(rows) < width:
        with pytest.raises(ValueError, match="singular"):
            gf2.inverse(rows)
        return
    product = gf2.to_array(rows, width).astype(int) @ gf2.to_array(gf2.inverse(rows), width).astype(int) % 2
    assert (product == np.eye(width, dtype=int)).all()


@given(width=st.integers(1, 40), seed=st.integers(0, 2**32), wanted=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_samples_meet_the_constraints(width, seed, wanted):
    rows = gf2.sample_invertible(width, seed, wanted)
    bound = min(wanted, max(1, width - 1))
    assert gf2.rank(rows) == width
    assert all(mask.bit_count() >= bound for mask in (*rows, *gf2.column_masks(rows, width)))
    assert rows == gf2.sample_invertible(width, seed, wanted)
    assert all(0 <= row < 2**width for row in rows)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_bound_for_small_widths_is_the_largest_that_exists(width):
    best = 0
    for rows in itertools.product(range(2**width), repeat=width):
        if gf2.rank(list(rows)) == width:
            masks = (*rows, *gf2.column_masks(list(rows), width))
            best = max(best, min(mask.bit_count() for mask in masks))
    assert gf2.weight_bound(width, 4) == min(4, best)


def test_an_impossible_weight_is_one_clear_line():
    with pytest.raises(UserError, match="lower min_weight"):
        gf2.MAX_CANDIDATES, before = 5000, gf2.MAX_CANDIDATES
        try:
            gf2.sample_invertible(24, 0, 23)
        finally:
            gf2.MAX_CANDIDATES = before


@given(width=st.integers(1, 20), seed=st.integers(0, 1000), data=st.data())
@settings(max_examples=60, deadline=None)
def test_inverse_recovers_the_code_and_the_bias(width, seed, data):
    rows, bias = gf2.sample_invertible(width, seed, 4), gf2.sample_bias(width, seed)
    tokens = data.draw(st.lists(st.integers(0, 2**width - 1), min_size=1, max_size=20))
    bits = np.array([[(token >> j) & 1 for j in range(width)] for token in tokens], dtype=np.uint8)
    coded = gf2.apply(rows, bits, bias)
    assert (gf2.apply(gf2.inverse(rows), coded ^ gf2.to_array([bias], width)) == bits).all()
    parities = [[((row & token).bit_count() + (bias >> i)) % 2 for i, row in enumerate(rows)] for token in tokens]
    assert coded.tolist() == parities


def test_seeds_and_streams_differ():
    drawn = {tuple(gf2.sample_invertible(16, seed, 4)) for seed in range(50)}
    assert len(drawn) == 50
    assert next(gf2.candidates("matrix", 16, 1)) != next(gf2.candidates("bias", 16, 1))


@given(n_bits=st.integers(2, 12), extra=st.integers(0, 30), seed=st.integers(0, 99))
@settings(deadline=None)
def test_redundant_rows_are_systematic_and_nonzero(n_bits, extra, seed):
    rows = gf2.sample_redundant(n_bits + extra, n_bits, seed)
    assert rows[:n_bits] == [1 << j for j in range(n_bits)] and all(rows)
    first = rows[: 2**n_bits - 1]
    assert len(set(first)) == len(first)
