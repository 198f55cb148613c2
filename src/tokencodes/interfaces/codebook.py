"""What a kind of code book is: a spec that builds its own code book, and checks it by another way.

Each kind is one class in one file of `codebooks/`. Nothing else in the package names a kind.
"""

from __future__ import annotations  # so that NumPy is imported when codes are made, not when a config is read

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.spec import Strict

if TYPE_CHECKING:
    import numpy as np

MAX_WIDTH = 10**6  # coordinates of a code; a model is no wider


class Codebook(Strict, ABC):
    """One code per token, K coordinates each: the keys of a kind, and what they mean.

    A subclass has the key `kind`, a `Literal` with its one name, and examples of its other keys.
    """

    kind: str
    examples: ClassVar[tuple[dict, ...]] = ()  # keys besides `kind`, for a vocabulary of 300 tokens
    trained: ClassVar[bool] = False  # the codes are parameters: there is nothing to build
    spelled: ClassVar[bool] = False  # `build` needs the bytes of the tokens
    structure: ClassVar[str | None] = None  # the name of the check that `examine` makes, if it makes one

    @classmethod
    def examples_in(cls, folder: Path) -> list[dict]:
        """The examples; a kind that reads files writes them to `folder` first."""
        return list(cls.examples)

    @property
    def files(self) -> list[str]:
        """Files that the code book is made from."""
        return []

    @property
    @abstractmethod
    def is_binary(self) -> bool:
        """Whether all coordinates are 0 or 1 (then the code book is uint8, else float32)."""

    @abstractmethod
    def coordinates(self, vocab_size: int) -> int:
        """K, the number of coordinates."""

    @abstractmethod
    def build(self, vocabulary: Vocabulary) -> np.ndarray:
        """The code book (V, K), uint8 (0 or 1) or float32: a pure function of the keys and the vocabulary."""

    @abstractmethod
    def again(self, vocabulary: Vocabulary) -> np.ndarray:
        """The same values by another way than `build` takes: for validation."""

    def problems(self, vocab_size: int, *, shared: bool) -> list[tuple[str, str]]:
        """What is wrong with the keys for this vocabulary: pairs of a key and one line."""
        width = self.coordinates(vocab_size)
        needed = Vocabulary(vocab_size).bits
        if self.is_binary and not shared and width < needed:
            return [
                ("width", f"{width} bits cannot tell vocab_size {vocab_size} tokens apart; use at least {needed}"),
            ]
        return []

    def examine(self, codes: np.ndarray) -> str:
        """For kinds with a `structure`: what the stored values alone show. Raises ValueError for a fault."""
        raise NotImplementedError
