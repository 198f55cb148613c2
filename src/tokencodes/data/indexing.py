"""Prepared shards become a store: checked one by one, counted, and listed in one manifest."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from tokencodes.data.manifest import MANIFEST, SPLITS, Counts, Lengths, ShardEntry, ShardManifest, StoreManifest, total
from tokencodes.data.spec import Data, data_digest
from tokencodes.data.store import REMEDY, UNIGRAM, check_shard, shard_manifest
from tokencodes.errors import UserError
from tokencodes.files import sha256_file

KEYS_AT_A_TIME = 2**24  # keys sorted together, at most: 128 MiB


def entropy(counts: np.ndarray) -> float:
    """Entropy in nats of the distribution of `counts` (V,)."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())


def cross_entropy(train: np.ndarray, held_out: np.ndarray) -> float:
    """Nats per token of the counts `held_out` (V,) under the unigram model of `train` (V,), one added to each count."""
    p = (train + 1) / (train.sum() + len(train))
    return float(-(held_out * np.log(p)).sum() / held_out.sum())


def duplicates(keys: list[np.ndarray], at_a_time: int = KEYS_AT_A_TIME) -> int:
    """How many of the keys, uint64 (n,) each, are repetitions: their number less the number of different ones.

    Many keys are sorted in parts, one part for each value of their last bits, so that about `at_a_time` are in memory;
    the keys are hashes, which spread evenly over the parts.
    """
    n_parts = 1 << ((sum(map(len, keys)) - 1) // at_a_time).bit_length() if any(map(len, keys)) else 1
    mask = np.uint64(n_parts - 1)
    repetitions = 0
    for part in range(n_parts):
        alike = np.concatenate([each[(each & mask) == part] for each in keys])
        alike.sort()
        repetitions += int(np.count_nonzero(alike[1:] == alike[:-1]))
    return repetitions


def index(data: Data, vocab_size: int, shards: list[Path], out: Path) -> None:
    """Join prepared shards into a store: write its manifest to `out`, beside the shards' folders.

    Raises UserError if a shard is missing, damaged, named twice, or was prepared from another config or tokenizer, if a
    document is in the other split than its key says, or if a split has no document.
    """
    expected = data_digest(data, vocab_size)
    entries, manifests, keys = [], [], {split: [] for split in SPLITS}
    counts = np.zeros((len(SPLITS), vocab_size), dtype=np.int64)
    for folder in shards:
        if folder.parent.resolve() != out.parent.resolve():
            raise UserError(f"{folder}: is not beside {out}; the shards of a store lie in one folder with its manifest")
        if any(entry.name == folder.name for entry in entries):
            raise UserError(f"{folder}: named twice; its documents would count twice")
        manifest = shard_manifest(folder)
        if manifest.data_sha256 != expected:
            raise UserError(f"{folder}: was prepared with another `data` section or vocab_size; {REMEDY}")
        if manifests and manifest.tokenizer_sha256 != manifests[0].tokenizer_sha256:
            raise UserError(f"{folder}: was prepared with another tokenizer than {shards[0]}; {REMEDY}")
        splits = check_shard(folder, manifest)
        _check_sides(folder, splits["train"].keys, splits["validation"].keys, data.split.threshold)
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
