"""What a batch of the engine is made of: stretches of text to score, and rows that hold several of them."""

import bisect
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """One scored stretch: the model reads `inputs`, and the last len(targets) positions predict `targets`."""

    inputs: tuple[int, ...]
    targets: tuple[int, ...]
    slot: int  # which answer it is part of


class Row:
    """One row of a batch: the tokens of several inputs, a common beginning once, in the order of a depth-first walk.

    Inputs are added in lexicographic order. `depth` is a token's position in its input; token i may see token j if
    j <= i < end[j]. `nodes` gives the places in the row of each input's tokens.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.depth: list[int] = []
        self.end: list[int] = []
        self.nodes: list[list[int]] = []
        self.inputs: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def branches(self) -> bool:
        """Whether it is anything but one input after another's beginning."""
        return any(end < len(self) for end in self.end)

    def shared(self, inputs: tuple[int, ...]) -> int:
        """How many tokens an input has in common with the one before."""
        if not self.inputs:
            return 0
        last = self.inputs[-1]
        lengths = range(1, min(len(last), len(inputs)) + 1)
        return bisect.bisect_left(lengths, True, key=lambda n: last[:n] != inputs[:n])

    def add(self, inputs: tuple[int, ...]) -> None:
        """Append an input's tokens behind those that it shares with the one before."""
        shared, before = self.shared(inputs), len(self)
        path = self.nodes[-1][:shared] if self.nodes else []
        whole = before + len(inputs) - shared
        for node in path:
            self.end[node] = whole
        self.tokens.extend(inputs[shared:])
        self.depth.extend(range(shared, len(inputs)))
        self.end.extend([whole] * (whole - before))
        self.nodes.append([*path, *range(before, whole)])
        self.inputs.append(inputs)


def row_of(*inputs: tuple[int, ...]) -> Row:
    """A row of these inputs, in lexicographic order."""
    row = Row()
    for each in inputs:
        row.add(each)
    return row
