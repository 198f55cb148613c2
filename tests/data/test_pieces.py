"""Pieces found by array operations: the ids are the reference's, whatever the text and wherever it is cut."""

import json
import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from plain_bpe import by_reference, changed, same
from tokencodes.data import pieces
from tokencodes.data.encoder import Encoder

N_FUZZ = 100_000
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\xa0", "\u2028", "\u3000", "\u200b"]
BITS = [
    "'s",
    "'ll",
    "'",
    "don't",
    "<|im_start|>",
    "<|endoftext|>",
    "<|im",
    "_start|>",
    "the ",
    " of",
    "...",
    "日本語。",
]
NUMERIC = [chr(o) for o in range(0x110000) if unicodedata.category(chr(o))[0] == "N"]
ANYTHING = st.lists(
    st.one_of(st.sampled_from(SPACES + BITS + NUMERIC[:40]), st.text(st.characters(exclude_categories=["Cs"]))),
    max_size=12,
).map("".join)
many = hypothesis_settings(max_examples=300, deadline=None)


def fuzz(draw: random.Random) -> str:
    """Any of all planes, control bytes, runs of white space, numbers of all scripts, words, control tokens' texts."""
    made = []
    for _ in range(draw.randint(1, 12)):
        match draw.randrange(7):
            case 0:
                made.append(chr(draw.choice([*range(0x80), 0x85, 0xA0])))
            case 1:
                made.append(draw.choice(SPACES) * draw.randint(1, 5))
            case 2:
                made.append(draw.choice(NUMERIC))
            case 3:
                made.append(draw.choice(BITS))
            case 4:
                made.append("".join(chr(draw.randrange(0x20, 0x3000)) for _ in range(draw.randint(1, 4))))
            case 5:
                made.append(chr(draw.choice([draw.randrange(0x3000, 0xD800), draw.randrange(0xE000, 0x20000)])))
            case 6:
                made.append(chr(draw.randrange(0x20000, 0x110000)))
    return "".join(made)


def by_fast(encoder: Encoder, texts: list[str]) -> list[bool]:
    """Whether each goes the fast way."""
    return [ids is not None for ids in encoder.fast.encode(texts)]


def test_real_text(encoder, speeches):
    texts = [text.decode() for text in speeches.values()]
    assert all(by_fast(encoder, [part for text in texts for part in pieces.parts(text)]))
    same(encoder, texts)


def test_fuzz(encoder):
    draw = random.Random(encoder.vocab_size)
    texts = [fuzz(draw) for _ in range(N_FUZZ)]
    assert N_FUZZ // 10 < sum(by_fast(encoder, texts)) < N_FUZZ * 9 // 10  # both ways are gone
    same(encoder, texts)


@pytest.mark.parametrize("around", [("x", "x"), (" ", "a"), ("  ", "!"), ("\n", "\n "), ("1", " 1"), ("'", "s")])
def test_every_numeric_white_or_control_character(encoder, around):
    odd = [*NUMERIC, *pieces.WHITE_SPACE, *map(chr, range(0x20)), *map(chr, range(0x7F, 0xA1)), "\u180e", "\ufeff"]
    same(encoder, [around[0] + character + around[1] for character in odd])


def test_characters_assigned_since_python_are_left_to_the_reference(encoder):
    """U+11DE0 became a digit in Unicode 17; each library learns of it in its own time."""
    if unicodedata.category("\U00011de0") == "Cn":
        assert by_fast(encoder, ["a \U00011de0"]) == [False]
    same(encoder, ["a \U00011de0\U00011de1b", "  \U00016ff4", "x\U00016ff6y"])


def test_what_is_left_to_the_reference(encoder):
    sure = [
        "Plain text, with 12 digits – and a dash. Ünïcödé 日本",
        "a\x04b has no token for the byte",
        "a <|endoftext",
        "",
    ]
    unsure = ["a <|endoftext|>", "\U00040000", "\u0378", "\U000f0000"]
    for texts, expected in ((sure, True), (unsure, False), (sure * 2, True)):
        assert by_fast(encoder, texts) == [expected] * len(texts)
    mixed = [text for pair in zip(sure, unsure, strict=True) for text in pair]
    assert by_fast(encoder, mixed) == [True, False] * 4
    same(encoder, mixed)


def contractions():
    around = ["", " ", "a", "1", "!", "\n", "'", "é"]
    letters = ["s", "t", "re", "ve", "m", "ll", "d", "l", "v", "r", "S", "\u017f", "sa", "lls", "'s", "ré", ""]
    return [before + "'" + letter + after for before in around for letter in letters for after in around]


def test_every_kind_of_contraction(encoder):
    same(encoder, contractions())


def test_texts_together_are_texts_alone(encoder, monkeypatch):
    """Whatever stands before and behind a text in the same chunk, at whatever bounds."""
    texts = [*contractions(), " ", "\n", "1", "a", "é", "", "\u0378", "'", " '"]
    random.Random(0).shuffle(texts)
    for chunk in (1, 3, 50, pieces.CHUNK):
        monkeypatch.setattr(pieces, "CHUNK", chunk)
        same(encoder, texts)


def test_the_table_of_pieces_may_run_over(encoder, monkeypatch, speeches):
    monkeypatch.setattr(pieces, "PIECES_KEPT", 500)
    texts = [text.decode()[:20_000] for text in list(speeches.values())[:12]]
    for text in texts:
        same(encoder, [text])
    assert len(encoder.fast.numbers) < 500 + 6_000
    monkeypatch.setattr(pieces, "BYTES_KEPT", 100_000)
    for i in range(30):  # long pieces count by their letters
        same(encoder, [" ".join(chr(97 + (i + j) % 26) * (5_000 + i) for j in range(4))])
    assert encoder.fast.n_bytes < 100_000 + 30_000


@pytest.mark.parametrize("what", [" ", "\n", "a", "=", "\u3000", "ab ", "é", "' ", " \n"])
@pytest.mark.parametrize("end", ["", "x", " ", "1"])
def test_long_runs(encoder, what, end):
    same(encoder, [what * (length // len(what)) + end for length in (600, 20_000)])


@many
@given(st.lists(ANYTHING, max_size=20).map("".join), st.integers(1, 60))
def test_parts_are_the_text_and_their_ids_its_ids(encoder, text, size):
    found = list(pieces.parts(text, size))
    assert "".join(found) == text and all(len(part) >= size for part in found[:-1])
    assert [i for ids in by_reference(encoder, found) for i in ids] == by_reference(encoder, [text])[0]


def test_real_text_in_parts_of_any_size(encoder, speeches):
    text = " ".join(each.decode() for each in list(speeches.values())[:4])[:60_000]
    [whole] = by_reference(encoder, [text])
    for size in (1, 7, 100, 4096):
        found = list(pieces.parts(text, size))
        assert [i for ids in by_reference(encoder, found) for i in ids] == whole and len(found) > len(text) // (
            size + 40
        )


def test_white_space_of_python_is_no_smaller_than_that_of_unicode():
    assert all(character.isspace() for character in pieces.WHITE_SPACE) and len(pieces.WHITE_SPACE) == 25


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v["pre_tokenizer"]["pretokenizers"].pop(0),
        lambda v: v["pre_tokenizer"]["pretokenizers"][0].update(individual_digits=False),
        lambda v: v["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True),
        lambda v: v.update(normalizer={"type": "NFC"}),
        lambda v: v["model"].update(dropout=0.1),
        lambda v: v["added_tokens"].append({**v["added_tokens"][0], "content": "the", "special": False}),
        lambda v: v["model"].update(type="WordPiece"),
    ],
)
def test_other_kinds_go_to_the_reference(encoder, change):
    value = json.loads(encoder.tokenizer.to_str())
    arguments = encoder.tokenizer, encoder.control_texts, np.dtype(np.uint16)
    assert pieces.FastPath.of(value, *arguments) is not None
    assert pieces.FastPath.of(changed(value, change), *arguments) is None


def test_no_text_of_a_control_token_can_be_cut(encoder):
    assert not any(map(pieces.CUT.search, encoder.control_texts))
    value = changed(
        json.loads(encoder.tokenizer.to_str()),
        lambda v: [token.update(content=f"<|reserved {i}|>") for i, token in enumerate(v["added_tokens"])],
    )
    texts = tuple(token["content"] for token in value["added_tokens"])
    assert pieces.FastPath.of(value, encoder.tokenizer, texts, np.dtype(np.uint16)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v["model"].update(ignore_merges=True),
        lambda v: v["model"]["merges"].insert(0, v["model"]["merges"].pop(1)),
        lambda v: v["model"]["merges"].pop(100),
    ],
)
def test_the_merges_are_the_reference_s_whatever_they_are(encoder, change, tmp_path, speeches):
    value = changed(json.loads(encoder.tokenizer.to_str()), change)
    other = Tokenizer.from_str(json.dumps(value))
    other.encode_special_tokens = True
    path = pieces.FastPath.of(value, other, encoder.control_texts, np.dtype(np.uint16))
    texts = [text.decode()[:30_000] for text in list(speeches.values())[:8]]
    expected = [each.ids for each in other.encode_batch_fast(texts, add_special_tokens=False)]
    assert [ids.tolist() for ids in path.encode(texts)] == expected
