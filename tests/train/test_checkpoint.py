"""Checkpoints: complete, or skipped with their name; never another run's."""

import errno
import json
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencodes.errors import UserError
from tokencodes.train import checkpoint, metrics

FACTS = {"identity": {"seed": 1, "train": {"peak_lr": 0.1}}, "store_sha256": "a"}


def parts(step):
    return {
        "model": {"w": torch.full((64,), float(step))},
        "optimizer": {"w.exp_avg": torch.zeros(64)},
        "rng": {"cpu": torch.get_rng_state()},
    }


def save(folder, *steps, keep=9):
    for step in steps:
        checkpoint.save(folder, step, parts(step), FACTS, keep)


def test_round_trip_and_keep_last(tmp_path):
    save(tmp_path, 1, 2, 10, 100, keep=2)
    assert [path.name for path in checkpoint.sorted_paths(tmp_path)] == ["step_0000010", "step_0000100"]
    found = checkpoint.latest(tmp_path, FACTS)
    assert found.step == 100 and torch.equal(found.tensors("model")["w"], torch.full((64,), 100.0))
    assert torch.equal(found.tensors("rng")["cpu"], torch.get_rng_state())
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_steps_beyond_seven_digits_are_in_order(tmp_path):
    save(tmp_path, 9_999_999, 10_000_000)
    assert checkpoint.latest(tmp_path, FACTS).step == 10_000_000


def test_nothing_yet(tmp_path):
    assert checkpoint.latest(tmp_path / "none", FACTS) is None
    (tmp_path / ".step_0000001.tmp").mkdir()  # of a killed writer
    assert checkpoint.latest(tmp_path, FACTS) is None


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGE = {
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "cut manifest": lambda path: cut(path / "manifest.json"),
    "empty manifest": lambda path: (path / "manifest.json").write_text(""),
    "manifest of no keys": lambda path: (path / "manifest.json").write_text("{}"),
    "manifest is a list": lambda path: (path / "manifest.json").write_text("[1]"),
    "file missing": lambda path: (path / "optimizer.safetensors").unlink(),
    "file cut": lambda path: cut(path / "model.safetensors"),
    "bit flipped": lambda path: flip(path / "rng.safetensors"),
    "folder renamed": lambda path: path.rename(path.with_name("step_0000999")),
    "files not listed": lambda path: rewrite(path, files={}),
    "files are a list": lambda path: rewrite(path, files=["model.safetensors"]),
    "a file's entry is no mapping": lambda path: rewrite(path, files=dict.fromkeys(FILES, "abc")),
    "step is text": lambda path: rewrite(path, step="6"),
    "step is null": lambda path: rewrite(path, step=None),
}
FILES = [f"{part}.safetensors" for part in checkpoint.PARTS]


def rewrite(path, **changes):
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_one_is_named_and_the_one_before_is_used(tmp_path, capsys, damage):
    save(tmp_path, 5, 6)
    damage(tmp_path / "step_0000006")
    assert checkpoint.latest(tmp_path, FACTS).step == 5
    error = capsys.readouterr().err
    assert "skipped" in error and ("step_0000006" in error or "step_0000999" in error)


@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), part=st.sampled_from(checkpoint.PARTS))
@settings(max_examples=40, deadline=None)
def test_any_flipped_bit_is_found(tmp_path_factory, position, bit, part):
    folder = tmp_path_factory.mktemp("flip")
    save(folder, 1)
    file = folder / "step_0000001" / f"{part}.safetensors"
    data = bytearray(file.read_bytes())
    data[int(position * len(data))] ^= 1 << bit
    file.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=f"{part}.safetensors: damaged"):
        checkpoint.verify(folder / "step_0000001")


@given(data=st.data(), keep=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_what_was_just_written_is_never_what_is_removed(tmp_path_factory, data, keep):
    """Whatever is damaged, strayed in or moved away by a link: what was continued from is there until `keep` are newer.

    The first save of a start is of the step after the one that it continues from.
    """
    folder = tmp_path_factory.mktemp("keep")
    save(folder, *data.draw(st.sets(st.integers(1, 9), min_size=1, max_size=4).map(sorted)))
    for _ in range(3):
        there = checkpoint.sorted_paths(folder)
        for path in data.draw(st.lists(st.sampled_from(there), unique=True, max_size=len(there) - 1)):
            cut(path / "model.safetensors")
        whole = sum(is_whole(path) for path in there)
        if whole == 0:
            return
        if data.draw(st.booleans()):
            shutil.copytree(there[0], folder / "step_9999999", dirs_exist_ok=True)
        if data.draw(st.booleans()):
            moved = folder.with_name(f"{folder.name}-{there[0].name}-{len(list(folder.parent.iterdir()))}")
            there[0].rename(moved)
            there[0].symlink_to(moved)
        step = checkpoint.latest(folder, FACTS).step + 1
        save(folder, step, keep=keep)
        left = checkpoint.sorted_paths(folder)
        assert left[-1].name == checkpoint.name_of(step) and len(left) <= keep
        assert checkpoint.latest(folder, FACTS).step == step
        assert sum(map(is_whole, left)) >= min(keep, 2 if whole else 1)


def is_whole(path):
    try:
        return bool(checkpoint.verify(path))
    except ValueError:
        return False


def test_weights_that_are_not_finite_are_no_checkpoint(tmp_path):
    save(tmp_path, 5)
    bad = parts(6)
    bad["model"]["w"][3] = float("nan")
    with pytest.raises(FloatingPointError, match="step 6: w is not finite; not saved"):
        checkpoint.save(tmp_path, 6, bad, FACTS, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step_0000005"]


def test_what_kills_left_half_written_goes(tmp_path):
    save(tmp_path / "checkpoints", 5)
    (tmp_path / "checkpoints" / ".step_0000006.tmp").mkdir()
    (tmp_path / ".metrics.jsonl.123.abcd.tmp").write_text("{")
    checkpoint.clear_temporary(tmp_path)
    assert [path.name for path in tmp_path.rglob(".*")] == []
    assert checkpoint.latest(tmp_path / "checkpoints", FACTS).step == 5


def test_all_damaged_is_an_error(tmp_path):
    save(tmp_path, 5)
    cut(tmp_path / "step_0000005" / "model.safetensors")
    with pytest.raises(UserError, match="none of its 1 checkpoints is complete"):
        checkpoint.latest(tmp_path, FACTS)


def test_another_runs_is_refused_by_key_and_left_untouched(tmp_path):
    save(tmp_path, 5)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for expected, said in (
        ({**FACTS, "identity": {"seed": 1, "train": {"peak_lr": 0.2}}}, "identity.train.peak_lr is 0.1 there and 0.2"),
        ({**FACTS, "store_sha256": "b"}, "store_sha256 is 'a' there"),
    ):
        with pytest.raises(UserError, match=said):
            checkpoint.latest(tmp_path, expected)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("at", ["save_file", "write_json", "fsync_file"])
def test_a_full_disk_keeps_what_was_there(tmp_path, monkeypatch, at):
    save(tmp_path, 5)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, at, full)
    with pytest.raises(UserError, match="disk is full"):
        save(tmp_path, 6, keep=2)
    monkeypatch.undo()
    assert checkpoint.latest(tmp_path, FACTS).step == 5
    assert [path.name for path in tmp_path.iterdir()] == ["step_0000005"]


def test_a_kill_between_any_two_steps_of_writing_leaves_the_last_whole_one(tmp_path, monkeypatch):
    """Stops the writer at each of its calls in turn, as kill -9 would: no clean-up runs."""
    calls = ["save_file", "fsync_file", "sha256_file", "write_json", "fsync_directory"]
    for name in calls:
        for nth in range(3):
            folder = tmp_path / f"{name}{nth}"
            save(folder, 5)
            count = [0]
            real = getattr(checkpoint, name)

            def killed(*args, real=real, count=count, nth=nth, folder=folder, **kwargs):
                if count[0] == nth:
                    shutil.copytree(folder, folder.with_name(folder.name + "-then"))  # what a kill would leave
                count[0] += 1
                return real(*args, **kwargs)

            with monkeypatch.context() as patch:
                patch.setattr(checkpoint, name, killed)
                save(folder, 6, keep=2)
            left = folder.with_name(folder.name + "-then")
            if left.exists():
                step = checkpoint.latest(left, FACTS).step
                assert step == (6 if name == "fsync_directory" else 5)
                save(left, 6, keep=2)
                assert checkpoint.latest(left, FACTS).step == 6


def test_journal_continues_without_holes_or_doubles(tmp_path):
    path = tmp_path / "metrics.jsonl"
    journal = metrics.Journal(path, 0, complete=True)
    for step in range(1, 8):
        journal.append({"step": step, "loss": 0.1 * step})
    journal.file.write('null\n{"step": "9"}\n[1]\n{"step": null}\n{"step": 8, "lo')  # a kill in the middle of a line
    journal.file.close()
    again = metrics.Journal(path, 5, complete=True)
    again.append({"step": 6, "loss": 7.0})
    again.file.close()
    assert [(line["step"], line["loss"]) for line in metrics.read_jsonl(path)][-2:] == [(5, 0.5), (6, 7.0)]
    with pytest.raises(UserError, match="lacks some of the steps 1 to 7"):
        metrics.Journal(path, 7, complete=True)
    assert len(metrics.read_jsonl(path)) == 6  # refused, and left as it was


def test_progress_line_says_what_a_person_wants_to_know():
    line = metrics.progress_line(120, 300, {"loss": 5.9124, "val_loss": 6.01, "lr": 2.1e-3}, 2310.4, 0.25)
    assert line == "step 120/300  loss 5.912  val 6.010  lr 2.10e-03  2,310 tokens/s  ETA 0:45"
    assert metrics.clock(7325) == "2:02:05"
