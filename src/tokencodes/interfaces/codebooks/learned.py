"""A trained code under a fixed lift (ours: the paper's weakness 8)."""

from __future__ import annotations  # so that NumPy is imported when codes are made, not when a config is read

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from tokencodes.interfaces.codebook import MAX_WIDTH, Codebook
from tokencodes.interfaces.vocabulary import Vocabulary

if TYPE_CHECKING:
    import numpy as np


class LearnedCodebook(Codebook):
    """A trainable V x K code under a fixed lift: separates fixedness from dimension."""

    kind: Literal["learned"]
    width: int = Field(ge=1, le=MAX_WIDTH, description="coordinates of a code")

    examples: ClassVar = ({"width": 9},)
    trained: ClassVar = True

    @property
    def is_binary(self) -> bool:
        return False

    def coordinates(self, vocab_size: int) -> int:
        return self.width

    def build(self, vocabulary: Vocabulary) -> np.ndarray:
        raise TypeError("a learned code is a parameter of the model: there is no code book to build")

    def again(self, vocabulary: Vocabulary) -> np.ndarray:
        raise TypeError("a learned code is a parameter of the model: there is no code book to compare")
