"""What a run records while it trains: one JSON line per step, and progress lines for people.

metrics.jsonl has the values that the config determines: loss, learning rate, gradient norm, tokens, validation loss. It
has the same bytes for an interrupted run and an uninterrupted one. Clock times are in timing.jsonl and differ.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from tokencodes.errors import UserError
from tokencodes.files import write_text
from tokencodes.model.shape import flops_per_token
from tokencodes.train.spec import Run

TERA = 1e12
REDRAW_S = 0.1  # shortest time between two updates of a terminal's line, seconds
CLEAR_LINE = "\r\x1b[K"


class Journal:
    """An append-only file of JSON lines; each has the key "step"."""

    def __init__(self, path: Path, last_step: int, *, complete: bool):
        """Continue after `last_step`: drop lines of later steps, and a last line that a kill has truncated.

        With `complete`, raises UserError unless the file has each of the steps 1 to `last_step`.
        """
        self.path = path
        lines = []
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    step = json.loads(line)["step"]
                except (json.JSONDecodeError, KeyError, TypeError):
                    continue
                if isinstance(step, int) and step <= last_step:
                    lines.append((step, line))
        if complete and [step for step, _ in lines] != list(range(1, last_step + 1)):
            raise UserError(
                f"{path}: lacks some of the steps 1 to {last_step} before the checkpoint; restore the file, or delete "
                f"{path.parent} to train from the start"
            )
        write_text(path, "".join(line + "\n" for _, line in lines))
        self.file = open(path, "a", encoding="utf-8")

    def append(self, record: dict[str, Any]) -> None:
        """Write one line, floats in their shortest exact form. Raises ValueError for NaN and infinity."""
        self.file.write(json.dumps(record, allow_nan=False) + "\n")
        self.file.flush()

    def sync(self) -> None:
        """Flush all lines to the disk, before a checkpoint records that their steps are done."""
        os.fsync(self.file.fileno())


class Board:
    """The same records for TensorBoard, under DIR/tensorboard: one curve per key, except `step`.

    Each start of a run adds an event file. Its `purge_step` tells TensorBoard from which step on to ignore the points
    of older event files.
    """

    def __init__(self, folder: Path, last_step: int):
        """Continue after `last_step`. Raises UserError if the package tensorboard is not installed."""
        self.writer = summary_writer()(str(folder), purge_step=last_step + 1)

    def append(self, record: dict[str, Any]) -> None:
        """Add one point per curve. A null value adds none."""
        for key, value in record.items():
            if key != "step" and value is not None:
                self.writer.add_scalar(key, value, record["step"])

    def sync(self) -> None:
        """Write the queued points: a resumed run does not repeat the steps before its checkpoint."""
        self.writer.flush()


def summary_writer() -> type:
    """TensorBoard's SummaryWriter. Raises UserError if its package is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "train.tensorboard: true needs the package tensorboard; `pip install tensorboard`, or set it to false"
        ) from None
    return SummaryWriter


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All records of a journal."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def pace(run: Run, seconds: float, memory_mib: float) -> dict[str, float | None]:
    """Speed and memory of a step: tokens per second over all ranks, MFU (None without `peak_tflops`), peak MiB."""
    train = run.train
    tokens_per_s = train.tokens_per_step / seconds
    flops = flops_per_token(run.model) * tokens_per_s
    return {
        "tokens_per_s": tokens_per_s,
        "mfu": flops / (train.n_gpus * train.peak_tflops * TERA) if train.peak_tflops else None,
        "memory_mib": memory_mib,
        "step_s": seconds,
    }


def clock(seconds: float) -> str:
    """h:mm:ss, or m:ss below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress:
    """Progress of a run on stderr.

    A log gets a line every `log_every` steps and at each validation. A terminal has one line that is rewritten, and
    keeps a line at each validation.
    """

    def __init__(self, run: str, start: int, n_steps: int, tokens_per_step: int, log_every: int):
        self.run, self.n_steps, self.tokens_per_step, self.log_every = run, n_steps, tokens_per_step, log_every
        self.live = sys.stderr.isatty()
        self.since, self.since_step, self.drawn = time.monotonic(), start, 0.0

    def step(self, record: dict[str, Any]) -> None:
        """Report a finished step."""
        step, now = record["step"], time.monotonic()
        lasting = step == self.n_steps or "val_loss" in record
        due = lasting or step % self.log_every == 0
        if not due and not (self.live and now - self.drawn >= REDRAW_S):
            return
        seconds = (now - self.since) / (step - self.since_step)
        line = progress_line(step, self.n_steps, record, self.tokens_per_step / seconds, seconds)
        if self.live:
            line = f"train {self.run}: {line}"
            width = shutil.get_terminal_size().columns - 1
            print(CLEAR_LINE + line[:width], end="\n" if lasting else "", file=sys.stderr, flush=True)
            self.drawn = now
        else:
            say(self.run, line)
        if due:
            self.since, self.since_step = now, step

    def close(self) -> None:
        """Clear the terminal's last line."""
        if self.live and self.drawn:
            print(CLEAR_LINE, end="", file=sys.stderr, flush=True)


def say(run: str, text: str) -> None:
    """Print one line on stderr."""
    print(f"train {run}: {text}", file=sys.stderr, flush=True)


def progress_line(step: int, n_steps: int, record: dict[str, Any], tokens_per_s: float, s_per_step: float) -> str:
    """step 120/300  loss 5.912  val 6.013  lr 2.1e-03  2,310 tokens/s  ETA 0:45"""
    validation = f"  val {record['val_loss']:.3f}" if "val_loss" in record else ""
    return (
        f"step {step}/{n_steps}  loss {record['loss']:.3f}{validation}  lr {record['lr']:.2e}  "
        f"{tokens_per_s:,.0f} tokens/s  ETA {clock((n_steps - step) * s_per_step)}"
    )
