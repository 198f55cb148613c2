"""A corpus that changes under a run, on stand-ins: it is made again, or refused before any job; nothing stays stale."""

import os
import shutil

import pytest

from drawing import cases

pytestmark = pytest.mark.workflow

N_CASES = 4
HOURS = 3600


def write(path, draw):
    path.write_bytes(draw.randbytes(draw.randint(1, 50)))


def older(path, draw):
    """Replaced by another file, with an older time."""
    write(path, draw)
    past = path.stat().st_mtime - draw.randint(1, 5000) * HOURS
    os.utime(path, (past, past))


def newer(path, draw):
    write(path, draw)


def future(path, draw):
    """As by a machine whose clock is wrong."""
    write(path, draw)
    later = path.stat().st_mtime + draw.randint(1, 5000) * HOURS
    os.utime(path, (later, later))


CHANGES = (older, newer, future)


@pytest.mark.parametrize(("label", "draw"), cases("changed shards", N_CASES))
def test_a_changed_shard_is_prepared_again_even_after_a_download_that_failed(label, draw, fresh):
    index = "results/tiny/data/store/manifest.json"
    fresh.snakemake(index)
    assert fresh.planned(index) == {}, label
    shard, change = draw.choice(["part-0", "part-1"]), draw.choice(CHANGES)
    change(fresh.folder / f"corpus/{shard}.parquet", draw)
    fresh.calls()
    if failing := draw.random() < 0.7:
        fresh.snakemake(index, code=1, env={"STAND_IN_FAILS": f"download {shard}"})
    assert fresh.planned(index) == {"download": 1, "prepare": 1, "index": 1}, (label, change.__name__, failing)
    fresh.snakemake(index)
    assert fresh.calls().count(f"prepare {shard}") == 1
    assert fresh.planned(index) == {}, label


@pytest.mark.parametrize(("label", "draw"), cases("other corpus", N_CASES))
def test_another_corpus_under_trained_models_is_refused_before_any_job_and_by_a_dry_run(label, draw, finished):
    corpus = finished.folder / "corpus"
    for shard in ("part-0", "part-1"):  # the stand-in copies nothing
        shutil.copy2(corpus / f"{shard}.parquet", finished.folder / f"results/tiny/data/raw/{shard}.parquet")
    shard = draw.choice(["part-0", "part-1"])
    change = draw.choice([*CHANGES, "grown", "shrunk"])
    if change == "grown":
        shutil.copy2(corpus / f"{shard}.parquet", corpus / "part-2.parquet")
    elif change == "shrunk":
        (corpus / f"{shard}.parquet").unlink()
    else:
        change(corpus / f"{shard}.parquet", draw)
    files = sorted(path for path in (finished.folder / "results").rglob("*") if path.is_file())
    for options in (["--dry-run"], []):
        output = finished.snakemake(*options, code=2)
        (line,) = (line for line in output.splitlines() if line.startswith("tokencodes: error: "))
        assert "the corpus is no longer that of " in line and "learned-s0" in line, label
        assert "Traceback" not in output
    assert finished.calls() == []
    assert [path for path in files if not path.exists()] == [], label


def test_a_file_that_was_only_touched_is_no_other_corpus(finished):
    for shard in ("part-0", "part-1"):
        original = finished.folder / f"corpus/{shard}.parquet"
        shutil.copy2(original, finished.folder / f"results/tiny/data/raw/{shard}.parquet")
        original.touch()
    assert finished.planned()["prepare"] == 2
