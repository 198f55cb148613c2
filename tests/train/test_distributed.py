"""Several ranks: they equal one within rounding, and a run may move between numbers of them."""

import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from project import PATIENCE
from runs import ENV, bits, command, finish, stop_at
from tokencodes.errors import StoppedEarly, UserError
from tokencodes.train import checkpoint, loop, metrics
from tokencodes.yamlfile import dump


def test_sharded_training_in_bfloat16_resumes_to_the_bit_and_may_end_on_one_rank(tiny, tmp_path):
    whole, stopped, moved = (tmp_path / name for name in ("whole", "stopped", "moved"))
    split = {"ranks": 2, "micro_batch_size": 1, "parallel": "fsdp", "precision": "bf16"}
    for folder in (whole, stopped, moved):
        folder.mkdir()
    finish(command(tiny, whole, **split))
    line = command(tiny, stopped, **split)
    for _ in range(2):
        subprocess.run([*line, "--time-budget", "0.0001"], env=ENV, capture_output=True, timeout=PATIENCE)
    assert len(metrics.read_jsonl(stopped / "out" / "metrics.jsonl")) == 2
    shutil.copytree(stopped / "out", moved / "out")
    finish(line)
    assert bits(stopped / "out") == bits(whole / "out")
    finish(command(tiny, moved, precision="bf16"))
    losses = [metrics.read_jsonl(folder / "out" / "metrics.jsonl")[-1]["val_loss"] for folder in (moved, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize(
    ("ranks", "split"),
    [
        (2, {"micro_batch_size": 1, "grad_accum_steps": 2}),
        (2, {"micro_batch_size": 1, "grad_accum_steps": 2, "parallel": "fsdp"}),
        (4, {"micro_batch_size": 1, "grad_accum_steps": 1}),
    ],
    ids=["ddp-2", "fsdp-2", "ddp-4"],
)
def test_any_number_of_ranks_equals_one_within_rounding(tiny, tmp_path, straight, ranks, split):
    finish(command(tiny, tmp_path, ranks=ranks, **split))
    one, many = (metrics.read_jsonl(out / "metrics.jsonl") for out in (straight("gf2"), tmp_path / "out"))
    assert len(one) == len(many) == 12
    for a, b in zip(one, many, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            assert a[key] == pytest.approx(b[key], rel=1e-4), (a["step"], key)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_run_may_move_to_another_number_of_ranks(tiny, tmp_path, straight, monkeypatch, parallel):
    with monkeypatch.context() as patch:
        stop_at(patch, {6})
        with pytest.raises(StoppedEarly):
            loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path / "out")
    finish(command(tiny, tmp_path, ranks=2, micro_batch_size=1, parallel=parallel))
    moved = metrics.read_jsonl(tmp_path / "out" / "metrics.jsonl")
    assert [line["step"] for line in moved] == list(range(1, 13))
    assert moved[-1]["val_loss"] == pytest.approx(metrics.read_jsonl(straight("gf2") / "metrics.jsonl")[-1]["val_loss"])
    weights = [
        load_file(checkpoint.sorted_paths(out / "checkpoints")[-1] / "model.safetensors")
        for out in (tmp_path / "out", straight("gf2"))
    ]
    for name, tensor in weights[1].items():
        torch.testing.assert_close(weights[0][name], tensor, rtol=1e-3, atol=1e-5)


def test_gradients_meet_once_a_step(tiny, tmp_path):
    """Inside an accumulation step no rank talks to another: with 4 micro-batches as many reductions as with 1."""
    counts = []
    for accum, micro in ((4, 1), (1, 4)):
        script = tmp_path / f"count{accum}.py"
        script.write_text(COUNT_REDUCTIONS)
        run = tmp_path / "run.yaml"
        split = {"n_gpus": 2, "grad_accum_steps": accum, "micro_batch_size": micro, "tokens_per_step": 128}
        run.write_text(dump(tiny.config(train=split).run("gf2", 0)))
        line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
        done = subprocess.run(
            [*line, str(run), str(tiny.store)], env=ENV, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
        counts.append(int(done.stdout.split()[-1]))
    assert counts[0] == counts[1] > 0


COUNT_REDUCTIONS = """
import sys, torch
from pathlib import Path
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from tokencodes.data.store import Store
from tokencodes.train import distributed, loop
from tokencodes.train.spec import load_run

run = load_run(sys.argv[1])
with distributed.job(run.train) as ranks:
    trainer = loop.Trainer(run, Store.open(Path(sys.argv[2])), Path("unused"), ranks, loop.Stop(None))
    calls = []

    def hook(state, bucket):
        calls.append(1)
        return default_hooks.allreduce_hook(state, bucket)

    trainer.module.register_comm_hook(None, hook)
    trainer.accumulate(1)
    if ranks.main:
        print(len(calls))
    del trainer
"""


@pytest.mark.parametrize("ending", ["done", "stopped", "our fault"])
def test_what_uses_the_group_of_ranks_is_gone_before_the_group(tiny, tmp_path, ending):
    """Else the last to hold the group may wait for Gloo's thread, and that for the interpreter, for ever."""
    script, run = tmp_path / "ending.py", tmp_path / "run.yaml"
    script.write_text(LIST_HOLDERS)
    run.write_text(dump(tiny.config(train={"n_gpus": 2, "micro_batch_size": 1}).run("gf2", 0)))
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(
        [*line, run, tiny.store, tmp_path / "out", ending], env=ENV, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert [word for word in done.stdout.split() if word.startswith("held-by-")] == ["held-by-0"] * 2, done.stdout


LIST_HOLDERS = """
import contextlib, gc, signal, sys
from pathlib import Path
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tokencodes.errors import StoppedEarly
from tokencodes.train import loop
from tokencodes.train.spec import load_run

run, store, out, ending = sys.argv[1:]
destroy, step = dist.destroy_process_group, loop.Trainer.update

def destroy_and_say():
    holders = sum(isinstance(each, DistributedDataParallel) for each in gc.get_objects())
    sys.stdout.write(f"held-by-{holders}\\n")
    destroy()

def update(self, number):
    assert any(isinstance(each, DistributedDataParallel) for each in gc.get_objects())
    if ending == "stopped":
        signal.raise_signal(signal.SIGTERM)
    if ending == "our fault":
        raise ZeroDivisionError
    return step(self, number)

dist.destroy_process_group, loop.Trainer.update = destroy_and_say, update
with contextlib.suppress(StoppedEarly, ZeroDivisionError):
    loop.train(load_run(run), Path(store), Path(out))
"""


def test_the_number_of_processes_is_asserted(tiny, tmp_path):
    run = tiny.config(train={"n_gpus": 2, "micro_batch_size": 1}).run("gf2", 0)
    with pytest.raises(UserError, match=r"n_gpus is 2 but 1 process.*torchrun --standalone --nproc-per-node 2"):
        loop.train(run, tiny.store, tmp_path)


def test_sharded_ranks_may_have_unequally_many_held_out_windows(tiny, tmp_path):
    """All must make as many forward passes: each gathers the weights from all."""
    odd = {"validation_windows": 5, "max_steps": 4}
    loop.train(tiny.config(train=odd).run("gf2", 0), tiny.store, tmp_path / "one")
    finish(command(tiny, tmp_path, ranks=2, micro_batch_size=1, parallel="fsdp", **odd))
    one, two = (metrics.read_jsonl(tmp_path / name / "metrics.jsonl")[-1]["val_loss"] for name in ("one", "out"))
    assert one == pytest.approx(two, rel=1e-5)
