"""A trial of the workflow on the one-node cluster: what its tests share."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from project import PATIENCE, Project, wait_until

QUICK = ("--slurm-init-seconds-before-status-checks", "2")  # the profile's 20 are for queues of hours
MODEL = "binary9-s0"
STEPS = {"max_steps": 200, "validate_every": 100, "checkpoint_every": 100, "log_every": 20}


def slurm(*command: str) -> str:
    """What a command of Slurm prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@dataclass(frozen=True)
class Trial:
    """One call of Snakemake that trains a model on a store that exists, under a name of its own."""

    project: Project
    name: str

    @classmethod
    def of(cls, project: Project, name: str, hold: str = "", **train: Any) -> "Trial":
        """A run with the data of the one that was not interrupted; changes are of the config's section `train`.

        `hold`: the training waits within its first attempt, "until told" or, if "deaf", whatever signal comes.
        """
        value = json.loads((project.folder / "straight.yaml").read_text())
        value["name"] = name
        value["train"] |= train
        project.configure(value, f"{name}.yaml")
        shutil.copytree(project.folder / "results/straight/data", project.folder / "results" / name / "data")
        trial = cls(project, name)
        if hold:
            trial.run.mkdir(parents=True)
            (trial.run / "hold").write_text(hold)
        return trial

    @property
    def run(self) -> Path:
        return self.project.folder / "results" / self.name / "runs" / MODEL

    @property
    def log(self) -> Path:
        return self.project.folder / "results" / self.name / "logs/train" / f"{MODEL}.log"

    @property
    def output(self) -> str:
        """What Snakemake has printed so far."""
        return (self.project.folder / f"{self.name}.log").read_text()

    def evidence(self) -> str:
        """What a failed test shows: the output of Snakemake and of training, and Slurm's jobs."""
        return f"{self.output}\n--- {self.log}\n{self.training_log()}\n--- squeue\n{slurm('squeue', '--states=all')}"

    def held(self, call: subprocess.Popen) -> tuple[int, str]:
        """Wait until the training waits; returns its process and its Slurm job."""

        def is_held() -> bool:
            assert call.poll() is None, "Snakemake has ended before training was held"
            return (self.run / "held").exists()

        self.wait_until(is_held, "training that is held")
        pid, job = (self.run / "held").read_text().split()
        return int(pid), job

    def release(self) -> None:
        """Let the training that waits continue."""
        (self.run / "release").touch()

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Poll; on failure show the evidence."""
        try:
            wait_until(condition, PATIENCE, what)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.evidence()}") from None

    def start(self, *options: str, again: bool = False) -> subprocess.Popen:
        """Snakemake in the background."""
        if again:
            (self.project.folder / f"{self.name}.log").rename(self.project.folder / f"{self.name}.before.log")
        target = f"results/{self.name}/runs/{MODEL}/final.json"
        options = (*QUICK, *options)
        return self.project.start(target, *options, log=f"{self.name}.log", config=f"{self.name}.yaml", profile="slurm")

    def end(self, call: subprocess.Popen, code: int = 0) -> None:
        """Wait for Snakemake's end."""
        try:
            assert call.wait(timeout=PATIENCE) == code, self.evidence()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"Snakemake does not end\n{self.evidence()}") from None

    def training_log(self) -> str:
        """What training has printed so far, in all attempts."""
        return self.log.read_text() if self.log.exists() else ""

    def job(self) -> str:
        """The Slurm job that was submitted last."""
        return self.output.rpartition("SLURM jobid ")[2].split()[0]

    def attempts(self) -> int:
        """How often training began."""
        text = self.training_log()
        return sum(text.count(f"train {MODEL}: {start}") for start in ("from the start", "again after"))

    def assert_the_same_bits(self) -> None:
        """Equal to the run that was not interrupted."""
        assert bits(self.run) == bits(self.project.folder / "results/straight/runs" / MODEL)


def bits(run: Path) -> tuple[str, str, bytes]:
    """What two equal runs have in common."""
    final = json.loads((run / "final.json").read_text())
    return final["model_sha256"], final["metrics_sha256"], (run / "metrics.jsonl").read_bytes()


@dataclass(frozen=True)
class Whole:
    """Snakemake at work on a config from documents to the report, while other tests run."""

    project: Project
    call: subprocess.Popen

    def end(self) -> tuple[Project, str]:
        """Wait for it; returns what Snakemake has printed."""
        log = self.project.folder / "out.log"
        try:
            assert self.call.wait(timeout=PATIENCE) == 0, log.read_text()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"Snakemake does not end\n{log.read_text()}") from None
        return self.project, log.read_text()
