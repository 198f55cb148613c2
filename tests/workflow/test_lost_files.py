"""Whatever a stage needs is declared: a file of a finished run that is lost is made again."""

import shutil

import pytest

from drawing import cases

pytestmark = pytest.mark.workflow

# Files that no rule reads; what is below runs/ beside final.json belongs to the training itself.
UNREAD = ("logs/", ".lock", ".slurm", "benchmarks/", "runs/")


@pytest.fixture
def whole(finished):
    """A finished run whose raw shards are the user's files; the stand-in copies nothing."""
    for shard in ("part-0", "part-1"):
        shutil.copy2(
            finished.folder / f"corpus/{shard}.parquet", finished.folder / f"results/tiny/data/raw/{shard}.parquet"
        )
    return finished


def files(project):
    results = project.folder / "results/tiny"
    paths = sorted(path.relative_to(results).as_posix() for path in results.rglob("*") if path.is_file())
    return [path for path in paths if path.endswith("final.json") or not path.startswith(UNREAD)]


def remade(project, name):
    """Lose a file, and ask what would run; the file is put back."""
    path = project.folder / "results/tiny" / name
    path.rename(project.folder / "lost")
    planned = project.planned()
    (project.folder / "lost").rename(path)
    return planned


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "manifest.json"])
def test_a_lost_file_of_the_tokenizer_is_made_again(whole, name):
    assert remade(whole, f"data/tokenizer/{name}")["tokenizer"] == 1


@pytest.mark.parametrize(("label", "draw"), cases("lost files", 5))
def test_any_lost_file_is_made_again(label, draw, whole):
    name = draw.choice(files(whole))
    raw = name.startswith("data/raw/")  # no longer needed
    assert bool(remade(whole, name)) != raw, (label, name)


@pytest.mark.long
def test_each_lost_file_is_made_again(whole):
    for name in files(whole):
        assert bool(remade(whole, name)) != name.startswith("data/raw/"), name
