"""Fixed continuous codes (ours: the paper's weakness 3)."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from tokencodes.interfaces.codebook import Codebook
from tokencodes.interfaces.vocabulary import Vocabulary


class GaussianCodebook(Codebook):
    """Independent standard normal coordinates, drawn once by Philox (Salmon et al., 2011) and never trained."""

    kind: Literal["gaussian"]
    width: int = Field(ge=1, description="coordinates of a code; d_model gives frozen rows of full rank")
    seed: int = Field(12345, ge=0, description="of the coordinates")

    examples: ClassVar = ({"width": 9}, {"width": 32, "seed": 1})

    @property
    def is_binary(self) -> bool:
        return False

    def coordinates(self, vocab_size: int) -> int:
        return self.width

    def build(self, vocabulary: Vocabulary) -> np.ndarray:
        return self._stream().standard_normal((vocabulary.size, self.width), dtype=np.float32)

    def again(self, vocabulary: Vocabulary) -> np.ndarray:
        """The same stream, one token at a time."""
        stream = self._stream()
        return np.stack([stream.standard_normal(self.width, dtype=np.float32) for _ in range(vocabulary.size)])

    def _stream(self) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self.seed))
