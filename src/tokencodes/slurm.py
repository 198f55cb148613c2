"""Slurm's queue: what becomes of the jobs of a call. `squeue` alone answers, with or without accounting.

Snakemake's executor drops all jobs of a call when one query fails, and takes an unknown state for success
(docs/upstream.md). Here a query that fails changes nothing, and a job that has left Slurm's memory is judged by its
outputs.
"""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tokencodes.attempts import END, read, say
from tokencodes.errors import UserError

QUERY_LIMIT_S = 60
FAILED = frozenset({"BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"})
# Slurm may start such a job again: it has ended if a second look finds it as the first did.
PERHAPS_ENDED = frozenset({"NODE_FAIL", "PREEMPTED", "REVOKED"})
NOT_IN_QUEUE, FINISHED = "not in the queue", "finished, but still RUNNING for Slurm"
LAUNCH_FAILED = "launch failed requeued held"  # of a job that would wait for ever
WRAP_UP_S = 600  # from the last line of a job's log to the job's end, at most

ACTIVE, DONE, ERROR = "active", "done", "error"


@dataclass(frozen=True)
class Queued:
    """A job in Slurm's queue, or one that has left it lately."""

    state: str
    reason: str
    start: str  # local time; "N/A" before it is known


def queue(names: Sequence[str], *, ended: bool = False) -> dict[str, Queued]:
    """By id: the jobs of these names that wait or run; with `ended` also those that Slurm still knows.

    Raises UserError if Slurm does not answer.
    """
    command = ["squeue", "--noheader", "--array", "--format=%i|%T|%S|%r", f"--name={','.join(names)}"]
    try:
        answer = subprocess.run(
            [*command, *(["--states=all"] if ended else [])],
            capture_output=True,
            text=True,
            check=False,
            timeout=QUERY_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"squeue does not answer ({error}); `scontrol ping` shows whether Slurm does") from None
    if answer.returncode:
        words = " ".join(answer.stderr.split())
        raise UserError(f"squeue does not answer ({words}); `scontrol ping` shows whether Slurm does")
    rows = [line.split("|", 3) for line in answer.stdout.splitlines() if line.count("|") >= 3]
    return {number: Queued(state, reason, start) for number, state, start, reason in rows}


@dataclass
class Watch:
    """Looks at the jobs of one call."""

    name: str  # of all of them, in Slurm
    silent: bool = False  # Slurm did not answer the last time
    doubts: dict[str, str] = field(default_factory=dict)  # by id: why a job has perhaps ended, at the last look

    def look(self, logs: Mapping[str, Sequence[Path]]) -> dict[str, tuple[str, str]]:
        """By id: ACTIVE, DONE or ERROR, and Slurm's word for it, of the jobs with these ids and logs.

        Of a job that is DONE, the outputs say whether it has succeeded. If Slurm does not answer, all are active.
        """
        try:
            rows = queue([self.name], ended=True)
        except UserError as problem:
            if not self.silent:
                say(f"warning: {problem}; the jobs continue, and this call asks again until Slurm answers")
            self.silent = True
            return {number: (ACTIVE, str(problem)) for number in logs}
        if self.silent:
            say("Slurm answers again")
        self.silent = False
        before, self.doubts = self.doubts, {}
        return {number: self._judge(number, rows.get(number), files, before) for number, files in logs.items()}

    def wait(self, interval_s: float) -> None:
        """Return when Slurm answers."""
        self.look({})
        while self.silent:
            time.sleep(interval_s)
            self.look({})

    def _judge(
        self, number: str, row: Queued | None, logs: Sequence[Path], before: Mapping[str, str]
    ) -> tuple[str, str]:
        if row is not None and row.state in ("COMPLETED", *FAILED):
            return (DONE if row.state == "COMPLETED" else ERROR), row.state
        doubt = _doubt(row, logs)
        if doubt is None:
            return ACTIVE, row.state
        if before.get(number) != doubt:
            self.doubts[number] = doubt
            return ACTIVE, doubt
        if row is not None:
            cancel(number)  # so that Slurm does not start it beside its successor
        return (DONE if doubt in (NOT_IN_QUEUE, FINISHED) else ERROR), doubt


def _doubt(row: Queued | None, logs: Sequence[Path]) -> str | None:
    """Why a job has perhaps ended although Slurm does not say so; None if it goes on."""
    if row is None:
        return NOT_IN_QUEUE
    if row.state in PERHAPS_ENDED:
        return row.state
    if row.state == "PENDING" and row.reason == LAUNCH_FAILED:
        return LAUNCH_FAILED
    return FINISHED if row.state == "RUNNING" and _has_finished(row, logs) else None


def _has_finished(row: Queued, logs: Sequence[Path]) -> bool:
    """Whether all stages of a running job ended long ago: the daemon of its step was killed, or hangs."""
    try:
        begun = datetime.fromisoformat(row.start).timestamp()
        times = [log.stat().st_mtime for log in logs]
    except (OSError, ValueError):
        return False
    if not times or min(times) < begun or max(times) > time.time() - WRAP_UP_S:
        return False
    return all(lines and END.fullmatch(lines[-1][-1]) for lines in map(read, logs))


def cancel(number: str) -> None:
    """Cancel a job; nothing happens if it has ended."""
    subprocess.run(["scancel", number], capture_output=True, check=False, timeout=QUERY_LIMIT_S)
