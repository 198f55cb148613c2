"""One raw shard in, one shard of the store out: filter, tokenise, split; every row accounted for.

Rows are read a row group at a time and tokens go to disk as they come, so memory does not grow with the shard. A row is
kept or dropped for one reason, the first that applies, in the order of REASONS; rows in = kept + dropped. Literal
control tokens in a text and bytes that have no token drop nothing; they are counted.
"""

import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokencodes import config
from tokencodes.data import store
from tokencodes.data.tokenizer import Encoder, token_dtype
from tokencodes.errors import UserError
from tokencodes.files import atomic_path, sha256_file, write_json

REASONS = (
    "null_text",
    "empty_text",
    "null_id",
    "duplicate_id",
    "invalid_utf8",
    "too_few_bytes",  # fewer bytes than min_tokens cannot make min_tokens tokens: not worth encoding
    "too_few_tokens",
)
ROWS_AT_A_TIME = 1024  # rows decoded and encoded together; bounds memory, changes no result
SECONDS_BETWEEN_LINES = 10.0


def split_key(seed: int, document_id: str) -> int:
    """BLAKE2b with an 8-byte digest over "{seed}:{id}" in UTF-8, read as a little-endian integer."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{document_id}".encode(), digest_size=8).digest(), "little")


def is_validation(key: int, threshold: float) -> bool:
    """Whether a document with this key is held out: key < threshold * 2^64 (paper: threshold 0.001)."""
    return key < threshold * 2.0**64


def rows_of(path: Path, shard: str, data: config.Data) -> Iterator[tuple[list[bytes | None], list[str | None]]]:
    """Texts (as bytes) and ids of a Parquet file, some rows at a time.

    Text may be string, large_string, string_view, binary or dictionary-encoded; an id of another type is written as its
    text. Raises UserError naming the shard, and the row group, of a damaged file, or the columns if one is missing.
    """
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"shard {shard}: {path} is not a whole Parquet file ({error}); download it again") from None
    names = file.schema_arrow.names
    for key, column in (("text_column", data.text_column), ("id_column", data.id_column)):
        if column not in names:
            raise UserError(f"shard {shard}: {path} has no column {column!r} (data.{key}); it has {', '.join(names)}")
    kind = file.schema_arrow.field(data.text_column).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(
        test(plain)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    ):
        raise UserError(f"shard {shard}: column {data.text_column!r} (data.text_column) holds {kind}, not text")
    for group in range(file.num_row_groups):
        try:
            batches = file.iter_batches(ROWS_AT_A_TIME, row_groups=[group], columns=[data.text_column, data.id_column])
            for batch in batches:
                texts = batch.column(data.text_column).cast(plain).cast(pa.large_binary())
                ids = batch.column(data.id_column)
                ids = ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids
                yield texts.to_pylist(), ids.cast(pa.large_string()).to_pylist()
        except (OSError, pa.ArrowException) as error:
            said = " ".join(str(error).split())
            raise UserError(
                f"shard {shard}: {path}, row group {group} is damaged ({said}); download it again"
            ) from None


class _Filter:
    """Which rows are worth encoding; counts the others by reason."""

    def __init__(self, data: config.Data):
        self.data, self.seen, self.rows_in = data, set(), 0
        self.dropped = dict.fromkeys(REASONS, 0)

    def __call__(self, texts: list[bytes | None], ids: list[str | None]) -> list[tuple[str, str]]:
        kept = []
        for text, name in zip(texts, ids, strict=True):
            self.rows_in += 1
            reason, decoded = self._judge(text, name)
            if reason is None:
                kept.append((name, decoded))
            else:
                self.dropped[reason] += 1
        return kept

    def _judge(self, text: bytes | None, name: str | None) -> tuple[str | None, str]:
        if text is None:
            return "null_text", ""
        if not text:
            return "empty_text", ""
        if not name:
            return "null_id", ""
        if name in self.seen:
            return "duplicate_id", ""
        self.seen.add(name)
        try:
            decoded = text.decode("utf-8")
        except UnicodeDecodeError:  # lone surrogates too: UTF-8 has no form for them
            return "invalid_utf8", ""
        return ("too_few_bytes" if len(text) < self.data.min_tokens else None), decoded


class _SplitWriter:
    """One split while it grows: tokens to a scratch file, the rest in memory."""

    def __init__(self, name: str, scratch: Path, vocab_size: int, stack: ExitStack):
        self.name, self.raw = name, scratch / f"{name}.tokens"
        self.file = stack.enter_context(open(self.raw, "wb"))
        self.ids, self.keys, self.lengths, self.max_id = [], [], [], -1
        self.unigram = np.zeros(vocab_size, dtype=np.int64)

    def add(self, name: str, key: int, tokens: np.ndarray) -> None:
        self.file.write(tokens.astype(tokens.dtype.newbyteorder("<"), copy=False).tobytes())
        self.ids.append(name)
        self.keys.append(key)
        self.lengths.append(len(tokens))
        self.max_id = max(self.max_id, int(tokens.max()))
        self.unigram += np.bincount(tokens, minlength=len(self.unigram))

    def facts(self) -> dict[str, int]:
        return {"documents": len(self.ids), "tokens": sum(self.lengths)}

    def write(self, out: Path, header: dict) -> None:
        self.file.flush()
        header = {**header, "split": self.name, **self.facts(), "max_id": self.max_id}
        store.write_split(out / f"{self.name}.arrow", self.ids, self.keys, self.lengths, self.raw, header)


def prepare_shard(settings: config.Config, shard: str, raw: Path, tokenizer: Path, out: Path) -> None:
    """Turn raw shard `raw` into `out`: train.arrow, validation.arrow, unigram.npy and, last, manifest.json.

    Raises UserError for a damaged file, a missing column, a tokenizer with another V, or if no row is kept.
    """
    data, vocab_size = settings.data, settings.model.vocab_size
    encoder = Encoder(tokenizer)
    if encoder.vocab_size != vocab_size:
        raise UserError(
            f"{tokenizer}: has {encoder.vocab_size} tokens, model.vocab_size is {vocab_size}; build it again"
        )
    assert token_dtype(vocab_size).itemsize in (2, 4)
    out.mkdir(parents=True, exist_ok=True)
    (out / store.MANIFEST).unlink(missing_ok=True)  # from here to the end the shard is not whole
    for left in out.glob(".scratch-*"):  # of an attempt that was killed
        shutil.rmtree(left, ignore_errors=True)
    keep = _Filter(data)
    n_characters = n_control = n_lost = 0
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=out, prefix=".scratch-")))
        splits = {name: _SplitWriter(name, scratch, vocab_size, stack) for name in store.SPLITS}
        begun = said = time.monotonic()
        for texts, ids in rows_of(raw, shard, data):
            rows = keep(texts, ids)
            encoded = encoder.encode_batch([text for _, text in rows])
            for (name, text), tokens in zip(rows, encoded, strict=True):
                if len(tokens) < data.min_tokens:
                    keep.dropped["too_few_tokens"] += 1
                    continue
                n_characters += len(text)
                n_control += any(control in text for control in encoder.control_texts)
                utf8 = text.encode("utf-8")
                n_lost += len(utf8) - len(utf8.translate(None, encoder.missing_bytes))
                key = split_key(data.split.seed, name)
                held_out = is_validation(key, data.split.threshold)
                splits["validation" if held_out else "train"].add(name, key, tokens)
            if time.monotonic() - said > SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                _say(shard, keep.rows_in, splits, said - begun)
        _say(shard, keep.rows_in, splits, time.monotonic() - begun)
        facts = {name: split.facts() for name, split in splits.items()}
        kept = sum(fact["documents"] for fact in facts.values())
        assert keep.rows_in == kept + sum(keep.dropped.values()), "a row was lost"
        if kept == 0:
            reasons = ", ".join(f"{reason} {n}" for reason, n in keep.dropped.items() if n) or "the shard has no row"
            raise UserError(f"shard {shard}: no row was kept ({reasons}); check data.text_column and data.min_tokens")
        header = {
            "format_version": store.FORMAT,
            "vocab_size": vocab_size,
            "tokenizer_sha256": encoder.sha256,
            "data_sha256": config.data_digest(data, vocab_size),
            "shard": shard,
        }
        for split in splits.values():
            split.write(out, header)
        with atomic_path(out / store.UNIGRAM) as temporary, open(temporary, "wb") as file:
            np.save(file, np.stack([splits[name].unigram for name in store.SPLITS]))
    files = [f"{name}.arrow" for name in store.SPLITS] + [store.UNIGRAM]
    write_json(
        out / store.MANIFEST,
        {
            **header,
            "rows_in": keep.rows_in,
            "kept": kept,
            "dropped": keep.dropped,
            "tokens": sum(fact["tokens"] for fact in facts.values()),
            **facts,
            "characters": n_characters,
            "control_token_text": n_control,
            "bytes_without_token": n_lost,
            "files": {
                name: {"sha256": sha256_file(out / name), "bytes": (out / name).stat().st_size} for name in files
            },
        },
    )


def _say(shard: str, rows: int, splits: dict[str, _SplitWriter], seconds: float) -> None:
    tokens = sum(sum(split.lengths) for split in splits.values())
    kept = sum(len(split.ids) for split in splits.values())
    pace = tokens / max(seconds, 1e-9)
    line = f"prepare {shard}: {rows:,} rows in, {kept:,} kept, {tokens:,} tokens, {pace:,.0f} tokens/s"
    print(line, file=sys.stderr, flush=True)
