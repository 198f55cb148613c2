"""A copy of the project and Snakemake in it: with stand-ins that write what the stages declare, or with the stages."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STAND_IN = HERE / "workflow" / "stand_in.py"
HELD = HERE / "held.py"
PATIENCE = 1800  # seconds for a whole call of Snakemake, of minutes on a quiet machine
COPIED = ("Snakefile", "slurm", "workflow", "config", "envs", "src")


def users_environment(*paths: Path) -> dict[str, str]:
    """This process' environment without the packages that are for developers alone; `paths`: to import from first."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [*paths, HERE / "runtime_only"])),
        "TOKENCODES_DEV_LOCK": str(HERE.parent / "envs/requirements-dev.lock"),
    }


@dataclass
class Project:
    """A copy of the project, and Snakemake in it."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.environment = {
            **users_environment(self.folder / "src"),
            "PATH": os.pathsep.join([str(self.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "XDG_CACHE_HOME": str(self.folder / "xdg"),
        }
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def command(self, *arguments: str, config: str | None = "tiny.yaml", profile: str = "local") -> list[str]:
        """`slurm` is found by its name, as on a cluster."""
        files = ["--configfile", config] if config else []
        local = ["--profile", f"workflow/profiles/{profile}", "--cores", "2"]
        profiles = ["--profile", "slurm"] if profile == "slurm" else local
        return [sys.executable, "-m", "snakemake", *arguments, *profiles, *files]

    def start(self, *arguments: str, env: dict[str, str] | None = None, log: str = "out.log", **kwargs: Any):
        """Snakemake in the background, in a session of its own; its output goes to a file in the folder.

        It hears Ctrl-C even if the tests do not, as when a shell has started them in the background.
        """
        with open(self.folder / log, "w") as file:
            call = subprocess.Popen(
                self.command(*arguments, **kwargs),
                cwd=self.folder,
                env={**self.environment, **(env or {})},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self.started.append(call)
        return call

    def wait_for(self, call: subprocess.Popen, log: Path, condition: Callable[[], object]) -> None:
        """Wait for something that a call in the background brings about; fail with its log if the call ends before."""
        wait_until(lambda: condition() or call.poll() is not None, PATIENCE, str(log))
        assert call.poll() is None, log.read_text()

    def kill(self) -> None:
        """What was started and has not ended, as when a test has failed."""
        for call in self.started:
            if call.poll() is None:
                os.killpg(call.pid, signal.SIGKILL)
                call.wait()

    def snakemake(self, *arguments: str, code: int = 0, env: dict[str, str] | None = None, **kwargs: Any) -> str:
        """Run it; returns stdout and stderr together."""
        done = subprocess.run(
            self.command(*arguments, **kwargs),
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def planned(self, *arguments: str, **kwargs: Any) -> dict[str, int]:
        """Jobs by rule that a dry run names, `all` aside; {} if there is nothing to do."""
        output = self.snakemake("--dry-run", *arguments, **kwargs)
        if "Nothing to be done" in output:
            return {}
        table = output.split("Job stats:")[-1]
        jobs = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}
        total = jobs.pop("total")
        assert total == sum(jobs.values())
        jobs.pop("all", None)
        return jobs

    def calls(self) -> list[str]:
        """What the stand-ins were called with since the last look, sorted."""
        log = self.folder / "calls.log"
        lines = sorted(log.read_text().splitlines()) if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    @property
    def config(self) -> dict[str, Any]:
        """The config as plain values."""
        return json.loads((self.folder / "tiny.yaml").read_text())

    def configure(self, value: dict[str, Any], name: str = "tiny.yaml") -> None:
        """Write a config."""
        (self.folder / name).write_text(json.dumps(value, indent=1))

    def put_first(self, program: str, script: str) -> None:
        """A program that is found before the system's and the environment's."""
        path = self.folder / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)

    def run_stages_with(self, script: Path) -> None:
        """Let a script stand in for `tokencodes`."""
        self.put_first("tokencodes", f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')

    def edit(self, path: str, old: str, new: str) -> None:
        """Change one place of a file."""
        file = self.folder / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))


def copy_of(root: Path, tiny: Any, folder: Path, *, stand_ins: bool) -> Project:
    """The project's own files in `folder` and a small corpus, with or without stand-ins on the PATH."""
    folder.mkdir(parents=True)
    for name in COPIED:
        source = root / name
        if source.is_symlink():
            (folder / name).symlink_to(source.readlink())
        elif source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, folder / name)
    shutil.copytree(tiny.folder / "corpus", folder / "corpus")
    project = Project(folder)
    if stand_ins:
        project.run_stages_with(STAND_IN)
    return project


def tiny_value(tiny: Any, **changes: Any) -> dict[str, Any]:
    """The tiny config as plain values, every key spelled out: two interfaces, two shards, one task."""
    value = tiny.config().model_dump(mode="json")
    del value["interfaces"]["gf2"]
    value["data"]["source"]["path"] = "corpus"
    value["train"]["on_code_change"] = "restart"
    for key, change in changes.items():
        value[key] = {**value[key], **change} if isinstance(change, dict) else change
    return value


def wait_until(condition: Callable[[], object], seconds: float = 600, what: str = "it", *, every: float = 0.1) -> None:
    """Poll each `every` seconds; fail when it takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} does not come"
        time.sleep(every)
