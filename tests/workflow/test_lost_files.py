"""Whatever a stage needs is declared: a file of a finished run that is lost is made again."""

import pytest

from drawing import cases

pytestmark = pytest.mark.workflow

# Files that no rule reads; what is below runs/ beside final.json belongs to the training itself.
UNREAD = ("logs/", ".lock", ".slurm", "benchmarks/", "runs/")


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
def test_a_lost_file_of_the_tokenizer_is_made_again(finished, name):
    assert remade(finished, f"data/tokenizer/{name}")["tokenizer"] == 1


@pytest.mark.parametrize(("label", "draw"), cases("lost files", 5))
def test_any_lost_file_is_made_again(label, draw, finished):
    name = draw.choice(files(finished))
    raw = name.startswith("data/raw/")  # no longer needed
    assert bool(remade(finished, name)) != raw, (label, name)


@pytest.mark.long
def test_each_lost_file_is_made_again(finished):
    for name in files(finished):
        assert bool(remade(finished, name)) != name.startswith("data/raw/"), name
