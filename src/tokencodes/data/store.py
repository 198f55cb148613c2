"""The token store: Arrow IPC files that are memory-mapped and read without a copy.

A shard is a folder with train.arrow, validation.arrow, unigram.npy and manifest.json (written last). An .arrow file has
one record batch, one row a document: id (large_string), key (uint64, the hash that split it) and tokens (large_list of
uint16, or uint32 above 65,536 entries). There is no separator in the token stream; a document's bounds are the
offsets. The schema's metadata is the header. A store is a folder of shards with a manifest.json of its own, which
`index` writes.
"""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokencodes import config
from tokencodes.data.manifest import (
    FORMAT,
    MANIFEST,
    SPLITS,
    Counts,
    Lengths,
    ShardEntry,
    ShardManifest,
    StoreManifest,
    total,
)
from tokencodes.data.spec import data_digest
from tokencodes.errors import UserError, one_line
from tokencodes.files import atomic_path, json_text, sha256_file

HEADER = b"tokencodes"
UNIGRAM = "unigram.npy"
FILES = ("train.arrow", "validation.arrow", UNIGRAM)  # of a shard, beside its manifest
REMEDY = "prepare the shard again"
AT_A_TIME = 2**16  # offsets looked at together: they stay in a core's cache
KEYS_AT_A_TIME = 2**24  # keys sorted together, at most: 128 MiB


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
        self._checked: dict[str, dict[str, Shard]] = {}  # by shard and split; what their check found out is kept

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
                    "tokenizer and vocab_size, or name the store that was"
                )
        for entry in store.manifest.shards:
            store._checked[entry.name] = _check_shard(store.path / entry.name, _listed(store.path, entry))
        return store

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
    return _shard_manifest(folder)


def _shard_manifest(folder: Path) -> ShardManifest:
    """The manifest of one shard, which must be this shard's."""
    manifest = ShardManifest.read(folder / MANIFEST)
    if manifest.files.keys() != {*FILES}:
        raise UserError(f"{folder / MANIFEST}: does not list the files of a shard; {REMEDY}")
    if manifest.shard != folder.name:
        raise UserError(f"{folder}: holds shard {manifest.shard}, not the one that it is named after; {REMEDY}")
    return manifest


def _check_shard(folder: Path, manifest: ShardManifest) -> dict[str, Shard]:
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
            if not (folder / name).is_file() or sha256_file(folder / name) != file.sha256:
                raise UserError(f"{folder / name}: missing, or not the bytes that were written; {REMEDY}")
            n_files += 1
    store = Store.open(path)
    for split in SPLITS:
        for shard in store.split(split):
            if len(shard.tokens) and int(shard.tokens.max()) != shard.header["max_id"]:
                raise UserError(f"{shard.path}: its largest id is not the one in its header; {REMEDY}")
    print(f"{path}: {len(manifest.shards)} shards, {n_files} files, every byte as written")


# --------------------------------------------------------------------- index


def entropy(counts: np.ndarray) -> float:
    """Entropy in nats of the distribution that `counts` (V,) show."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())


def cross_entropy(train: np.ndarray, held_out: np.ndarray) -> float:
    """Nats a token of `held_out` counts under the unigram model of `train` with one added to each of its V counts."""
    p = (train + 1) / (train.sum() + len(train))
    return float(-(held_out * np.log(p)).sum() / held_out.sum())


def duplicates(keys: list[np.ndarray], at_a_time: int = KEYS_AT_A_TIME) -> int:
    """How many of the keys, uint64 (n,) each, are there once more: their number less that of different ones.

    Of many keys, those with equal last bits are taken together and sorted, one such part after the other, so that
    about `at_a_time` are in memory; hashes are spread evenly over the parts.
    """
    n_parts = 1 << ((sum(map(len, keys)) - 1) // at_a_time).bit_length() if any(map(len, keys)) else 1
    mask = np.uint64(n_parts - 1)
    found = 0
    for part in range(n_parts):
        alike = np.concatenate([each[(each & mask) == part] for each in keys])
        alike.sort()
        found += int(np.count_nonzero(alike[1:] == alike[:-1]))
    return found


def index(settings: config.Config, shards: list[Path], out: Path) -> None:
    """Join prepared shards into a store: write its manifest to `out`, beside the shards' folders.

    Raises UserError if a shard is missing, damaged, named twice, or was prepared from another config or tokenizer, if a
    document is in the other split than its key says, or if a split has no document.
    """
    vocab_size = settings.model.vocab_size
    expected = data_digest(settings.data, vocab_size)
    entries, manifests, keys = [], [], {split: [] for split in SPLITS}
    counts = np.zeros((len(SPLITS), vocab_size), dtype=np.int64)
    for folder in shards:
        if folder.parent.resolve() != out.parent.resolve():
            raise UserError(f"{folder}: lies not beside {out}; a store's shards are in one folder with its manifest")
        if any(entry.name == folder.name for entry in entries):
            raise UserError(f"{folder}: named twice; its documents would count twice")
        manifest = _shard_manifest(folder)
        if manifest.data_sha256 != expected:
            raise UserError(f"{folder}: was prepared with another `data` section or vocab_size; {REMEDY}")
        if manifests and manifest.tokenizer_sha256 != manifests[0].tokenizer_sha256:
            raise UserError(f"{folder}: was prepared with another tokenizer than {shards[0]}; {REMEDY}")
        splits = _check_shard(folder, manifest)
        _check_sides(folder, splits["train"].keys, splits["validation"].keys, settings.data.split.threshold)
        counts += _unigrams(folder, manifest)
        for split, shard in splits.items():
            keys[split].append(shard.keys)
        manifests.append(manifest)
        entries.append(ShardEntry(name=folder.name, sha256=sha256_file(folder / MANIFEST), **_counts(manifest)))
    sums = total(manifests)
    if not sums.train.documents or not sums.validation.documents:
        empty = "validation" if sums.train.documents else "train"
        raise UserError(f"the {empty} split has no document; change data.split.threshold or seed, or use more data")
    manifest = StoreManifest.of(
        vocab_size=vocab_size,
        tokenizer_sha256=manifests[0].tokenizer_sha256,
        data_sha256=expected,
        **_counts(sums),
        lengths=_lengths(shards, manifests),
        duplicate_ids_across_shards=sum(duplicates(each) for each in keys.values()),
        unigram_entropy=entropy(counts[0]),
        unigram_cross_entropy=cross_entropy(counts[0], counts[1]),
        shards=entries,
    )
    manifest.write(out)
    train, held_out = manifest.train, manifest.validation
    print(
        f"{out}: {manifest.rows_in:,} rows, {manifest.kept:,} kept; train {train.documents:,} documents with "
        f"{train.tokens:,} tokens, validation {held_out.documents:,} with {held_out.tokens:,}; "
        f"unigram entropy {manifest.unigram_entropy:.4f} nats (a uniform guess: {math.log(vocab_size):.4f})"
    )


def _counts(manifest: Counts) -> dict[str, Any]:
    """The fields of Counts alone."""
    return {name: getattr(manifest, name) for name in Counts.model_fields}


def _unigrams(folder: Path, manifest: ShardManifest) -> np.ndarray:
    """How often each token occurs in each split of a shard: int64 (2, V)."""
    if sha256_file(folder / UNIGRAM) != manifest.files[UNIGRAM].sha256:
        raise UserError(f"{folder / UNIGRAM}: not the bytes that were written; {REMEDY}")
    return np.load(folder / UNIGRAM)


def _check_sides(folder: Path, train: np.ndarray, held_out: np.ndarray, threshold: float) -> None:
    """Every key, uint64 (n,), is on its split's side of the threshold: no id is in both, whatever shards have it."""
    bound = threshold * 2.0**64
    if (len(held_out) and int(held_out.max()) >= bound) or (len(train) and int(train.min()) < bound):
        raise UserError(f"{folder}: a document is in the other split than its key says; {REMEDY}")


def _lengths(shards: list[Path], manifests: list[ShardManifest]) -> Lengths:
    """The summed histograms of lengths."""
    counted = [manifest.lengths for manifest in manifests]
    edges = counted[0].edges
    for folder, each in zip(shards, counted, strict=True):
        if each.edges != edges:
            raise UserError(f"{folder}: its lengths are counted between other edges than in {shards[0]}; {REMEDY}")
    return Lengths(
        edges=edges,
        kept=[sum(bins) for bins in zip(*(each.kept for each in counted), strict=True)],
        too_few_tokens=[sum(bins) for bins in zip(*(each.too_few_tokens for each in counted), strict=True)],
    )
