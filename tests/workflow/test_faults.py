"""Failures and kills: what goes on, what is said, and what the next call does."""

import re
import signal
import subprocess
import time

import pytest

pytestmark = pytest.mark.workflow


def start(project, *arguments, **env):
    """Snakemake in the background, its output in out.log."""
    log = open(project.folder / "out.log", "w")
    return subprocess.Popen(
        project.command(*arguments),
        cwd=project.folder,
        env={**project.environment, **env},
        stdout=log,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_until(condition, seconds=120):
    """Poll; fail when it takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def at_work(project, call):
    log = project.folder / "calls.log"
    return log.exists() and call in log.read_text()


def test_when_one_job_fails_the_others_go_on_and_the_next_call_runs_it_alone(fresh):
    output = fresh.snakemake(code=1, env={"STAND_IN_FAILS": "train binary9-s0"})
    assert "Error in rule train:" in output
    assert re.search(r"log: results/tiny/logs/train/binary9-s0\.log", output)
    assert "train binary9-s0 fails" in (fresh.folder / "results/tiny/logs/train/binary9-s0.log").read_text()
    assert (fresh.folder / "results/tiny/eval/learned-s0/corpus_validation-0shot.json").exists()
    fresh.calls()
    fresh.snakemake()
    assert [call for call in fresh.calls() if not call.startswith(("tables", "figures", "report"))] == [
        "evaluate binary9-s0 corpus_validation",
        "export binary9-s0",
        "resolve binary9",
        "train binary9-s0",
        "validate binary9-s0",
    ]
    assert fresh.planned() == {}


def test_after_kill_9_a_new_call_waits_for_the_orphan_and_goes_on(fresh):
    first = start(fresh, STAND_IN_SLEEPS="6")
    wait_until(lambda: at_work(fresh, "train learned-s0") and at_work(fresh, "train binary9-s0"))
    first.send_signal(signal.SIGKILL)
    first.wait()
    output = fresh.snakemake()
    assert "is still being trained by a job of before; waiting" in output
    assert fresh.planned() == {}
    calls = fresh.calls()
    assert calls.count("prepare part-0") == 1  # what was finished is not repeated


def test_a_second_call_on_the_same_results_is_refused_and_another_name_is_not(fresh):
    first = start(fresh, STAND_IN_SLEEPS="8")
    wait_until(lambda: at_work(fresh, "train learned-s0"))
    output = fresh.snakemake(code=2)
    assert "results/tiny: another snakemake is at work here" in output
    assert "Traceback" not in output
    fresh.snakemake("--config", "name=other")
    assert first.wait(timeout=120) == 0, (fresh.folder / "out.log").read_text()
    assert fresh.planned() == {}
    assert fresh.planned("--config", "name=other") == {}


def test_what_a_job_says_after_the_signal_that_stops_it_is_heard(fresh):
    """Slurm sends SIGTERM to every process of a job: the copying of the log must not die before the stage."""
    prefix = (fresh.folder / "workflow/rules/common.smk").read_text()
    function = re.search(r"'(logged\(\).*?); '", prefix)[1].replace("{{", "{").replace("}}", "}")
    stage = "trap 'sleep 0.3; echo saved >&2; exit 75' TERM; echo ready >&2; while :; do sleep 0.1; done"
    script = f'set -euo pipefail; {function}; logged out.log bash -c "$STAGE"'
    job = subprocess.Popen(
        ["bash", "-c", script],
        cwd=fresh.folder,
        env={**fresh.environment, "STAGE": stage},
        start_new_session=True,
        stderr=subprocess.PIPE,
    )
    log = fresh.folder / "out.log"
    wait_until(lambda: log.exists() and "ready" in log.read_text())
    children = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True, check=True).stdout.split()
    for child in children:  # the stage and the copying; the shell between them would die of it
        subprocess.run(["kill", "-TERM", child], check=False)
    assert job.wait(timeout=20) == 75
    assert log.read_text().splitlines() == ["ready", "saved"]
