"""The vocabulary that an input interface codes: its size and, with a tokenizer, how each token is spelled."""

from dataclasses import dataclass

from tokencodes.errors import UserError


def bits_needed(vocab_size: int) -> int:
    """K = ceil(log2 V): the fewest bits that tell `vocab_size` tokens apart (paper, section on minimal codes)."""
    return max(1, (vocab_size - 1).bit_length())


@dataclass(frozen=True)
class Vocabulary:
    """V token ids, 0 to `size` - 1. `token_bytes`: the bytes that each id stands for, or None without a tokenizer."""

    size: int
    token_bytes: tuple[bytes, ...] | None = None

    @property
    def bits(self) -> int:
        """K = ceil(log2 V)."""
        return bits_needed(self.size)

    def spelling(self) -> tuple[bytes, ...]:
        """The bytes of each token. Raises UserError without a tokenizer, or if it has another number of entries."""
        if self.token_bytes is None:
            raise UserError("codebook: needs the tokens' bytes; give --tokenizer, or a code book by --codes")
        if len(self.token_bytes) != self.size:
            entries = len(self.token_bytes)
            raise UserError(f"codebook: the tokenizer has {entries} entries, vocab_size {self.size}; make them equal")
        return self.token_bytes
