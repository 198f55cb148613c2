"""The store: mapped, never copied; any changed byte is found; what does not fit together is refused."""

import json
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tokencodes import cli
from tokencodes.data import prepare, store
from tokencodes.data.encoder import Encoder
from tokencodes.data.manifest import SPLITS, ShardManifest, StoreManifest
from tokencodes.data.store import Store
from tokencodes.errors import UserError
from tokencodes.files import read_json, sha256_file, write_json

LONG = "abc dgh fee " * 9


@pytest.fixture(scope="module")
def one_copy(tiny, tmp_path_factory) -> Path:
    """A store to damage and mend again."""
    folder = tmp_path_factory.mktemp("store") / "store"
    shutil.copytree(tiny.store, folder)
    return folder


def raw_rows(tiny):
    """Text by id, of the raw shards."""
    table = pa.concat_tables([pq.read_table(path) for path in (tiny.folder / "raw").glob("*.parquet")])
    return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


# ------------------------------------------------------------------- reading


def test_what_comes_out_is_what_went_in(tiny):
    encoder, rows = Encoder(tiny.tokenizer), raw_rows(tiny)
    opened, seen = Store.open(tiny.store, vocab_size=300, tokenizer_sha256=encoder.sha256), []
    for split in SPLITS:
        for shard in opened.split(split):
            assert shard.offsets.dtype == np.int64 and shard.tokens.dtype == np.uint16 and shard.keys.dtype == np.uint64
            assert shard.offsets[0] == 0 and shard.offsets[-1] == len(shard.tokens)
            for i, name in enumerate(shard.ids.to_pylist()):
                expected = encoder.tokenizer.encode(rows[name], add_special_tokens=False).ids
                assert shard.document(i).tolist() == expected
                assert shard.tokens[shard.offsets[i] : shard.offsets[i + 1]].tolist() == expected
                assert shard.keys[i] == prepare.split_key(0, name)
                assert (split == "validation") == prepare.is_validation(int(shard.keys[i]), 0.1)
                seen.append(name)
    assert sorted(seen) == sorted(rows)


def test_the_header_says_what_the_file_is(tiny):
    manifest = read_json(tiny.store / "manifest.json")
    for entry in manifest["shards"]:
        for split in SPLITS:
            metadata = pa.ipc.open_file(tiny.store / entry["name"] / f"{split}.arrow").schema.metadata
            header = json.loads(metadata[b"tokencodes"])
            assert header["shard"] == entry["name"] and header["split"] == split and header["format_version"] == 1
            assert header["vocab_size"] == 300 and header["data_sha256"] == manifest["data_sha256"]
            assert header["tokenizer_sha256"] == read_json(tiny.tokenizer / "manifest.json")["sha256"]
            assert {key: header[key] for key in ("documents", "tokens")} == entry[split]


def mapped_ranges(path):
    """Where the kernel has mapped the file in this process."""
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path.resolve())):
            ranges.append([int(end, 16) for end in line.split()[0].split("-")])
    return ranges


def test_arrays_lie_in_the_mapped_file(tiny):
    before = pa.total_allocated_bytes()
    for shard in Store.open(tiny.store).split("train"):
        arrays = (shard.tokens, shard.offsets, shard.keys, shard.document(3))
        for array in arrays:
            assert not array.flags.owndata and not array.flags.writeable and len(array)
            at = array.__array_interface__["data"][0]
            assert any(first <= at and at + array.nbytes <= last for first, last in mapped_ranges(shard.path))
        assert np.shares_memory(shard.tokens, shard.document(3))
        assert pa.total_allocated_bytes() == before


# -------------------------------------------------------------------- damage


def verified(folder, one_line) -> str:
    return one_line("prepare", "--verify", "--out", folder)


def test_verify_of_a_whole_store(tiny, capsys):
    assert cli.main(["prepare", "--verify", "--out", str(tiny.store)]) == 0
    assert capsys.readouterr().out == f"{tiny.store}: 2 shards, 6 files, every byte as written\n"


def files_of(folder):
    """All that a hash covers: what the work took is in a file of its own."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "timing.json"))


@hypothesis_settings(max_examples=250, deadline=None)
@given(st.data())
def test_any_changed_byte_is_found(one_copy, data):
    path = data.draw(st.sampled_from(files_of(one_copy)), label="file")
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1), label="place")] ^= data.draw(st.integers(1, 255))
    try:
        path.write_bytes(changed)
        with pytest.raises(UserError) as caught:
            store.verify(one_copy)
        assert len(str(caught.value).splitlines()) == 1 and str(one_copy) in str(caught.value)
    finally:
        path.write_bytes(whole)


@hypothesis_settings(max_examples=400, deadline=None)
@given(st.data())
def test_opening_a_damaged_store_works_or_is_one_line(one_copy, data):
    """The cheap check need not see a changed token. It must never end in another way, nor lead outside the file."""
    path = data.draw(st.sampled_from([path for path in files_of(one_copy) if path.suffix != ".npy"]), label="file")
    whole = path.read_bytes()
    changed = bytearray(whole)
    ends = min(len(whole), 2_500)  # where Arrow keeps its own structures
    place = data.draw(st.integers(0, ends - 1) | st.integers(len(whole) - ends, len(whole) - 1), label="place")
    changed[place] ^= data.draw(st.integers(1, 255))
    try:
        path.write_bytes(changed)
        try:
            opened = Store.open(one_copy)
        except UserError as error:
            assert len(str(error).splitlines()) == 1
            return
        for split in SPLITS:
            for shard in opened.split(split):
                assert len(shard.tokens) == opened_tokens(opened, shard.name, split)
                assert int(shard.tokens.max()) < 2**16 and len(shard.ids) == len(shard.keys) == len(shard.offsets) - 1
    finally:
        path.write_bytes(whole)


def opened_tokens(opened, shard, split):
    return next(entry.split(split).tokens for entry in opened.manifest.shards if entry.name == shard)


def test_a_buffer_that_is_shorter_than_its_array(copy):
    """A view of the tokens would go on into whatever lies behind them."""
    path, manifest = copy / "part-0" / "train.arrow", read_json(copy / "part-0" / "manifest.json")
    stated = struct.pack("<q", 2 * manifest["train"]["tokens"])  # bytes of the tokens, in Arrow's own metadata
    whole = path.read_bytes()
    assert stated in whole
    path.write_bytes(whole.replace(stated, struct.pack("<q", 64)))
    with pytest.raises(UserError, match=r"part-0/train\.arrow: damaged"):
        Store.open(copy)


@pytest.mark.parametrize("name", ["train.arrow", "validation.arrow", "unigram.npy"])
def test_a_cut_file_is_found_at_opening(copy, name):
    path = copy / "part-1" / name
    whole = path.read_bytes()
    for n in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:n])
        with pytest.raises(UserError, match=rf"part-1/{re.escape(name)}: missing or cut; prepare the shard again"):
            Store.open(copy)
    path.unlink()
    with pytest.raises(UserError, match="missing or cut"):
        Store.open(copy)


def test_another_file_of_the_same_size_is_found_at_opening(copy):
    """As when the files of two shards are exchanged, and the sizes happen to be equal."""
    for name in ("part-0", "part-1"):  # sizes made equal by padding what the manifest says of them
        manifest = ShardManifest.read(copy / name / "manifest.json")
        n_bytes = (copy / "part-0" / "train.arrow").stat().st_size
        files = {**manifest.files, "train.arrow": manifest.files["train.arrow"].model_copy(update={"bytes": n_bytes})}
        manifest.model_copy(update={"files": files}).write(copy / name / "manifest.json")
    shutil.copy(copy / "part-0" / "train.arrow", copy / "part-1" / "train.arrow")
    resign(copy)
    with pytest.raises(UserError, match=r"part-1/train\.arrow: its header and the shard's manifest differ in .*shard"):
        Store.open(copy)


def resign(folder):
    """Make the manifest of the store fit those of its shards again."""
    manifest = StoreManifest.read(folder / "manifest.json")
    shards = [
        entry.model_copy(update={"sha256": sha256_file(folder / entry.name / "manifest.json")})
        for entry in manifest.shards
    ]
    changed(manifest, shards=shards).write(folder / "manifest.json")


def changed(manifest, **fields):
    """The manifest of a store with other content, whose identity fits."""
    other = manifest.model_copy(update=fields)
    return other.model_copy(update={"sha256": other.identity()})


def test_a_store_that_is_not_there(tmp_path, one_line):
    assert "manifest.json: no such file" in verified(tmp_path, one_line)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ("\xff", "not valid JSON"),
        ("[]", "not the manifest of a store"),
        ("null", "not the manifest of a store"),
        ("{}", "the manifest of a store of schema version None"),
        ('{"schema_version": 1}', "its content does not match its record_sha256"),
    ],
)
def test_not_the_manifest_of_a_store(copy, text, said, one_line):
    (copy / "manifest.json").write_text(text, encoding="latin-1")
    assert f"manifest.json: {said}" in verified(copy, one_line)


def test_the_record_of_a_shard_is_not_that_of_a_store(copy, one_line):
    shutil.copy(copy / "part-0/manifest.json", copy / "manifest.json")
    assert "manifest.json: not the manifest of a store (" in verified(copy, one_line)


def test_a_manifest_whose_figures_were_edited(copy):
    manifest = read_json(copy / "manifest.json")
    for key, value in (("tokens", 1), ("unigram_entropy", 1.5), ("vocab_size", 299)):
        write_json(copy / "manifest.json", {**manifest, key: value})
        with pytest.raises(UserError, match=r"manifest\.json: its content does not match its record_sha256"):
            Store.open(copy)


def test_white_space_in_a_manifest_is_a_changed_byte_too(copy, one_line):
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace("\n", " ", 1))
    assert "not the bytes that were written" in verified(copy, one_line)


def test_the_manifest_of_a_shard_exchanged(copy):
    (copy / "part-0").rename(copy / "x")
    (copy / "part-1").rename(copy / "part-0")
    (copy / "x").rename(copy / "part-1")
    with pytest.raises(UserError, match="part-0: not the shard that the store's manifest lists"):
        Store.open(copy)


@pytest.mark.parametrize("name", ["../part-0", "/etc", "..", "", "a/b"])
def test_a_shard_name_cannot_leave_the_store(copy, name):
    manifest = StoreManifest.read(copy / "manifest.json")
    first = manifest.shards[0].model_copy(update={"name": name})
    changed(manifest, shards=[first, *manifest.shards[1:]]).write(copy / "manifest.json")
    with pytest.raises(UserError, match=r"manifest\.json: .*is not the name of a folder beside it"):
        Store.open(copy)


def test_another_format(copy):
    path = copy / "part-0" / "manifest.json"
    ShardManifest.read(path).model_copy(update={"format_version": 2}).write(path)
    resign(copy)
    with pytest.raises(UserError, match=r"part-0/manifest\.json: not the manifest of a shard \(format_version: "):
        Store.open(copy)


def test_an_id_that_the_vocabulary_does_not_have(tmp_path):
    """Written so, with hashes that fit: no damage, but no store for this model either."""
    (tmp_path / "tokens").write_bytes(np.array([1, 299, 5], dtype="<u2").tobytes())
    header = {"format_version": 1, "vocab_size": 299, "documents": 1, "tokens": 3, "max_id": 299}
    store.write_split(tmp_path / "train.arrow", ["a"], [0], [3], tmp_path / "tokens", header)
    with pytest.raises(UserError, match="do not fit together"):
        store.Shard("s", tmp_path / "train.arrow").check({})


def test_an_arrow_file_that_is_not_ours(tmp_path):
    table = pa.table({"id": ["a"], "tokens": [[1, 2]]})
    with pa.ipc.new_file(tmp_path / "train.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(UserError, match="without a store's header"):
        store.Shard("s", tmp_path / "train.arrow").check({})
    with pytest.raises(UserError, match="missing or damaged"):
        store.Shard("s", tmp_path / "none.arrow").check({})


def test_another_vocabulary_or_tokenizer(tiny):
    with pytest.raises(UserError, match="its vocab_size is 300, 301 is asked for"):
        Store.open(tiny.store, vocab_size=301)
    with pytest.raises(UserError, match=r"its tokenizer_sha256 is .*, abc is asked for"):
        Store.open(tiny.store, tokenizer_sha256="abc")


# ------------------------------------------------------------------- reading


@hypothesis_settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-3, 2**40), min_size=1, max_size=60), st.integers(1, 70))
def test_the_shortest_document_is_found_in_any_portions(lengths, at_a_time):
    shard = store.Shard("s", Path("unused"))
    shard.__dict__["offsets"] = np.cumsum([0, *lengths])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "AT_A_TIME", at_a_time)
        assert shard.shortest == min(lengths)


def test_what_opening_found_out_is_not_looked_for_again(tiny):
    """A sampler asks for the shortest document; the offsets of a large store are read for it once."""
    opened = Store.open(tiny.store)
    for split in SPLITS:
        shards = opened.split(split)
        assert all("shortest" in shard.__dict__ for shard in shards)
        assert all(one is other for one, other in zip(shards, opened.split(split), strict=True))
        assert [shard.name for shard in shards] == ["part-0", "part-1"]


@hypothesis_settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=8), st.integers(0, 2**64 - 1), st.integers(1, 50)), max_size=20),
    st.sampled_from([300, 2**16, 2**16 + 1, 2**20]),
)
def test_write_split_round_trip(tmp_path_factory, rows, vocab_size):
    folder = tmp_path_factory.mktemp("split")
    names, keys, lengths = ([row[i] for row in rows] for i in range(3))
    dtype = np.uint16 if vocab_size <= 65_536 else np.uint32
    tokens = np.random.default_rng(0).integers(0, vocab_size, sum(lengths)).astype(dtype)
    tokens.tofile(folder / "raw")
    header = {"format_version": 1, "vocab_size": vocab_size, "documents": len(rows), "tokens": len(tokens)}
    header["max_id"] = int(tokens.max()) if len(tokens) else -1
    store.write_split(folder / "train.arrow", names, keys, lengths, folder / "raw", header)
    shard = store.Shard("s", folder / "train.arrow")
    shard.check({"documents": len(rows)})
    assert shard.header == header and shard.tokens.dtype == dtype
    assert shard.ids.to_pylist() == names and shard.keys.tolist() == keys
    assert [shard.document(i).tolist() for i in range(len(rows))] == [
        part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1]) if len(rows)
    ]
