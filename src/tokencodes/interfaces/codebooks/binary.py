"""The paper's Binary16: the bits of the token id."""

from __future__ import annotations  # so that NumPy is imported when codes are made, not when a config is read

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from tokencodes.interfaces.codebook import Codebook
from tokencodes.interfaces.vocabulary import Vocabulary, bits_needed

if TYPE_CHECKING:
    import numpy as np


def bits(ids: np.ndarray, n_bits: int) -> np.ndarray:
    """Little-endian bits, c_j(t) = floor(t / 2^j) mod 2 (paper, Binary16): int64 (n,) -> uint8 (n, n_bits)."""
    import numpy as np

    return ((ids[:, None] >> np.arange(n_bits, dtype=np.int64)) & 1).astype(np.uint8)


class BinaryCodebook(Codebook):
    """Little-endian bits of the token id (paper: Binary16)."""

    kind: Literal["binary"]
    width: int | None = Field(None, ge=1, le=62, description="K; null means ceil(log2 V) (paper)")

    examples: ClassVar = ({}, {"width": 12})

    @property
    def is_binary(self) -> bool:
        return True

    def coordinates(self, vocab_size: int) -> int:
        return self.width if self.width is not None else bits_needed(vocab_size)

    def build(self, vocabulary: Vocabulary) -> np.ndarray:
        import numpy as np

        return bits(np.arange(vocabulary.size, dtype=np.int64), self.coordinates(vocabulary.size))

    def again(self, vocabulary: Vocabulary) -> np.ndarray:
        """From the binary digits that Python prints."""
        import numpy as np

        width = self.coordinates(vocabulary.size)
        rows = [[int(digit) for digit in f"{token:0{width}b}"[: -width - 1 : -1]] for token in range(vocabulary.size)]
        return np.array(rows, dtype=np.uint8)
