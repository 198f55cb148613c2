"""The training loop: what an interruption or another split of the batch must not change, and what is refused."""

import contextlib
import json
import math
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from project import PATIENCE, wait_until
from runs import ENV, LONG, SPLIT, bits, command, finish, one_rank, stop_at, train_until_done
from tokencodes import cli, codeversion
from tokencodes.data.store import Store
from tokencodes.errors import StoppedEarly, UserError
from tokencodes.train import checkpoint, loop, metrics
from tokencodes.yamlfile import dump


@pytest.mark.parametrize("name", ["learned", "binary9", "gf2"])
def test_stopped_at_random_steps_ends_with_the_same_bits(tiny, straight, tmp_path, monkeypatch, name):
    draw = random.Random(name)
    for case in range(3):
        steps = set(draw.sample(range(1, 12), k=draw.randint(1, 5)))
        with monkeypatch.context() as patch:
            stop_at(patch, steps)
            out = tmp_path / str(case)
            assert train_until_done(tiny.config().run(name, 0), tiny.store, out) >= 1
        assert bits(out) == bits(straight(name))


@pytest.mark.parametrize("name", ["binary9", "gf2"])
def test_a_fixed_interface_never_changes_and_is_never_trained(tiny, straight, name):
    settings = tiny.config()
    trainer = loop.Trainer(
        settings.run(name, 0), Store.open(tiny.store), tiny.folder / "x", one_rank(), loop.Stop(None)
    )
    fresh = {key: value.clone() for key, value in trainer.model.named_buffers()}
    trainer.update(1)
    optimised = {id(p) for group in trainer.optimizer.param_groups for p in group["params"]}
    for buffer in trainer.model.buffers():
        assert buffer.grad is None and not buffer.requires_grad and id(buffer) not in optimised
    assert all(p.grad is not None for p in trainer.model.parameters())
    trained = load_file(checkpoint.sorted_paths(straight(name) / "checkpoints")[-1] / "model.safetensors")
    for key, value in fresh.items():
        assert torch.equal(trained[key], value) and trained[key].dtype == value.dtype
    assert set(fresh) == {"decoder.input.codebook"}
    assert not [key for key in trained if "_orig_mod" in key or "module." in key]


def test_training_learns_and_final_json_says_so(tiny, tmp_path):
    run = tiny.config(train={"max_steps": 150, "validate_every": 50}).run("gf2", 0)
    loop.train(run, tiny.store, tmp_path)
    final = json.loads((tmp_path / "final.json").read_text())
    lines = metrics.read_jsonl(tmp_path / "metrics.jsonl")
    assert abs(lines[0]["loss"] - math.log(300)) < 0.3  # a fresh model is near uniform
    assert final["val_loss"] < final["unigram_cross_entropy"] and final["train_loss"] < lines[0]["loss"] - 1
    assert final["step"] == 150 and final["tokens"] == 150 * 64
    assert final["store_sha256"] == Store.open(tiny.store).sha256
    assert [line["step"] for line in lines] == list(range(1, 151))
    assert [line["step"] for line in lines if "val_loss" in line] == [50, 100, 150]
    before = (tmp_path / "final.json").read_bytes()
    loop.train(run, tiny.store, tmp_path)  # nothing to do
    assert (tmp_path / "final.json").read_bytes() == before


@pytest.mark.parametrize(("micro", "accum"), [(4, 1), (1, 4), (2, 2)])
def test_accumulation_changes_nothing_but_rounding(tiny, micro, accum):
    def gradients(micro, accum):
        run = tiny.config(train={"micro_batch_size": micro, "grad_accum_steps": accum}).run("learned", 0)
        trainer = loop.Trainer(run, Store.open(tiny.store), tiny.folder / "x", one_rank(), loop.Stop(None))
        total, _ = trainer.accumulate(1)
        return total, [p.grad.clone() for p in trainer.model.parameters()]

    (loss, grads), (expected_loss, expected) = gradients(micro, accum), gradients(4, 1)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    for ours, theirs in zip(grads, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def test_activation_checkpointing_changes_no_bit(tiny):
    def gradients(checkpointing):
        run = tiny.config(train={"activation_checkpointing": checkpointing}).run("gf2", 0)
        trainer = loop.Trainer(run, Store.open(tiny.store), tiny.folder / "x", one_rank(), loop.Stop(None))
        assert trainer.model.decoder.checkpointing == checkpointing
        total, _ = trainer.accumulate(1)
        return total, [p.grad.clone() for p in trainer.model.parameters()]

    (loss, grads), (expected_loss, expected) = gradients(True), gradients(False)
    assert loss == expected_loss and all(torch.equal(a, b) for a, b in zip(grads, expected, strict=True))


@pytest.mark.skipif(
    not (shutil.which("g++") and Path(sysconfig.get_path("include"), "Python.h").exists()),
    reason="torch.compile needs a C++ compiler and Python's headers: apt-get install g++ python3-dev",
)
def test_compiled_training_follows_eager_and_resumes_to_the_bit(tiny, straight, tmp_path, monkeypatch):
    run = tiny.config(train={"compile": True}).run("gf2", 0)
    loop.train(run, tiny.store, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_at(patch, {5})
        assert train_until_done(run, tiny.store, tmp_path / "stopped") == 1
    assert bits(tmp_path / "stopped") == bits(tmp_path / "whole")
    eager, compiled = (metrics.read_jsonl(out / "metrics.jsonl") for out in (straight("gf2"), tmp_path / "whole"))
    for a, b in zip(eager, compiled, strict=True):
        assert all(a[key] == pytest.approx(b[key], rel=1e-4) for key in a), a["step"]
    saved = load_file(checkpoint.sorted_paths(tmp_path / "whole" / "checkpoints")[-1] / "model.safetensors")
    expected = load_file(checkpoint.sorted_paths(straight("gf2") / "checkpoints")[-1] / "model.safetensors")
    assert saved.keys() == expected.keys()


def test_without_a_compiler_compile_is_refused_in_one_line(tiny, tmp_path):
    line = command(tiny, tmp_path, compile=True)
    env = {**ENV, "CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "train.compile: true, but no working compiler was found" in done.stderr
    assert "apt-get install g++ python3-dev" in done.stderr


def test_the_gradient_is_that_of_the_mean_token_loss(tiny):
    run = tiny.config().run("gf2", 0)
    trainer = loop.Trainer(run, Store.open(tiny.store), tiny.folder / "x", one_rank(), loop.Stop(None))
    total, _ = trainer.accumulate(3)
    ours = [p.grad.clone() for p in trainer.model.parameters()]
    trainer.model.zero_grad()
    tokens = torch.from_numpy(trainer.sampler.windows(3, range(4)))
    logits = trainer.model(tokens[:, :-1])
    mean = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    mean.backward()
    assert total / 64 == pytest.approx(mean.item(), rel=1e-6)
    for mine, p in zip(ours, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(mine, p.grad, rtol=1e-4, atol=1e-7)


# ------------------------------------------------------- processes and signals


def wait_for_line(path, n, process):
    """Until a file has n lines. Fails if the process ends before."""

    def reached():
        with contextlib.suppress(FileNotFoundError):
            return path.read_text().count("\n") >= n

    wait_until(lambda: reached() or process.poll() is not None, PATIENCE, str(path), every=0.005)
    assert process.poll() is None, f"exit {process.poll()} before {path} had {n} lines"


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL])
def test_a_signal_at_any_time_costs_no_bit(tiny, tmp_path, long_straight, kind):
    draw = random.Random(int(kind))
    line, journal = command(tiny, tmp_path, **LONG), tmp_path / "out" / "metrics.jsonl"
    for _ in range(2):
        process = subprocess.Popen(line, env=ENV, stderr=subprocess.PIPE, text=True)
        done = journal.read_text().count("\n") if journal.exists() else 0
        wait_for_line(journal, min(done + draw.randint(2, 40), 110), process)
        process.send_signal(kind)
        said = process.communicate(timeout=PATIENCE)[1]
        if kind == signal.SIGKILL:
            assert process.returncode == -9
        else:
            assert process.returncode == 75 and f"({signal.Signals(kind).name}); start again to go on" in said
    finish(line)
    assert bits(tmp_path / "out") == long_straight(1)
    left = [path.name for path in (tmp_path / "out" / "checkpoints").iterdir()]
    assert len(left) == 2 and not any(name.startswith(".") for name in left)


def wait_for_writing(folder, process):
    """Until a checkpoint is being written, or the process has ended."""

    def writing():
        return folder.is_dir() and any(path.name.startswith(".step_") for path in folder.iterdir())

    wait_until(lambda: writing() or process.poll() is not None, PATIENCE, "a checkpoint", every=0)


def kill_job(process):
    """All its processes at once, as a scheduler does; torchrun's are in sessions of their own."""
    launcher = psutil.Process(process.pid)
    launcher.suspend()  # it would start more of them while they are listed
    for each in (launcher, *launcher.children(recursive=True)):
        each.kill()


@pytest.mark.parametrize("ranks", [1, 2])
def test_kills_while_saving_and_a_budget_that_is_over_at_once_cost_no_bit(tiny, tmp_path, long_straight, ranks):
    line = command(tiny, tmp_path, ranks=ranks, **LONG, **SPLIT[ranks])
    draw, codes = random.Random(ranks), []
    for kind in draw.sample([signal.SIGKILL, signal.SIGTERM, "budget"], 3):
        if kind == "budget":
            over = [*line, "--time-budget", "0.0001"]
            codes.append(subprocess.run(over, env=ENV, capture_output=True, timeout=PATIENCE).returncode)
            continue
        process = subprocess.Popen(line, env=ENV, stderr=subprocess.DEVNULL)
        for _ in range(draw.randint(1, 2)):  # that of the first step, or the next
            wait_for_writing(tmp_path / "out" / "checkpoints", process)
            time.sleep(0.01)
        kill_job(process) if kind == signal.SIGKILL else process.send_signal(kind)
        codes.append(process.wait(timeout=PATIENCE))
    assert codes[0] != 0, codes  # a later one may come after the end, when the machine is slow
    finish(line)
    assert bits(tmp_path / "out") == long_straight(ranks)


def test_the_time_budget_stops_in_time_and_the_run_continues(tiny, tmp_path, monkeypatch):
    """On a clock of the test's own: an update takes a second, all else no time."""
    now, real = [0.0], loop.Trainer.update

    def update(self, step):
        now[0] += 1
        return real(self, step)

    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(loop.Trainer, "update", update)
    run = tiny.config(train={"max_steps": 40, "checkpoint_every": 40}).run("gf2", 0)
    for end in (9, 18):  # after nine seconds less than 1.5, of the next step and save, are left of ten
        now[0] = 0.0
        with pytest.raises(StoppedEarly, match="time budget"):
            loop.train(run, tiny.store, tmp_path, time_budget_min=10 / 60)
        assert checkpoint.sorted_paths(tmp_path / "checkpoints")[-1].name == f"step_{end:07d}"


# ------------------------------------------------------- before and after the first step


def test_the_rehearsal_leaves_no_trace(tiny):
    trainer = loop.Trainer(
        tiny.config().run("gf2", 0), Store.open(tiny.store), tiny.folder / "x", one_rank(), loop.Stop(None)
    )
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    random_state = torch.get_rng_state()
    trainer.rehearse()
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert not trainer.optimizer.state and all(p.grad is None for p in trainer.model.parameters())


@pytest.mark.parametrize("at", ["validation", "training"])
def test_what_does_not_fit_shows_before_the_store_is_read(tiny, tmp_path, monkeypatch, at):
    real = loop.Trainer.losses

    def full(self, windows):
        if torch.is_grad_enabled() == (at == "training"):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(self, windows)

    monkeypatch.setattr(loop.Trainer, "losses", full)
    monkeypatch.setattr(loop, "verify", lambda store: pytest.fail("the store was read first"))
    with pytest.raises(UserError, match=r"does not fit into memory.*2\.00 GiB.*micro_batch_size") as error:
        loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)
    assert len(str(error.value).splitlines()) == 1 and not (tmp_path / "metrics.jsonl").exists()


def test_saving_is_proved_after_the_first_step_of_each_start(tiny, tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(
        checkpoint,
        "save",
        lambda folder, step, *rest, real=checkpoint.save: (saved.append(step), real(folder, step, *rest)),
    )
    stop_at(monkeypatch, {4})
    train_until_done(tiny.config(train={"checkpoint_every": 100}).run("gf2", 0), tiny.store, tmp_path)
    assert saved == [1, 4, 5, 12]


# --------------------------------------------------------------------- guards


def test_a_loss_that_is_not_finite_stops_before_the_update(tiny, tmp_path, monkeypatch):
    real = loop.Trainer.accumulate

    def poisoned(self, step):
        total, data_s = real(self, step)
        if step == 7:
            next(self.model.parameters()).grad[0] = math.nan
        return total, data_s

    monkeypatch.setattr(loop.Trainer, "accumulate", poisoned)
    with pytest.raises(FloatingPointError, match=r"step 7, rank 0: .* the last good checkpoint is .*step_0000005"):
        loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)
    monkeypatch.undo()
    assert [line["step"] for line in metrics.read_jsonl(tmp_path / "metrics.jsonl")] == list(range(1, 7))
    loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)  # mended: goes on from the good one


@pytest.mark.parametrize("where", ["validation", "weights"])
def test_what_is_not_finite_after_the_update_is_said_and_not_saved(tiny, tmp_path, monkeypatch, where):
    """Step, last good checkpoint; started again with the cause gone, the run goes on from there."""
    real = loop.Trainer.update

    def poisoned(self, step):
        done = real(self, step)
        if step == 10:
            with torch.no_grad():
                next(self.model.parameters())[0] = math.nan
        return done

    monkeypatch.setattr(loop.Trainer, "update", poisoned)
    every = {"validate_every": 10 if where == "validation" else 12, "checkpoint_every": 5}
    run = tiny.config(train=every).run("learned", 0)
    with pytest.raises(FloatingPointError, match=r"step 10.* the last good checkpoint is .*step_0000005"):
        loop.train(run, tiny.store, tmp_path)
    assert checkpoint.sorted_paths(tmp_path / "checkpoints")[-1].name == "step_0000005"
    monkeypatch.undo()
    loop.train(run, tiny.store, tmp_path)
    assert (tmp_path / "final.json").exists()


def test_a_signal_before_the_first_update_stops_before_it(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "verify", lambda store: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(StoppedEarly, match=r"stopped before the first update \(SIGTERM\)"):
        loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)
    assert not list(tmp_path.glob("*.json*"))


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"run_sha256": "0"}'])
def test_a_final_json_that_is_no_record_is_refused(tiny, tmp_path, text):
    (tmp_path / "final.json").write_text(text)
    with pytest.raises(UserError, match=r"final\.json: .*; delete it and run `tokencodes train` again"):
        loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)


def test_a_final_json_of_another_run_is_refused(tiny, straight, tmp_path):
    shutil.copy(straight("gf2") / "final.json", tmp_path)
    with pytest.raises(UserError, match="belongs to a run with another config"):
        loop.train(tiny.config().run("learned", 0), tiny.store, tmp_path)


def test_a_finished_run_whose_checkpoint_is_damaged_says_how_to_mend_it(tiny, straight, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(straight("gf2"), out)
    run = tiny.config().run("gf2", 0)
    file = checkpoint.sorted_paths(out / "checkpoints")[-1] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"model.safetensors: damaged: .*; delete .*final.json and start again"):
        loop.train(run, tiny.store, out)
    (out / "final.json").unlink()
    loop.train(run, tiny.store, out)
    assert bits(out) == bits(straight("gf2"))


@pytest.mark.parametrize("minutes", ["0", "-5", "nan", "inf", "ten"])
def test_a_time_budget_that_is_none_is_refused(tiny, tmp_path, capsys, minutes):
    assert cli.main(["train", "--run", "x", "--store", "y", "--out", "z", f"--time-budget={minutes}"]) == 2
    assert f"a number of minutes above 0 and up to 10,000,000 is expected, not '{minutes}'" in capsys.readouterr().err


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("finished", [False, True])
def test_a_checkpoint_of_another_config_is_refused_and_left_alone(tiny, tmp_path, monkeypatch, finished):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        stop_at(patch, set() if finished else {6})
        with contextlib.suppress(StoppedEarly):
            loop.train(tiny.config().run("gf2", 0), tiny.store, out)
    before = snapshot(out)
    other = tmp_path / "other.yaml"
    other.write_text(dump(tiny.config(train={"peak_lr": 4e-3}).run("gf2", 0)))
    line = [sys.executable, "-m", "tokencodes.cli", "train", "--run", other, "--store", tiny.store, "--out", out]
    done = subprocess.run(line, env=ENV, capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert ("another config" if finished else "train.peak_lr is 0.003 there and 0.004 here") in done.stderr
    assert snapshot(out) == before


def test_a_store_of_another_corpus_or_tokenizer_is_refused(tiny, tmp_path):
    run = tiny.config(data={"min_tokens": 30}).run("gf2", 0)
    with pytest.raises(UserError, match="prepared with another `data` section"):
        loop.train(run, tiny.store, tmp_path)
    with pytest.raises(UserError, match="vocab"):
        loop.train(tiny.config(model={"vocab_size": 290}).run("learned", 0), tiny.store, tmp_path)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_flipped_bit_anywhere_in_the_store_stops_training_before_the_first_step(tiny, tmp_path, split):
    shutil.copytree(tiny.store, tmp_path / "store")
    path = sorted((tmp_path / "store").glob(f"*/{split}.arrow"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    line = ["train", "--run", str(tmp_path / "run.yaml"), "--store", str(tmp_path / "store")]
    (tmp_path / "run.yaml").write_text(dump(tiny.config().run("gf2", 0)))
    done = subprocess.run(
        [sys.executable, "-m", "tokencodes.cli", *line, "--out", str(tmp_path / "out")],
        env=ENV,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and path.name in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


@pytest.mark.parametrize("policy", ["refuse", "restart", "continue"])
def test_code_that_changed(tiny, straight, tmp_path, monkeypatch, policy):
    with monkeypatch.context() as patch:
        stop_at(patch, {6})
        patch.setattr(codeversion, "digest", lambda *entries: "older code")
        with pytest.raises(StoppedEarly):
            loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)
    run = tiny.config(train={"on_code_change": policy}).run("gf2", 0)
    if policy == "refuse":
        before = snapshot(tmp_path / "checkpoints")
        with pytest.raises(UserError, match="made by other training code; set train"):
            loop.train(run, tiny.store, tmp_path)
        assert snapshot(tmp_path / "checkpoints") == before
        return
    loop.train(run, tiny.store, tmp_path)
    assert bits(tmp_path) == bits(straight("gf2"))
    assert (tmp_path / "checkpoints.superseded" / "step_0000006").exists() == (policy == "restart")


def test_a_finished_model_is_kept_under_refuse_when_only_its_last_file_is_gone(tiny, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(codeversion, "digest", lambda *entries: "older code")
        loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)
    before = json.loads((tmp_path / "final.json").read_text())
    (tmp_path / "final.json").unlink()  # as Snakemake does before it runs a job
    loop.train(tiny.config(train={"on_code_change": "refuse"}).run("gf2", 0), tiny.store, tmp_path)
    after = json.loads((tmp_path / "final.json").read_text())
    assert {**after, "wall_s": 0} == {**before, "wall_s": 0} and after["code"] == "older code"


def test_one_writer(tiny, tmp_path):
    with loop.run_lock(tmp_path), pytest.raises(UserError, match="another process trains here"):
        loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)


def test_damaged_newest_checkpoint_falls_back_and_ends_with_the_same_bits(
    tiny, straight, tmp_path, monkeypatch, capsys
):
    with monkeypatch.context() as patch:
        stop_at(patch, {8})
        with pytest.raises(StoppedEarly):
            loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)
    weights = tmp_path / "checkpoints" / "step_0000008" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    loop.train(tiny.config().run("gf2", 0), tiny.store, tmp_path)
    error = capsys.readouterr().err
    assert "step_0000008" in error and "skipped" in error and "again after step 5" in error
    assert bits(tmp_path) == bits(straight("gf2"))


def test_bf16_autocast_keeps_float32_weights_and_moments(tiny, tmp_path):
    loop.train(tiny.config(train={"precision": "bf16"}).run("gf2", 0), tiny.store, tmp_path)
    last = checkpoint.sorted_paths(tmp_path / "checkpoints")[-1]
    for part in ("model", "optimizer"):
        kinds = {t.dtype for name, t in load_file(last / f"{part}.safetensors").items() if "codebook" not in name}
        assert kinds == {torch.float32}


def test_seeds_change_initialisation_and_order_and_interfaces_share_windows(tiny):
    store = Store.open(tiny.store)
    trainers = [
        loop.Trainer(tiny.config().run(name, seed), store, tiny.folder / "x", one_rank(), loop.Stop(None))
        for name, seed in (("learned", 0), ("gf2", 0), ("gf2", 1))
    ]
    windows = [trainer.sampler.windows(5, range(4)).tolist() for trainer in trainers]
    assert windows[0] == windows[1] != windows[2]
    assert not torch.equal(trainers[1].model.lm_head.weight, trainers[2].model.lm_head.weight)
    assert trainers[0].validation.tolist() == trainers[2].validation.tolist()


def test_all_interfaces_see_the_same_windows_in_the_same_order(tiny, tmp_path, monkeypatch):
    """For one seed; another seed sees others."""
    seen: list[bytes] = []

    class Watched(loop.Sampler):
        def windows(self, step, indices):
            found = super().windows(step, indices)
            seen.append(found.tobytes())
            return found

    monkeypatch.setattr(loop, "Sampler", Watched)
    order = {}
    for name, seed in (("learned", 3), ("binary9", 3), ("learned", 4)):
        seen.clear()
        loop.train(tiny.config().run(name, seed), tiny.store, tmp_path / f"{name}-{seed}")
        order[name, seed] = list(seen)
    assert order["learned", 3] == order["binary9", 3]
    assert order["learned", 3] != order["learned", 4]
    assert len(order["learned", 3]) > 5
