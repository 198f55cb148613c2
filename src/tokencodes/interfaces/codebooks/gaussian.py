"""Fixed continuous codes (ours: the paper's weakness 3)."""

from __future__ import annotations  # so that NumPy is imported when codes are made, not when a config is read

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from tokencodes.interfaces.codebook import MAX_WIDTH, Codebook
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.spec import Seed

if TYPE_CHECKING:
    import numpy as np


class GaussianCodebook(Codebook):
    """Independent standard normal coordinates, drawn once by Philox (Salmon et al., 2011) and never trained."""

    kind: Literal["gaussian"]
    width: int = Field(ge=1, le=MAX_WIDTH, description="coordinates of a code; d_model gives frozen rows of full rank")
    seed: Seed = Field(12345, description="of the coordinates")

    examples: ClassVar = ({"width": 9}, {"width": 32, "seed": 1})

    @property
    def is_binary(self) -> bool:
        return False

    def coordinates(self, vocab_size: int) -> int:
        return self.width

    def build(self, vocabulary: Vocabulary) -> np.ndarray:
        import numpy as np

        return self._stream().standard_normal((vocabulary.size, self.width), dtype=np.float32)

    def again(self, vocabulary: Vocabulary) -> np.ndarray:
        """The same stream, one token at a time."""
        import numpy as np

        stream = self._stream()
        return np.stack([stream.standard_normal(self.width, dtype=np.float32) for _ in range(vocabulary.size)])

    def _stream(self) -> np.random.Generator:
        import numpy as np

        return np.random.Generator(np.random.Philox(key=self.seed))
