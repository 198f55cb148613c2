"""What the Snakefile needs beside its rules: one run at a time on a results folder, what is repeated, what failed,
and a word before retraining.
"""

import fcntl
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from tokencodes import codeversion, config
from tokencodes.errors import EXIT_DONE, EXIT_STOPPED_EARLY, UserError
from tokencodes.files import differences, digest, read_json, write_text

TRAINING = "tokencodes.train.loop"
QUEUE_EVERY_S = 15  # between looks at Slurm's queue
BEGIN, END = "=== ", re.compile(r"=== exit code (\d+) after \d+ s(, after a signal)?")  # of workflow/scripts/logged.sh
UNHEARD = 3  # attempts of a job that never began
STOPPED = re.compile(r"tokencodes: .* start again to go on")  # as StoppedEarly is told; torchrun hides its exit code
TOLD = re.compile(r"tokencodes: |\w*(?:Error|Exception)\b")  # a line that says why a stage failed
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


def wait_for_jobs(results: Path, run_id: str) -> None:
    """Slurm jobs outlive a Snakemake that was killed: let them end. `run_id` is noted, the name of this call's jobs."""
    record = results / ".slurm"
    before = record.read_text().split() if record.exists() else []
    told = False
    while before and (jobs := in_queue(before)):
        if not told:
            say(
                f"{results}: Slurm has {len(jobs)} job(s) of a call before; waiting for them; to go on at once, and "
                f"submit them again: scancel {' '.join(jobs)}"
            )
            told = True
        time.sleep(QUEUE_EVERY_S)
    write_text(record, f"{run_id}\n")


def in_queue(names: Sequence[str]) -> list[str]:
    """Ids of the Slurm jobs of these names that wait or run. Raises UserError if Slurm does not answer."""
    command = ["squeue", "--noheader", "--format=%i", f"--name={','.join(names)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"squeue does not answer ({' '.join(done.stderr.split())}); start again when Slurm does")
    return done.stdout.split()


def last_attempt(log: Path) -> list[str]:
    """The lines of a log since a stage last began; [] if there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    begun = [n for n, line in enumerate(lines) if line.startswith(BEGIN) and not END.fullmatch(line)]
    return lines[begun[-1] :] if begun else []


def retries(logs: Iterable[Path], allowed: int, results: Path) -> int:
    """How often a failed job is repeated: `allowed` times if it was interrupted, never if a stage ended in an error.

    One of which neither is known (refused by sbatch, cancelled while it waited) is tried a few times more.
    """
    begun = (results / ".slurm").stat().st_mtime if (results / ".slurm").exists() else 0.0
    ends = [ending(log) for log in logs if log.exists() and log.stat().st_mtime >= begun]
    if "failed" in ends:
        return 0
    return allowed if "interrupted" in ends else min(allowed, UNHEARD)


def ending(log: Path) -> str:
    """How a stage last ended, by its log: `done`, `interrupted` (it may do better when it is repeated) or `failed`.

    One that was killed together with its shell has no last line. A crash, a mistake of the user and lack of memory
    would be the same again.
    """
    lines = last_attempt(log)
    ended = END.fullmatch(lines[-1]) if lines else None
    if ended is None:
        return "interrupted"
    code, signalled = int(ended[1]), ended[2]
    if code == EXIT_DONE:
        return "done"
    stopped = code == EXIT_STOPPED_EARLY or signalled or any(map(STOPPED.fullmatch, lines))
    return "interrupted" if stopped else "failed"


Failure = tuple[str, dict[str, str], list[str], list[str]]  # rule, wildcards, logs, outputs


def say_what_failed(jobs: Sequence[Failure], options: Sequence[str]) -> None:
    """At the end of a call: each job that failed, why, its log, and what runs it again with this call's `options`."""
    for rule, wildcards, logs, outputs in sorted(jobs, key=lambda job: (job[0], sorted(job[1].items()))):
        about = " ".join([rule, *wildcards.values()])
        said = [line for log in logs for line in last_attempt(Path(log)) if TOLD.match(line)]
        say(f"failed: {about}{': ' + said[-1].removeprefix('tokencodes: ') if said else ''}")
        for log in logs:
            say(f"  its log: {log}")
        say(f"  again:   {shlex.join(['snakemake', *outputs[:1], *options])}")
    if jobs:
        say("what does not depend on it went on; the same call as before runs it and what depends on it")


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
