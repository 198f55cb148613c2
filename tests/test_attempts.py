"""Logs of attempts: how each ended, what is submitted again, and what the end of a call says."""

import os
import time

import pytest

from tokencodes import attempts
from tokencodes.attempts import FailedJob
from tokencodes.layout import Layout

BEGUN = "=== 2026-01-31 12:00:00+0100 host node7, Slurm job 5, GPUs 2 NVIDIA H100; tokencodes 1, torch 2, python 3"
STOPPED = "tokencodes: train gf2-s0: stopped at step 9 (time budget); start again to go on"


@pytest.mark.parametrize(
    ("lines", "outcome"),
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
def test_how_a_stage_ended_by_its_log(tmp_path, lines, outcome):
    (tmp_path / "x.log").write_text("\n".join(lines))
    assert attempts.last_outcome(tmp_path / "x.log") == outcome


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
def layout(tmp_path):
    """A results folder on which a call on a cluster has begun."""
    layout = Layout(str(tmp_path))
    (tmp_path / ".slurm").write_text("run\n")
    os.utime(layout.slurm, (WHEN, WHEN))
    return layout


@pytest.fixture
def make_log(tmp_path):
    """Makes a log of attempts."""

    def make(*blocks, mtime=WHEN + 100):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.log"
        path.write_text("\n".join(line for block in blocks for line in block))
        os.utime(path, (mtime, mtime))
        return path

    return make


def test_only_an_interrupted_job_is_repeated(make_log, layout, tmp_path):
    done, failed = make_log(attempt("=== exit code 0 after 1 s")), make_log(attempt(*ERROR))
    killed, absent = make_log(attempt()), tmp_path / "none"
    assert attempts.is_repeated([killed], 1, 5, layout)
    assert not attempts.is_repeated([failed], 1, 5, layout)
    assert attempts.is_repeated([done, killed, absent], 1, 5, layout)  # a group
    assert not attempts.is_repeated([done, failed, killed], 1, 5, layout)
    assert not attempts.is_repeated([killed], 1, 0, layout) and not attempts.is_repeated([absent], 1, 0, layout)
    old = make_log(attempt(*ERROR, after=-50), mtime=WHEN - 40)  # of an earlier call
    empty = make_log()  # opened, and killed before its first line
    for never_began in (old, absent, empty):
        assert [attempts.is_repeated([never_began], n, 5, layout) for n in (1, 3, 4)] == [True, True, False]


def test_a_training_that_makes_progress_is_repeated_without_end(make_log, layout):
    steps = ["from the start", *(f"again after step {step}" for step in range(1, 300))]
    log = make_log(*(training(step, *CUT_OFF) for step in steps))
    assert attempts.is_repeated([log], len(steps), 5, layout)
    assert attempts.is_repeated([log], len(steps), 1, layout)


@pytest.mark.parametrize(
    ("starts", "count"),
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
def test_a_job_without_progress_is_repeated_as_often_as_allowed(make_log, layout, starts, count):
    earlier = training("again after step 9", *CUT_OFF, after=-50)  # an earlier call does not count
    resolved = attempt("=== exit code 0 after 1 s")
    each = (training(start, *CUT_OFF) if start else attempt(*CUT_OFF) for start in starts)
    log = make_log(earlier, *(block for one in each for block in (resolved, one)))
    assert attempts.without_progress(attempts.interruptions(log, WHEN)) == count
    for retries in range(1, 6):
        assert attempts.is_repeated([log], len(starts), retries, layout) is (count <= retries)


def test_the_end_of_a_call_names_each_failed_job_and_its_reason(make_log, layout, capsys):
    cut = make_log(*(training("again after step 9", *CUT_OFF) for _ in range(6)))
    failed = make_log(training("from the start", *CUT_OFF), training("from the start", *ERROR))
    jobs = [
        FailedJob("train", {"interface": "gf2"}, [str(cut)], ["a"]),
        FailedJob("train", {"interface": "x"}, [str(failed)], ["b"]),
    ]
    attempts.report_failures(jobs, ["--profile", "slurm"], layout)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        "tokencodes: failed: train gf2: interrupted 6 times in a row without progress; if it was its time limit, raise "
        "runtime_min of its stage (`resources` in the config)"
    )
    assert lines[2] == "tokencodes:   again:   snakemake a --profile slurm"
    assert lines[3] == "tokencodes: failed: train x: error: x"


def test_a_call_without_a_failed_job_says_nothing(layout, capsys):
    attempts.report_failures([], [], layout)
    assert capsys.readouterr().err == ""
