"""What the Snakefile needs beside its rules: one run at a time on a results folder, what is repeated, what failed,
and a word before retraining.
"""

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from tokencodes import codeversion
from tokencodes.errors import EXIT_DONE, EXIT_STOPPED_EARLY, UserError
from tokencodes.files import differences, digest, lock, read_json, write_text
from tokencodes.train.spec import Run

TRAINING = "tokencodes.train.loop"
QUEUE_EVERY_S = 15  # between looks at Slurm's queue
# Of workflow/scripts/logged.sh: the lines before and after an attempt.
BEGIN = re.compile(r"=== (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4}) ")
END = re.compile(r"=== exit code (\d+) after \d+ s(, after a signal)?")
STARTED = re.compile(r"train \S+: (from the start|again after step \d+),")
UNHEARD = 3  # attempts of a job that never began
STOPPED = re.compile(r"tokencodes: .* start again to go on")  # as StoppedEarly is told; torchrun hides its exit code
TOLD = re.compile(r"tokencodes: |\w*(?:Error|Exception)\b")  # a line that says why a stage failed
REMEDY = "if it was its time limit, raise runtime_min of its stage (`resources` in the config)"
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
    if not lock(file):
        raise UserError(
            f"{results}: another snakemake is at work here; wait for it, stop it, or give this run another `name`"
        )
    return file


def wait_for_orphans(run_dirs: Iterable[Path]) -> None:
    """A training run outlives a Snakemake that was killed. Let it end: its work is continued, and two never meet."""
    for run_dir in run_dirs:
        if not (run_dir / ".lock").exists():
            continue
        with open(run_dir / ".lock") as file:
            if not lock(file):
                say(f"{run_dir} is still being trained by a job of before; waiting for it")
                lock(file, wait=True)


def wait_for_jobs(results: Path, run_id: str) -> bool:
    """Slurm jobs outlive a Snakemake that was killed: let them end. `run_id` is noted, the name of this call's jobs.

    Returns whether there were any.
    """
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
    return told


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
    begun = [n for n, line in enumerate(lines) if BEGIN.match(line)]
    return lines[begun[-1] :] if begun else []


def again(logs: Iterable[Path], submitted: int, allowed: int, results: Path) -> bool:
    """Whether a job that failed is submitted again, having been so `submitted` times in this call.

    Not if a stage ended in an error. If it was interrupted: until that has happened more than `allowed` times in a row
    without getting further, so a training job that each time gets further has no end but its last step. What is
    submitted and never begins (refused by sbatch, cancelled while it waits) is tried a few times more.
    """
    logs = list(logs)
    begun = call_begun(results)
    ends = [ending(log) for log in logs if log.exists() and log.stat().st_mtime >= begun]
    if "failed" in ends:
        return False
    each = [interruptions(log, begun) for log in logs]
    never_began = submitted - max(map(len, each), default=0)
    return never_began <= min(allowed, UNHEARD) and max(map(in_vain, each), default=0) <= allowed


def call_begun(results: Path) -> float:
    """When this call on a cluster began, in seconds since the epoch; 0 if none did."""
    record = results / ".slurm"
    return record.stat().st_mtime if record.exists() else 0.0


def interruptions(log: Path, since: float) -> list[str | None]:
    """Of each attempt since then that was interrupted: where training began, None if it did not, or is no training."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    begun = [n for n, line in enumerate(lines) if BEGIN.match(line)]
    found = []
    for start, end in pairwise([*begun, len(lines)]):
        block = lines[start:end]
        when = datetime.strptime(BEGIN.match(block[0])[1], "%Y-%m-%d %H:%M:%S%z").timestamp()
        if when >= int(since) and how_it_ended(block) == "interrupted":
            found.append(next((match[1] for line in block if (match := STARTED.match(line))), None))
    return found


def in_vain(starts: Sequence[str | None]) -> int:
    """How many of the last attempts got no further than the one before, the first of them included."""
    count, known = 0, None
    for start in starts:
        count = 1 if start not in (None, known) else count + 1
        known = start or known
    return count


def ending(log: Path) -> str:
    """How a stage last ended, by its log."""
    return how_it_ended(last_attempt(log))


def how_it_ended(lines: Sequence[str]) -> str:
    """`done`, `interrupted` (it may do better when it is repeated) or `failed`, by an attempt's lines.

    One that was killed together with its shell has no last line. A crash, a mistake of the user and lack of memory
    would be the same again.
    """
    ended = END.fullmatch(lines[-1]) if lines else None
    if ended is None:
        return "interrupted"
    code, signalled = int(ended[1]), ended[2]
    if code == EXIT_DONE:
        return "done"
    stopped = code == EXIT_STOPPED_EARLY or signalled or any(map(STOPPED.fullmatch, lines))
    return "interrupted" if stopped else "failed"


Failure = tuple[str, dict[str, str], list[str], list[str]]  # rule, wildcards, logs, outputs


def say_what_failed(jobs: Sequence[Failure], options: Sequence[str], results: Path) -> None:
    """At the end of a call: each job that failed, why, its log, and what runs it again with this call's `options`."""
    begun = call_begun(results)
    for rule, wildcards, logs, outputs in sorted(jobs, key=lambda job: (job[0], sorted(job[1].items()))):
        about = " ".join([rule, *wildcards.values()])
        said = [line for log in logs for line in last_attempt(Path(log)) if TOLD.match(line)]
        cut = [Path(log) for log in logs if ending(Path(log)) == "interrupted"]
        if vain := max((in_vain(interruptions(log, begun)) for log in cut), default=0):
            why = f"interrupted {vain} times in a row without getting further; {REMEDY}"
        else:
            why = said[-1].removeprefix("tokencodes: ") if said else ""
        say(f"failed: {about}{f': {why}' if why else ''}")
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


def refuse_other_configs(runs: Iterable[tuple[Path, Run]]) -> None:
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


def refuse_to_train_anew(run_dirs: Iterable[Path]) -> None:
    """Before Snakemake deletes their final.json: finished runs without checkpoints could only start from nothing.

    Raises UserError, one line a run that the call would train again. With checkpoints it goes on from them.
    """
    problems = [
        f"{run_dir}: is finished, and the call would train it from the start, for something that it was made from is "
        "missing or has changed (a dry run, -n, says what) and its checkpoints are gone; restore that, or delete the "
        "folder to train anew"
        for run_dir in run_dirs
        if (run_dir / "final.json").exists() and not any(run_dir.glob("checkpoints/step_*"))
    ]
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


def triggered_by_code(options: Sequence[str]) -> bool:
    """Whether a call of Snakemake with these options looks at the code's digest, a parameter of the rules.

    Snakemake settles its triggers after it has read the rules.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rerun-triggers", nargs="+", default=["params"])
    return "params" in parser.parse_known_args(options)[0].rerun_triggers


def say(text: str) -> None:
    """One line on stderr."""
    print(f"tokencodes: {text}", file=sys.stderr, flush=True)
