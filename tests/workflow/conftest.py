"""The DAG in a copy of the project: with stand-ins that write what the stages declare, and with the stages."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from project import Project, copy_of, tiny_value


@pytest.fixture(scope="session")
def _finished(root, tiny, tmp_path_factory) -> Path:
    project = copy_of(root, tiny, tmp_path_factory.mktemp("workflow") / "finished", stand_ins=True)
    tasks = [{"name": "piqa", "shots": 0, "limit": None}, {"name": "corpus_validation", "shots": 0, "limit": None}]
    project.configure(tiny_value(tiny, evaluate={"tasks": tasks}))
    project.snakemake()
    for shard in ("part-0", "part-1"):  # the stand-in copies nothing, but a raw shard is the user's own file
        raw = project.folder / f"results/tiny/data/raw/{shard}.parquet"
        shutil.copy2(project.folder / f"corpus/{shard}.parquet", raw)
    return project.folder


@pytest.fixture
def finished(_finished, tmp_path) -> Project:
    """A project whose run is complete (made by stand-ins), to be changed."""
    shutil.copytree(_finished, tmp_path / "project", symlinks=True)
    project = Project(tmp_path / "project")
    project.calls()
    return project


@pytest.fixture
def fresh(root, tiny, tmp_path) -> Iterator[Project]:
    """A fresh copy with stand-ins, and nothing run. Training that waits for `go` ends with the test."""
    project = copy_of(root, tiny, tmp_path / "project", stand_ins=True)
    project.configure(tiny_value(tiny))
    yield project
    (project.folder / "go").touch()
    project.kill()


@pytest.fixture
def real(root, tiny, tmp_path) -> Iterator[Project]:
    """A fresh copy with the stages themselves: one model, trained for some seconds."""
    project = copy_of(root, tiny, tmp_path / "project", stand_ins=False)
    steps = {"max_steps": 300, "validate_every": 100, "checkpoint_every": 100, "log_every": 50}
    value = tiny_value(tiny, train=steps)
    del value["interfaces"]["learned"]
    project.configure(value)
    yield project
    project.kill()
