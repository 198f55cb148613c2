"""The token store: Arrow IPC files that are memory-mapped and read without a copy.

A shard is a folder with train.arrow, validation.arrow, unigram.npy and manifest.json (written last). An .arrow file has
one record batch, one row per document: id (large_string), key (uint64, the hash that split it) and tokens (large_list
of uint16, or uint32 above 65,536 entries). There is no separator in the token stream; a document's bounds are the
offsets. The schema's metadata is the header. A store is a folder of shards with a manifest.json of its own, which
`indexing` writes.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokencodes.data.manifest import (
    FORMAT,
    MANIFEST,
    SPLITS,
    FileFacts,
    ShardEntry,
    ShardManifest,
    StoreManifest,
)
from tokencodes.errors import UserError, one_line
from tokencodes.files import atomic_path, json_text, sha256_file

HEADER = b"tokencodes"
UNIGRAM = "unigram.npy"
FILES = ("train.arrow", "validation.arrow", UNIGRAM)  # of a shard, beside its manifest
REMEDY = "prepare the shard again"
AT_A_TIME = 2**16  # offsets looked at together: they stay in a core's cache


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest of uint16 and uint32 that holds every id."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


@dataclass(frozen=True)
class Shard:
    """One split of one shard, memory-mapped."""

    name: str
    path: Path

    @cached_property
    def _batch(self) -> pa.RecordBatch:
        try:
            return pa.ipc.open_file(pa.memory_map(str(self.path))).get_batch(0)
        except (OSError, pa.ArrowException, LookupError) as error:
            raise UserError(f"{self.path}: missing or damaged ({one_line(error)}); {REMEDY}") from None

    @cached_property
    def header(self) -> dict[str, Any]:
        """The schema's metadata. Raises UserError if it is not one of ours."""
        metadata = self._batch.schema.metadata or {}
        if HEADER not in metadata:
            raise UserError(f"{self.path}: an Arrow file without a store's header; {REMEDY}")
        return json.loads(metadata[HEADER])

    @cached_property
    def tokens(self) -> np.ndarray:
        """All tokens of the split, one after the other: uint16 or uint32 (n_tokens,), a view of the mapped file."""
        return self._batch.column("tokens").values.to_numpy(zero_copy_only=True)

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where documents begin and end in `tokens`: int64 (n_documents + 1,), a view of the mapped file."""
        return self._batch.column("tokens").offsets.to_numpy(zero_copy_only=True)

    @property
    def ids(self) -> pa.Array:
        """The documents' ids (large_string)."""
        return self._batch.column("id")

    @property
    def keys(self) -> np.ndarray:
        """The 64-bit hash of each document's id that decided its split: uint64 (n_documents,)."""
        return self._batch.column("key").to_numpy(zero_copy_only=True)

    @cached_property
    def shortest(self) -> int:
        """Tokens of the shortest document; negative if the offsets are damaged, 2^63 - 1 without a document.

        All offsets are looked at, some at a time: the memory for it does not grow with the shard.
        """
        least = np.iinfo(np.int64).max
        for start in range(0, len(self.offsets) - 1, AT_A_TIME):
            least = min(least, int(np.diff(self.offsets[start : start + AT_A_TIME + 1]).min()))
        return least

    def document(self, index: int) -> np.ndarray:
        """Tokens of one document, a view."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def check(self, expected: dict[str, Any]) -> None:
        """The cheap check of every opening: layout, header, counts, offsets. Raises UserError.

        `expected` is what manifests say that the header holds.
        """
        try:
            problem = self._problem(expected)
        except UserError:
            raise
        except Exception as error:  # damaged bytes can raise anything from Arrow, JSON, UTF-8 and NumPy
            problem = f"damaged ({one_line(error)})"
        if problem:
            raise UserError(f"{self.path}: {problem}; {REMEDY}")

    def _problem(self, expected: dict[str, Any]) -> str | None:
        header = self.header
        if header["format_version"] != FORMAT:
            return f"format {header['format_version']}, this code reads {FORMAT}"
        if other := [key for key, value in expected.items() if header[key] != value]:
            return f"its header and the shard's manifest differ in {', '.join(other)}"
        if not self._batch.schema.remove_metadata().equals(_schema(header["vocab_size"])):
            return "its columns are not those of a store"
        self._batch.validate()  # lengths against buffers: nothing outside the file is read through a view
        offsets = self.offsets
        whole = (
            len(offsets) == header["documents"] + 1
            and len(self.tokens) == header["tokens"] == offsets[-1]
            and offsets[0] == 0
            and self.shortest > 0
            and header["max_id"] < header["vocab_size"]
            and len(self.ids) == len(self.keys) == header["documents"]
        )
        return None if whole else "its offsets and counts do not fit together"


def _schema(vocab_size: int) -> pa.Schema:
    """Columns of an .arrow file."""
    tokens = pa.large_list(pa.from_numpy_dtype(token_dtype(vocab_size)))
    return pa.schema({"id": pa.large_string(), "key": pa.uint64(), "tokens": tokens})


def _column(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def write_split(path: Path, ids: list[str], keys: list[int], lengths: list[int], raw: Path, header: dict) -> None:
    """Write one split atomically; `raw` holds its tokens, little-endian and back to back, and is mapped, not read."""
    dtype = token_dtype(header["vocab_size"])
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    n_tokens = int(offsets[-1])
    buffer = pa.memory_map(str(raw)).read_buffer() if n_tokens else pa.py_buffer(b"")
    names = [name.encode("utf-8") for name in ids]
    starts = np.concatenate([[0], np.cumsum([len(name) for name in names])]).astype(np.int64)
    # From buffers: pa.array imports pandas, a quarter of a second for each shard.
    columns = [
        pa.LargeStringArray.from_buffers(len(ids), pa.py_buffer(starts), pa.py_buffer(b"".join(names))),
        _column(pa.uint64(), np.array(keys, dtype=np.uint64)),
        pa.LargeListArray.from_arrays(
            _column(pa.int64(), offsets), pa.Array.from_buffers(pa.from_numpy_dtype(dtype), n_tokens, [None, buffer])
        ),
    ]
    metadata = {HEADER: json.dumps(header, sort_keys=True).encode()}
    batch = pa.record_batch(columns, schema=_schema(header["vocab_size"]).with_metadata(metadata))
    with atomic_path(path) as temporary, pa.ipc.new_file(str(temporary), batch.schema) as writer:
        writer.write_batch(batch)


# --------------------------------------------------------------------- store


class Store:
    """A whole corpus, tokenised and split."""

    def __init__(self, path: Path, manifest: StoreManifest):
        self.path, self.manifest = path, manifest
        self._checked: dict[str, dict[str, Shard]] = {}  # by shard and split, with what the check computed

    @property
    def sha256(self) -> str:
        """The identity of the store."""
        return self.manifest.sha256

    @classmethod
    def open(cls, path: Path, *, vocab_size: int | None = None, tokenizer_sha256: str | None = None) -> "Store":
        """Open with the cheap check of every shard. Raises UserError if something is missing, damaged or not what is
        asked for (`vocab_size`, `tokenizer_sha256`)."""
        store = cls(Path(path), StoreManifest.read(Path(path) / MANIFEST))
        for name, value in (("vocab_size", vocab_size), ("tokenizer_sha256", tokenizer_sha256)):
            if value is not None and (stated := getattr(store.manifest, name)) != value:
                raise UserError(
                    f"{path}: its {name} is {stated}, {value} is asked for; prepare the corpus with this "
                    "tokenizer and vocab_size, or give the store that was prepared with them"
                )
        for entry in store.manifest.shards:
            store._checked[entry.name] = check_shard(store.path / entry.name, _listed(store.path, entry))
        return store

    def verify(self, split: str) -> None:
        """Check that every byte of a split is as it was written. Raises UserError.

        `open` compares sizes, headers and offsets alone: whoever makes numbers of tokens verifies them first.
        """
        for entry in self.manifest.shards:
            name = f"{split}.arrow"
            verify_file(self.path / entry.name / name, _listed(self.path, entry).files[name])

    def split(self, name: str) -> list[Shard]:
        """The shards of `train` or `validation`, in the corpus' order."""
        names = [entry.name for entry in self.manifest.shards]
        return [
            self._checked[shard][name] if shard in self._checked else Shard(shard, self.path / shard / f"{name}.arrow")
            for shard in names
        ]


def _listed(path: Path, entry: ShardEntry) -> ShardManifest:
    """The manifest of a shard, which must be the one that the manifest of the store at `path` lists."""
    folder = path / entry.name
    if not (folder / MANIFEST).is_file() or sha256_file(folder / MANIFEST) != entry.sha256:
        raise UserError(f"{folder}: not the shard that the store's manifest lists; {REMEDY} and index again")
    return shard_manifest(folder)


def shard_manifest(folder: Path) -> ShardManifest:
    """The manifest of one shard, which must be this shard's."""
    manifest = ShardManifest.read(folder / MANIFEST)
    if manifest.files.keys() != {*FILES}:
        raise UserError(f"{folder / MANIFEST}: does not list the files of a shard; {REMEDY}")
    if manifest.shard != folder.name:
        raise UserError(f"{folder}: holds shard {manifest.shard}, not the one that it is named after; {REMEDY}")
    return manifest


def verify_file(path: Path, file: FileFacts) -> None:
    """Raise UserError unless `path` is the file that a shard's manifest lists."""
    if not path.is_file() or sha256_file(path) != file.sha256:
        raise UserError(f"{path}: missing, or not the bytes that were written; {REMEDY}")


def check_shard(folder: Path, manifest: ShardManifest) -> dict[str, Shard]:
    """The cheap check of a shard: sizes of its files, and what Shard.check does. Returns its splits by name."""
    for name in FILES:
        if not (folder / name).is_file() or (folder / name).stat().st_size != manifest.files[name].bytes:
            raise UserError(f"{folder / name}: missing or cut; {REMEDY}")
    splits = {split: Shard(folder.name, folder / f"{split}.arrow") for split in SPLITS}
    for split, shard in splits.items():
        shard.check({**manifest.header(), "split": split, **manifest.split(split).model_dump()})
    return splits


def verify(path: Path) -> None:
    """The full check: the SHA-256 of every file, the cheap check, and that every id is below V. Raises UserError."""
    manifest = StoreManifest.read(path / MANIFEST)
    if (path / MANIFEST).read_bytes() != json_text(manifest.content()).encode():
        raise UserError(f"{path / MANIFEST}: not the bytes that were written; run `tokencodes index` again")
    n_files = 0
    for entry in manifest.shards:
        folder = path / entry.name
        for name, file in _listed(path, entry).files.items():
            verify_file(folder / name, file)
            n_files += 1
    store = Store.open(path)
    for split in SPLITS:
        for shard in store.split(split):
            if len(shard.tokens) and int(shard.tokens.max()) != shard.header["max_id"]:
                raise UserError(f"{shard.path}: its largest id is not the one in its header; {REMEDY}")
    print(f"{path}: {len(manifest.shards)} shards, {n_files} files, every byte as written")
