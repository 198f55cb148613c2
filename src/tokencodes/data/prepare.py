"""One raw shard in, one shard of the store out: filter, tokenise, split; every row accounted for.

Rows are read a few at a time and tokens go to disk as they come, so memory does not grow with the shard's texts. A row
is kept or dropped for one reason, the first that applies, in the order of REASONS; rows in = kept + dropped. An id
counts as a duplicate if an earlier row with a text had it, kept or not. Literal control tokens in a text and bytes that
have no token drop nothing; they are counted.

All files of a shard are made in a scratch folder and moved to their places when the last one is whole: a full disk, a
damaged file or a kill leaves the shard that was there before. What the work took differs from one run to the next, so
it is in a file of its own (TIMING) that no hash covers.
"""

import hashlib
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokencodes.data import store
from tokencodes.data.encoder import TOGETHER, Encoder
from tokencodes.data.manifest import FORMAT, MANIFEST, SPLITS, TIMING, Lengths, ShardManifest, ShardTiming, SplitCounts
from tokencodes.data.spec import Data, LocalSource, data_digest
from tokencodes.errors import UserError, one_line
from tokencodes.files import files_together, sha256_file

REASONS = (
    "null_text",
    "empty_text",
    "null_id",
    "duplicate_id",
    "invalid_utf8",
    "unbroken_text",  # no place to cut it in a long stretch (Encoder.can_be_cut): not to be encoded in bounded memory
    "too_few_bytes",  # fewer bytes than min_tokens cannot make min_tokens tokens: not worth encoding
    "too_few_tokens",
)
TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)
ROWS_AT_A_TIME, BYTES_AT_A_TIME = 128, 2**24  # read together, at most, but one row at least; changes no result
RECHECKED = 0.001  # share of documents that the reference encodes too; and the first one of each shard
BUFFER = 2**20  # bytes of a column that are read ahead; by default Arrow reads a whole row group
SECONDS_BETWEEN_LINES = 10.0
LENGTHS = ("kept", "too_few_tokens")  # documents whose lengths are counted
BINS_PER_OCTAVE, OCTAVES = 2, 32  # of the lengths' histogram
LENGTH_EDGES = sorted({int(2 ** (i / BINS_PER_OCTAVE)) for i in range(BINS_PER_OCTAVE * OCTAVES + 1)})  # in tokens


def split_key(seed: int, document_id: str) -> int:
    """BLAKE2b with an 8-byte digest over "{seed}:{id}" in UTF-8, read as a little-endian integer."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{document_id}".encode(), digest_size=8).digest(), "little")


def is_validation(key: int, threshold: float) -> bool:
    """Whether a document with this key is held out: key < threshold * 2^64 (paper: threshold 0.001)."""
    return key < threshold * 2.0**64


def rows_of(path: Path, shard: str, data: Data) -> Iterator[tuple[list[bytes | None], list[bytes | None]]]:
    """Texts and ids of a Parquet file as UTF-8 bytes, not yet validated, some rows at a time.

    Either may be string, large_string, string_view, binary or dictionary-encoded; an id of another type is written as
    its text, one of bytes of a fixed number (a UUID) as hex digits. Checksums of pages are verified where the file has
    them. Raises UserError naming the shard, and the row group, of a file that cannot be read, or the columns if one is
    missing or not of a type that is known here.
    """
    remedy = "download it again"
    if isinstance(data.source, LocalSource):
        remedy += " from data.source.path, or mend the file there"
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False, buffer_size=BUFFER)
        schema = file.schema_arrow
    except FileNotFoundError:
        raise UserError(f"shard {shard}: {path}: no such file; download it") from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(
            f"shard {shard}: {path} is not a whole Parquet file, or not one that can be read here ({one_line(error)}); "
            f"{remedy}"
        ) from None
    with file:
        _check_columns(schema, f"shard {shard}: {path}", data)
        columns = list(dict.fromkeys([data.text_column, data.id_column]))
        for group in range(file.num_row_groups):
            where, facts = f"shard {shard}: {path}, row group {group}", file.metadata.row_group(group)
            missing = facts.num_rows
            rows = min(ROWS_AT_A_TIME, missing * BYTES_AT_A_TIME // max(facts.total_byte_size, 1))
            try:
                for batch in file.iter_batches(max(rows, 1), row_groups=[group], columns=columns):
                    missing -= len(batch)
                    step = len(batch) if batch.nbytes <= BYTES_AT_A_TIME else 1  # rows may differ much in size
                    for start in range(0, len(batch), step):
                        some = batch.slice(start, step)
                        yield _as_bytes(some.column(data.text_column)), _as_bytes(some.column(data.id_column))
            except (OSError, pa.ArrowException) as error:
                raise UserError(
                    f"{where} is damaged, or not of a kind that can be read here ({one_line(error)}); {remedy}"
                ) from None
            if missing:  # Arrow skips a page whose header it does not know
                raise UserError(f"{where} is damaged ({missing} rows are missing); {remedy}")


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _check_columns(schema: pa.Schema, where: str, data: Data) -> None:
    for key, column in (("text_column", data.text_column), ("id_column", data.id_column)):
        if (n := schema.names.count(column)) != 1:
            raise UserError(
                f"{where} has {n or 'no'} column{'s' if n else ''} {column!r} (data.{key}); "
                f"it has {', '.join(schema.names)}"
            )
    kind = schema.field(data.text_column).type
    if not any(test(_plain(kind)) for test in TEXT_TYPES):
        raise UserError(f"{where}: column {data.text_column!r} (data.text_column) holds {kind}, not text")
    kind = schema.field(data.id_column).type
    try:
        pa.nulls(0, _plain(kind)).cast(pa.large_string())  # not pa.array, which imports pandas
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise UserError(f"{where}: column {data.id_column!r} (data.id_column) holds {kind}, not ids") from None


def _as_bytes(column: pa.Array) -> list[bytes | None]:
    """Values of a column as bytes; text is not checked to be UTF-8 here, for one bad row is no damaged file."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_fixed_size_binary(column.type):
        return [None if value is None else value.hex().encode() for value in column.to_pylist()]
    if not any(test(column.type) for test in TEXT_TYPES):
        column = column.cast(pa.large_string())
    return column.cast(pa.large_binary()).to_pylist()


class _Filter:
    """Which rows are worth encoding; counts the others by reason."""

    def __init__(self, data: Data, encoder: Encoder):
        self.data, self.encoder, self.seen, self.rows_in = data, encoder, set(), 0
        self.dropped = dict.fromkeys(REASONS, 0)

    def __call__(self, texts: list[bytes | None], ids: list[bytes | None]) -> list[tuple[str, str]]:
        """Id and text of the rows that are worth encoding."""
        kept = []
        for text, name in zip(texts, ids, strict=True):
            self.rows_in += 1
            reason, row = self._judge(text, name)
            if reason is None:
                kept.append(row)
            else:
                self.dropped[reason] += 1
        return kept

    def _judge(self, text: bytes | None, name: bytes | None) -> tuple[str | None, tuple[str, str]]:
        nothing = ("", "")
        if text is None:
            return "null_text", nothing
        if not text:
            return "empty_text", nothing
        if not name:
            return "null_id", nothing
        if name in self.seen:
            return "duplicate_id", nothing
        self.seen.add(name)
        try:
            row = name.decode("utf-8"), text.decode("utf-8")
        except UnicodeDecodeError:  # lone surrogates too: UTF-8 has no form for them
            return "invalid_utf8", nothing
        if not self.encoder.can_be_cut(row[1]):
            return "unbroken_text", nothing
        return ("too_few_bytes" if len(text) < self.data.min_tokens else None), row


class SplitWriter:
    """One split while it grows: tokens to a scratch file, the rest in memory."""

    def __init__(self, name: str, scratch: Path, vocab_size: int, stack: ExitStack):
        self.name, self.raw = name, scratch / f"{name}.tokens"
        self.file = stack.enter_context(open(self.raw, "wb"))
        self.ids, self.keys, self.lengths, self.n_tokens, self.max_id = [], [], [], 0, -1
        self.unigram = np.zeros(vocab_size, dtype=np.int64)

    def add(self, documents: list[tuple[str, int, np.ndarray]]) -> None:
        """Add documents: id, key, tokens."""
        if not documents:
            return
        tokens = np.concatenate([each for _, _, each in documents])
        self.file.write(tokens.astype(tokens.dtype.newbyteorder("<"), copy=False).data)
        self.ids += [name for name, _, _ in documents]
        self.keys += [key for _, key, _ in documents]
        self.lengths += [len(each) for _, _, each in documents]
        self.n_tokens += len(tokens)
        self.max_id = max(self.max_id, int(tokens.max()))
        self.unigram += np.bincount(tokens, minlength=len(self.unigram))

    def counts(self) -> SplitCounts:
        return SplitCounts(documents=len(self.ids), tokens=self.n_tokens)

    def write(self, out: Path, header: dict) -> None:
        """Write the split's Arrow file to `out` and remove the scratch file, which must be closed."""
        header = {**header, "split": self.name, **self.counts().model_dump(), "max_id": self.max_id}
        store.write_split(out / f"{self.name}.arrow", self.ids, self.keys, self.lengths, self.raw, header)
        self.raw.unlink()


def prepare_shard(data: Data, vocab_size: int, shard: str, raw: Path, tokenizer: Path, out: Path) -> None:
    """Turn raw shard `raw` into `out`: train.arrow, validation.arrow, unigram.npy and manifest.json.

    Raises UserError for a damaged file, a missing column, a tokenizer with another V, a full disk, or if no row is
    kept; what was in `out` before is then untouched.
    """
    encoder = Encoder(tokenizer)
    if encoder.vocab_size != vocab_size:
        raise UserError(
            f"{tokenizer}: has {encoder.vocab_size} tokens, model.vocab_size is {vocab_size}; build it again"
        )
    with files_together(out, last=MANIFEST) as scratch:
        _make(data, shard, raw, encoder, scratch)


class _Work:
    """A shard while it is made: rows in, documents of both splits out, and what is counted on the way."""

    def __init__(self, data: Data, shard: str, encoder: Encoder, out: Path, stack: ExitStack):
        self.data, self.shard, self.encoder = data, shard, encoder
        self.keep = _Filter(data, encoder)
        self.splits = {name: SplitWriter(name, out, encoder.vocab_size, stack) for name in SPLITS}
        self.lengths = {name: np.zeros(len(LENGTH_EDGES) - 1, dtype=np.int64) for name in LENGTHS}
        self.waiting: list[tuple[str, str]] = []
        self.n_waiting = 0
        self.characters = self.bytes = self.control = self.lost = self.rechecked = 0
        self.encoded_bytes, self.encoded_tokens, self.encode_cpu_s = 0, 0, 0.0

    def take(self, texts: list[bytes | None], ids: list[bytes | None]) -> None:
        """Filter some rows; encode what waits once it is enough to be encoded well."""
        rows = self.keep(texts, ids)
        self.waiting += rows
        self.n_waiting += sum(len(text) for _, text in rows)
        if self.n_waiting >= TOGETHER:
            self.encode()

    def encode(self) -> None:
        """Encode what waits, drop documents with too few tokens and add the others to their splits."""
        start = time.process_time()
        encoded = self.encoder.encode_batch([text for _, text in self.waiting])
        self.encode_cpu_s += time.process_time() - start
        documents: dict[str, list[tuple[str, int, np.ndarray]]] = {name: [] for name in self.splits}
        lengths: dict[str, list[int]] = {name: [] for name in self.lengths}
        for (name, text), tokens in zip(self.waiting, encoded, strict=True):
            self._recheck(name, text, tokens)
            utf8 = text.encode("utf-8")
            self.encoded_bytes += len(utf8)
            self.encoded_tokens += len(tokens)
            if len(tokens) < self.data.min_tokens:
                lengths["too_few_tokens"].append(len(tokens))
                continue
            lengths["kept"].append(len(tokens))
            self.characters += len(text)
            self.bytes += len(utf8)
            self.control += self.encoder.has_control_text(text)
            self.lost += len(utf8) - len(utf8.translate(None, self.encoder.missing_bytes))
            key = split_key(self.data.split.seed, name)
            split = "validation" if is_validation(key, self.data.split.threshold) else "train"
            documents[split].append((name, key, tokens))
        for name, split in self.splits.items():
            split.add(documents[name])
        for name, bins in self.lengths.items():
            bins += np.histogram(lengths[name], LENGTH_EDGES)[0]
        self.keep.dropped["too_few_tokens"] += len(lengths["too_few_tokens"])
        self.waiting, self.n_waiting = [], 0

    def _recheck(self, name: str, text: str, tokens: np.ndarray) -> None:
        """Stop the shard if the reference gives other ids: a fault of ours, or of a library's new version.

        This checks the shard's first document, and a share of the others that depends on their ids alone.
        """
        if self.rechecked and not is_validation(split_key(self.data.split.seed, f"{self.shard}/{name}"), RECHECKED):
            return
        self.rechecked += 1
        expected = self.encoder.reference(text)
        if not np.array_equal(expected, tokens):
            raise RuntimeError(
                f"shard {self.shard}: `tokenizers` encodes document {name!r} otherwise "
                f"({len(tokens)} tokens, the reference has {len(expected)})"
            )

    def facts(self) -> dict[str, Any]:
        """What the shard's manifest says of its documents."""
        splits = {name: split.counts() for name, split in self.splits.items()}
        return {
            "rows_in": self.keep.rows_in,
            "kept": sum(each.documents for each in splits.values()),
            "dropped": self.keep.dropped,
            "tokens": sum(each.tokens for each in splits.values()),
            **splits,
            "characters": self.characters,
            "bytes": self.bytes,
            "control_token_text": self.control,
            "bytes_without_token": self.lost,
            "lengths": Lengths(edges=LENGTH_EDGES, **{name: bins.tolist() for name, bins in self.lengths.items()}),
        }

    def report(self, seconds: float) -> None:
        """One line of progress."""
        kept = sum(len(split.ids) for split in self.splits.values())
        tokens = sum(split.n_tokens for split in self.splits.values())
        pace = self.encoded_bytes / 1e6 / max(seconds, 1e-9)
        print(
            f"prepare {self.shard}: {self.keep.rows_in:,} rows in, {kept:,} kept, {tokens:,} tokens, {pace:.1f} MB/s",
            file=sys.stderr,
            flush=True,
        )


def _make(data: Data, shard: str, raw: Path, encoder: Encoder, out: Path) -> None:
    """Write the shard's files into the empty folder `out`."""
    start, start_cpu = time.monotonic(), time.process_time()
    with ExitStack() as stack:
        work = _Work(data, shard, encoder, out, stack)
        last_line = start
        for texts, ids in rows_of(raw, shard, data):
            work.take(texts, ids)
            if time.monotonic() - last_line > SECONDS_BETWEEN_LINES:
                last_line = time.monotonic()
                work.report(last_line - start)
        work.encode()
        work.report(time.monotonic() - start)
    facts = work.facts()
    assert facts["rows_in"] == facts["kept"] + sum(facts["dropped"].values()), "a row was lost"
    if facts["rows_in"] and not facts["kept"]:  # a shard without rows is whole: other programs write such files
        reasons = ", ".join(f"{reason} {n}" for reason, n in facts["dropped"].items() if n)
        raise UserError(
            f"shard {shard}: no row was kept ({reasons}); check data.text_column, data.id_column and data.min_tokens"
        )
    header = {
        "format_version": FORMAT,
        "vocab_size": encoder.vocab_size,
        "tokenizer_sha256": encoder.sha256,
        "data_sha256": data_digest(data, encoder.vocab_size),
        "shard": shard,
    }
    for split in work.splits.values():
        split.write(out, header)
    np.save(out / store.UNIGRAM, np.stack([work.splits[name].unigram for name in SPLITS]))
    files = {name: {"sha256": sha256_file(out / name), "bytes": (out / name).stat().st_size} for name in store.FILES}
    ShardManifest(**header, **facts, files=files).write(out / MANIFEST)
    ShardTiming(
        raw_bytes=raw.stat().st_size,
        wall_s=time.monotonic() - start,
        cpu_s=time.process_time() - start_cpu,
        encode_cpu_s=work.encode_cpu_s,
        encoded_bytes=work.encoded_bytes,
        encoded_tokens=work.encoded_tokens,
    ).write(out / TIMING)
