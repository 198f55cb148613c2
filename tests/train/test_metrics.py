"""What a person sees of a run: lines in a log, one rewritten line in a terminal, curves in TensorBoard."""

import io
import sys

import pytest

from tokencodes.errors import StoppedEarly, UserError
from tokencodes.train import loop, metrics

RECORD = {"loss": 5.5, "lr": 1e-3, "grad_norm": 1.0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(monkeypatch, stream, log_every=4):
    """What a run of 10 steps with one validation says on `stream`."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(metrics, "REDRAW_S", 0)
    progress = metrics.Progress("gf2-s0", 0, 10, 64, log_every)
    for step in range(1, 10):
        progress.step({"step": step, **RECORD, **({"val_loss": 6.0} if step == 6 else {})})
    progress.close()
    return stream.getvalue()


def test_a_log_has_lines_and_nothing_else(monkeypatch):
    text = told(monkeypatch, io.StringIO())
    assert [line.split()[3] for line in text.splitlines()] == ["4/10", "6/10", "8/10"]
    assert "\r" not in text and "\x1b" not in text and "val 6.000" in text.splitlines()[1]


def test_a_terminal_has_one_line_that_is_rewritten_and_validations_that_last(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = told(monkeypatch, Terminal())
    assert text.count("\n") == 1 and "6/10" in text.split("\n")[0].split("\r")[-1]
    drawn = text.replace("\n", "").split(metrics.CLEAR_LINE)
    assert [line.split()[3] for line in drawn if line] == [f"{step}/10" for step in range(1, 10)]
    assert max(map(len, drawn)) == 59  # a longer line would wrap, and not be rewritten
    assert text.endswith(metrics.CLEAR_LINE)


def test_a_terminal_is_not_redrawn_at_every_quick_step(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = metrics.Progress("x", 0, 10_000, 64, 100_000)
    for step in range(1, 1000):
        progress.step({"step": step, **RECORD})
    assert stream.getvalue().count("\r") < 500


def test_tensorboard_has_each_point_once_after_stops_and_kills(tiny, tmp_path, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = tiny.config(train={"tensorboard": True, "checkpoint_every": 3}).run("gf2", 0)
    real = loop.Trainer.update

    def stopped(error, at):
        def update(self, step):
            if step == at:
                raise error
            return real(self, step)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Trainer, "update", update)
            with pytest.raises(type(error)):
                loop.train(run, tiny.store, tmp_path)

    stopped(KeyboardInterrupt(), 5)  # steps 4 and more are made again
    stopped(StoppedEarly("x"), 9)
    loop.train(run, tiny.store, tmp_path)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    lines = metrics.read_jsonl(tmp_path / "metrics.jsonl")
    for key in ("loss", "lr", "grad_norm", "val_loss"):
        expected = [(line["step"], pytest.approx(line[key])) for line in lines if key in line]
        assert [(point.step, point.value) for point in events.Scalars(key)] == expected
    assert [point.step for point in events.Scalars("tokens_per_s")] == list(range(1, 13))
    assert "mfu" not in events.Tags()["scalars"]  # null without a known peak
    plain = tmp_path / "plain"
    loop.train(tiny.config(train={"checkpoint_every": 3}).run("gf2", 0), tiny.store, plain)
    assert (plain / "metrics.jsonl").read_bytes() == (tmp_path / "metrics.jsonl").read_bytes()
    assert not (plain / "tensorboard").exists()


def test_without_its_package_tensorboard_is_refused_before_the_store_is_read(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setattr(loop, "verify", lambda store: pytest.fail("the store was read first"))
    with pytest.raises(UserError, match=r"train\.tensorboard: true needs the package .*pip install tensorboard"):
        loop.train(tiny.config(train={"tensorboard": True}).run("gf2", 0), tiny.store, tmp_path)


def test_tensorboard_is_not_part_of_a_runs_identity(tiny):
    on, off = (tiny.config(train={"tensorboard": value}).run("gf2", 0).identity() for value in (True, False))
    assert on == off
