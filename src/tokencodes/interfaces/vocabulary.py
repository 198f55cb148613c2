"""The vocabulary that an input interface codes."""


def bits_needed(vocab_size: int) -> int:
    """K = ceil(log2 V): the fewest bits that tell `vocab_size` tokens apart (paper, section on minimal codes)."""
    return max(1, (vocab_size - 1).bit_length())
