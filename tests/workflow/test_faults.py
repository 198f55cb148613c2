"""Failures and kills: what continues, what is reported, and what the next call does."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from project import PATIENCE, wait_until
from tokencodes import attempts

pytestmark = pytest.mark.workflow


def started_and_waits(project, *models):
    """A call whose training of these models has its lock, and waits."""
    call = project.start(env={"STAND_IN_WAITS": "go"})
    log = project.folder / "out.log"
    project.wait_for(call, log, lambda: all((project.folder / f"results/tiny/runs/{m}/waits").exists() for m in models))
    return call


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
    first = started_and_waits(fresh, "learned-s0", "binary9-s0")
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = fresh.start(log="second.log")
    log = fresh.folder / "second.log"
    fresh.wait_for(second, log, lambda: "a job of an earlier call still trains" in log.read_text())
    (fresh.folder / "go").touch()
    assert second.wait(PATIENCE) == 0, log.read_text()
    assert fresh.planned() == {}
    calls = fresh.calls()
    assert calls.count("prepare part-0") == 1  # what was finished is not repeated


def test_ctrl_c_while_waiting_is_one_line_and_harms_nothing(fresh):
    first = started_and_waits(fresh, "learned-s0")
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = fresh.start(log="second.log")
    log = fresh.folder / "second.log"
    fresh.wait_for(second, log, lambda: "waiting for it" in log.read_text())
    second.send_signal(signal.SIGINT)
    assert second.wait(PATIENCE) == 2
    assert "tokencodes: error: stopped while waiting for jobs of an earlier call" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_second_call_on_the_same_results_is_refused_and_another_name_is_not(fresh):
    first = started_and_waits(fresh, "learned-s0")
    output = fresh.snakemake(code=2)
    owner = f"process {first.pid} on {socket.gethostname()}"
    assert f"results/tiny: another snakemake is at work here ({owner})" in output
    assert "Traceback" not in output
    fresh.snakemake("--config", "name=other")
    (fresh.folder / "go").touch()
    assert first.wait(PATIENCE) == 0, (fresh.folder / "out.log").read_text()
    assert fresh.planned() == {}
    assert fresh.planned("--config", "name=other") == {}


def test_what_a_job_says_after_the_signal_that_stops_it_is_heard(fresh):
    """Slurm sends SIGTERM to every process of a job: neither the shell nor the copying must die before the stage."""
    stage = "trap 'sleep 0.3; echo saved >&2; exit 75' TERM; echo ready >&2; while :; do sleep 0.1; done"
    script = 'set -euo pipefail; source "workflow/scripts/logged.sh"; logged logs/out.log bash -c "$STAGE"'
    job = subprocess.Popen(
        ["bash", "-c", script],
        cwd=fresh.folder,
        env={**fresh.environment, "STAGE": stage},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = fresh.folder / "logs/out.log"
    wait_until(lambda: log.exists() and "ready" in log.read_text())
    os.killpg(job.pid, signal.SIGTERM)
    assert {"ready", "saved"} <= set(job.communicate(timeout=PATIENCE)[1].splitlines())
    assert job.returncode == 75
    _, *lines, ended = log.read_text().splitlines()
    assert {"ready", "saved"} <= set(lines)
    assert re.fullmatch(r"=== exit code 75 after \d+ s, after a signal", ended)
    assert attempts.last_outcome(log) == "interrupted"


def test_a_log_keeps_what_earlier_attempts_said(fresh):
    """Snakemake removes a job's log before it runs the job again."""
    fresh.snakemake(code=1, env={"STAND_IN_FAILS": "train binary9-s0"})
    fresh.snakemake()
    text = (fresh.folder / "results/tiny/logs/train/binary9-s0.log").read_text()
    assert text.count("train is at work") == 2 and text.count("=== exit code 2 ") == 1
    starts = re.findall(
        r"^=== \d{4}-\d\d-\d\d \S+ host \S+, GPUs .+; tokencodes \S+, torch \S+, snakemake", text, re.MULTILINE
    )
    assert len(starts) == 4  # resolve and train, twice


def test_a_reader_that_goes_away_stops_nothing(fresh):
    """As `snakemake 2>&1 | head`: what is left of the run goes on unseen, and the lock is free afterwards."""
    call = subprocess.Popen(
        fresh.command(), cwd=fresh.folder, env=fresh.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    fresh.started.append(call)
    while "Building DAG" not in (line := call.stdout.readline().decode()):
        assert line
    call.stdout.close()
    call.wait(PATIENCE)
    assert fresh.planned() == {}
    assert "Nothing to be done" in fresh.snakemake()


def test_stages_end_well_although_their_logs_are_deleted_meanwhile(fresh):
    call = started_and_waits(fresh, "learned-s0", "binary9-s0")
    shutil.rmtree(fresh.folder / "results/tiny/logs")
    (fresh.folder / "go").touch()
    assert call.wait(PATIENCE) == 0, (fresh.folder / "out.log").read_text()
    assert fresh.planned() == {}


@pytest.mark.parametrize("results", ["a_file", "a_file/below", "/dev/null"])
def test_results_that_cannot_be_written_are_refused_in_one_line_and_by_a_dry_run(fresh, results):
    (fresh.folder / "a_file").touch()
    for options in (["--dry-run"], []):
        output = fresh.snakemake(*options, "--config", f"results={results}", code=2)
        assert len(re.findall("^tokencodes: error: ", output, re.MULTILINE)) == 1 and "Traceback" not in output
    assert fresh.calls() == []


def test_the_end_of_a_call_names_what_failed_its_log_and_what_runs_it_again(fresh):
    output = fresh.snakemake(
        "tables", "report", code=1, env={"STAND_IN_FAILS": "train binary9-s0,benchmarks corpus_validation"}
    )
    lines = [line.removeprefix("tokencodes: ") for line in output.splitlines() if line.startswith("tokencodes: ")]
    assert "failed: train binary9 0: error: train binary9-s0 fails" in lines
    assert "  its log: results/tiny/logs/train/binary9-s0.log" in lines
    assert "failed: benchmarks corpus_validation: error: benchmarks corpus_validation fails" in lines
    (again,) = (line for line in lines if line.startswith("  again:") and "binary9" in line)
    command = shlex.split(again.removeprefix("  again:"))
    assert command[:2] == ["snakemake", "results/tiny/runs/binary9-s0/final.json"] and "tables" not in command
    done = subprocess.run([sys.executable, "-m", *command], cwd=fresh.folder, env=fresh.environment, check=False)
    assert done.returncode == 0
    assert [call for call in fresh.calls() if call.startswith("train")].count("train binary9-s0") == 2
    assert set(fresh.planned()) == {"benchmarks", "evaluate", "export", "figures", "report", "tables", "validate"}


def test_a_finished_run_without_checkpoints_is_not_trained_again(finished):
    """Snakemake deletes the output of a job that it starts: the only trace of days on GPUs."""
    results = finished.folder / "results/tiny"
    for folder in results.glob("runs/*/checkpoints"):
        shutil.rmtree(folder)
    for path in [*results.glob("data/raw/*"), *results.glob("data/store/*/*.arrow")]:
        path.unlink()  # as results/README.md says it
    shutil.rmtree(results / "data/benchmarks")
    shutil.rmtree(results / "tables")
    assert finished.planned("tables", "figures", "report") == {"tables": 1, "report": 1}
    finals = {path: path.read_bytes() for path in results.glob("runs/*/final.json")}
    (results / "data/store/manifest.json").unlink()
    finished.calls()
    for options in (["--dry-run"], []):
        output = finished.snakemake("tables", "figures", "report", *options, code=2)
        assert len(re.findall(r"tokencodes: error: \S*runs/\S+: is finished, and the call would train it", output)) == 2
        assert "Traceback" not in output
        assert not options or "train: learned, seed 0" in output, "a dry run shows its plan all the same"
    assert {path: path.read_bytes() for path in results.glob("runs/*/final.json")} == finals
    assert finished.calls() == []
