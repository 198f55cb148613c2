"""Checks that an exported model is the one that its run defines: the checks of the paper, and more.

Each check is independent of the others and reports its result in one line. A model passes if all checks pass. They
compare the exported files, the run's checkpoint, the config, and values that are recomputed here by another method
than the model's own.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tokencodes import config
from tokencodes.data import tokenizer
from tokencodes.data.sampler import Sampler
from tokencodes.data.store import Store
from tokencodes.errors import UserError
from tokencodes.files import read_json, sha256_file
from tokencodes.interfaces import codes, inputs, lift, module
from tokencodes.interfaces.spec import CodeInterface, Interface, TableInterface, is_fixed
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.model import adapter, hf, hf_config, origin, shape
from tokencodes.model.loss import summed_cross_entropy
from tokencodes.model.origin import Origin
from tokencodes.model.transformer import Transformer
from tokencodes.train import export
from tokencodes.train.final import Final
from tokencodes.train.spec import Run, load_run
from tokencodes.validate.validation import Check, Validation

N_WINDOWS = 2  # held-out windows on which logits and losses are compared
N_PROMPT, N_GENERATED = 8, 16  # tokens of the greedy continuation
LOSS_TOLERANCE = 1e-5  # relative: float32 sums in another order
LIFT_CHUNK = 4096  # ids lifted at one time

# Runs in a new process: the model must load from its files alone.
FRESH_PROCESS = """
import hashlib, json, sys, torch
import tokencodes
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, ids, n_prompt, n_new = json.load(sys.stdin)
torch.use_deterministic_algorithms(True); torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = torch.tensor(ids)
with torch.no_grad():
    logits = model(ids).logits
    text = model.generate(ids[:1, :n_prompt], max_new_tokens=n_new, do_sample=False)
print(json.dumps({"logits": hashlib.sha256(logits.numpy().tobytes()).hexdigest(),
                  "finite": bool(logits.isfinite().all()),
                  "generated": text[0, n_prompt:].tolist(),
                  "tokenizer": len(tokenizer)}))
"""


class Failed(Exception):
    """A check failed; the message is its detail."""


def require(condition: bool, detail: str) -> None:
    """Fail the check with `detail` unless `condition`."""
    if not condition:
        raise Failed(detail)


@dataclass
class Subject:
    """The model under test and what it is compared with. Each part is read when a check first needs it."""

    model_dir: Path
    run_dir: Path | None  # None for an imported checkpoint, which has no run
    store_dir: Path
    run: Run
    final: Final | None  # None for an imported checkpoint
    codes_file: Path | None = None  # from `tokencodes codes`
    _fresh: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def stored(self) -> dict[str, Tensor]:
        """Tensors of model.safetensors under the trainer's names."""
        try:
            tensors = load_file(self.model_dir / "model.safetensors")
        except (OSError, SafetensorError) as error:
            raise Failed(f"model.safetensors: {error}") from None
        return {name.removeprefix("model."): tensor for name, tensor in tensors.items()}

    @cached_property
    def inputs(self) -> inputs.Inputs:
        """The input that the run's config defines, from the stored code book."""
        model = self.run.model
        codebook = self.codes.numpy() if is_fixed(self.run.interface) else None
        return inputs.assemble(self.run.interface, codebook, model.vocab_size, model.d_model, model.init_std)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens, with their bytes if the codes depend on spelling."""
        size, interface = self.run.model.vocab_size, self.run.interface
        spelled = isinstance(interface, CodeInterface) and interface.codebook.spelled
        return Vocabulary(size, tuple(tokenizer.token_bytes(self.model_dir)) if spelled else None)

    @cached_property
    def trainer(self) -> Transformer:
        """The final checkpoint, or what was imported, in the trainer's own module."""
        return adapter.to_transformer(self.adapter) if self.run_dir is None else export.trained(self.run_dir)[1]

    @cached_property
    def adapter(self) -> hf.TokenCodesForCausalLM:
        """The export, loaded through the Auto classes."""
        try:
            return adapter.load(self.model_dir)
        except (ValueError, OSError, UserError, RuntimeError, SafetensorError) as error:
            raise Failed(" ".join(str(error).split())[:500]) from None

    @cached_property
    def windows(self) -> Tensor:
        """Held-out windows, int64 (N_WINDOWS, context + 1)."""
        context = self.run.model.context_length
        sampler = Sampler(Store.open(self.store_dir), "validation", context, self.run.data.split.seed)
        return torch.from_numpy(sampler.windows(0, range(N_WINDOWS)))

    @property
    def codes(self) -> Tensor:
        """The stored code book (V, K)."""
        require("decoder.input.codebook" in self.stored, "model.decoder.input.codebook is missing in model.safetensors")
        return self.stored["decoder.input.codebook"]

    def fresh(self) -> dict[str, Any]:
        """The results of the export in a new process, which runs once."""
        if not self._fresh:
            request = [str(self.model_dir), self.windows[:, :-1].tolist(), N_PROMPT, N_GENERATED]
            process = subprocess.run(
                [sys.executable, "-c", FRESH_PROCESS], input=json.dumps(request), capture_output=True, text=True
            )
            lines = process.stderr.strip().splitlines()
            require(process.returncode == 0, f"a new process failed: {lines[-1] if lines else process.returncode}")
            self._fresh = json.loads(process.stdout.strip().splitlines()[-1])
        return self._fresh


# ----------------------------------------------------------------- the files


def files(subject: Subject) -> str:
    recorded = Origin.read(subject.model_dir / origin.FILE)
    model_sha256 = sha256_file(subject.model_dir / "model.safetensors")
    require(
        recorded.model_sha256 == model_sha256, "model.safetensors is not the file whose hash tokencodes.json records"
    )
    if subject.final is None:
        return f"model.safetensors {model_sha256[:12]}"
    for key in ("store_sha256", "tokenizer_sha256", "codes_sha256"):
        same = getattr(recorded, key) == getattr(subject.final, key)
        require(same, f"{key} in tokencodes.json is not that of final.json")
    tokenizer_sha256 = sha256_file(subject.model_dir / "tokenizer.json")
    require(
        tokenizer_sha256 == subject.final.tokenizer_sha256,
        "tokenizer.json is not the one that the run was trained with",
    )
    return f"model.safetensors {model_sha256[:12]}, tokenizer.json {tokenizer_sha256[:12]}"


def configuration(subject: Subject) -> str:
    stored = read_json(subject.model_dir / "config.json")
    run = subject.run
    expected = adapter.to_config(run.interface, subject.inputs, run.model).to_dict()
    keys = ("interface", "input_form", "input_sha256", "model_type", "tie_word_embeddings", *hf_config.NAMES)
    wrong = [
        f"{key} is {stored.get(key)!r}, the run says {expected[key]!r}"
        for key in keys
        if stored.get(key) != expected[key]
    ]
    require(not wrong, f"config.json: {'; '.join(wrong)}")
    return f"{len(keys)} keys of config.json equal the run's"


def parameters(subject: Subject) -> str:
    run = subject.run
    with torch.device("meta"):
        names = {name for name, _ in Transformer(subject.inputs.form, run.model).named_parameters()}
    count = sum(tensor.numel() for name, tensor in subject.stored.items() if name in names)
    parts = {"backbone": shape.backbone_parameters(run.model), "head": shape.head_parameters(run.model)}
    if isinstance(run.interface, TableInterface):
        parts["input"] = run.model.vocab_size * run.model.d_model
    elif run.interface.trained:
        parts["input"] = run.model.vocab_size * run.interface.codebook.coordinates(run.model.vocab_size)
    expected = sum(parts.values())
    require(count == expected, f"{count:,} trainable values are stored, the closed form gives {expected:,}")
    return f"{count:,} trainable values, as the closed form gives"


def tensors(subject: Subject) -> str:
    expected = subject.trainer.state_dict()
    missing, unknown = sorted(expected.keys() - subject.stored.keys()), sorted(subject.stored.keys() - expected.keys())
    require(not missing, f"missing tensors: {', '.join(missing)}")
    require(not unknown, f"unknown tensors: {', '.join(unknown)}")
    wrong = [
        name
        for name, tensor in expected.items()
        if tensor.dtype != subject.stored[name].dtype or not torch.equal(tensor, subject.stored[name])
    ]
    require(not wrong, f"not the checkpoint's bits: {', '.join(wrong)}")
    return f"{len(expected)} tensors equal the checkpoint's, bit for bit"


# ------------------------------------------------------------- the interface


def code_book(subject: Subject) -> str:
    """Compare the stored code book with one that is computed by another method (`Codebook.again`)."""
    interface, vocab_size, stored = subject.run.interface, subject.run.model.vocab_size, subject.codes.numpy()
    expected = codes.again(interface, subject.vocabulary)
    problem = codes.differences(stored, expected)
    require(problem is None, f"decoder.input.codebook is not what the config defines: {problem}")
    distinct = codes.distinct(stored)
    require(interface.shared or distinct == vocab_size, f"only {distinct} of {vocab_size} codes are distinct")
    stored_sha256 = codes.sha256(stored)
    if subject.codes_file is not None:
        codebook = codes.load(subject.codes_file, interface, vocab_size)
        require(codes.sha256(codebook) == stored_sha256, f"the model's code book is not that of {subject.codes_file}")
    if subject.final is not None:
        require(
            subject.final.codes_sha256 == stored_sha256,
            "codes_sha256 in final.json is not that of the model's code book",
        )
    entries = f"all {stored.shape[0]} x {stored.shape[1]} entries are right"
    return f"{entries}, all codes distinct" if distinct == vocab_size else f"{entries}, {distinct} distinct codes"


def structure(subject: Subject) -> str:
    """Check the structure of the stored code book by itself, for kinds that have one (`Codebook.examine`)."""
    interface = subject.run.interface
    require(interface.permutation_seed is None, "the structure of a permuted code book cannot be examined")
    try:
        return interface.codebook.examine(subject.codes.numpy())
    except ValueError as error:
        raise Failed(str(error)) from None


def lift_deterministic(subject: Subject) -> str:
    spec, model = subject.run.interface, subject.run.model
    first, again = (module.build(subject.inputs.form, model.vocab_size, model.d_model) for _ in range(2))
    for each in (first, again):
        each.load_state_dict(
            {
                name.removeprefix("decoder.input."): t
                for name, t in subject.stored.items()
                if name.startswith("decoder.input.")
            },
            assign=True,
        )
    stored = subject.codes.numpy()
    worst = 0.0
    with torch.no_grad():
        for start in range(0, model.vocab_size, LIFT_CHUNK):
            ids = torch.arange(start, min(start + LIFT_CHUNK, model.vocab_size))
            x, y = first(ids), again(ids)
            require(torch.equal(x, y), f"two lifts of ids {start}.. differ")
            defined = (
                lift.lift(stored[start : start + LIFT_CHUNK], spec.lift, model.d_model, spec.lift_seed) * first.scale
            )
            worst = max(worst, float(np.abs(x.numpy() - defined.astype(np.float32)).max()))
    bound = 0.0 if spec.lift != "orthogonal" and not spec.trained else LOSS_TOLERANCE
    require(worst <= bound, f"the lift is off its definition by up to {worst:.2e}")
    return f"{spec.lift}, scale {first.scale:.6g}: the inputs of all {model.vocab_size} tokens are as defined"


# -------------------------------------------------------------- the behaviour


def loads(subject: Subject) -> str:
    subject.adapter  # noqa: B018  loading is the check
    size = subject.fresh()["tokenizer"]
    require(
        size == subject.run.model.vocab_size, f"the tokenizer has {size} entries, V is {subject.run.model.vocab_size}"
    )
    return "AutoModelForCausalLM and AutoTokenizer load it in a new process"


def logits_finite(subject: Subject) -> str:
    require(subject.fresh()["finite"], "a logit is NaN or infinite")
    with torch.no_grad():
        logits = subject.adapter(subject.windows[:, :-1]).logits
    require(bool(logits.isfinite().all()), "a logit is NaN or infinite")
    return f"{logits.numel():,} logits, between {logits.min().item():.2f} and {logits.max().item():.2f}"


def logits_equal(subject: Subject) -> str:
    with torch.no_grad():
        ours, theirs = subject.trainer(subject.windows[:, :-1]), subject.adapter(subject.windows[:, :-1]).logits
    worst = (ours - theirs).abs().max().item()
    require(torch.equal(ours, theirs), f"trainer and export differ by up to {worst:.2e}")
    here = hashlib.sha256(theirs.numpy().tobytes()).hexdigest()
    require(here == subject.fresh()["logits"], "the export's logits are other bits in a new process")
    return "the trainer's, the export's and a new process' logits are the same bits"


def losses_equal(subject: Subject) -> str:
    tokens = subject.windows
    with torch.no_grad():
        hidden = subject.trainer.decoder(tokens[:, :-1]).flatten(0, 1)
        shifted = summed_cross_entropy(hidden, subject.trainer.lm_head.weight, tokens[:, 1:].flatten(), len(hidden))
        ours = shifted.item() / tokens[:, 1:].numel()
        theirs = subject.adapter(input_ids=tokens, labels=tokens).loss.item()
    difference = abs(ours - theirs) / abs(theirs)
    require(difference <= LOSS_TOLERANCE, f"{ours:.6f} with shifted targets, {theirs:.6f} with unshifted labels")
    return f"{ours:.6f} with shifted targets, {theirs:.6f} with unshifted labels"


def generation(subject: Subject) -> str:
    prompt = subject.windows[:1, :N_PROMPT]
    with torch.no_grad():
        texts = [
            subject.adapter.generate(prompt, max_new_tokens=N_GENERATED, do_sample=False, use_cache=cached)
            for cached in (True, True, False)
        ]
    outputs = [text[0, N_PROMPT:].tolist() for text in texts] + [subject.fresh()["generated"]]
    require(all(each == outputs[0] for each in outputs), f"greedy continuations differ: {outputs}")
    return f"{len(outputs[0])} greedy tokens, the same with and without cache and in a new process"


CHECKS: tuple[tuple[str, Callable[[Subject], str]], ...] = (
    ("files", files),
    ("config", configuration),
    ("parameters", parameters),
    ("tensors", tensors),
    ("loads", loads),
    ("logits_finite", logits_finite),
    ("logits_equal", logits_equal),
    ("losses_equal", losses_equal),
    ("generation", generation),
)
CODE_CHECKS: tuple[tuple[str, Callable[[Subject], str]], ...] = (
    ("code_book", code_book),
    ("lift", lift_deterministic),
)


OF_A_RUN = ("tensors", "logits_equal")  # compared with a run's checkpoint; `tokencodes import` makes both comparisons


def applicable(interface: Interface, *, imported: bool = False) -> list[tuple[str, Callable[[Subject], str]]]:
    """The checks that a model of an interface must pass, in order."""
    checks = list(CHECKS)
    if isinstance(interface, CodeInterface):
        checks[4:4] = [pair for pair in CODE_CHECKS if is_fixed(interface) or pair[0] != "code_book"]
        if interface.codebook.structure and interface.permutation_seed is None:
            checks.insert(5, (interface.codebook.structure, structure))
    return [pair for pair in checks if not (imported and pair[0] in OF_A_RUN)]


def _imported(model_dir: Path, settings: config.Config) -> Run:
    """The run that an imported model is compared with: the config's, with the interface that tokencodes.json names."""
    name = Origin.read(model_dir / origin.FILE).interface
    if name is None:
        raise UserError(f"{model_dir}: its tokencodes.json names no interface; only models of ours can be validated")
    return settings.run(name, settings.seeds[0])


def validate(
    model_dir: Path,
    run_dir: Path | None,
    store_dir: Path,
    out: Path,
    settings: config.Config | None = None,
    codes_file: Path | None = None,
) -> None:
    """Run all checks on a model directory and write a `Validation` to `out`.

    A model of `tokencodes import` has no run: it is compared with `settings`, the config. Raises UserError, after
    writing, with one line per failed check.
    """
    if not (model_dir / "config.json").is_file():
        raise UserError(f"{model_dir}: no config.json; name a model directory that `tokencodes export` wrote")
    if (run_dir is None) == (settings is None):
        raise UserError("validate: give --run-dir, or for an imported model --config")
    final = Final.read(run_dir / "final.json") if run_dir else None
    run = load_run(run_dir / "run.yaml") if run_dir else _imported(model_dir, settings)
    subject = Subject(
        model_dir, run_dir, store_dir, run, final, codes_file if isinstance(run.interface, CodeInterface) else None
    )
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    results = []
    for name, check in applicable(run.interface, imported=run_dir is None):
        try:
            passed, detail = True, check(subject)
        except (Failed, UserError) as error:
            passed, detail = False, str(error)
        except FileNotFoundError as error:
            passed, detail = False, f"{error.filename}: no such file"
        results.append(Check(name=name, passed=passed, detail=detail))
        print(
            f"validate {model_dir.name}: {'ok  ' if passed else 'FAIL'} {name}: {detail}", file=sys.stderr, flush=True
        )
    failed = [each for each in results if not each.passed]
    Validation(model=model_dir.name, passed=not failed, checks=results).write(out)
    if failed:
        raise UserError("\n".join(f"{model_dir}: check {each.name} failed: {each.detail}" for each in failed))
