"""As test_interruptions.py: the ways that take the whole node, and with it all that runs there."""

import contextlib
import os
import signal

import cluster
import pytest
from trial import Trial, slurm

pytestmark = pytest.mark.usefixtures("alone")


def processes_of(job: str) -> list[int]:
    """The job's processes on the node: its steps' daemons and everything below them."""
    table = [line.split(None, 2) for line in slurm("ps", "-eo", "pid=,ppid=,args=").splitlines()]
    pids = {int(pid) for pid, _, args in table if args.startswith(f"slurmstepd: [{job}.")}
    while below := {int(pid) for pid, parent, _ in table if int(parent) in pids} - pids:
        pids |= below
    return sorted(pids)


def test_the_same_bits_after_preemption(straight):
    """A job of a higher partition takes the node; it saves within the grace time."""
    preempted = Trial.of(straight, "preemption", hold="until told")
    call = preempted.start("--set-resources", "train:slurm_partition=low")
    preempted.held(call)
    slurm("sbatch", "--partition=high", f"--cpus-per-task={cluster.CPUS}", "--output=/dev/null", "--wrap=sleep 1")
    preempted.end(call)
    assert "(SIGTERM); start again to go on" in preempted.training_log()
    assert preempted.attempts() == 2
    preempted.assert_the_same_bits()


def test_the_same_bits_after_the_failure_of_a_node(straight):
    """It goes down with all its processes, and comes up again; Slurm, not Snakemake, starts the job again."""
    failed = Trial.of(straight, "node_failure", hold="until told")
    call = failed.start()
    pid, job = failed.held(call)
    cluster.stop("slurmd", signal.SIGKILL)
    lost = processes_of(job)
    assert pid in lost
    for each in lost:
        with contextlib.suppress(ProcessLookupError):  # gone with its parent
            os.kill(each, signal.SIGKILL)
    failed.wait_until(lambda: cluster.states().startswith("down"), "the node's end")
    cluster.start_node()
    failed.end(call)
    assert failed.attempts() == 2 and "=== exit code 75 " not in failed.training_log()
    assert failed.job() == job and "Restarts=1" in slurm("scontrol", "show", "job", job)
    failed.assert_the_same_bits()


def test_the_same_bits_when_slurm_does_not_answer_for_a_while(straight):
    """The job ends while the controller is away; it is neither forgotten nor started again."""
    unseen = Trial.of(straight, "no_answer", hold="until told")
    call = unseen.start()
    unseen.held(call)
    cluster.stop("slurmctld")
    unseen.wait_until(lambda: "warning: squeue does not answer" in unseen.output, "a query without an answer")
    unseen.release()
    unseen.wait_until(lambda: (unseen.run / "final.json").exists(), "the end of training")
    cluster.start("slurmctld")
    unseen.end(call)
    assert "Slurm answers again" in unseen.output
    assert unseen.attempts() == 1
    unseen.assert_the_same_bits()


def test_a_job_whose_step_has_lost_its_daemon_is_not_waited_for(straight):
    """Its processes live on and finish the training, but for Slurm it may run until its time limit."""
    straight.edit("src/tokencodes/slurm.py", "WRAP_UP_S = 600", "WRAP_UP_S = 20")
    lost = Trial.of(straight, "lost_daemon", hold="until told")
    call = lost.start()
    _, job = lost.held(call)
    straight.edit("src/tokencodes/slurm.py", "WRAP_UP_S = 20", "WRAP_UP_S = 600")
    table = [line.split(None, 1) for line in slurm("ps", "-eo", "pid=,args=").splitlines()]
    for pid in (int(pid) for pid, args in table if args.startswith(f"slurmstepd: [{job}.")):
        os.kill(pid, signal.SIGKILL)
    lost.release()
    lost.end(call)
    lost.assert_the_same_bits()
