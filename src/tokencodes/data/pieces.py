"""Text to ids, many texts at a time, several times as fast as `tokenizers` and with the same ids; long texts in parts.

`tokenizers` cuts a text into pieces and merges the letters of each piece into tokens. Here the pieces of many texts are
found at once, by array operations over the classes of their characters; each piece that has not been seen before is
given to the reference's own model; and the ids of a text are those of its pieces, by table. So the merges are the
reference's whatever they are, and only the pieces are ours.

The pieces are those of SmolLM2's kind of tokenizer: each numeric character alone, and GPT-2's pattern on what is
between: a contraction ('s 't 'd 'm 'll 've 're), else a run of letters or of other characters, with a space before it
if there is one, else a run of white space, without its last character if a letter or another character follows. Whether
a piece begins at a character depends on that one and a few around it (`_begins`), so no loop over a text is needed.

`FastPath.of` says for which tokenizers that holds. Texts with a character that the reference and Python's tables class
differently, or that Python does not know, and texts that hold a control token's text, are left to the reference.

A long text is cut into parts to bound the memory, only where a piece ends in any case (CUT). So the ids of the parts
are the ids of the whole.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer, pre_tokenizers

# Places where each piece ends, whatever stands around: no piece has white space after another character; a digit is
# alone; and no piece has a letter before a mark. (The control tokens' texts have no such place either.)
CUT = re.compile(
    r"(?<=\S)(?=[ \t\n\r\u3000])|(?=[0-9])|(?<=[0-9])"
    r"|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3])(?=[\u3001\u3002\uff01\uff0c\uff1f])"
)
PART = 65_536  # characters of a part of a long text, at least; bounds memory, changes no result
LONGEST = 2**22  # characters of a part, at most: what the reference encodes in about a gigabyte

# Classes of characters. The first two are those that a space before joins; EDGE is what stands around a text.
LETTER, OTHER, NUMBER, WHITE, EDGE, UNSURE = range(6)
WHITE_SPACE = frozenset(  # the property White_Space of Unicode, the same since version 6.3
    map(
        chr,
        [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000],
    )
)
N_CODE_POINTS = 0x110000
PLANES = (0, 1, 2, 3, 14)  # those with assigned characters; private planes are left to the reference
LIKE = {LETTER: "a", OTHER: "!", WHITE: "\n"}  # a character that is surely of the class
SPACE, APOSTROPHE = ord(" "), ord("'")
CONTRACTIONS = ("s", "d", "m", "t", "ll", "ve", "re")  # after an apostrophe; none begins another

PIECES_KEPT, BYTES_KEPT = 2**20, 2**26  # at most: of pieces of which ids are remembered, and of their letters
CHUNK = 2**18  # characters whose pieces are found together: small enough for the arrays to stay in a core's cache


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


def finder(words: tuple[str, ...]) -> Callable[[str], bool]:
    """A function that tells whether a text holds one of `words`; fast for a text without their first characters."""
    firsts, pattern = {each[0] for each in words}, re.compile("|".join(map(re.escape, words)))
    return lambda text: any(first in text for first in firsts) and pattern.search(text) is not None


class FastPath:
    """The reference's ids for many texts at once, by a tokenizer of the known kind."""

    def __init__(self, tokenizer: Tokenizer, control_texts: tuple[str, ...], dtype: np.dtype):
        self.model, self.dtype = tokenizer.model, dtype
        self.has_control_text = finder(control_texts)
        self.letters = str.maketrans(dict(enumerate(byte_letters())))
        self._forget()

    @classmethod
    def of(
        cls, value: dict[str, Any], tokenizer: Tokenizer, control_texts: tuple[str, ...], dtype: np.dtype
    ) -> "FastPath | None":
        """The fast path of tokenizer.json `value`, loaded as `tokenizer`, or None if it is not of the known kind.

        It is if no normalizer changes a text before it is cut, if the pieces are those above, if the model gives a
        piece the same ids each time, and if no token but the control tokens is taken out of a text as it stands.
        """
        model = value["model"]
        if value.get("normalizer") is not None or not _known_pieces(value.get("pre_tokenizer")):
            return None
        if model.get("type") != "BPE" or model.get("dropout"):
            return None
        if {token["content"] for token in value.get("added_tokens", [])} != set(control_texts):
            return None
        if any(map(CUT.search, control_texts)):  # a cut within such a text would hide it
            return None
        return cls(tokenizer, control_texts, dtype)

    def encode(self, texts: list[str]) -> list[np.ndarray | None]:
        """Ids of each text; None for one that only the reference is sure to encode as the reference does.

        Memory is some tens of bytes for each character of all texts together.
        """
        chunks: list[_Chunk] = []
        waiting: list[int] = []
        n_waiting = 0
        for i, text in enumerate(texts):
            if text and not self.has_control_text(text):
                waiting.append(i)
                n_waiting += len(text)
            if n_waiting >= CHUNK:
                chunks += _chunks(texts, waiting)
                waiting, n_waiting = [], 0
        chunks += _chunks(texts, waiting)
        encoded = [None if text else np.empty(0, dtype=self.dtype) for text in texts]
        for i, ids in zip([i for chunk in chunks for i in chunk.which], self._ids(chunks), strict=True):
            encoded[i] = ids
        return encoded

    def _ids(self, chunks: list["_Chunk"]) -> Iterator[np.ndarray]:
        """Ids of the texts of all chunks, one text after the other."""
        if not chunks:
            return
        coded = pa.chunked_array([chunk.pieces for chunk in chunks]).dictionary_encode().chunks
        distinct = self._numbers(coded[0].dictionary.to_pylist())
        first, count = self.first[distinct], self.count[distinct]
        for chunk, pieces in zip(chunks, coded, strict=True):
            indices = np.from_dlpack(pieces.indices)  # not to_numpy, which imports pandas
            counts = count[indices]
            ends = np.cumsum(counts, dtype=np.int32)
            places = np.repeat(first[indices] - (ends - counts), counts)
            places += np.arange(len(places), dtype=np.int32)
            bounds = np.append(0, ends)[chunk.bounds]
            yield from np.split(self.ids[places], bounds[1:-1])

    def _numbers(self, pieces: list[bytes]) -> np.ndarray:
        """Places of pieces in the tables of `_forget`, int32; those that are not known are made by the reference."""
        if len(self.numbers) > PIECES_KEPT or self.n_bytes > BYTES_KEPT:
            self._forget()
        get = self.numbers.get
        numbers = np.array([get(piece, -1) for piece in pieces], dtype=np.int32)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            ids: list[list[int]] = []
            for number, i in enumerate(new.tolist(), start=len(self.numbers)):
                letters = pieces[i].decode("latin-1").translate(self.letters)
                ids.append([token.id for token in self.model.tokenize(letters)])
                self.numbers[pieces[i]] = number
                self.n_bytes += len(pieces[i])
            numbers[new] = np.arange(len(self.numbers) - len(new), len(self.numbers), dtype=np.int32)
            count = np.array([len(each) for each in ids], dtype=np.int32)
            self.first = np.append(self.first, len(self.ids) + np.cumsum(count, dtype=np.int32) - count)
            self.count = np.append(self.count, count)
            self.ids = np.append(self.ids, np.array([i for each in ids for i in each], dtype=self.dtype))
        return numbers

    def _forget(self) -> None:
        """Empty tables: the number of each known piece; by number, where its ids begin in `ids` and how many it has."""
        self.numbers: dict[bytes, int] = {}
        self.n_bytes = 0
        self.first, self.count = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
        self.ids = np.empty(0, dtype=self.dtype)


class _Chunk(NamedTuple):
    """Some texts in pieces."""

    which: list[int]  # the texts' places in the list
    pieces: pa.LargeBinaryArray  # all pieces in UTF-8, one text after the other
    bounds: np.ndarray  # pieces before each text, and all: int (n_texts + 1,)


def _chunks(texts: list[str], which: list[int]) -> list[_Chunk]:
    """One chunk of the texts at `which`, without those with a character of an unsure class; none if nothing is left."""
    if not which:
        return []
    text = "".join(texts[i] for i in which)
    utf8 = text.encode()
    ends = np.cumsum([len(texts[i]) for i in which])
    if text.isascii():
        points = np.frombuffer(utf8, dtype=np.uint8)
        classes = _classes()[:128][points]
    else:
        points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        classes = _classes()[points]
        if (unsure := np.flatnonzero(classes == UNSURE)).size:
            unsure_texts = set(np.searchsorted(ends, unsure, side="right").tolist())
            return _chunks(texts, [i for place, i in enumerate(which) if place not in unsure_texts])
    begins = np.flatnonzero(_begins(points, classes, ends))
    bounds = np.searchsorted(begins, np.append(0, ends))
    if len(points) != len(utf8):  # from characters to bytes
        begins = np.flatnonzero((np.frombuffer(utf8, dtype=np.uint8) & 0xC0) != 0x80)[begins]
    offsets = np.append(begins, len(utf8))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(utf8)]
    return [_Chunk(which, pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(begins), buffers), bounds)]


def _begins(points: np.ndarray, classes: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Whether a piece begins at each character of some texts that stand one behind the other: bool (n,).

    `points` are their code points, `classes` those points' classes (n,), `ends` where each text ends (n_texts,).
    """
    n, firsts = len(points), ends[:-1]
    before, after = np.empty_like(classes), np.empty_like(classes)
    before[1:], before[0], before[firsts] = classes[:-1], EDGE, EDGE
    after[:-1], after[ends - 1] = classes[1:], EDGE
    joined = classes <= OTHER  # with a space before
    begins = classes != before
    begins |= classes == NUMBER
    after_space = np.zeros(n, dtype=bool)
    after_space[1:] = points[:-1] == SPACE
    after_space[firsts] = False
    begins &= ~(after_space & joined)
    begins |= (classes == WHITE) & (after <= OTHER)  # the last of a run, before what is no number and no end
    at = np.flatnonzero(points == APOSTROPHE)
    if len(at := at[begins[at]]):
        end_of_text = ends[np.searchsorted(ends, at, side="right")]
        for letters in CONTRACTIONS:
            end = at + 1 + len(letters)
            fits = end <= end_of_text
            for i, letter in enumerate(letters, start=1):
                fits &= points[np.minimum(at + i, n - 1)] == ord(letter)
            begins[at[fits] + 1] = False
            begins[end[fits & (end < n)]] = True
    return begins


def _known_pieces(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Whether the pieces are those of this module: digits one by one, then GPT-2's pattern."""
    steps = (pre_tokenizer or {}).get("pretokenizers", [])
    known = [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    ]
    return [{key: value for key, value in step.items() if key != "trim_offsets"} for step in steps] == known


@functools.cache
def _classes() -> np.ndarray:
    """Each code point's class, uint8 (N_CODE_POINTS,): UNSURE unless the reference and Python agree.

    Found by trial with the versions that are installed. What Python's Unicode does not know is unsure.
    """
    classes = np.full(N_CODE_POINTS, UNSURE, dtype=np.uint8)
    for plane in PLANES:
        for point in range(plane << 16, (plane + 1) << 16):
            category = unicodedata.category(chr(point))
            if category not in ("Cn", "Cs"):
                by_category = {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)
                classes[point] = WHITE if chr(point) in WHITE_SPACE else by_category
    splitter = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    for kind in (LETTER, OTHER, NUMBER, WHITE):
        characters = list(map(chr, np.flatnonzero(classes == kind)))
        classes[list(map(ord, _elsewhere(splitter, kind, characters)))] = UNSURE
    return classes


def _elsewhere(splitter: pre_tokenizers.PreTokenizer, kind: int, characters: list[str]) -> list[str]:
    """Those of `characters` that the reference does not put in class `kind`.

    Behind one that is surely of the class, all others make one piece with it; numeric ones none with a space before.
    """
    if kind == NUMBER:
        text, expected = "".join(" " + character for character in characters), 2 * len(characters)
    else:
        text, expected = LIKE[kind] + "".join(characters), 1
    if len(splitter.pre_tokenize_str(text)) == expected:
        return []
    if len(characters) == 1:
        return characters
    half = len(characters) // 2
    return _elsewhere(splitter, kind, characters[:half]) + _elsewhere(splitter, kind, characters[half:])
