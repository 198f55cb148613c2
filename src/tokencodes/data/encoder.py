"""Text to ids at several times the pace of `tokenizers`, with the same ids; and long texts in parts.

The fast path is tiktoken with the ranks of our own tokenizer.json. It is used for a tokenizer of SmolLM2's kind alone
(`FastPath.of` says which conditions it needs and why they are enough), and for a text only if nothing in it could make
the two differ (`FastPath.can`). All else goes to the reference, `tokenizers`.

Why equal. (1) Pieces: splitting off each numeric character and then applying GPT-2's pattern to what is between is one
pattern, PATTERN: a run of white space is taken whole before a numeric character, as it is at the end of a text. Both
libraries carry tables of Unicode of their own; characters that they, or Python, class differently are never sent here.
(2) Merges: tiktoken joins any two neighbours whose union is a token, the reference only the pair of a merge. Let ids
rise in the order of the merges, each with both its parts below it, and let each token's own letters encode to it. When
two neighbours are joined to a token, all merges of lower ids are done and none of them crossed either end, so between
the ends stands what would stand there if the token's letters were alone: the pair of its merge.

Why parts. A text is cut only where every piece ends (CUT), so the ids of the parts are the ids of the whole.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import tiktoken
from tokenizers import Tokenizer, pre_tokenizers

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++|\s+(?![^\s\p{N}])|\s"

# Places where each piece ends, whatever stands around: no piece has white space after another character; a digit is
# alone; and no piece has a letter before a mark. (The control tokens' texts have no such place either.)
CUT = re.compile(
    r"(?<=\S)(?=[ \t\n\r\u3000])|(?=[0-9])|(?<=[0-9])"
    r"|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3])(?=[\u3001\u3002\uff01\uff0c\uff1f])"
)
PART = 65_536  # characters of a part of a long text, at least; bounds memory, changes no result
# The longest part that tiktoken gets: it remembers each character of a run of white space and gives up at a million.
LONGEST = 2 * PART

WHITE_SPACE = frozenset(  # the property White_Space of Unicode, the same since version 6.3
    map(
        chr,
        [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000],
    )
)
N_CODE_POINTS = 0x110000
PLANES = (0, 1, 2, 3, 14)  # those with assigned characters; private planes are left to the reference
CLASSES = {"L": r"\P{L}", "N": r"\P{N}", "S": r"\S", "other": r"[\s\p{L}\p{N}]"}  # and tiktoken's for "not of it"
MODEL_OPTIONS = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)


def byte_letters() -> list[str]:
    """The letter that byte-level BPE writes for each byte: itself if it prints in Latin-1, else one from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def parts(text: str, size: int = PART) -> Iterator[str]:
    """The text cut into parts of at least `size` characters, at the first place after that where every piece ends.

    A text without such a place is one part: a word of 100 million letters is one piece, and nothing can cut it.
    """
    start = 0
    while len(text) - start > size and (cut := CUT.search(text, start + size)) and cut.start() < len(text):
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


class FastPath:
    """tiktoken in the place of the reference, for the texts that `can` lets through."""

    def __init__(self, ranks: dict[bytes, int], control_texts: tuple[str, ...], missing_bytes: bytes):
        self.encoding = tiktoken.Encoding("fast", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
        self.control = re.compile("|".join(map(re.escape, control_texts))) if control_texts else None
        self.unfit = _uncertain().copy()  # by code point
        self.unfit[_made_of(missing_bytes)] = True

    @classmethod
    def of(
        cls, value: dict[str, Any], tokenizer: Tokenizer, control_texts: tuple[str, ...], missing_bytes: bytes
    ) -> "FastPath | None":
        """The fast path of tokenizer.json `value`, loaded as `tokenizer`, or None if it is not of the known kind."""
        model, added = value["model"], value.get("added_tokens", [])
        if value.get("normalizer") is not None or not _known_pieces(value.get("pre_tokenizer")):
            return None
        if model.get("type") != "BPE" or any(model.get(option) for option in MODEL_OPTIONS):
            return None
        names = {token["content"] for token in added}
        if names != set(control_texts):  # one that is not special is taken out of a text as it stands
            return None
        vocab = {token: i for token, i in model["vocab"].items() if token not in names}
        if not _proper(vocab, model["merges"], tokenizer):
            return None
        bytes_of = {letter: byte for byte, letter in enumerate(byte_letters())}
        ranks = {bytes(bytes_of[letter] for letter in token): i for token, i in vocab.items()}
        return cls(ranks, control_texts, missing_bytes)

    def can(self, text: str) -> bool:
        """Whether the text is surely encoded as by the reference.

        Not so with a control token's text, a byte without a token, a character whose class is not sure, or if it is
        so long that tiktoken could give up.
        """
        if len(text) > LONGEST or (self.control and self.control.search(text)):
            return False
        return not self.unfit[np.frombuffer(text.encode("utf-32-le"), dtype="<u4")].any()

    def encode(self, text: str) -> list[int]:
        """Ids of a text that `can` let through."""
        return self.encoding.encode_ordinary(text)


def _known_pieces(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Whether PATTERN makes the same pieces: digits one by one, then GPT-2's pattern."""
    steps = (pre_tokenizer or {}).get("pretokenizers", [])
    known = [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    ]
    return [{key: value for key, value in step.items() if key != "trim_offsets"} for step in steps] == known


def _proper(vocab: dict[str, int], merges: list, tokenizer: Tokenizer) -> bool:
    """Whether tiktoken's rule of merging comes to the same as the merges: (2) of this module's docstring."""
    letters, last, made = set(byte_letters()), -1, set()
    for merge in merges:
        left, right = merge if isinstance(merge, list) else merge.split(" ")
        if not {left, right, left + right} <= vocab.keys():
            return False
        own = vocab[left + right]
        if own <= max(last, vocab[left], vocab[right]):
            return False
        last = own
        made.add(left + right)
    if made != {token for token in vocab if len(token) > 1} or not all(letters.issuperset(token) for token in vocab):
        return False
    return all([part.id for part in tokenizer.model.tokenize(token)] == [i] for token, i in vocab.items())


def _made_of(missing: bytes) -> np.ndarray:
    """Code points whose UTF-8 holds one of the bytes `missing`; none of a surrogate."""
    if not missing:
        return np.empty(0, dtype=np.int64)
    absent = np.zeros(256, dtype=bool)
    absent[list(missing)] = True
    points = np.arange(N_CODE_POINTS)
    last, third, second = (0x80 | (points >> shift) & 0x3F for shift in (0, 6, 12))
    forms = (  # first code point beyond, its bytes
        (0x80, (points,)),
        (0x800, (0xC0 | points >> 6, last)),
        (0x10000, (0xE0 | points >> 12, third, last)),
        (N_CODE_POINTS, (0xF0 | points >> 18, second, third, last)),
    )
    found, start = np.zeros(N_CODE_POINTS, dtype=bool), 0
    for end, made in forms:
        for byte in made:
            found[start:end] |= absent[byte[start:end]]
        start = end
    return np.flatnonzero(found)


@functools.cache
def _uncertain() -> np.ndarray:
    """By code point, bool: the reference, tiktoken and Python do not all put it in the same class of PATTERN.

    Found by trial with the versions that are installed. What Python's Unicode does not know is uncertain.
    """
    uncertain = np.ones(N_CODE_POINTS, dtype=bool)
    classes: dict[str, list[str]] = {name: [] for name in CLASSES}
    for plane in PLANES:
        for character in map(chr, range(plane << 16, (plane + 1) << 16)):
            category = unicodedata.category(character)
            if category not in ("Cn", "Cs"):
                name = category[0] if category[0] in "LN" else "S" if character in WHITE_SPACE else "other"
                classes[name].append(character)
    one_by_one = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    every_byte = {bytes([byte]): byte for byte in range(256)}
    for name, characters in classes.items():
        others = tiktoken.Encoding(name, pat_str=CLASSES[name], mergeable_ranks=every_byte, special_tokens={})
        text = "".join(characters)
        odd = set(bytes(others.encode_ordinary(text)).decode())  # what does not match the pattern gives no id
        uncertain[[ord(character) for character in characters if character not in odd]] = False
        odd = _elsewhere(one_by_one, name, characters)
        uncertain[[ord(character) for character in odd]] = True
    return uncertain


def _elsewhere(splitter: pre_tokenizers.PreTokenizer, name: str, characters: list[str]) -> list[str]:
    """Those of `characters` that the reference does not put in class `name`.

    Behind one that is surely of the class, all others make one piece with it; numeric ones none with a space before.
    """
    if name == "N":
        text, expected = "".join(" " + character for character in characters), 2 * len(characters)
    else:
        text, expected = {"L": "a", "S": "\n", "other": "!"}[name] + "".join(characters), 1
    if len(splitter.pre_tokenize_str(text)) == expected:
        return []
    if len(characters) == 1:
        return characters
    half = len(characters) // 2
    return _elsewhere(splitter, name, characters[:half]) + _elsewhere(splitter, name, characters[half:])
