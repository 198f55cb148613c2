"""The parts of the engine's batches: pieces of text to score, and rows of several inputs."""

import bisect
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """One scored piece of text: the model reads `inputs`, and the last len(targets) positions predict `targets`."""

    inputs: tuple[int, ...]
    targets: tuple[int, ...]
    slot: int  # number of the answer that it is part of


class Row:
    """One row of a batch: the tokens of several inputs, a common prefix once, in the order of a depth-first walk.

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
        """Whether some token does not see all tokens before it, so that the row needs a mask."""
        return any(end < len(self) for end in self.end)

    def shared(self, inputs: tuple[int, ...]) -> int:
        """Length of the prefix that an input has in common with the one before."""
        if not self.inputs:
            return 0
        last = self.inputs[-1]
        lengths = range(1, min(len(last), len(inputs)) + 1)
        return bisect.bisect_left(lengths, True, key=lambda n: last[:n] != inputs[:n])

    def add(self, inputs: tuple[int, ...]) -> None:
        """Append the tokens of an input that the one before does not share."""
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
