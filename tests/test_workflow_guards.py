"""Locks on results, and the word before models are retrained."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from tokencodes import codeversion, workflow
from tokencodes.errors import UserError

TODAY = codeversion.digest(workflow.TRAINING)


def test_results_belong_to_one_process_until_it_ends_in_whatever_way(tmp_path):
    code = "import pathlib, sys, time; from tokencodes import workflow; held = workflow.hold(pathlib.Path(sys.argv[1]))"
    code += "; print('held', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x")], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=r"x: another snakemake is at work here"):
        workflow.hold(tmp_path / "x")
    workflow.hold(tmp_path / "y").close()
    other.kill()
    other.wait()
    workflow.hold(tmp_path / "x").close()


def test_an_orphan_is_waited_for(tmp_path, capsys):
    for name in ("idle", "busy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".lock").touch()
    lock = open(tmp_path / "busy/.lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    released = []

    def release():
        time.sleep(0.3)
        released.append(time.monotonic())
        lock.close()

    threading.Thread(target=release).start()
    workflow.wait_for_orphans([tmp_path / "never", tmp_path / "idle", tmp_path / "busy"])
    assert released and time.monotonic() >= released[0]
    assert capsys.readouterr().err == (
        f"tokencodes: {tmp_path}/busy is still being trained by a job of before; waiting for it\n"
    )


def finished(folder, text):
    folder.mkdir()
    (folder / "final.json").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "restart", "keep"),
    [
        (json.dumps({"code": "abc"}), TODAY, "abc"),
        (json.dumps({"code": TODAY}), TODAY, TODAY),
        (json.dumps({}), TODAY, TODAY),
        ("{", TODAY, TODAY),
        ("[]", TODAY, TODAY),
    ],
    ids=["other code", "the same", "no code", "damaged", "no object"],
)
def test_the_code_that_decides_whether_to_train_again(tmp_path, text, restart, keep):
    run = finished(tmp_path / "run", text)
    assert workflow.training_code(run, "restart") == restart
    assert workflow.training_code(run, "refuse") == workflow.training_code(run, "continue") == keep


def test_a_run_that_is_not_there_is_trained_by_todays_code(tmp_path):
    assert workflow.training_code(tmp_path / "none", "refuse") == TODAY


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("restart", "they will be trained again"),
        ("refuse", "they are kept"),
        ("continue", ""),
    ],
)
def test_the_word_before_retraining(tmp_path, capsys, choice, said):
    runs = [
        finished(tmp_path / "old", json.dumps({"code": "abc"})),
        finished(tmp_path / "same", json.dumps({"code": TODAY})),
        tmp_path / "none",
    ]
    workflow.warn_of_other_code(runs, choice)
    output = capsys.readouterr().err
    assert said in output
    assert ("warning: the training code has changed since old was trained" in output) is bool(said)


BEGUN = "=== 2026-01-31 12:00:00 host node7, Slurm job 5, GPUs 2 NVIDIA H100; tokencodes 1, torch 2, python 3"
STOPPED = "tokencodes: train gf2-s0: stopped at step 9 (time budget); start again to go on"


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        ([], "interrupted"),
        ([BEGUN, "step 5"], "interrupted"),  # killed with its shell
        ([BEGUN, "=== exit code 0 after 3 s"], "done"),
        ([BEGUN, "tokencodes: error: x", "=== exit code 2 after 3 s"], "failed"),
        ([BEGUN, "Traceback", "=== exit code 1 after 3 s"], "failed"),
        ([BEGUN, "Killed", "=== exit code 137 after 3 s"], "failed"),  # no memory
        ([BEGUN, "=== exit code 75 after 3 s"], "interrupted"),
        ([BEGUN, "=== exit code 1 after 3 s, after a signal"], "interrupted"),
        ([BEGUN, STOPPED, "ChildFailedError", "=== exit code 1 after 3 s"], "interrupted"),  # of torchrun
        ([BEGUN, "=== exit code 75 after 3 s", BEGUN, "=== exit code 2 after 3 s"], "failed"),
        ([BEGUN, "=== exit code 2 after 3 s", BEGUN, "step 5"], "interrupted"),
    ],
)
def test_how_a_stage_ended_by_its_log(tmp_path, lines, ending):
    (tmp_path / "x.log").write_text("\n".join(lines))
    assert workflow.ending(tmp_path / "x.log") == ending


def test_only_an_interrupted_job_is_repeated(tmp_path):
    def log(name, *lines, age=0):
        path = tmp_path / name
        path.write_text("\n".join([BEGUN, *lines]))
        os.utime(path, (now - age, now - age))
        return path

    (tmp_path / ".slurm").write_text("run\n")
    now = (tmp_path / ".slurm").stat().st_mtime + 100
    done, failed = log("a", "=== exit code 0 after 1 s"), log("b", "=== exit code 2 after 1 s")
    killed, old = log("c"), log("d", "=== exit code 2 after 1 s", age=200)  # `old`: of a call before
    absent = tmp_path / "e"
    assert workflow.retries([killed], 100, tmp_path) == 100
    assert workflow.retries([failed], 100, tmp_path) == 0
    assert workflow.retries([done, killed, absent], 100, tmp_path) == 100  # a group
    assert workflow.retries([done, failed, killed], 100, tmp_path) == 0
    assert workflow.retries([old], 100, tmp_path) == workflow.retries([absent], 100, tmp_path) == workflow.UNHEARD
    assert workflow.retries([killed], 0, tmp_path) == workflow.retries([absent], 0, tmp_path) == 0


def test_jobs_of_a_call_before_are_waited_for_by_name(tmp_path, monkeypatch, capsys):
    """A squeue that knows two of the three answers that it will be asked for."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/squeue"
    program.write_text('#!/bin/sh\necho "$@" >> asked; [ "$(wc -l < asked)" -lt 3 ] && echo 17 && echo 18_2\nexit 0\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workflow, "QUEUE_EVERY_S", 0.01)
    workflow.wait_for_jobs(tmp_path, "first")
    assert not (tmp_path / "asked").exists()
    workflow.wait_for_jobs(tmp_path, "second")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 3 and all(line.endswith("--name=first") for line in asked)
    assert capsys.readouterr().err.count("2 job(s) of a call before; waiting for them; to go on at once") == 1
    assert (tmp_path / ".slurm").read_text() == "second\n"
    program.write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    with pytest.raises(UserError, match=r"squeue does not answer \(no controller\)"):
        workflow.wait_for_jobs(tmp_path, "third")
    assert (tmp_path / ".slurm").read_text() == "second\n"
