"""Snakemake on the one-node cluster that `make test-slurm` brings up; without one, these tests are skipped."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cluster
import pytest

from project import Project, copy_of, tiny_value, wait_until

QUICK = ("--slurm-init-seconds-before-status-checks", "2")  # the profile's 20 are for queues of hours
MODEL = "binary9-s0"
STEPS = {"max_steps": 600, "validate_every": 200, "checkpoint_every": 100, "log_every": 20}


def pytest_collection_modifyitems(items):
    """Everything in this folder needs the cluster."""
    here = Path(__file__).parent
    off = pytest.mark.skip(reason="no cluster is up; `make test-slurm` brings one up")
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slurm)
            if not cluster.running("slurmctld"):
                item.add_marker(off)


def slurm(*command: str) -> str:
    """What a command of Slurm prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@dataclass(frozen=True)
class Trial:
    """One call of Snakemake that trains a model on a store that is there, under a name of its own."""

    project: Project
    name: str

    @classmethod
    def of(cls, whole: tuple[Project, str], name: str = "straight", **train: Any) -> "Trial":
        """The run that was not interrupted, or a new one with its data; changes are of the config's section `train`."""
        project = whole[0]
        if name != "straight":
            value = json.loads((project.folder / "straight.yaml").read_text())
            value["name"] = name
            value["train"] |= train
            project.configure(value, f"{name}.yaml")
            shutil.copytree(project.folder / "results/straight/data", project.folder / "results" / name / "data")
        return cls(project, name)

    @property
    def run(self) -> Path:
        return self.project.folder / "results" / self.name / "runs" / MODEL

    @property
    def log(self) -> Path:
        return self.project.folder / "results" / self.name / "logs/train" / f"{MODEL}.log"

    @property
    def said(self) -> str:
        """What Snakemake has said so far."""
        return (self.project.folder / f"{self.name}.log").read_text()

    def start(self, *options: str, again: bool = False) -> subprocess.Popen:
        """Snakemake in the background."""
        if again:
            (self.project.folder / f"{self.name}.log").rename(self.project.folder / f"{self.name}.before.log")
        target = f"results/{self.name}/runs/{MODEL}/final.json"
        options = (*QUICK, *options)
        return self.project.start(target, *options, log=f"{self.name}.log", config=f"{self.name}.yaml", profile="slurm")

    def end(self, call: subprocess.Popen, code: int = 0) -> None:
        """Wait for Snakemake's end."""
        assert call.wait(timeout=400) == code, self.said

    def words(self) -> str:
        """What the training has said so far, in all attempts."""
        return self.log.read_text() if self.log.exists() else ""

    def until(self, words: str) -> None:
        """Wait for words of the training."""
        wait_until(lambda: words in self.words(), what=f"{words!r} in {self.log}")

    def job(self) -> str:
        """The Slurm job that was submitted last."""
        return self.said.rpartition("SLURM jobid ")[2].split()[0]

    def attempts(self) -> int:
        """How often training began."""
        return self.words().count(f"train {MODEL}: from the start") + self.words().count(f"train {MODEL}: again after")

    def bits(self) -> tuple[str, str, bytes]:
        """Of its run."""
        return bits(self.run)


def bits(run: Path) -> tuple[str, str, bytes]:
    """What two runs that are the same have in common."""
    final = json.loads((run / "final.json").read_text())
    return final["model_sha256"], final["metrics_sha256"], (run / "metrics.jsonl").read_bytes()


@pytest.fixture(scope="session")
def whole(root, tiny, tmp_path_factory) -> tuple[Project, str]:
    """One model from documents to the report, through Slurm and without interruption; and what Snakemake said."""
    project = copy_of(root, tiny, tmp_path_factory.mktemp("slurm") / "project", stand_ins=False)
    value = tiny_value(tiny, name="straight", train=STEPS)
    del value["interfaces"]["learned"]
    project.configure(value, "straight.yaml")
    return project, project.snakemake(*QUICK, config="straight.yaml", profile="slurm")


@pytest.fixture
def staged(root, tiny, tmp_path) -> Project:
    """A fresh copy whose stages are stand-ins."""
    project = copy_of(root, tiny, tmp_path / "project", stand_ins=True)
    project.configure(tiny_value(tiny))
    return project


def shim(project: Project, program: str, script: str) -> None:
    """A program of the project's own that is found before the system's."""
    path = project.folder / "bin" / program
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
