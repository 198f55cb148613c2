"""The index: what it counts adds up; shards that do not belong together are refused."""

import collections
import math
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.special import rel_entr
from scipy.stats import entropy

import stages
from tokencodes.data import indexing, prepare, store
from tokencodes.data.manifest import SPLITS, Lengths, ShardManifest
from tokencodes.data.store import Store
from tokencodes.errors import UserError
from tokencodes.files import digest, read_json

LONG = "abc dgh fee " * 9


def shards_in(folder):
    return sorted(path for path in folder.iterdir() if path.is_dir())


def index(tiny, folder, shards=None, **changes):
    stages.index(tiny.config(**changes), shards or shards_in(folder), folder / "manifest.json")
    return read_json(folder / "manifest.json")


def test_the_index_adds_up(tiny, copy):
    before = read_json(copy / "manifest.json")
    assert index(tiny, copy) == before
    assert before["rows_in"] == before["kept"] + sum(before["dropped"].values()) == 240
    manifests = [read_json(folder / "manifest.json") for folder in shards_in(copy)]
    for key in ("rows_in", "kept", "tokens"):
        assert before[key] == sum(manifest[key] for manifest in manifests)
    for split in SPLITS:
        for key in ("documents", "tokens"):
            assert before[split][key] == sum(manifest[split][key] for manifest in manifests)
    own = ("sha256", "schema_version", "record_sha256")
    assert Store.open(copy).sha256 == digest({key: value for key, value in before.items() if key not in own})


def test_unigram_entropies_against_scipy(tiny):
    opened = Store.open(tiny.store)
    counts = [np.zeros(300), np.zeros(300)]
    for row, split in zip(counts, SPLITS, strict=True):
        for shard in opened.split(split):
            row += np.bincount(shard.tokens, minlength=300)
    train, held_out = counts
    assert math.isclose(opened.manifest.unigram_entropy, entropy(train), rel_tol=1e-12)
    model, truth = (train + 1) / (train + 1).sum(), held_out / held_out.sum()
    expected = entropy(truth) + rel_entr(truth, model).sum()  # cross entropy = entropy + divergence
    assert math.isclose(opened.manifest.unigram_cross_entropy, expected, rel_tol=1e-12)


def test_cross_entropy_by_hand():
    train, held_out = np.array([3, 0, 1, 0]), np.array([1, 1, 0, 2])
    # add one: 4/8, 1/8, 2/8, 1/8; four tokens of 1, 3, 3 and 3 bits
    assert math.isclose(indexing.cross_entropy(train, held_out), (1 + 3 + 3 + 3) * math.log(2) / 4)
    assert math.isclose(indexing.entropy(np.array([1, 1, 0, 2])), 1.5 * math.log(2))
    assert indexing.entropy(np.array([7, 0])) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"min_tokens": 18}},
        {"data": {"split": {"seed": 1, "threshold": 0.1}}},
        {"data": {"text_column": "content"}},
        {"model": {"vocab_size": 299}},
    ],
    ids=str,
)
def test_a_shard_of_another_config(tiny, copy, changes):
    before = (copy / "manifest.json").read_bytes()
    with pytest.raises(UserError, match="was prepared with another `data` section or vocab_size"):
        index(tiny, copy, **changes)
    assert (copy / "manifest.json").read_bytes() == before


def test_shards_of_two_tokenizers(tiny, copy):
    path = copy / "part-1/manifest.json"
    ShardManifest.read(path).model_copy(update={"tokenizer_sha256": "0" * 64}).write(path)
    with pytest.raises(UserError, match="part-1: was prepared with another tokenizer than"):
        index(tiny, copy)


def test_a_shard_named_twice_or_renamed_or_elsewhere_or_missing(tiny, copy, tmp_path):
    with pytest.raises(UserError, match="part-0: named twice"):
        index(tiny, copy, [copy / "part-0", copy / "part-1", copy / "part-0"])
    shutil.copytree(copy / "part-0", copy / "part-2")
    with pytest.raises(UserError, match="part-2: holds shard part-0"):
        index(tiny, copy)
    shutil.copytree(copy / "part-0", tmp_path / "part-0")
    with pytest.raises(UserError, match="is not beside"):
        index(tiny, copy, [copy / "part-1", tmp_path / "part-0"])
    with pytest.raises(UserError, match=r"part-9/manifest\.json: no such file"):
        index(tiny, copy, [copy / "part-1", copy / "part-9"])


def test_a_linked_shard_is_a_shard(tiny, copy, tmp_path):
    """As when one disk is not enough."""
    (copy / "part-1").rename(tmp_path / "elsewhere")
    (copy / "part-1").symlink_to(tmp_path / "elsewhere")
    before = read_json(copy / "manifest.json")
    assert index(tiny, copy) == before
    assert len(Store.open(copy).split("train")) == 2


@pytest.mark.parametrize("name", ["train.arrow", "validation.arrow", "unigram.npy", "manifest.json"])
def test_damage_is_found_by_the_index(tiny, copy, name):
    path = copy / "part-1" / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-2])
    with pytest.raises(UserError, match="part-1"):
        index(tiny, copy)
    if name == "unigram.npy":
        path.write_bytes(whole[:-1] + b"\x01")
        with pytest.raises(UserError, match=r"unigram\.npy: not the bytes that were written"):
            index(tiny, copy)


@pytest.mark.parametrize(("threshold", "empty"), [(0, "validation"), (1, "train")])
def test_an_empty_split(tiny, tmp_path, threshold, empty):
    settings = tiny.config(data={"split": {"seed": 0, "threshold": threshold}})
    stages.prepare_shard(settings, "s", tiny.folder / "raw" / "part-0.parquet", tiny.tokenizer, tmp_path / "s")
    shard = store.Shard("s", tmp_path / "s" / f"{empty}.arrow")
    assert shard.tokens.tolist() == [] and shard.offsets.tolist() == [0] and shard.ids.to_pylist() == []
    with pytest.raises(UserError, match=rf"the {empty} split has no document; change data\.split"):
        stages.index(settings, [tmp_path / "s"], tmp_path / "manifest.json")
    assert not (tmp_path / "manifest.json").exists()


def test_one_shard_may_have_an_empty_split(tiny, tmp_path):
    """The corpus' held-out documents can all lie in one shard."""
    settings, rows = tiny.config(), collections.defaultdict(list)
    for i in range(60):
        rows[prepare.is_validation(prepare.split_key(0, f"d{i}"), 0.1)].append(f"d{i}")
    for shard, names in (("a", rows[False]), ("b", rows[True])):
        pq.write_table(pa.table({"text": [LONG] * len(names), "id": names}), tmp_path / f"{shard}.parquet")
        stages.prepare_shard(settings, shard, tmp_path / f"{shard}.parquet", tiny.tokenizer, tmp_path / shard)
    stages.index(settings, [tmp_path / "a", tmp_path / "b"], tmp_path / "manifest.json")
    opened = Store.open(tmp_path)
    assert [len(shard.ids) for shard in opened.split("validation")] == [0, len(rows[True])]
    store.verify(tmp_path)


def test_no_document_is_in_both_splits_even_when_shards_share_ids(tiny, tmp_path):
    settings = tiny.config(data={"split": {"seed": 0, "threshold": 0.3}})
    for number, names in enumerate((range(40), range(20, 60), range(0, 60, 2))):
        shard = f"s{number}"
        table = pa.table({"text": [f"{LONG} {i}" for i in names], "id": [f"d{i}" for i in names]})
        pq.write_table(table, tmp_path / f"{shard}.parquet")
        stages.prepare_shard(settings, shard, tmp_path / f"{shard}.parquet", tiny.tokenizer, tmp_path / shard)
    stages.index(settings, [tmp_path / f"s{i}" for i in range(3)], tmp_path / "manifest.json")
    opened = Store.open(tmp_path)
    names = {split: [n for shard in opened.split(split) for n in shard.ids.to_pylist()] for split in SPLITS}
    assert names["train"] and names["validation"] and not set(names["train"]) & set(names["validation"])
    found = collections.Counter(names["train"] + names["validation"])
    assert len(found) == 60
    assert opened.manifest.duplicate_ids_across_shards == sum(n - 1 for n in found.values()) == 50


@pytest.mark.parametrize("split", SPLITS)
def test_a_document_on_the_wrong_side_of_the_threshold_is_found(tiny, copy, split):
    """The guarantee is held against the keys that are stored, not against the code that stored them."""
    folder, bound = copy / "part-1", 0.1 * 2**64
    shard = store.Shard("part-1", folder / f"{split}.arrow")
    keys = shard.keys.tolist()
    keys[-1] = int(bound) + 1 if split == "validation" else int(bound) - 1
    shard.tokens.tofile(copy / "tokens")
    names, lengths = shard.ids.to_pylist(), np.diff(shard.offsets).tolist()
    store.write_split(copy / "other.arrow", names, keys, lengths, copy / "tokens", shard.header)
    (copy / "other.arrow").replace(shard.path)
    with pytest.raises(UserError, match="part-1: a document is in the other split than its key says"):
        index(tiny, copy)


@hypothesis_settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 40) | st.integers(0, 2**64 - 1), max_size=30), min_size=1, max_size=5),
    st.integers(1, 100),
)
def test_duplicates_against_numpy(lists, at_a_time):
    """Whatever share of the keys is looked at together."""
    keys = [np.array(each, dtype=np.uint64) for each in lists]
    every = np.concatenate(keys)
    assert indexing.duplicates(keys, at_a_time) == len(every) - len(np.unique(every))


@pytest.mark.parametrize("at_a_time", [100, 1000, 2**24])
def test_keys_in_memory_are_bounded(at_a_time, monkeypatch):
    """No array that is sorted has many more keys than allowed; the input is only looked through."""
    keys = [np.random.default_rng(i).integers(0, 2**64, 2000, dtype=np.uint64) for i in range(3)]
    joined, together = np.concatenate, []

    def concatenate(arrays):
        together.append(sum(map(len, arrays)))
        return joined(arrays)

    monkeypatch.setattr(indexing.np, "concatenate", concatenate)
    assert indexing.duplicates([*keys, keys[0]], at_a_time) == 2000
    assert sum(together) == 8000 and max(together) <= 2 * at_a_time


def test_lengths_are_summed(tiny, copy):
    paths = [copy / name / "manifest.json" for name in ("part-0", "part-1")]
    manifests = [ShardManifest.read(path) for path in paths]
    kept = [[0, 5, manifest.kept - 5] for manifest in manifests]
    for path, manifest, bins in zip(paths, manifests, kept, strict=True):
        lengths = Lengths(edges=[1, 16, 32, 64], kept=bins, too_few_tokens=[manifest.dropped["too_few_tokens"], 0, 0])
        manifest.model_copy(update={"lengths": lengths}).write(path)
    few = sum(manifest.dropped["too_few_tokens"] for manifest in manifests)
    found = index(tiny, copy)["lengths"]
    assert found == {"edges": [1, 16, 32, 64], "kept": [0, 10, kept[0][2] + kept[1][2]], "too_few_tokens": [few, 0, 0]}
    other = lengths.model_copy(update={"edges": [1, 10, 32, 64]})
    manifest.model_copy(update={"lengths": other}).write(path)
    with pytest.raises(UserError, match=r"part-1: its lengths are counted between other edges than in .*part-0"):
        index(tiny, copy)


def test_a_full_disk_leaves_the_index_that_was_there(tiny, copy, small_files):
    before, settings = (copy / "manifest.json").read_bytes(), tiny.config()
    with small_files(200), pytest.raises(UserError, match=r"manifest\.json: the disk is full"):
        stages.index(settings, shards_in(copy), copy / "manifest.json")
    assert (copy / "manifest.json").read_bytes() == before and not list(copy.glob(".*.tmp"))
