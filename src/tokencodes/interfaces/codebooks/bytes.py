"""A code that sees spelling: hashed n-grams of a token's bytes (ours; after T-FREE, arXiv 2406.19223)."""

from __future__ import annotations  # so that NumPy is imported when codes are made, not when a config is read

import hashlib
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator

from tokencodes.interfaces.codebook import Codebook
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.spec import Seed

if TYPE_CHECKING:
    import numpy as np

EDGE = b"\xff"  # around a token, so that its first and last bytes have n-grams of their own; no UTF-8 text has it


class BytesCodebook(Codebook):
    """A Bloom filter of the token's bytes: each n-gram sets one of K bits by each of `n_hashes` hash functions.

    Tokens that share n-grams share bits, so that words of one stem lie close together.
    """

    kind: Literal["bytes"]
    width: int = Field(ge=8, le=65_536, description="K, positions that a hash may set")
    n_hashes: int = Field(2, ge=1, le=64, description="hash functions, the most positions that one n-gram sets")
    min_n: int = Field(1, ge=1, le=16, description="bytes of the shortest n-grams")
    max_n: int = Field(3, ge=1, le=16, description="bytes of the longest n-grams; the token as a whole is one more")
    seed: Seed = Field(12345, description="of the hash functions")

    examples: ClassVar = ({"width": 256}, {"width": 512, "n_hashes": 4, "min_n": 2, "max_n": 4, "seed": 7})
    spelled: ClassVar = True

    @model_validator(mode="after")
    def _lengths(self) -> BytesCodebook:
        if self.min_n > self.max_n:
            raise ValueError(f"min_n {self.min_n} is above max_n {self.max_n}")
        return self

    @property
    def is_binary(self) -> bool:
        return True

    def coordinates(self, vocab_size: int) -> int:
        return self.width

    def build(self, vocabulary: Vocabulary) -> np.ndarray:
        import numpy as np

        known: dict[bytes, list[int]] = {}
        codes = np.zeros((vocabulary.size, self.width), np.uint8)
        for token, spelling in enumerate(vocabulary.spelling()):
            for gram in self._grams(EDGE + spelling + EDGE):
                if gram not in known:
                    known[gram] = [self._position(gram, number) for number in range(self.n_hashes)]
                codes[token, known[gram]] = 1
        return codes

    def again(self, vocabulary: Vocabulary) -> np.ndarray:
        """Each token as the set of its positions, from one text of its bytes in hexadecimal."""
        import numpy as np

        rows = []
        for spelling in vocabulary.spelling():
            text = f"ff{spelling.hex()}ff"
            grams = {text} | {
                text[2 * start : 2 * (start + n)]
                for start in range(len(text) // 2)
                for n in range(self.min_n, self.max_n + 1)
                if start + n <= len(text) // 2
            }
            hit = {self._position(bytes.fromhex(gram), number) for gram in grams for number in range(self.n_hashes)}
            rows.append([int(position in hit) for position in range(self.width)])
        return np.array(rows, np.uint8)

    def _grams(self, text: bytes) -> set[bytes]:
        lengths = range(self.min_n, min(self.max_n, len(text)) + 1)
        return {text} | {text[start : start + n] for n in lengths for start in range(len(text) - n + 1)}

    def _position(self, gram: bytes, number: int) -> int:
        """Hash function `number` of `seed`: BLAKE2b-64 of seed, number and n-gram, modulo K."""
        key = f"tokencodes bytes seed={self.seed} hash={number} ".encode("ascii")
        return int.from_bytes(hashlib.blake2b(key + gram, digest_size=8).digest(), "little") % self.width
