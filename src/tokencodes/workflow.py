"""What the Snakefile needs beside its rules: one run at a time on a results folder, and a word before retraining."""

import fcntl
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from tokencodes import codeversion, config
from tokencodes.errors import UserError
from tokencodes.files import differences, digest, read_json

TRAINING = "tokencodes.train.loop"
FATE = {
    "restart": "they will be trained again; to keep them: --rerun-triggers mtime input (for this call), or "
    "train.on_code_change: continue (for good)",
    "refuse": "they are kept; train.on_code_change: restart trains them again, continue accepts them",
}


def hold(results: Path) -> IO[str]:
    """Take a results folder for this process; the file that is returned holds the lock while it is open.

    The kernel drops the lock when the process ends, in whatever way. Raises UserError if another process has it. A file
    system without locks refuses nothing: each training run's own lock, and Snakemake's, are still there.
    """
    results.mkdir(parents=True, exist_ok=True)
    file = open(results / ".lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"{results}: another snakemake is at work here; wait for it, stop it, or give this run another `name`"
        ) from None
    except OSError:
        pass
    return file


def wait_for_orphans(run_dirs: Iterable[Path]) -> None:
    """A training run outlives a Snakemake that was killed. Let it end: its work is continued, and two never meet."""
    for run_dir in run_dirs:
        if not (run_dir / ".lock").exists():
            continue
        with open(run_dir / ".lock") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{run_dir} is still being trained by a job of before; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError:
                pass  # a file system without locks


def trained_by(run_dir: Path) -> str | None:
    """Digest of the code that trained a finished run; None if it is not finished, or does not say."""
    try:
        return read_json(run_dir / "final.json").get("code")
    except (UserError, AttributeError):
        return None


def training_code(run_dir: Path, on_code_change: str) -> str:
    """Digest that decides whether a run is trained again: today's code; of a finished run, its own, unless `restart`.

    Weeks of GPUs are not spent because a line was edited.
    """
    today = codeversion.digest(TRAINING)
    return today if on_code_change == "restart" else trained_by(run_dir) or today


def refuse_other_configs(runs: Iterable[tuple[Path, config.Run]]) -> None:
    """Before any job, since Snakemake deletes the outputs of a job that it starts: no run of another config is touched.

    Raises UserError, one line a run folder whose final.json, or else newest whole checkpoint, has another identity.
    """
    problems = []
    for run_dir, run in runs:
        here = run.identity()
        try:
            final = read_json(run_dir / "final.json").get("run_sha256")
            if final == digest(here):
                continue
        except (UserError, AttributeError):
            final = None
        there = made_by(run_dir)
        if there is not None and there != here:
            unequal = differences(there, here)
            said = f"{'; '.join(unequal[:3])}{' ...' if unequal[3:] else ''}"
        elif final is not None and there is None:
            said = "its final.json has another run_sha256"
        else:
            continue
        problems.append(
            f"{run_dir}: was made by another config: {said}; restore that, use another `name`, or delete the folder to "
            "train anew"
        )
    if problems:
        raise UserError("\n".join(problems))


def made_by(run_dir: Path) -> dict[str, Any] | None:
    """The identity in the newest checkpoint's manifest that can be read; None if there is none."""
    for manifest in sorted(run_dir.glob("checkpoints/step_*/manifest.json"), reverse=True):
        try:
            return read_json(manifest)["identity"]
        except (UserError, KeyError, TypeError):
            continue
    return None


def warn_of_other_code(run_dirs: Iterable[Path], on_code_change: str) -> None:
    """Say which finished models were trained by other code than today's, and what will become of them."""
    today = codeversion.digest(TRAINING)
    others = [run_dir.name for run_dir in run_dirs if trained_by(run_dir) not in (None, today)]
    if others and on_code_change in FATE:
        say(f"warning: the training code has changed since {', '.join(others)} was trained: {FATE[on_code_change]}")


def say(text: str) -> None:
    """One line on stderr."""
    print(f"tokencodes: {text}", file=sys.stderr, flush=True)
