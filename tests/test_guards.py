"""One call at a time on a results folder, jobs of an earlier call, and finished trainings that must not be lost."""

import fcntl
import os
import subprocess
import sys
import threading

import made_up
import pytest

from tokencodes import codeversion, guards, triggers
from tokencodes.errors import UserError
from tokencodes.layout import Layout
from tokencodes.train import loop

TODAY = codeversion.digest(triggers.TRAINING)
LONG_S = 600  # for what comes at once on a quiet machine


def test_results_belong_to_one_process_until_it_ends_in_whatever_way(tmp_path):
    x, y = Layout(str(tmp_path / "x")), Layout(str(tmp_path / "y"))
    code = "import sys, time; from tokencodes import guards, layout; lock = guards.hold(layout.Layout(sys.argv[1]))"
    code += "; print('held', flush=True); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", code, x.root], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=r"x: another snakemake is at work here"):
        guards.hold(x)
    guards.hold(y).close()
    other.kill()
    other.wait()
    guards.hold(x).close()


def test_training_of_an_earlier_call_is_waited_for(tmp_path, monkeypatch):
    for name in ("idle", "busy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".lock").touch()
    lock = open(tmp_path / "busy/.lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lines, waiting, ended = [], threading.Event(), threading.Event()

    def wait():
        guards.wait_for_orphans([tmp_path / "never", tmp_path / "idle", tmp_path / "busy"])
        ended.set()

    monkeypatch.setattr(guards, "say", lambda text: (lines.append(text), waiting.set()))
    threading.Thread(target=wait, daemon=True).start()
    assert waiting.wait(LONG_S)
    assert not ended.wait(0.5)  # it never ends as long as the lock is held
    lock.close()
    assert ended.wait(LONG_S)
    assert lines == [f"a job of an earlier call still trains {tmp_path}/busy; waiting for it"]


def finished(folder, **changes):
    made_up.final(**changes).write(folder / "final.json")
    return folder


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("restart", "they will be trained again"),
        ("refuse", "they are kept"),
        ("continue", ""),
    ],
)
def test_the_word_before_retraining(tmp_path, capsys, choice, message):
    runs = [
        finished(tmp_path / "old", code="abc"),
        finished(tmp_path / "same", code=TODAY),
        tmp_path / "none",
    ]
    guards.warn_of_other_code(runs, choice)
    output = capsys.readouterr().err
    assert message in output
    assert ("warning: the training code has changed since old was trained" in output) is bool(message)


def test_a_run_of_another_config_is_refused_by_folder_and_key_whether_finished_or_begun(tiny, tmp_path):
    run, other = tiny.config().run("gf2", 0), tiny.config(train={"peak_lr": 4e-3}).run("gf2", 0)
    guards.refuse_other_configs({tmp_path: run})  # nothing there yet
    loop.train(run, tiny.store, tmp_path)
    guards.refuse_other_configs({tmp_path: run})
    for _ in range(2):
        with pytest.raises(UserError, match=r"train\.peak_lr is 0\.003 there and 0\.004 here; .*use another `name`"):
            guards.refuse_other_configs({tmp_path: other})
        (tmp_path / "final.json").unlink(missing_ok=True)


def test_without_checkpoints_final_json_alone_shows_another_config(tiny, tmp_path):
    finished(tmp_path, run_sha256="0")
    with pytest.raises(UserError, match="has another run_sha256"):
        guards.refuse_other_configs({tmp_path: tiny.config().run("gf2", 0)})


def test_slurm_jobs_of_an_earlier_call_are_waited_for_by_name(tmp_path, monkeypatch, capsys):
    """A squeue that knows two of the three answers that it will be asked for."""
    layout = Layout(str(tmp_path))
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/squeue"
    rows = "17|RUNNING|N/A|None\\n18_2|PENDING|N/A|None\\n"
    program.write_text(f'#!/bin/sh\necho "$@" >> asked; [ "$(wc -l < asked)" -lt 3 ] && printf "{rows}"\nexit 0\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(guards, "QUEUE_INTERVAL_S", 0.01)
    assert not guards.wait_for_earlier_jobs(layout, [], "first")
    assert not (tmp_path / "asked").exists()
    assert guards.wait_for_earlier_jobs(layout, [], "second")
    queries = (tmp_path / "asked").read_text().splitlines()
    assert len(queries) == 3 and all(line.endswith("--name=first") for line in queries)
    assert capsys.readouterr().err.count("2 job(s) of an earlier call; waiting for them; to go on at once") == 1
    assert (tmp_path / ".slurm").read_text() == "second\n"
    program.write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    with pytest.raises(UserError, match=r"squeue does not answer \(no controller\)"):
        guards.wait_for_earlier_jobs(layout, [], "third")
    assert (tmp_path / ".slurm").read_text() == "second\n"
