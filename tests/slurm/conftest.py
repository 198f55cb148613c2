"""Snakemake on the one-node cluster that `make test-slurm` brings up; without one, these tests are skipped."""

from collections.abc import Iterator
from pathlib import Path

import cluster
import pytest
from trial import MODEL, QUICK, STEPS, Whole

from project import HELD, PATIENCE, Project, copy_of, tiny_value


def pytest_collection_modifyitems(items):
    """Everything in this folder needs the cluster."""
    here = Path(__file__).parent
    off = pytest.mark.skip(reason="no cluster is up; `make test-slurm` brings one up")
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slurm)
            if not cluster.running("slurmctld"):
                item.add_marker(off)


@pytest.fixture(scope="session")
def straight(root, tiny, tmp_path_factory) -> Iterator[Project]:
    """A project with the data and the run of one small model that was not interrupted: trained here, not by Slurm."""
    project = copy_of(root, tiny, tmp_path_factory.mktemp("slurm") / "project", stand_ins=False)
    value = tiny_value(tiny, name="straight", train=STEPS)
    del value["interfaces"]["learned"]
    project.configure(value, "straight.yaml")
    project.snakemake(f"results/straight/runs/{MODEL}/final.json", config="straight.yaml")
    project.run_stages_with(HELD)
    yield project
    project.kill()


@pytest.fixture(scope="session")
def _wholes() -> list[Whole]:
    """What goes on beside the tests."""
    return []


@pytest.fixture(scope="session")
def quickstart(root, tiny, tmp_path_factory, wheel_cache, _wholes) -> Iterator[Whole]:
    """`snakemake --profile slurm` in a fresh copy: the quickstart's own config. The short benchmarks go together."""
    project = copy_of(root, tiny, tmp_path_factory.mktemp("quickstart") / "project", stand_ins=False)
    groups = ("--groups", "prepare=shards", "evaluate=scores", "--group-components", "shards=8", "scores=18")
    options = (*QUICK, *groups, "--config", f"cache={wheel_cache}")
    _wholes.append(Whole(project, project.start(*options, config=None, profile="slurm")))
    yield _wholes[0]
    project.kill()


@pytest.fixture(scope="session", autouse=True)
def _begin_early(request) -> None:
    """The quickstart takes longest: it begins before the first test, if any test asks for it."""
    if cluster.running("slurmctld") and any("quickstart" in item.fixturenames for item in request.session.items):
        request.getfixturevalue("quickstart")


@pytest.fixture
def alone(_wholes) -> None:
    """Nothing else is on the node."""
    for whole in _wholes:
        whole.call.wait(timeout=PATIENCE)


@pytest.fixture
def staged(root, tiny, tmp_path) -> Project:
    """A fresh copy whose stages are stand-ins."""
    project = copy_of(root, tiny, tmp_path / "project", stand_ins=True)
    project.configure(tiny_value(tiny))
    return project
