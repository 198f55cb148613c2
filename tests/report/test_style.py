"""One colour, line and marker for each interface."""

import pytest

from tokencodes.report import style
from tokencodes.report.spec import Display


@pytest.mark.parametrize("n", [1, 8, 9, 15, 40])
def test_looks_are_distinct_whatever_their_number(n):
    names = [f"i{k}" for k in range(n)]
    for groups in ({}, {"a": names[: n // 2]}, {f"g{k}": names[k::4] for k in range(4)}):
        found = style.looks(Display(groups=groups), names)
        assert list(found) == names
        assert len({(look.colour, str(look.line), look.marker) for look in found.values()}) == n
