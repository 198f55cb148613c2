"""The cases of the long tests are drawn again from their seed."""

import pytest

from drawing import cases

pytestmark = pytest.mark.long


def test_the_same_seed_draws_the_same_cases():
    first, second = ([(label, draw.random()) for label, draw in cases("x", 20)] for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first)
