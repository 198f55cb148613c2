"""The training loop: `tokencodes train`, alone or under torchrun.

Each update is a function of the config, the step and the newest checkpoint alone. So a run that was stopped at any
point and continued ends with the same bits as an uninterrupted one.
"""

import contextlib
import math
import platform
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tokencodes import __version__, codeversion, layout
from tokencodes.data.sampler import Sampler
from tokencodes.data.spec import data_digest
from tokencodes.data.store import Store, verify
from tokencodes.errors import StoppedEarly, UserError, one_line
from tokencodes.files import digest, locked, sha256_file, write_text
from tokencodes.interfaces import codes, inputs
from tokencodes.interfaces.spec import is_fixed
from tokencodes.model import transformer
from tokencodes.model.loss import summed_cross_entropy
from tokencodes.train import checkpoint, distributed, energy, metrics, optim
from tokencodes.train.final import Final
from tokencodes.train.spec import Run
from tokencodes.yamlfile import dump

SAVE_MARGIN = 1.5  # a time budget reserves this multiple of the longest step and the longest save so far
MAX_CAUSE = 120  # characters of a library's error message in ours
# Parts of torch.compile's error messages about missing tools
NO_COMPILER = ("InvalidCxxCompiler", "TritonMissing", "Python.h: No such file")


class SummedLoss(nn.Module):
    """The module that data parallel wraps: ids and shifted targets, int64 (B, T) -> summed loss in nats."""

    def __init__(self, model: transformer.Transformer, chunk: int):
        super().__init__()
        self.model, self.chunk = model, chunk

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        hidden = self.model.decoder(ids)
        return summed_cross_entropy(hidden.flatten(0, 1), self.model.lm_head.weight, targets.flatten(), self.chunk)


class Stop:
    """The reason to stop soon: a signal (TERM, USR1 or INT, also repeated) or the end of the time budget."""

    def __init__(self, budget_min: float | None):
        self.reason: str | None = None
        self.deadline = time.monotonic() + budget_min * 60 if budget_min else math.inf
        self.longest = {"step": 0.0, "save": 0.0}

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals within this context."""
        kinds = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
        before = {kind: signal.signal(kind, self._on_signal) for kind in kinds}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        self.reason = signal.Signals(number).name

    def now(self) -> bool:
        """Whether this process requests a stop after the current step."""
        if self.reason is None and time.monotonic() + SAVE_MARGIN * sum(self.longest.values()) > self.deadline:
            self.reason = "time budget"
        return self.reason is not None

    @contextlib.contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Record the duration of a "step" or "save" if it is the longest so far."""
        start = time.monotonic()
        yield
        self.longest[what] = max(self.longest[what], time.monotonic() - start)


def run_lock(out: Path) -> contextlib.AbstractContextManager[Any]:
    """Lock of a run folder: one writer at a time. Raises UserError if another process trains there."""
    return locked(out / ".lock", busy=f"{out}: another process trains here; wait for it or stop it")


class Trainer:
    """The part of a run on one rank."""

    def __init__(
        self,
        run: Run,
        store: Store,
        out: Path,
        ranks: distributed.Ranks,
        stop: Stop,
        codes_file: Path | None = None,
    ):
        self.run, self.store, self.out, self.ranks, self.stop = run, store, out, ranks, stop
        train, context = run.train, run.model.context_length
        interface = read_inputs(run, codes_file)
        self.label = layout.model_name(run.interface_name, run.seed)
        self.folder = out / "checkpoints"
        self.last_good: Path | None = None  # the checkpoint that was loaded or written last
        self.facts = {
            "identity": run.identity(),
            "store_sha256": store.sha256,
            "tokenizer_sha256": store.manifest.tokenizer_sha256,
            "codes_sha256": interface.codes_sha256,
        }
        self.code = codeversion.digest("tokencodes.train.loop")
        self.sampler = Sampler(store, "train", context, run.seed)
        self.model = transformer.create(interface.form, interface.arrays, run.model, run.seed)
        self.model.to(ranks.device)
        self.model.decoder.checkpointing = train.activation_checkpointing
        loss = SummedLoss(self.model, train.loss_chunk_tokens)
        self.module = ranks.wrap(loss, self.model.decoder.layers, train.parallel)
        self.optimizer = optim.build(self.model, train)
        if train.compile:
            self.module = torch.compile(self.module)
        self.global_windows = train.tokens_per_step // context
        windows = min(train.validation_windows, store.manifest.validation.tokens // (context + 1))
        held_out = Sampler(store, "validation", context, run.data.split.seed)
        self.validation = held_out.windows(0, range(ranks.rank, max(1, windows), ranks.world_size))
        self.n_validation = max(1, windows)
        # Each forward pass gathers sharded weights from all ranks, so all ranks make the same number of passes
        self.validation_batches = math.ceil(math.ceil(self.n_validation / ranks.world_size) / train.micro_batch_size)

    # ------------------------------------------------------------ one step

    def rehearse(self) -> None:
        """Run a validation batch and an accumulation of token 0, with memory allocated for the optimizer's state.

        All batches have the same size, so a model that does not fit into memory fails here, before the store is read.
        The rehearsal changes no weight, no random state and no record. It also makes DDP build the buckets that it
        keeps from its second step on, so that a resumed run sums gradients in the same order as an uninterrupted one.
        Raises UserError if there is too little memory or no compiler.
        """
        train = self.run.train
        windows = np.zeros((train.micro_batch_size, self.run.model.context_length + 1), dtype=np.int64)
        try:
            moments = [torch.empty_like(p) for p in self.model.parameters() for _ in ("exp_avg", "exp_avg_sq")]
            with torch.no_grad():
                self.losses(windows)
            for last in (False, True) if train.grad_accum_steps > 1 else (True,):
                with self.ranks.accumulating(self.module, last=last):
                    self.losses(windows).backward()
            del moments
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if any(name in str(error) for name in NO_COMPILER):
                raise UserError(
                    f"train.compile: true, but no working compiler was found ({one_line(error)[:MAX_CAUSE]}); install "
                    "a C++ compiler and Python's headers (on Debian: apt-get install g++ python3-dev) and, for a GPU, "
                    "triton; name the compiler by CXX; or set compile: false"
                ) from error
            if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                raise
            raise UserError(
                f"train: one step does not fit into memory ({one_line(error)[:MAX_CAUSE]}); lower "
                "train.micro_batch_size and raise grad_accum_steps, set activation_checkpointing: true or parallel: "
                "fsdp, or use a smaller loss_chunk_tokens; `tokencodes plan` shows how much memory each needs"
            ) from error
        self.optimizer.zero_grad(set_to_none=True)

    def losses(self, windows: np.ndarray) -> Tensor:
        """Summed loss of windows (n, context + 1): the inputs omit the last token, the targets the first."""
        tokens = torch.from_numpy(windows).to(self.ranks.device)
        autocast = torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=self.run.train.precision == "bf16")
        with autocast:
            return self.module(tokens[:, :-1], tokens[:, 1:])

    def accumulate(self, step: int) -> tuple[float, float]:
        """Add the gradients of the global batch's mean loss to .grad. Returns this rank's loss sum and the seconds that
        reading data took."""
        train, ranks = self.run.train, self.ranks
        windows_per_rank = train.micro_batch_size * train.grad_accum_steps
        total, data_s = torch.zeros((), dtype=torch.float64, device=ranks.device), 0.0
        for micro in range(train.grad_accum_steps):
            first = ranks.rank * windows_per_rank + micro * train.micro_batch_size
            start = time.monotonic()
            windows = self.sampler.windows(step, range(first, first + train.micro_batch_size))
            data_s += time.monotonic() - start
            with ranks.accumulating(self.module, last=micro == train.grad_accum_steps - 1):
                loss = self.losses(windows)
                # Data parallel divides by the number of ranks; the gradient must be that of the mean over all tokens
                (loss * (ranks.world_size / train.tokens_per_step)).backward()
            total += loss.detach()
        return total.item(), data_s

    def update(self, step: int) -> tuple[dict[str, Any], float, bool]:
        """One optimizer step. Returns its record, the seconds of reading data, and whether a rank requests a stop.

        Raises FloatingPointError, before the weights change, if the loss or the gradient norm is not finite.
        """
        train = self.run.train
        rate = optim.learning_rate(step, train)
        optim.set_learning_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=True)
        loss_sum, data_s = self.accumulate(step)
        norm = distributed.number(torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.grad_clip))
        not_finite = [
            float(rank == self.ranks.rank and not math.isfinite(loss_sum)) for rank in range(self.ranks.world_size)
        ]
        loss_sum, stops, *not_finite = self.ranks.all_sum([loss_sum, float(self.stop.now()), *not_finite])
        loss = loss_sum / train.tokens_per_step
        if not (math.isfinite(loss) and math.isfinite(norm)):
            ranks = [rank for rank, count in enumerate(not_finite) if count] or [self.ranks.rank]
            raise FloatingPointError(
                f"step {step}, rank {', '.join(map(str, ranks))}: loss {loss}, gradient norm {norm}; stopped before "
                f"the update; {self.last_good_text()}"
            )
        self.optimizer.step()
        record = {"step": step, "loss": loss, "lr": rate, "grad_norm": norm, "tokens": step * train.tokens_per_step}
        return record, data_s, stops > 0

    def last_good_text(self) -> str:
        """The part of an error message that names the last good checkpoint."""
        return f"the last good checkpoint is {self.last_good or 'not written yet'}"

    @torch.no_grad()
    def validate(self, step: int) -> float:
        """Mean loss over the fixed validation windows, nats per token. Raises FloatingPointError if not finite."""
        size = self.run.train.micro_batch_size
        total = 0.0
        for batch in range(self.validation_batches):
            windows = self.validation[batch * size : (batch + 1) * size]
            if len(windows):
                total += self.losses(windows).item()
            else:
                # No window is left for this rank, but the others need its weights
                self.losses(np.zeros((1, self.run.model.context_length + 1), dtype=np.int64))
        loss = self.ranks.all_sum([total])[0] / (self.n_validation * self.run.model.context_length)
        if not math.isfinite(loss):
            raise FloatingPointError(f"validation loss {loss} after step {step}; {self.last_good_text()}")
        return loss

    # --------------------------------------------------------- save and load

    def resume(self) -> int:
        """Load the newest complete checkpoint. Returns its step, or 0 if there is none."""
        newest = checkpoint.latest(self.folder, self.facts)
        if newest is None:
            return 0
        if newest.manifest.get("code") != self.code:
            match self.run.train.on_code_change:
                case "refuse" if newest.step == self.run.train.max_steps:
                    self.code = newest.manifest.get("code")  # training has finished: record the code that trained
                case "refuse":
                    raise UserError(
                        f"{newest.path}: was made by other training code; set train.on_code_change to `continue` to "
                        f"continue from it or to `restart` to train from the start, or return to the code of version "
                        f"{newest.manifest.get('versions', {}).get('tokencodes', 'unknown')}"
                    )
                case "restart":
                    if self.ranks.main:
                        metrics.say(
                            self.label, f"the training code has changed since {newest.path.name}: starting anew"
                        )
                        set_aside(self.folder)
                    self.ranks.barrier()
                    return 0
        targets = self.model.state_dict()
        weights = {name: distributed.like(targets[name], tensor) for name, tensor in newest.tensors("model").items()}
        self.model.load_state_dict(weights, strict=True)
        optim.load_state(self.model, self.optimizer, newest.tensors("optimizer"))
        distributed.set_rng_state(newest.tensors("rng"), self.ranks.device)
        self.last_good = newest.path
        return newest.step

    def save(self, step: int, journals: list[metrics.Journal | metrics.Board]) -> None:
        """Write a checkpoint of `step` on the main rank; all ranks wait for it."""
        with self.stop.timing("save"):
            parts = {
                "model": self.ranks.gathered(self.model.state_dict()),
                "optimizer": self.ranks.gathered(optim.state_tensors(self.model, self.optimizer)),
                "rng": distributed.rng_state(self.ranks.device),
            }
            if self.ranks.main:
                for journal in journals:
                    journal.sync()
                facts = {**self.facts, "code": self.code, "versions": versions()}
                try:
                    self.last_good = checkpoint.save(self.folder, step, parts, facts, self.run.train.keep_checkpoints)
                except FloatingPointError as error:
                    raise FloatingPointError(f"{error}; {self.last_good_text()}") from None
            self.ranks.barrier()

    # -------------------------------------------------------- the whole run

    def loop(self) -> None:
        """Train from the newest checkpoint to the last step. final.json is written last."""
        train, main = self.run.train, self.ranks.main
        # A signal during the start stops the run before its first update. The time budget does not: each start has to
        # make progress
        if self.ranks.all_sum([float(self.stop.reason is not None)])[0]:
            why = self.stop.reason or "another rank"
            raise StoppedEarly(f"train {self.label}: stopped before the first update ({why}); start again to go on")
        if main:
            checkpoint.clear_temporary(self.out)
        start = self.resume()
        journals: list[metrics.Journal | metrics.Board] = []
        if main:
            journal = metrics.Journal(self.out / "metrics.jsonl", start, complete=True)
            timing = metrics.Journal(self.out / "timing.jsonl", start, complete=False)
            board = metrics.Board(self.out / "tensorboard", start) if train.tensorboard else None
            journals = [each for each in (journal, timing, board) if each is not None]
            origin = "from the start" if start == 0 else f"again after step {start}"
            metrics.say(self.label, f"{origin}, {train.max_steps} steps of {train.tokens_per_step:,} tokens")
            meter = energy.Meter(self.ranks.device, self.ranks.world_size)
        progress = metrics.Progress(self.label, start, train.max_steps, train.tokens_per_step, train.log_every)
        with contextlib.closing(progress):
            for step in range(start + 1, train.max_steps + 1):
                step_start = time.monotonic()
                with self.stop.timing("step"):
                    record, data_s, stopping = self.update(step)
                    last = step == train.max_steps
                    if step % train.validate_every == 0 or last:
                        record["val_loss"] = self.validate(step)
                if main:
                    seconds = time.monotonic() - step_start
                    memory_mib = distributed.peak_memory_mib(self.ranks.device)
                    pace = {
                        "step": step,
                        **metrics.pace(self.run, seconds, memory_mib),
                        "data_s": data_s,
                        "energy_j": meter.joules(),
                    }
                    journal.append(record)
                    timing.append(pace)
                    if board is not None:
                        board.append({**record, **pace})
                    progress.step(record)
                # Also after the first step of a start: it shows that saving works and how long it takes
                if step % train.checkpoint_every == 0 or step == start + 1 or last or stopping:
                    self.save(step, journals)
                if stopping and not last:
                    why = self.stop.reason or "another rank"
                    raise StoppedEarly(f"train {self.label}: stopped at step {step} ({why}); start again to go on")
        if main:
            self.finish()

    def finish(self) -> None:
        """Write final.json: the results of the run, and the hashes of its inputs."""
        train = self.run.train
        records = metrics.read_jsonl(self.out / "metrics.jsonl")
        timing = metrics.read_jsonl(self.out / "timing.jsonl")
        joules = [line.get("energy_j") for line in timing]
        recent = [record["loss"] for record in records[-train.validate_every :]]
        path = self.folder / checkpoint.name_of(train.max_steps)
        manifest = self.store.manifest
        write_text(self.out / "run.yaml", dump(self.run))
        Final(
            interface=self.run.interface_name,
            seed=self.run.seed,
            step=train.max_steps,
            tokens=train.max_steps * train.tokens_per_step,
            train_loss=math.fsum(recent) / len(recent),
            val_loss=records[-1]["val_loss"],
            unigram_entropy=manifest.unigram_entropy,
            unigram_cross_entropy=manifest.unigram_cross_entropy,
            checkpoint=str(path.relative_to(self.out)),
            model_sha256=sha256_file(path / "model.safetensors"),
            metrics_sha256=sha256_file(self.out / "metrics.jsonl"),
            store_sha256=self.store.sha256,
            tokenizer_sha256=manifest.tokenizer_sha256,
            codes_sha256=self.facts["codes_sha256"],
            run_sha256=digest(self.run.identity()),
            code=self.code,
            versions=versions(),
            hardware=hardware(self.ranks),
            wall_s=math.fsum(line.get("step_s", 0.0) for line in timing),
            energy_j=None if None in joules else math.fsum(joules),  # of the same steps as wall_s
        ).write(self.out / "final.json")


def set_aside(folder: Path) -> None:
    """Move the checkpoints of superseded code to checkpoints.superseded, which replaces an earlier one."""
    old = folder.with_name("checkpoints.superseded")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)


def versions() -> dict[str, str]:
    """Versions of the software that determines the results."""
    return {
        "tokencodes": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def hardware(ranks: distributed.Ranks) -> dict[str, Any]:
    """The hardware of the last part of the run."""
    cuda = ranks.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(ranks.device) if cuda else f"CPU, {platform.machine()}",
        "ranks": ranks.world_size,
        "cpu_threads": torch.get_num_threads(),
    }


def check_store(run: Run, store: Store) -> None:
    """Raises UserError if the store was prepared with another data section or vocab_size than the run's."""
    expected = data_digest(run.data, run.model.vocab_size)
    if store.manifest.data_sha256 != expected:
        raise UserError(
            "the store was prepared with another `data` section or vocab_size than this run's; prepare it again or "
            "restore the config"
        )


def already_done(run: Run, out: Path) -> bool:
    """Whether final.json exists. Raises UserError if it is another run's, or if its checkpoint is damaged."""
    path = out / "final.json"
    if not path.exists():
        return False
    if Final.read(path).run_sha256 != digest(run.identity()):
        raise UserError(f"{path}: belongs to a run with another config; delete {out} or use another `name`")
    last = out / "checkpoints" / checkpoint.name_of(run.train.max_steps)
    if last.exists():  # it may be deleted after the export
        try:
            checkpoint.verify(last)
        except ValueError as error:
            raise UserError(
                f"{error}; delete {path} and start again: training continues from the checkpoint before"
            ) from None
    return True


def read_inputs(run: Run, codes_file: Path | None) -> inputs.Inputs:
    """The model's input: from the code book in `codes_file`, or without one from the run's own spec."""
    model, codebook = run.model, None
    if codes_file is not None:
        if not is_fixed(run.interface):
            raise UserError(f"--codes {codes_file}: the input of {run.interface_name} is trained; leave --codes out")
        codebook = codes.load(codes_file, run.interface, model.vocab_size)
    return inputs.assemble(run.interface, codebook, model.vocab_size, model.d_model, model.init_std)


def train(
    run: Run, store_dir: Path, out: Path, *, codes_file: Path | None = None, time_budget_min: float | None = None
) -> None:
    """Train `run` on the store into `out`: metrics.jsonl, timing.jsonl, checkpoints/, and last final.json.

    `codes_file` is a code book of `tokencodes codes`; without it a fixed code book is built from the run's own spec.
    `time_budget_min` (minutes) overrides the config's value. Raises StoppedEarly (exit code 75), after saving, on
    SIGTERM, SIGUSR1, SIGINT or near the end of the time budget; UserError for errors of the user; FloatingPointError if
    a loss, a gradient norm or a weight is not finite.
    """
    stop = Stop(time_budget_min if time_budget_min is not None else run.train.time_budget_min)
    with stop.listening(), distributed.job(run.train) as ranks:
        with run_lock(out) if ranks.main else contextlib.nullcontext():
            if already_done(run, out):
                metrics.say(layout.model_name(run.interface_name, run.seed), "final.json exists: nothing to do")
                return
            train_with(ranks, run, codes_file, store_dir, out, stop)


def train_with(
    ranks: distributed.Ranks, run: Run, codes_file: Path | None, store_dir: Path, out: Path, stop: Stop
) -> None:
    """The part of `train` that holds the model, which must be freed before the process group (`distributed.job`)."""
    if run.train.tensorboard and ranks.main:
        metrics.summary_writer()  # a missing package shows before the store is read
    distributed.make_deterministic(run.train.cpu_threads, run.seed)
    store = Store.open(store_dir, vocab_size=run.model.vocab_size)
    check_store(run, store)
    trainer = Trainer(run, store, out, ranks, stop, codes_file)
    trainer.rehearse()
    if ranks.main:
        verify(store_dir)  # opening does not detect changed tokens; hashing takes minutes, training weeks
    ranks.barrier()
    trainer.loop()
