"""Runs `tokencodes` in its place: training that finds the file `hold` in its run folder waits before a step.

So a run cannot end before a test has interrupted it, however quick or busy the machine. Only its first attempt waits.
It replaces `hold` by `held`, with its process and its Slurm job, if it has one. It goes on after a signal to stop, or
when the file `release` exists. If `hold` contains "deaf", it ignores signals, as in a step that lasts longer than Slurm
waits.
"""

import os
import sys
import time

from tokencodes import cli
from tokencodes.files import write_text

BEFORE = 151  # step; neither just behind a checkpoint nor just before one


def hold(trainer) -> None:
    """Wait in the trainer's step."""
    sign = trainer.out / "hold"
    if not sign.exists():
        return
    deaf = sign.read_text() == "deaf"
    sign.unlink()
    write_text(trainer.out / "held", f"{os.getpid()} {os.environ.get('SLURM_JOB_ID', '-')}\n")
    while not (trainer.out / "release").exists() and (deaf or trainer.stop.reason is None):
        time.sleep(0.05)


def hold_training() -> None:
    """Put the wait in front of the step."""
    from tokencodes.train import loop

    update = loop.Trainer.update

    def held(trainer, step):
        if step == BEFORE:
            hold(trainer)
        return update(trainer, step)

    loop.Trainer.update = held


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        hold_training()
    raise SystemExit(cli.main())
