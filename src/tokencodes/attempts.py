"""The attempts of a job, read from its log: how each one ended, whether the job is submitted again, why it failed.

workflow/scripts/logged.sh writes a line before and a line after each attempt. All attempts of a job are in one log.
"""

import contextlib
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from tokencodes.errors import EXIT_DONE, EXIT_STOPPED_EARLY
from tokencodes.layout import Layout

# The lines of logged.sh.
BEGIN = re.compile(r"=== (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4}) ")
END = re.compile(r"=== exit code (\d+) after \d+ s(, after a signal)?")
TIME_FORMAT = "%Y-%m-%d %H:%M:%S%z"
# The lines of a stage.
TRAINING_START = re.compile(r"train \S+: (from the start|again after step \d+),")
STOPPED_EARLY = re.compile(r"tokencodes: .* start again to go on")  # of StoppedEarly; torchrun hides its exit code
REASON = re.compile(r"tokencodes: |\w*(?:Error|Exception)\b")

NEVER_BEGUN_MAX = 3  # submissions of a job that never begins
REMEDY = "if it was its time limit, raise runtime_min of its stage (`resources` in the config)"


@dataclass(frozen=True)
class FailedJob:
    """A job that Snakemake gave up."""

    rule: str
    wildcards: dict[str, str]
    logs: list[str]
    outputs: list[str]


# ------------------------------------------------------------------ one log


def read(log: Path) -> list[list[str]]:
    """The lines of each attempt, in order; [] if there is no log."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    starts = [number for number, line in enumerate(lines) if BEGIN.match(line)]
    return [lines[start:end] for start, end in pairwise([*starts, len(lines)])]


def outcome(lines: Sequence[str]) -> str:
    """`done`, `interrupted` (another attempt may do better) or `failed`, from the lines of one attempt.

    An attempt that was killed together with its shell has no last line: it was interrupted. A crash, a mistake of the
    user and lack of memory would be the same again: they have failed.
    """
    end = END.fullmatch(lines[-1]) if lines else None
    if end is None:
        return "interrupted"
    code, signalled = int(end[1]), end[2]
    if code == EXIT_DONE:
        return "done"
    stopped = code == EXIT_STOPPED_EARLY or signalled or any(map(STOPPED_EARLY.fullmatch, lines))
    return "interrupted" if stopped else "failed"


def last_outcome(log: Path) -> str:
    """The outcome of the last attempt in a log."""
    return outcome((read(log) or [[]])[-1])


def interruptions(log: Path, since: float) -> list[str | None]:
    """The attempts since a time (seconds since the epoch) that were interrupted: where training started in each.

    None if training did not start in it, or if the stage is another one.
    """
    return [
        next((match[1] for line in lines if (match := TRAINING_START.match(line))), None)
        for lines in read(log)
        if _began(lines) >= int(since) and outcome(lines) == "interrupted"
    ]


def _began(lines: Sequence[str]) -> float:
    return datetime.strptime(BEGIN.match(lines[0])[1], TIME_FORMAT).timestamp()


def without_progress(starts: Sequence[str | None]) -> int:
    """The number of interrupted attempts at the end that started where the one before did, their first included."""
    count, known = 0, None
    for start in starts:
        count = 1 if start not in (None, known) else count + 1
        known = start or known
    return count


# ---------------------------------------------------------- a job of a call


def call_began(layout: Layout) -> float:
    """When this call began on a cluster, in seconds since the epoch; 0 on one machine."""
    record = Path(layout.slurm)
    return record.stat().st_mtime if record.exists() else 0.0


def is_repeated(logs: Iterable[Path], submissions: int, retries: int, layout: Layout) -> bool:
    """Whether a job that ended without its outputs is submitted again, after so many submissions in this call.

    No, if one of its stages failed. If it was interrupted: yes, until `retries` interruptions in a row have brought no
    progress. So a training job that makes progress in each attempt is repeated until it is done. A job that never
    begins (sbatch refuses it, or it is cancelled while it waits) is submitted a few times.
    """
    logs = list(logs)
    began = call_began(layout)
    if any(last_outcome(log) == "failed" for log in logs if log.exists() and log.stat().st_mtime >= began):
        return False
    interrupted = [interruptions(log, began) for log in logs]
    never_begun = submissions - max(map(len, interrupted), default=0)
    return (
        never_begun <= min(retries, NEVER_BEGUN_MAX) and max(map(without_progress, interrupted), default=0) <= retries
    )


def report_failures(jobs: Sequence[FailedJob], options: Sequence[str], layout: Layout) -> None:
    """At the end of a call: print each job that failed, why, its log, and the command that runs it again.

    `options` are those of this call, without its targets.
    """
    began = call_began(layout)
    for job in sorted(jobs, key=lambda job: (job.rule, sorted(job.wildcards.items()))):
        reason = _reason([Path(log) for log in job.logs], began)
        say(f"failed: {' '.join([job.rule, *job.wildcards.values()])}{f': {reason}' if reason else ''}")
        for log in job.logs:
            say(f"  its log: {log}")
        say(f"  again:   {shlex.join(['snakemake', *job.outputs[:1], *options])}")
    if jobs:
        say("everything that does not depend on these jobs went on; the same call runs them and what depends on them")


def _reason(logs: Sequence[Path], began: float) -> str:
    cut_off = [log for log in logs if last_outcome(log) == "interrupted"]
    if count := max((without_progress(interruptions(log, began)) for log in cut_off), default=0):
        return f"interrupted {count} times in a row without progress; {REMEDY}"
    reasons = [line for log in logs for lines in read(log)[-1:] for line in lines if REASON.match(line)]
    return reasons[-1].removeprefix("tokencodes: ") if reasons else ""


def say(text: str) -> None:
    """One line on stderr, if anyone still reads it."""
    with contextlib.suppress(BrokenPipeError):
        print(f"tokencodes: {text}", file=sys.stderr, flush=True)
