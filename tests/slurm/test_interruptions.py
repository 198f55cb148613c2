"""A training job that is interrupted in each way that a cluster knows ends with the bits of one that was not.

Most of the time is waiting, for Slurm and for Snakemake to look at it: the ways that leave other jobs alone go side by
side. The others are in test_whole_node.py.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from trial import MODEL, Trial, bits, slurm


def state(job: str) -> str:
    """PENDING, RUNNING, ..."""
    return slurm("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}").strip()


def own_time_budget(straight):
    """Two ranks under one task stop themselves in time, and are submitted again until they are done, within one call.

    The budget is over after each step: three steps, three jobs. torchrun hides the exit code of its ranks.
    """
    budget = Trial.of(
        straight, "budget", n_gpus=2, micro_batch_size=1, max_steps=3, warmup_steps=1, time_budget_min=1e-4
    )
    budget.end(budget.start())
    stops = [f"train {MODEL}: stopped at step {step} (time budget); start again to go on" for step in (1, 2)]
    assert all(stop in budget.training_log() for stop in stops)
    assert budget.output.count("has been submitted with SLURM jobid") == budget.attempts() == 3
    assert json.loads((budget.run / "final.json").read_text())["hardware"]["ranks"] == 2

    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--", "tokencodes.cli"]
    files = ["--run", budget.run / "run.yaml", "--store", budget.run.parents[1] / "data/store", "--out", "alone"]
    command = [sys.executable, *torchrun, "train", *map(str, files), "--time-budget", "60"]
    subprocess.run(command, cwd=straight.folder, env=straight.environment, check=True, capture_output=True)
    assert bits(budget.run) == bits(straight.folder / "alone")


def requeue(straight):
    """By the administrator, or by Slurm itself: the same Slurm job, and no retry of Snakemake's."""
    requeued = Trial.of(straight, "requeue", hold="until told")
    call = requeued.start()
    _, job = requeued.held(call)
    slurm("scontrol", "requeue", job)
    requeued.end(call)
    assert requeued.job() == job and "Restarts=1" in slurm("scontrol", "show", "job", job)
    assert "Trying to restart job" not in requeued.output
    assert requeued.attempts() == 2
    requeued.assert_the_same_bits()


def scancel(straight):
    """The job is cancelled, not Snakemake."""
    cancelled = Trial.of(straight, "scancel", hold="until told")
    call = cancelled.start()
    _, job = cancelled.held(call)
    slurm("scancel", job)
    cancelled.end(call)
    assert state(job) == "CANCELLED" and cancelled.job() != job
    assert "(SIGTERM); start again to go on" in cancelled.training_log()
    assert "after a signal" in cancelled.training_log()
    assert cancelled.attempts() == 2
    cancelled.assert_the_same_bits()


def time_out(straight):
    """The limit comes within a step that lasts longer than Slurm waits: the job is killed before it can save."""
    late = Trial.of(straight, "time_out", hold="deaf")
    call = late.start()
    _, job = late.held(call)
    slurm("scontrol", "update", f"jobid={job}", "EndTime=now")
    late.end(call)
    assert state(job) == "TIMEOUT" and late.job() != job
    assert late.attempts() == 2 and f"train {MODEL}: again after step 100" in late.training_log()
    late.assert_the_same_bits()


def kill_9(straight):
    """Of Snakemake. A call before it is refused; the one after it waits for the job that lives on, and goes on."""
    killed = Trial.of(straight, "kill_9", hold="until told")
    call = killed.start()
    _, job = killed.held(call)
    second = subprocess.run(
        killed.project.command(config=f"{killed.name}.yaml", profile="slurm"),
        cwd=killed.project.folder,
        env=killed.project.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 2 and "another snakemake is at work here" in second.stderr
    os.killpg(call.pid, signal.SIGKILL)
    call.wait()
    call = killed.start(again=True)
    killed.wait_until(
        lambda: f"to go on at once, and submit them again: scancel {job}" in killed.output, "a call that waits"
    )
    killed.release()
    killed.end(call)
    assert state(job) == "COMPLETED" and killed.attempts() == 1
    killed.assert_the_same_bits()


SIDE_BY_SIDE = (own_time_budget, requeue, scancel, time_out, kill_9)


@pytest.fixture(scope="module")
def endings(straight):
    """Each way -> what came of it."""
    with ThreadPoolExecutor(len(SIDE_BY_SIDE)) as pool:
        return {way: pool.submit(way, straight) for way in SIDE_BY_SIDE}


@pytest.mark.parametrize("way", SIDE_BY_SIDE, ids=lambda way: way.__name__)
def test_the_same_bits(endings, way):
    endings[way].result()
