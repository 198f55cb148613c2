"""Runs of training for tests: in this process or by the command line, stopped and continued, and their bits."""

import os
import subprocess
import sys

import torch

from project import PATIENCE
from tokencodes.errors import StoppedEarly
from tokencodes.train import checkpoint, distributed, loop
from tokencodes.yamlfile import dump


def bits(out) -> dict[str, bytes]:
    """Everything that must be equal at the end: all tensors of the last checkpoint, and the metrics."""
    last = checkpoint.sorted_paths(out / "checkpoints")[-1]
    files = {name: (last / f"{name}.safetensors").read_bytes() for name in ("model", "optimizer", "rng")}
    return {**files, "step": last.name.encode(), "metrics": (out / "metrics.jsonl").read_bytes()}


def stop_at(monkeypatch, steps):
    """Make the trainer stop after each of `steps`, as a signal would."""
    real = loop.Trainer.update

    def update(self, step):
        record, data_s, stopping = real(self, step)
        if step in steps:
            steps.remove(step)
            stopping = True
        return record, data_s, stopping

    monkeypatch.setattr(loop.Trainer, "update", update)


def train_until_done(run, store, out, attempts=20) -> int:
    for attempt in range(attempts):
        try:
            loop.train(run, store, out)
            return attempt
        except StoppedEarly:
            continue
    raise AssertionError("never finished")


def one_rank():
    return distributed.Ranks(0, 1, torch.device("cpu"))


def command(tiny, tmp_path, name="gf2", ranks=1, **train):
    run = tmp_path / "run.yaml"
    run.write_text(dump(tiny.config(train={**train, "n_gpus": ranks}).run(name, 0)))
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m", "--"]
    return [
        *(start if ranks > 1 else [sys.executable, "-m"]),
        *("tokencodes.cli", "train", "--run", str(run), "--store", str(tiny.store), "--out", str(tmp_path / "out")),
    ]


ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


def finish(line, attempts=10):
    for _ in range(attempts):
        done = subprocess.run(line, env=ENV, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode != 75:
            assert done.returncode == 0, done.stderr
            return
    raise AssertionError("never finished")


LONG = {"max_steps": 300, "checkpoint_every": 10, "validate_every": 40}


SPLIT = {1: {}, 2: {"micro_batch_size": 1}}
