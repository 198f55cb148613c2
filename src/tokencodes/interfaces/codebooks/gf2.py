"""The paper's GF2: the bits of the token id under an invertible map over GF(2)."""

from __future__ import annotations  # so that NumPy is imported when codes are made, not when a config is read

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from tokencodes.interfaces.codebook import Codebook
from tokencodes.interfaces.codebooks.binary import bits
from tokencodes.interfaces.vocabulary import Vocabulary, bits_needed
from tokencodes.spec import Seed

if TYPE_CHECKING:
    import numpy as np


class GF2Codebook(Codebook):
    """The bits of the token id times an invertible matrix A over GF(2), plus b (paper: GF2)."""

    kind: Literal["gf2"]
    width: int | None = Field(None, ge=1, le=62, description="K; null means ceil(log2 V) (paper)")
    seed: Seed = Field(12345, description="of A and b (paper: 12345)")
    min_weight: int = Field(
        4, ge=1, le=62, description="ones in every row and column of A, at least (paper: 4; a small K allows less)"
    )
    random_bias: bool = Field(False, description="add a random b (paper: b = 0)")

    examples: ClassVar = ({}, {"width": 12, "seed": 7, "random_bias": True}, {"min_weight": 2})
    structure: ClassVar = "gf2_map"

    @property
    def is_binary(self) -> bool:
        return True

    def coordinates(self, vocab_size: int) -> int:
        return self.width if self.width is not None else bits_needed(vocab_size)

    def build(self, vocabulary: Vocabulary) -> np.ndarray:
        import numpy as np

        from tokencodes.interfaces import gf2

        width = self.coordinates(vocabulary.size)
        rows = gf2.sample_invertible(width, self.seed, self.min_weight)
        return gf2.apply(rows, bits(np.arange(vocabulary.size, dtype=np.int64), width), self._bias(width))

    def again(self, vocabulary: Vocabulary) -> np.ndarray:
        """Bit i of a token's code as the parity of row i of A and the token's number, plus bit i of b."""
        from tokencodes.interfaces import gf2

        width = self.coordinates(vocabulary.size)
        masks = gf2.sample_invertible(width, self.seed, self.min_weight)
        return gf2.parities(masks, vocabulary.size, self._bias(width))

    def _bias(self, width: int) -> int:
        from tokencodes.interfaces import gf2

        return gf2.sample_bias(width, self.seed) if self.random_bias else 0

    def examine(self, codes: np.ndarray) -> str:
        """Read A and b off the stored values alone; then judge rank, weights and b."""
        import numpy as np

        from tokencodes.interfaces import gf2

        codes = codes.astype(np.int64)
        vocab_size, width = codes.shape
        bias = codes[0]  # c(0) = 0, so its code is b
        shown = [
            int("".join(str(bit) for bit in (codes[1 << j] ^ bias)[::-1]), 2)
            for j in range(bits_needed(vocab_size))
            if 1 << j < vocab_size
        ]
        rows = gf2.sample_invertible(width, self.seed, self.min_weight)
        columns = gf2.column_masks(rows, width)
        if shown != columns[: len(shown)]:
            raise ValueError("the map that the code book shows is not A of the seed")
        if bias.any() and not self.random_bias:
            raise ValueError(f"b is {bias.tolist()}, expected 0")
        rank, bound = gf2.rank(rows), gf2.weight_bound(width, self.min_weight)
        if rank != width:
            raise ValueError(f"A has rank {rank} of {width}")
        weight = min(mask.bit_count() for mask in (*rows, *columns))
        if weight < bound:
            raise ValueError(f"a row or column of A has weight {weight}, below {bound}")
        return f"rank {rank}, smallest row or column weight {weight}, b = {'random' if self.random_bias else 0}"
