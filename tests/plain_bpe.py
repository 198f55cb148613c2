"""What encoders are compared with: BPE written out plainly, and `tokenizers`; and texts that are hard for them."""

import functools
import itertools
import json
import unicodedata

import regex
from hypothesis import strategies as st

from tokencodes.data.encoder import Encoder

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # all planes, unassigned code points too
ASSIGNED = st.characters(exclude_categories=["Cs", "Cn"])  # the same in all versions of Unicode since Python's
AWKWARD = st.lists(
    st.one_of(
        st.sampled_from([" ", "  ", "\t", "\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u3000", "\u200b"]),
        st.sampled_from(["1", "12", "²", "½", "Ⅷ", "٣", "'s", "'ll", "a", "ß", "日本", "é", "e\u0301", "🙂", "\x00"]),
        st.sampled_from(["\x04", "\x06", "\x13", "\x14", "\x16", "\x1d", "\U000e0041", "\U0010ffff", "\ufeff"]),
        st.text(ASSIGNED, max_size=4),
    ),
    max_size=12,
).map("".join)
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<jupyter_code>", "<empty_output>"]
WITH_CONTROLS = st.lists(st.one_of(st.sampled_from(CONTROLS), AWKWARD), max_size=5).map("".join)


@functools.cache
def letters() -> str:
    """Letter of each byte, as GPT-2 has it: bytes that print stand for themselves, the others follow from U+0100."""
    printable = [b for b in range(256) if unicodedata.category(chr(b))[0] not in "CZ"]
    others = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return "".join(table[b] for b in range(256))


GPT2 = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+"
    r"|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+"
)
DIGIT = regex.compile(r"(\p{N})")


def pieces(text: str) -> list[str]:
    """Digits one by one, the rest by GPT-2's rule."""
    return [piece for part in DIGIT.split(text) for piece in GPT2.findall(part)]


class PlainBPE:
    """Merge the pair of the lowest rank until there is none: the definition, with no trick."""

    def __init__(self, value: dict):
        self.vocab = value["model"]["vocab"]
        self.rank = {tuple(merge): i for i, merge in enumerate(value["model"]["merges"])}
        self.known = {}

    def piece(self, piece: str) -> list[int]:
        if piece not in self.known:
            parts = [letter for letter in (letters()[b] for b in piece.encode()) if letter in self.vocab]
            while True:
                ranks = [self.rank.get(pair, len(self.rank)) for pair in itertools.pairwise(parts)]
                if not ranks or min(ranks) == len(self.rank):
                    break
                at = ranks.index(min(ranks))
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            self.known[piece] = [self.vocab[part] for part in parts]
        return self.known[piece]

    def encode(self, text: str) -> list[int]:
        return [i for piece in pieces(text) for i in self.piece(piece)]


def by_reference(encoder: Encoder, texts: list[str]) -> list[list[int]]:
    return [each.ids for each in encoder.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def same(encoder: Encoder, texts: list[str]) -> None:
    for text, ids, expected in zip(texts, encoder.encode_batch(texts), by_reference(encoder, texts), strict=True):
        assert ids.tolist() == expected, repr(text[:200])


def changed(value, change) -> dict:
    value = json.loads(json.dumps(value))
    change(value)
    return value
