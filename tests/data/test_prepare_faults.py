"""A damaged file, a kill, a full disk: the shard is whole, or what was there before; and the user gets one line."""

import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tokencodes import files
from tokencodes.data import prepare, store
from tokencodes.data.encoder import Encoder
from tokencodes.data.manifest import ShardManifest
from tokencodes.errors import UserError

LONG = "abc dgh fee " * 9
some = hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def documents(n):
    return pa.table({"text": [f"{LONG} {i}" for i in range(n)], "id": [f"d{i}" for i in range(n)]})


# -------------------------------------------------------------- damaged files


def test_no_file(bench):
    with pytest.raises(UserError, match=r"shard s: .*raw\.parquet: no such file; download it"):
        bench.prepare()


def test_a_file_cut_anywhere(bench):
    bench.write(documents(10), row_group_size=4)
    whole = bench.raw.read_bytes()
    for end in range(0, len(whole), 61):
        bench.raw.write_bytes(whole[:end])
        with pytest.raises(UserError, match=r"shard s: .*(not a whole Parquet file|row group . is damaged)"):
            bench.prepare()
        assert not (bench.out / "manifest.json").exists()


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip"])
def test_a_corrupt_row_group_in_the_middle_is_named(bench, compression):
    draw = random.Random(0)
    texts = ["".join(draw.choices("abcdefgh ", k=200)) for _ in range(30)]
    table = pa.table({"text": texts, "id": [str(i) for i in range(30)]})
    bench.write(table, row_group_size=10, compression=compression, use_dictionary=False)
    column = pq.ParquetFile(bench.raw).metadata.row_group(1).column(0)
    whole = bytearray(bench.raw.read_bytes())
    whole[column.data_page_offset + 40 : column.data_page_offset + column.total_compressed_size] = b"\x5a" * (
        column.total_compressed_size - 40
    )
    bench.raw.write_bytes(whole)
    with pytest.raises(
        UserError, match=r"shard s: .*raw\.parquet, row group 1 is damaged.*download it again"
    ) as caught:
        bench.prepare()
    assert len(str(caught.value).splitlines()) == 1
    assert list(bench.out.iterdir()) == []


def test_a_page_that_arrow_passes_over_is_missed(bench):
    """One bit of a page's type, and Arrow reads the row group without its rows and without a word."""
    bench.write(documents(30), row_group_size=10)
    whole = bytearray(bench.raw.read_bytes())
    whole[pq.ParquetFile(bench.raw).metadata.row_group(1).column(0).data_page_offset + 1] ^= 1
    bench.raw.write_bytes(whole)
    assert pq.read_table(bench.raw, columns=["text"]).num_rows == 20
    with pytest.raises(UserError, match=r"row group 1 is damaged \(10 rows are missing\)"):
        bench.prepare()


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.data())
def test_with_checksums_no_changed_byte_goes_unnoticed(checked, data):
    """A page that a checksum guards is as it was written, or the row group is named."""
    bench, whole, expected, places = checked
    at = places[data.draw(st.integers(0, len(places) - 1))]
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    bench.raw.write_bytes(changed)
    try:
        found = list(prepare.rows_of(bench.raw, "s", bench.settings.data))
    except UserError as error:
        assert "row group" in str(error)
    else:
        assert found == expected


@pytest.fixture(scope="module")
def one_bench(new_bench):
    return new_bench()


@pytest.fixture(scope="module")
def checked(new_bench):
    """A file with checksums, its rows, and the places of its pages' bytes."""
    bench = new_bench()
    bench.write(documents(30), row_group_size=10, write_page_checksum=True)
    footer = pq.ParquetFile(bench.raw).metadata
    columns = [footer.row_group(group).column(i) for group in range(3) for i in range(2)]
    places = []
    for column in columns:
        first = column.dictionary_page_offset or column.data_page_offset
        places += range(first, first + column.total_compressed_size)
    return bench, bench.raw.read_bytes(), list(prepare.rows_of(bench.raw, "s", bench.settings.data)), places


@hypothesis_settings(max_examples=120, deadline=None)
@given(st.data(), st.sampled_from(["none", "snappy", "zstd"]))
def test_any_damage_is_one_line_or_dropped_rows(one_bench, data, compression):
    """Without checksums a change can pass for text; but it is never a traceback."""
    bench = one_bench
    bench.write(documents(12), row_group_size=5, compression=compression)
    changed = bytearray(bench.raw.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    bench.raw.write_bytes(changed)
    try:
        manifest = bench.prepare()
    except UserError as error:
        assert len(str(error).splitlines()) == 1 and "shard s" in str(error)
    else:
        assert manifest["rows_in"] == manifest["kept"] + sum(manifest["dropped"].values())


# ------------------------------------------------------------- whole or not


def test_the_same_bytes_twice(bench, new_bench, snapshot):
    other = new_bench()
    bench.prepare(documents(40))
    other.prepare(documents(40))
    assert snapshot(bench.out) == snapshot(other.out)
    assert snapshot(bench.out).keys() == {*store.FILES, "manifest.json"}


def test_a_failed_run_leaves_the_shard_that_was_there(bench, snapshot):
    bench.prepare(documents(40))
    before = snapshot(bench.out)
    bench.write(documents(30), row_group_size=10)
    bench.raw.write_bytes(bench.raw.read_bytes()[:-100])
    with pytest.raises(UserError):
        bench.prepare()
    assert snapshot(bench.out) == before


KILLED = """
import os, signal, sys
from tokencodes import cli, files
from tokencodes.data import prepare, store

calls = 0
def counted(module, name):
    original = getattr(module, name)
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls > int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)
    setattr(module, name, call)

counted(store, "write_split")
counted(files, "fsync_file")
counted(files, "fsync_directory")
counted(prepare.np, "save")
raise SystemExit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize("after", [0, 1, 2, 5, 7, 9, 10])  # two splits, the counts, four syncs, five moves
@pytest.mark.parametrize("old", [True, False])
def test_a_kill_leaves_the_old_shard_or_none(bench, after, old, snapshot):
    if old:
        bench.prepare(documents(20))
    before = snapshot(bench.out)
    bench.write(documents(40))
    done = subprocess.run([sys.executable, "-c", KILLED, str(after), *bench.command()], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    left = snapshot(bench.out)
    if (bench.out / "manifest.json").exists():
        assert old and {name: left[name] for name in before} == before
    assert (bench.out / ".scratch").is_dir()
    assert bench.prepare()["kept"] == 40
    assert snapshot(bench.out).keys() == {*store.FILES, "manifest.json"}


@some
@given(limit=st.integers(0, 9_000))
def test_a_full_disk_leaves_the_shard_that_was_there(new_bench, small_files, snapshot, limit):
    bench = new_bench()
    bench.prepare(documents(5))
    before = snapshot(bench.out)
    bench.write(documents(400))
    assert bench.settings  # made before the disk is full
    with small_files(limit), pytest.raises(UserError, match=r"store/s.*: the disk is full \(File too large\)"):
        bench.prepare()
    assert snapshot(bench.out) == before


@pytest.mark.parametrize("place", ["open", "write_split", "save", "manifest", "mkdir"])
def test_a_disk_that_fills_anywhere_is_one_line(bench, place, monkeypatch, snapshot, one_line):
    bench.prepare(documents(5))
    before, command = snapshot(bench.out), bench.command()
    bench.write(documents(40))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    targets = {"open": (prepare.SplitWriter, "add"), "write_split": (store, "write_split"), "save": (np, "save")}
    targets |= {"manifest": (ShardManifest, "write"), "mkdir": (Path, "mkdir")}
    monkeypatch.setattr(*targets[place], full)
    assert "s: the disk is full (No space left on device); nothing was changed there" in one_line(*command)
    assert snapshot(bench.out) == before


def test_two_processes_at_one_shard(bench):
    bench.prepare(documents(40))
    with files.files_together(bench.out, last="manifest.json"):
        with pytest.raises(UserError, match="store/s: another process is writing here; wait for it or stop it"):
            bench.prepare()
    assert bench.prepare()["kept"] == 40


def test_an_interrupt_is_no_half_shard(bench, monkeypatch, snapshot):
    bench.prepare(documents(5))
    before = snapshot(bench.out)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "write_split", stop)
    with pytest.raises(KeyboardInterrupt):
        bench.prepare(documents(40))
    assert snapshot(bench.out) == before and ".scratch" not in os.listdir(bench.out)


# ------------------------------------------------------------------ rechecking


def test_a_difference_stops_the_shard(bench, monkeypatch):
    """Not as the user's mistake: with the document's name."""
    right = Encoder.encode_batch
    monkeypatch.setattr(Encoder, "encode_batch", lambda self, texts: [ids[::-1] for ids in right(self, texts)])
    rows = pa.table({"text": ["abc dgh fee " * 9] * 3, "id": ["first", "second", "third"]})
    with pytest.raises(RuntimeError, match="shard s: `tokenizers` encodes document 'first' otherwise"):
        bench.prepare(rows)
    assert not (bench.out / "manifest.json").exists()


def test_one_in_a_thousand_is_encoded_again(bench, monkeypatch):
    again = []
    right = Encoder.reference
    monkeypatch.setattr(Encoder, "reference", lambda self, text: again.append(text) or right(self, text))
    monkeypatch.setattr(prepare, "RECHECKED", 0.1)
    bench.prepare(
        pa.table({"text": [f"abc dgh fee {i} " * 9 for i in range(400)], "id": [f"d{i}" for i in range(400)]})
    )
    assert 15 < len(again) < 70  # 40 expected, with 6 standard deviations
    first, again[:] = list(again), []
    bench.prepare()
    assert again == first
