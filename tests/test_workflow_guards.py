"""Locks on results, and the word before models are retrained."""

import fcntl
import json
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
