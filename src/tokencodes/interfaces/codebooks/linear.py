"""A redundant binary code: more bits than the ids need (ours: the paper's weakness 4)."""

from __future__ import annotations  # so that NumPy is imported when codes are made, not when a config is read

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from tokencodes.interfaces.codebook import Codebook
from tokencodes.interfaces.codebooks.binary import bits
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.spec import Seed

if TYPE_CHECKING:
    import numpy as np


class LinearCodebook(Codebook):
    """G c over GF(2) of the id's bits c; the first K rows of G are the identity, the others are seeded."""

    kind: Literal["linear"]
    width: int = Field(ge=2, le=512, description="bits of a code, more than ceil(log2 V)")
    seed: Seed = Field(12345, description="of G")

    examples: ClassVar = ({"width": 14}, {"width": 40, "seed": 3})

    @property
    def is_binary(self) -> bool:
        return True

    def coordinates(self, vocab_size: int) -> int:
        return self.width

    def build(self, vocabulary: Vocabulary) -> np.ndarray:
        import numpy as np

        from tokencodes.interfaces import gf2

        rows = gf2.sample_redundant(self.width, vocabulary.bits, self.seed)
        return gf2.apply(rows, bits(np.arange(vocabulary.size, dtype=np.int64), vocabulary.bits))

    def again(self, vocabulary: Vocabulary) -> np.ndarray:
        """Bit i of a token's code as the parity of row i of G and the token's number."""
        from tokencodes.interfaces import gf2

        return gf2.parities(gf2.sample_redundant(self.width, vocabulary.bits, self.seed), vocabulary.size)
