"""The vocabulary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokencodes.errors import UserError
from tokencodes.interfaces.vocabulary import Vocabulary, bits_needed


@given(vocab_size=st.integers(2, 2**40))
def test_the_fewest_bits_are_the_ceiling_of_the_binary_logarithm(vocab_size):
    width = bits_needed(vocab_size)
    assert 2**width >= vocab_size and (width == 1 or 2 ** (width - 1) < vocab_size)


def test_a_spelling_must_be_there_and_have_every_token():
    assert Vocabulary(2, (b"a", b"b")).spelling() == (b"a", b"b")
    with pytest.raises(UserError, match="give --tokenizer"):
        Vocabulary(2).spelling()
    with pytest.raises(UserError, match="has 1 entries, vocab_size 2"):
        Vocabulary(2, (b"a",)).spelling()
