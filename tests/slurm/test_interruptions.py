"""A training job that is interrupted in each way that a cluster knows ends with the bits of one that was not.

Most of the time is waiting, for Slurm and for Snakemake to look at it: ways that leave other jobs alone go together.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cluster
import pytest

from conftest import MODEL, Trial, bits, slurm
from project import wait_until


def state(job: str) -> str:
    """PENDING, RUNNING, ..."""
    return slurm("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}").strip()


def processes_of(job: str) -> list[int]:
    """The job's processes on the node: its steps' daemons and everything below them."""
    table = [line.split(None, 2) for line in slurm("ps", "-eo", "pid=,ppid=,args=").splitlines()]
    found = {int(pid) for pid, _, args in table if args.startswith(f"slurmstepd: [{job}.")}
    while below := {int(pid) for pid, parent, _ in table if int(parent) in found} - found:
        found |= below
    return sorted(found)


def trainer_of(job: str) -> int:
    """The process that trains."""
    lines = slurm("ps", "-eo", "pid=,args=").splitlines()
    mine = set(processes_of(job))
    pids = [int(line.split()[0]) for line in lines if "/tokencodes train --run" in line and "python" in line]
    return next(pid for pid in pids if pid in mine)


# ---------------------------------------------------------------- side by side


def own_time_budget(whole):
    """Two ranks under one task stop themselves in time, and are submitted again until they are done, within one call.

    The budget is over after each step: three steps, three jobs. torchrun hides the exit code of its ranks.
    """
    budget = Trial.of(whole, "budget", n_gpus=2, micro_batch_size=1, max_steps=3, warmup_steps=1, time_budget_min=1e-4)
    budget.end(budget.start())
    stops = [f"train {MODEL}: stopped at step {step} (time budget); start again to go on" for step in (1, 2)]
    assert all(stop in budget.words() for stop in stops)
    assert budget.said.count("has been submitted with SLURM jobid") == budget.attempts() == 3
    assert json.loads((budget.run / "final.json").read_text())["hardware"]["ranks"] == 2

    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--", "tokencodes.cli"]
    files = ["--run", budget.run / "run.yaml", "--store", budget.run.parents[1] / "data/store", "--out", "alone"]
    command = [sys.executable, *torchrun, "train", *map(str, files), "--time-budget", "60"]
    subprocess.run(command, cwd=budget.project.folder, env=budget.project.environment, check=True, capture_output=True)
    assert budget.bits() == bits(budget.project.folder / "alone")


def requeue(whole):
    """By the administrator, or by Slurm itself: the same Slurm job, and no retry of Snakemake's."""
    requeued = Trial.of(whole, "requeue")
    call = requeued.start()
    requeued.until("step 140/")
    job = requeued.job()
    slurm("scontrol", "requeue", job)
    requeued.end(call)
    assert requeued.job() == job and "Restarts=1" in slurm("scontrol", "show", "job", job)
    assert "Trying to restart job" not in requeued.said
    assert requeued.attempts() == 2
    assert requeued.bits() == Trial.of(whole).bits()


def scancel(whole):
    """The job is cancelled, not Snakemake."""
    cancelled = Trial.of(whole, "scancel")
    call = cancelled.start()
    cancelled.until("step 140/")
    job = cancelled.job()
    slurm("scancel", job)
    cancelled.end(call)
    assert state(job) == "CANCELLED" and cancelled.job() != job
    assert "(SIGTERM); start again to go on" in cancelled.words() and "after a signal" in cancelled.words()
    assert cancelled.attempts() == 2
    assert cancelled.bits() == Trial.of(whole).bits()


def time_out(whole):
    """The limit comes while a step lasts: the trainer is stopped until Slurm itself wakes and ends it."""
    late = Trial.of(whole, "time_out")
    call = late.start()
    late.until("step 140/")
    job = late.job()
    os.kill(trainer_of(job), signal.SIGSTOP)
    slurm("scontrol", "update", f"jobid={job}", "EndTime=now")
    late.end(call)
    assert state(job) == "TIMEOUT" and late.job() != job
    assert late.bits() == Trial.of(whole).bits()


def kill_9(whole):
    """Of Snakemake. A call before it is refused; the one after it waits for the job that lives on, and goes on.

    The trainer is stopped meanwhile, so that it is still there when the last call looks.
    """
    killed = Trial.of(whole, "kill_9")
    call = killed.start()
    killed.until("step 100/")
    job = killed.job()
    trainer = trainer_of(job)
    os.kill(trainer, signal.SIGSTOP)
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
    wait_until(lambda: f"to go on at once, and submit them again: scancel {job}" in killed.said)
    os.kill(trainer, signal.SIGCONT)
    killed.end(call)
    assert state(job) == "COMPLETED"
    assert killed.bits() == Trial.of(whole).bits()


SIDE_BY_SIDE = (own_time_budget, requeue, scancel, time_out, kill_9)


@pytest.fixture(scope="module")
def endings(whole):
    """Each way -> what came of it."""
    with ThreadPoolExecutor(len(SIDE_BY_SIDE)) as pool:
        return {way: pool.submit(way, whole) for way in SIDE_BY_SIDE}


@pytest.mark.parametrize("way", SIDE_BY_SIDE, ids=lambda way: way.__name__)
def test_the_same_bits(endings, way):
    endings[way].result()


# ---------------------------------------------------------------- on the whole node


def test_the_same_bits_after_preemption(whole):
    """A job of a higher partition takes the node; it saves within the grace time."""
    preempted = Trial.of(whole, "preemption")
    call = preempted.start("--set-resources", "train:slurm_partition=low")
    preempted.until("step 140/")
    slurm("sbatch", "--partition=high", f"--cpus-per-task={cluster.CPUS}", "--output=/dev/null", "--wrap=sleep 1")
    preempted.end(call)
    assert "(SIGTERM); start again to go on" in preempted.words()
    assert preempted.attempts() == 2
    assert preempted.bits() == Trial.of(whole).bits()


def test_the_same_bits_after_the_failure_of_a_node(whole):
    """It goes down with all its processes, and comes up again; Slurm, not Snakemake, starts the job again."""
    failed = Trial.of(whole, "node_failure")
    call = failed.start()
    failed.until("step 140/")
    job = failed.job()
    cluster.stop("slurmd", signal.SIGKILL)
    for pid in processes_of(job):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.states().startswith("down"), what="the node's end")
    cluster.start_node()
    failed.end(call)
    assert failed.attempts() == 2 and "=== exit code 75 " not in failed.words()
    assert failed.job() == job and "Restarts=1" in slurm("scontrol", "show", "job", job)
    assert failed.bits() == Trial.of(whole).bits()
