"""A tokenizer as the data stages use it: from texts to the ids of the reference, never to those of control tokens.

It is a module of its own, so that a change in how a tokenizer is fetched (`tokenizer`) prepares no shard again.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from tokencodes.data.manifest import MANIFEST, TokenizerManifest
from tokencodes.data.pieces import LONGEST, PART, FastPath, finder, parts
from tokencodes.data.store import token_dtype
from tokencodes.errors import UserError
from tokencodes.files import read_json, sha256_file

TOGETHER = 256 * PART  # characters encoded together: the more, the fewer look-ups per piece
REFERENCE_AT_A_TIME = 16 * PART  # characters; `tokenizers` needs some 100 bytes per token while it works


class Encoder:
    """A tokenizer that was built by `tokenizer.build`. The text of a control token is encoded as text."""

    def __init__(self, folder: Path):
        """Load the tokenizer in `folder`. Raises UserError if it is missing or not the one that its manifest states."""
        path = folder / "tokenizer.json"
        self.manifest = TokenizerManifest.read(folder / MANIFEST)
        if not path.is_file() or sha256_file(path) != self.manifest.sha256:
            raise UserError(f"{path}: missing, or changed since it was built; run `tokencodes tokenizer` again")
        self.tokenizer = Tokenizer.from_file(str(path))
        self.tokenizer.encode_special_tokens = True
        self.sha256: str = self.manifest.sha256
        self.vocab_size: int = self.manifest.vocab_size
        self.control_texts: tuple[str, ...] = tuple(self.manifest.control_tokens)
        self.has_control_text = finder(self.control_texts)  # whether a text holds the text of a control token
        self.missing_bytes = bytes(self.manifest.bytes_without_token)
        dtype = token_dtype(self.vocab_size)
        self.fast = FastPath.of(read_json(path), self.tokenizer, self.control_texts, dtype)

    def can_be_cut(self, text: str) -> bool:
        """Whether all parts of `text` are of at most LONGEST characters: it can be encoded in bounded memory."""
        return len(text) <= LONGEST or all(len(part) <= LONGEST for part in self._parts(text, PART))

    def _parts(self, text: str, size: int) -> Iterator[str]:
        """Parts of at least `size` characters that encode to the ids of the text; or the text, without a fast path."""
        return iter((text,)) if self.fast is None else parts(text, size)

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        """Ids of each text, uint16 (uint32 above 65,536 entries), equal to those of the reference."""
        encoded: list[list[np.ndarray]] = [[] for _ in texts]
        waiting: list[tuple[list[np.ndarray], str]] = []  # parts, and where their ids go
        n_waiting = 0
        for of_text, text in zip(encoded, texts, strict=True):
            for part in self._parts(text, PART):
                waiting.append((of_text, part))
                n_waiting += len(part)
                if n_waiting >= TOGETHER:
                    self._encode(waiting)
                    waiting, n_waiting = [], 0
        self._encode(waiting)
        return [arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for arrays in encoded]

    def _encode(self, waiting: list[tuple[list[np.ndarray], str]]) -> None:
        """Append the ids of each part to its list."""
        texts = [text for _, text in waiting]
        fast = [None] * len(texts) if self.fast is None else self.fast.encode(texts)
        by_reference = iter(self._by_reference([text for text, ids in zip(texts, fast, strict=True) if ids is None]))
        for (of_text, _), ids in zip(waiting, fast, strict=True):
            of_text.append(next(by_reference) if ids is None else ids)

    def _by_reference(self, texts: list[str]) -> list[np.ndarray]:
        """Ids of each text by `tokenizers`, some texts at a time."""
        arrays, start, size = [], 0, 0
        for end, text in enumerate(texts, start=1):
            size += len(text)
            if size >= REFERENCE_AT_A_TIME or end == len(texts):
                encoded = self.tokenizer.encode_batch_fast(texts[start:end], add_special_tokens=False)
                arrays += [np.array(each.ids, dtype=token_dtype(self.vocab_size)) for each in encoded]
                start, size = end, 0
        return arrays

    def reference(self, text: str) -> np.ndarray:
        """Ids of a text by `tokenizers` alone: of the whole, or of parts of REFERENCE_AT_A_TIME, cut elsewhere than
        `encode_batch` cuts."""
        return np.concatenate(self._by_reference(list(self._parts(text, REFERENCE_AT_A_TIME))))
