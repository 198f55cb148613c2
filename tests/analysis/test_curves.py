"""Loss curves whose gap and pace are known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencodes.analysis import curves

TOKENS = np.arange(1, 201) * 1000.0


@settings(deadline=None)
@given(st.floats(1.05, 4.0))
def test_a_model_that_takes_so_many_times_the_tokens_is_found_to(ratio):
    found = curves.behind(TOKENS, 4 + 50 / np.sqrt(TOKENS / ratio), 4 + 50 / np.sqrt(TOKENS))
    assert found.tokens_ratio == pytest.approx(ratio, rel=0.01)
    assert found.gap == pytest.approx(50 / math.sqrt(200_000) * (math.sqrt(ratio) - 1))
    assert math.isnan(found.low), "one seed has no spread"


def test_what_was_never_reached_has_no_ratio():
    a, b = 4 + 50 / np.sqrt(TOKENS), 4.5 + 50 / np.sqrt(TOKENS)
    assert math.isnan(curves.behind(TOKENS, a, b).tokens_ratio)
    assert curves.behind(TOKENS, a, a).tokens_ratio == 1
    assert math.isnan(curves.tokens_to_reach(TOKENS, a, a[0] + 1)), "met before the first measurement"
    assert curves.tokens_to_reach(TOKENS, np.array([5.0, 4.0, 4.5]), 4.25) == pytest.approx(1750)


def test_the_gap_has_students_interval_over_seeds():
    base = 4 + 50 / np.sqrt(TOKENS)
    found = curves.behind(TOKENS, base + np.array([[0.1], [0.2], [0.3]]), np.stack([base] * 3))
    assert (found.seeds, found.gap) == (3, pytest.approx(0.2))
    assert (found.low, found.high) == pytest.approx(
        (0.2 - 4.302653 * 0.1 / math.sqrt(3), 0.2 + 4.302653 * 0.1 / 3**0.5)
    )


def test_nan_is_not_hidden():
    a = np.array([5.0, 4.0, math.nan])
    assert math.isnan(curves.behind(TOKENS[:3], a, a).gap)
