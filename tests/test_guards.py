"""Locks on results, and the word before models are retrained."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from tokencodes import codeversion, files, guards
from tokencodes.errors import UserError

TODAY = codeversion.digest(guards.TRAINING)


def test_results_belong_to_one_process_until_it_ends_in_whatever_way(tmp_path):
    code = "import pathlib, sys, time; from tokencodes import guards; held = guards.hold(pathlib.Path(sys.argv[1]))"
    code += "; print('held', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x")], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=r"x: another snakemake is at work here"):
        guards.hold(tmp_path / "x")
    guards.hold(tmp_path / "y").close()
    other.kill()
    other.wait()
    guards.hold(tmp_path / "x").close()


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
    guards.wait_for_orphans([tmp_path / "never", tmp_path / "idle", tmp_path / "busy"])
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
    assert guards.training_code(run, "restart") == restart
    assert guards.training_code(run, "refuse") == guards.training_code(run, "continue") == keep


def test_a_run_that_is_not_there_is_trained_by_todays_code(tmp_path):
    assert guards.training_code(tmp_path / "none", "refuse") == TODAY


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
    guards.warn_of_other_code(runs, choice)
    output = capsys.readouterr().err
    assert said in output
    assert ("warning: the training code has changed since old was trained" in output) is bool(said)


BEGUN = "=== 2026-01-31 12:00:00+0100 host node7, Slurm job 5, GPUs 2 NVIDIA H100; tokencodes 1, torch 2, python 3"
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
    assert guards.ending(tmp_path / "x.log") == ending


ERROR = ["tokencodes: error: x", "=== exit code 2 after 1 s"]
CUT_OFF = ["=== exit code 143 after 1 s, after a signal"]
WHEN = 1_770_000_000  # this call began, in seconds since the epoch


def attempt(*lines, after=10):
    """Of a log: a stage that began so many seconds after the call."""
    when = time.strftime("%Y-%m-%d %H:%M:%S+0000", time.gmtime(WHEN + after))
    return [BEGUN.replace("2026-01-31 12:00:00+0100", when), *lines]


def training(start, *end, after=10):
    return attempt(f"train gf2-s0: {start}, 9 steps of 8 tokens", *end, after=after)


@pytest.fixture
def logs(tmp_path):
    """Makes a log of attempts; a call has begun."""
    (tmp_path / ".slurm").write_text("run\n")
    os.utime(tmp_path / ".slurm", (WHEN, WHEN))

    def made(*attempts, mtime=WHEN + 100):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.log"
        path.write_text("\n".join(line for each in attempts for line in each))
        os.utime(path, (mtime, mtime))
        return path

    return made


def test_only_an_interrupted_job_is_repeated(logs, tmp_path):
    done, failed = logs(attempt("=== exit code 0 after 1 s")), logs(attempt(*ERROR))
    killed, absent = logs(attempt()), tmp_path / "none"
    assert guards.again([killed], 1, 5, tmp_path)
    assert not guards.again([failed], 1, 5, tmp_path)
    assert guards.again([done, killed, absent], 1, 5, tmp_path)  # a group
    assert not guards.again([done, failed, killed], 1, 5, tmp_path)
    assert not guards.again([killed], 1, 0, tmp_path) and not guards.again([absent], 1, 0, tmp_path)
    old = logs(attempt(*ERROR, after=-50), mtime=WHEN - 40)  # of a call before
    empty = logs()  # opened, and killed before its first line
    for never_began in (old, absent, empty):
        assert [guards.again([never_began], n, 5, tmp_path) for n in (1, 3, 4)] == [True, True, False]


def test_a_training_that_gets_further_is_repeated_for_ever(logs, tmp_path):
    steps = ["from the start", *(f"again after step {step}" for step in range(1, 300))]
    log = logs(*(training(step, *CUT_OFF) for step in steps))
    assert guards.again([log], len(steps), 5, tmp_path)
    assert guards.again([log], len(steps), 1, tmp_path)


@pytest.mark.parametrize(
    ("starts", "in_vain"),
    [
        (["from the start"] * 4, 4),
        (["from the start", "again after step 9", "again after step 9"], 2),
        (["again after step 9", None, None], 3),  # not even loaded
        (["from the start", None, "again after step 9"], 1),
        (["again after step 9", None, "again after step 9"], 3),
        ([None] * 5, 5),  # a stage without checkpoints
        ([], 0),
    ],
)
def test_what_gets_no_further_is_not_repeated_for_ever(logs, tmp_path, starts, in_vain):
    before = training("again after step 9", *CUT_OFF, after=-50)  # a call before does not count
    resolved = attempt("=== exit code 0 after 1 s")
    each = (training(start, *CUT_OFF) if start else attempt(*CUT_OFF) for start in starts)
    log = logs(before, *(line for one in each for line in (resolved, one)))
    assert guards.in_vain(guards.interruptions(log, WHEN)) == in_vain
    for allowed in range(1, 6):
        assert guards.again([log], len(starts), allowed, tmp_path) is (in_vain <= allowed)


def test_the_end_of_a_call_says_what_got_no_further(logs, tmp_path, capsys):
    cut = logs(*(training("again after step 9", *CUT_OFF) for _ in range(6)))
    failed = logs(training("from the start", *CUT_OFF), training("from the start", *ERROR))
    jobs = [("train", {"interface": "gf2"}, [str(cut)], ["a"]), ("train", {"interface": "x"}, [str(failed)], ["b"])]
    guards.say_what_failed(jobs, ["--profile", "slurm"], tmp_path)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == (
        "tokencodes: failed: train gf2: interrupted 6 times in a row without getting further; if it was its time "
        "limit, raise runtime_min of its stage (`resources` in the config)"
    )
    assert said[2] == "tokencodes:   again:   snakemake a --profile slurm"
    assert said[3] == "tokencodes: failed: train x: error: x"


def test_jobs_of_a_call_before_are_waited_for_by_name(tmp_path, monkeypatch, capsys):
    """A squeue that knows two of the three answers that it will be asked for."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/squeue"
    program.write_text('#!/bin/sh\necho "$@" >> asked; [ "$(wc -l < asked)" -lt 3 ] && echo 17 && echo 18_2\nexit 0\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(guards, "QUEUE_EVERY_S", 0.01)
    assert not guards.wait_for_jobs(tmp_path, "first")
    assert not (tmp_path / "asked").exists()
    assert guards.wait_for_jobs(tmp_path, "second")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 3 and all(line.endswith("--name=first") for line in asked)
    assert capsys.readouterr().err.count("2 job(s) of a call before; waiting for them; to go on at once") == 1
    assert (tmp_path / ".slurm").read_text() == "second\n"
    program.write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    with pytest.raises(UserError, match=r"squeue does not answer \(no controller\)"):
        guards.wait_for_jobs(tmp_path, "third")
    assert (tmp_path / ".slurm").read_text() == "second\n"


def test_a_file_system_without_locks_refuses_nobody(tmp_path, monkeypatch):
    """Some parallel file systems are mounted so; each lock of the project is the same one."""

    def none(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    with open(tmp_path / ".lock", "w") as file:
        assert files.lock(file)
        with open(tmp_path / ".lock") as other:
            assert not files.lock(other)
            monkeypatch.setattr(fcntl, "flock", none)
            assert files.lock(other)
