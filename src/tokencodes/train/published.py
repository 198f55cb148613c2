"""`tokencodes import`: a published checkpoint of the same shape as a model directory of ours.

A key map (YAML) says which of its tensors become which of ours; the default has the names of Transformers' Llama. The
weights must come out as exactly the model that the config describes: what is missing, left over, of another shape, not
finite, or a code book that differs from the config's, is named, and nothing is written.
"""

import fnmatch
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tokencodes import config
from tokencodes.errors import UserError, one_line
from tokencodes.files import differences, inside, read_json, sha256_file
from tokencodes.interfaces import interface as interfaces
from tokencodes.model import hf, standalone
from tokencodes.model.transformer import Transformer
from tokencodes.train import export

LLAMA = Path(__file__).with_name("import_llama.yaml")
LAYER = "{layer}"
CODEBOOK, LIFT = "decoder.input.codebook", "decoder.input.lift"
INPUTS = ("decoder.input.weight", CODEBOOK)  # a map may name both; an interface has one
NAMED = 4  # names that a message lists before "and n more"
N_PROBE = 16  # token ids on which the written model is run


class KeyMap(config.Strict):
    """Which tensors of a checkpoint become which of ours."""

    tensors: dict[str, str | list[str]]  # ours: theirs, or several whose rows follow one another; {layer} is a number
    files: list[str] = Field(default_factory=list)  # in the folder of the weights; none: all its *.safetensors
    within: str | None = None  # of a PyTorch file: the key under which the tensors are
    rope: Literal["half", "interleaved"] = (
        "half"  # which coordinates turn together: i and i + w / 2, or 2 i and 2 i + 1
    )
    ignore: list[str] = Field(default_factory=list)  # patterns of tensors that are not needed


def expanded(keys: KeyMap, n_layers: int) -> dict[str, list[str]]:
    """Our names to theirs, with each layer's number for {layer}."""
    found = {}
    for ours, theirs in keys.tensors.items():
        names = [theirs] if isinstance(theirs, str) else theirs
        for layer in map(str, range(n_layers if LAYER in ours else 1)):
            found[ours.replace(LAYER, layer)] = [name.replace(LAYER, layer) for name in names]
    return found


# -------------------------------------------------------------------- reading


def weight_files(weights: Path, keys: KeyMap) -> list[Path]:
    """The files that hold the tensors. Raises UserError if there are none, or if the map names one outside."""
    if weights.is_file():
        return [weights]
    if not weights.is_dir():
        raise UserError(f"{weights}: no such file or folder; name the checkpoint's")
    paths = [inside(weights, name) for name in keys.files] or sorted(weights.glob("*.safetensors"))
    if not paths:
        raise UserError(f"{weights}: holds no *.safetensors; list its files under `files` in the key map")
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: no such file; the key map lists it")
    return paths


def read(path: Path, within: str | None) -> dict[str, Tensor]:
    """All tensors of a safetensors file, or of a PyTorch file that holds nothing but data, on the CPU."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}
        held = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as tensors alone ({one_line(error)[:160]})") from None
    if within is not None:
        held = held.get(within) if isinstance(held, dict) else None
    if not isinstance(held, dict) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
        raise UserError(f"{path}: holds no table of tensors there; name its key as `within` in the key map")
    return held


# ------------------------------------------------------------------ comparing


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more."""
    names = list(names)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def joined(name: str, parts: list[Tensor], keys: KeyMap, model: config.Model) -> Tensor:
    """One of our tensors, float32 (the code book keeps its type), from those that it is made of."""
    if name != CODEBOOK:
        parts = [part.to(torch.float32) for part in parts]
    if keys.rope == "interleaved" and name.endswith("attention.qkv.weight"):
        parts = [*map(lambda part: halves(part, model.n_heads), parts[:2]), *parts[2:]]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def halves(weight: Tensor, n_heads: int) -> Tensor:
    """Rows of a query or key matrix (d, d) from interleaved pairs to pairs that lie half a head apart."""
    return weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def code_book_problem(found: Tensor, expected: Tensor) -> str | None:
    """How a stored code book differs from the config's, by value, whatever type it is stored in."""
    if found.shape != expected.shape:
        return f"{CODEBOOK}: {tuple(found.shape)} in the checkpoint, {tuple(expected.shape)} by the config"
    wrong = (found.double() != expected.double()).any(1).nonzero().flatten().tolist()
    if wrong:
        row = wrong[0]
        return (
            f"{CODEBOOK}: differs from what the config defines in {len(wrong)} of {len(expected)} row(s); the first is "
            f"{row}: {found[row].tolist()} there, {expected[row].tolist()} here"
        )
    return None


def stated_elsewhere(weights: Path, model: config.Model) -> list[str]:
    """What a config.json beside the weights says of things that no shape shows."""
    path = weights / "config.json"
    if not path.is_file():
        return []
    stated = read_json(path)
    rope = stated.get("rope_parameters") or {}
    theirs = {
        "n_heads": stated.get("num_attention_heads", model.n_heads),
        "n_key_value_heads": stated.get("num_key_value_heads") or model.n_heads,
        "norm_eps": stated.get("rms_norm_eps", model.norm_eps),
        "rope_theta": stated.get("rope_theta", rope.get("rope_theta", model.rope_theta)),
        "rope_type": (stated.get("rope_scaling") or rope).get("rope_type", "default"),
        "activation": stated.get("hidden_act", "silu"),
    }
    ours = {
        "n_heads": model.n_heads,
        "n_key_value_heads": model.n_heads,
        "norm_eps": model.norm_eps,
        "rope_theta": model.rope_theta,
        "rope_type": "default",
        "activation": "silu",
    }
    return [f"{path}: {line}" for line in differences(theirs, ours)]


def assemble(
    stored: dict[str, Tensor], keys: KeyMap, interface: config.Interface, model: config.Model
) -> tuple[dict[str, Tensor], list[str]]:
    """Our state dict from theirs, and what does not match, one line each."""
    with torch.device("meta"):
        expected = Transformer(interface, model).state_dict()
    wanted = expanded(keys, model.n_layers)
    problems, state, used = [], {}, set()
    fixed = dict(interfaces.build(interface, model.vocab_size, model.d_model, model.init_std).named_buffers())
    fixed = {f"decoder.input.{name}": tensor for name, tensor in fixed.items()}
    if unknown := [name for name in wanted if name not in expected and name not in INPUTS]:
        problems.append(f"the key map names what is no tensor of ours: {listed(unknown)}")
    missing: list[str] = []
    for name, target in expected.items():
        sources = wanted.get(name)
        if name in fixed and (name == LIFT or sources is None):
            state[name] = fixed[name]  # no checkpoint need hold what the config defines
            continue
        if sources is None:
            problems.append(f"{name}: the key map does not say what it is made of")
            continue
        if absent := [source for source in sources if source not in stored]:
            missing += absent
            continue
        used.update(sources)
        try:
            tensor = joined(name, [stored[source] for source in sources], keys, model)
        except RuntimeError as error:
            shapes = [tuple(stored[source].shape) for source in sources]
            problems.append(f"{name}: {shapes} cannot be joined ({one_line(error)[:80]})")
            continue
        if name in fixed:
            if problem := code_book_problem(tensor, fixed[name]):
                problems.append(problem)
            state[name] = fixed[name]
        elif tensor.shape != target.shape:
            problems.append(f"{name}: {tuple(tensor.shape)} in the checkpoint, {tuple(target.shape)} by the config")
        elif not tensor.isfinite().all():
            problems.append(f"{name}: holds a value that is NaN or infinite")
        else:
            state[name] = tensor.to(torch.float32)
    if missing:
        problems.append(f"missing in the checkpoint: {listed(missing)}")
    left = [name for name in stored if name not in used and not any(fnmatch.fnmatch(name, p) for p in keys.ignore)]
    if left:
        problems.append(f"left over in the checkpoint: {listed(left)}; map them, or list them under `ignore`")
    return state, problems


# -------------------------------------------------------------------- writing


def card(name: str, model: config.Model, files: list[Path]) -> str:
    """README.md of the model directory."""
    rows = "".join(f"| {path.name} | sha256 {sha256_file(path)} |\n" for path in files)
    return f"""---
library_name: transformers
pipeline_tag: text-generation
---
# {name}, imported

Weights of a published checkpoint as a Token Codes model, whose input interface is `{name}`: {model.n_layers} layers,
width {model.d_model}, {model.n_heads} heads, FFN width {model.d_ff}, vocabulary {model.vocab_size}. They were not
trained here; their license is that of their source.

| made from | |
|---|---|
{rows}"""


def import_checkpoint(
    settings: config.Config, name: str, weights: Path, key_map: Path | None, tokenizer: Path | None, out: Path
) -> None:
    """Write `out` as `tokencodes export` would, from the tensors in `weights` (a file, or a folder of files).

    `key_map` defaults to the names of Transformers' Llama. Without `tokenizer` (what `tokencodes tokenizer` wrote) the
    model cannot be evaluated. Raises UserError with one line for each thing that does not match.
    """
    interface, model = settings.interface(name), settings.model
    where = key_map or LLAMA
    keys = config.parse(KeyMap, config.read_yaml(where), str(where))
    files = weight_files(weights, keys)
    stored: dict[str, Tensor] = {}
    problems = stated_elsewhere(weights if weights.is_dir() else weights.parent, model)
    for path in files:
        tensors = read(path, keys.within)
        if twice := sorted(stored.keys() & tensors.keys()):
            problems.append(f"{path}: holds again what a file before it has: {listed(twice)}")
        stored.update(tensors)
    state, more = assemble(stored, keys, interface, model)
    if problems := [*problems, *more]:
        raise UserError("\n".join(line if line.startswith(str(weights)) else f"{weights}: {line}" for line in problems))
    with torch.device("meta"):
        net = Transformer(interface, model)
    net.load_state_dict(state, strict=True, assign=True)
    end = read_json(tokenizer / "manifest.json")["eos_token_id"] if tokenizer else None
    ids = {} if end is None else {f"{kind}_token_id": end for kind in ("bos", "eos", "pad")}
    facts: dict[str, Any] = {
        "interface": name,
        "seed": None,
        "imported": {path.name: sha256_file(path) for path in files},
    }
    adapter = hf.from_transformer(net, hf.to_config(interface, model, **ids, auto_map=standalone.AUTO_MAP))
    export.write_model(adapter, tokenizer, card(name, model, files), facts, out)
    check(net, out)
    print(f"{out}: {sum(p.numel() for p in net.parameters()):,} parameters of {len(stored)} tensors")


def check(net: Transformer, out: Path) -> None:
    """Load what was written, strictly; its logits must be finite, and those of the imported weights to the bit."""
    vocab_size = net.lm_head.out_features
    probe = torch.arange(N_PROBE)[None] * max(1, vocab_size // N_PROBE) % vocab_size
    with torch.no_grad():
        logits, expected = hf.load(out)(probe).logits, net.eval()(probe)
    if not logits.isfinite().all():
        raise UserError(f"{out}: its logits are not finite; the weights overflow in float32")
    assert torch.equal(logits, expected), "a model directory gives other logits than the weights that it was made of"
