"""Rows of several inputs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tokencodes.evaluate.rows import Row

LONGEST = 16  # tokens of an input
ids = st.lists(st.integers(0, 2), min_size=1, max_size=LONGEST).map(tuple)


@given(inputs=st.sets(ids, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_a_row_shares_beginnings_and_nothing_else(inputs: set[tuple[int, ...]]) -> None:
    """Each distinct beginning has one place, and what a place may see is the beginning that it stands for."""
    row = Row()
    for each in sorted(inputs):
        row.add(each)
    beginnings = {each[:length] for each in inputs for length in range(1, len(each) + 1)}
    assert len(row) == len(beginnings)
    assert row.branches == (len(beginnings) > max(map(len, inputs)))
    for each, nodes in zip(row.inputs, row.nodes, strict=True):
        assert [row.depth[node] for node in nodes] == list(range(len(each)))
        seen = [node for node in range(len(row)) if node <= nodes[-1] < row.end[node]]
        assert seen == nodes
        assert tuple(row.tokens[node] for node in seen) == each
