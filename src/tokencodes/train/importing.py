"""`tokencodes import`: a published checkpoint of the same shape as a model directory of ours.

A key map (YAML) says which of its tensors become which of ours; the default has the names of Transformers' Llama. The
weights must come out as exactly the model that the config describes: what is missing, left over, of another shape or
type, not finite, or a code book that differs from the config's, is named, and nothing is written.
"""

import fnmatch
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from safetensors import safe_open
from torch import Tensor
from transformers import CONFIG_MAPPING

from tokencodes import config
from tokencodes.errors import UserError, one_line
from tokencodes.files import differences, inside, read_json, sha256_file
from tokencodes.interfaces import inputs
from tokencodes.model import adapter, standalone
from tokencodes.model.spec import Model
from tokencodes.model.transformer import Transformer
from tokencodes.spec import Strict, parse
from tokencodes.train import export
from tokencodes.yamlfile import read_yaml

LLAMA = Path(__file__).with_name("import_llama.yaml")
LAYER = "{layer}"
CODEBOOK, LIFT = "decoder.input.codebook", "decoder.input.lift"
NAMED = 4  # names that a message lists before "and n more"
TABLE, HEAD = "decoder.input.weight", "lm_head.weight"
INPUTS = (TABLE, CODEBOOK)  # a map may name both; an interface has one
WEIGHT_TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # others need scales that no map names
CODE_TYPES = (*WEIGHT_TYPES, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ARCHITECTURES = ("llama", "tokencodes")  # of those that Transformers knows; what it does not know is only mentioned
# Keys of a config.json that change what the weights compute, and the values that change nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "embedding_multiplier": (1,),
    "embedding_scale": (1,),
    "scale_embedding": (False,),
    "scale_emb": (1,),
    "residual_multiplier": (1,),
    "residual_scale": (1,),
    "attention_multiplier": (),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "final_logit_softcapping": (0,),
    "attn_logit_softcapping": (0,),
    "partial_rotary_factor": (1,),
    "rotary_pct": (1,),
    "use_qk_norm": (False,),
    "no_rope_layers": ([],),
}
N_PROBE = 16  # token ids on which the written model is run


class KeyMap(Strict):
    """Which tensors of a checkpoint become which of ours."""

    tensors: dict[
        str, str | Annotated[list[str], Field(min_length=1)]
    ]  # ours: theirs, or several whose rows follow one another; {layer} is a number
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
    paths = [held(weights, name) for name in keys.files] or sorted(weights.glob("*.safetensors"))
    if not paths:
        raise UserError(f"{weights}: holds no *.safetensors; list its files under `files` in the key map")
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: no such file; the key map lists it")
    return paths


def held(weights: Path, name: str) -> Path:
    """The file of that name in the folder of the weights.

    In a snapshot of the hub's cache it may be a link to the cache's own store of files. Raises UserError for any other
    that leaves the folder.
    """
    if "\0" in name:
        raise UserError(f"{name!r} under `files` in the key map cannot be a file's name; mend it there")
    root = weights.resolve()
    path = root / name
    blobs = root.parent.parent / "blobs"
    if root.parent.name == "snapshots" and ".." not in Path(name).parts and path.parent.resolve().is_relative_to(root):
        if path.resolve().parent == blobs:
            return path
    return inside(weights, name)


def read(path: Path, within: str | None) -> dict[str, Tensor]:
    """All tensors of a safetensors file, or of a PyTorch file that holds nothing but data, on the CPU."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError:
        raise
    except Exception as error:  # bytes that are no such file end wherever the library's reader happens to stumble
        raise UserError(f"{path}: cannot be read as tensors alone ({one_line(error)[:160]})") from None
    if within is not None:
        stored = stored.get(within) if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or not all(isinstance(tensor, Tensor) for tensor in stored.values()):
        raise UserError(f"{path}: holds no table of tensors there; name its key as `within` in the key map")
    if unnamed := [name for name in stored if not isinstance(name, str)]:
        raise UserError(f"{path}: names a tensor {unnamed[0]!r}, which is no text; save it under names")
    odd = [name for name, each in stored.items() if each.layout != torch.strided or each.is_meta or each.is_quantized]
    if odd:
        raise UserError(f"{path}: {listed(odd)}: sparse, quantized or without values; save plain tensors")
    return {name: tensor.detach() for name, tensor in stored.items()}


# ------------------------------------------------------------------ comparing


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more."""
    names = list(names)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def joined(name: str, parts: list[Tensor], keys: KeyMap, model: Model) -> Tensor:
    """One of our tensors, float32 (the code book keeps its type), from those that it is made of.

    Raises RuntimeError if their shapes do not go together.
    """
    if name != CODEBOOK:
        parts = [part.to(torch.float32) for part in parts]
    tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
    if (
        keys.rope == "interleaved"
        and name.endswith("attention.qkv.weight")
        and tensor.shape[:1] == (3 * model.d_model,)
    ):
        q, k, v = tensor.chunk(3)  # of the whole, since any of them may have come joined with another
        tensor = torch.cat([halves(q, model.n_heads), halves(k, model.n_heads), v])
    return tensor


def halves(weight: Tensor, n_heads: int) -> Tensor:
    """Rows of a query or key matrix (d, d) from interleaved pairs to pairs that lie half a head apart."""
    return weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def rounded_to(found: Tensor, expected: Tensor) -> torch.dtype | None:
    """The stored type of a continuous code book, if it is lower than ours."""
    both = found.is_floating_point() and expected.is_floating_point()
    return found.dtype if both and torch.finfo(found.dtype).eps > torch.finfo(expected.dtype).eps else None


def code_book_problem(found: Tensor, expected: Tensor) -> str | None:
    """How a stored code book differs from the config's, by value, whatever type it is stored in."""
    if found.shape != expected.shape:
        return f"{CODEBOOK}: {tuple(found.shape)} in the checkpoint, {tuple(expected.shape)} by the config"
    if lower := rounded_to(found, expected):
        expected = expected.to(lower)
    wrong = (found.double() != expected.double()).any(1).nonzero().flatten().tolist()
    if wrong:
        row = wrong[0]
        return (
            f"{CODEBOOK}: differs from what the config defines in {len(wrong)} of {len(expected)} row(s); the first is "
            f"{row}: {found[row].tolist()} there, {expected[row].tolist()} here"
        )
    return None


def stated_beside(weights: Path) -> tuple[Path, dict[str, Any]]:
    """config.json beside the weights, and what it says; nothing, if there is none."""
    path = (weights if weights.is_dir() else weights.parent) / "config.json"
    stated = read_json(path) if path.is_file() else {}
    if not isinstance(stated, dict):
        raise UserError(f"{path}: is no mapping of keys; mend it, or import from a folder without it")
    return path, stated


def rotations(stated: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What a config.json says of rotations, under the names of its newer form, and what of it is not understood."""
    found, problems = {}, []
    if stated.get("rope_theta") is not None:
        found["rope_theta"] = stated["rope_theta"]
    for key in ("rope_parameters", "rope_scaling"):
        said = stated.get(key) or {}
        if not isinstance(said, dict) or any(isinstance(value, dict) for value in said.values()):
            problems.append(f"{key} is {said!r}, which is no description of one rotation")
            continue
        kind = said.get("rope_type", said.get("type"))
        found |= {name: value for name, value in said.items() if name in ("rope_theta", "partial_rotary_factor")}
        if kind not in (None, "default"):
            found["rope_type"] = kind
    return found, problems


def stated_elsewhere(path: Path, stated: dict[str, Any], keys: KeyMap, model: Model) -> list[str]:
    """What a config.json beside the weights says otherwise than our config, of things that no shape shows."""
    if not stated:
        return []
    rope, problems = rotations(stated)
    head_dim = model.d_model // model.n_heads
    ours = {
        "n_heads": model.n_heads,
        "n_key_value_heads": model.n_heads,
        "head_dim": head_dim,
        "norm_eps": model.norm_eps,
        "rope_theta": model.rope_theta,
        "rope_type": "default",
        "rope": keys.rope,
        "activation": "silu",
    }
    theirs = {
        "n_heads": stated.get("num_attention_heads", model.n_heads),
        "n_key_value_heads": stated.get("num_key_value_heads") or model.n_heads,
        "head_dim": stated.get("head_dim") or head_dim,
        "norm_eps": stated.get("rms_norm_eps", model.norm_eps),
        "rope_theta": rope.get("rope_theta", model.rope_theta),
        "rope_type": rope.get("rope_type", "default"),
        "rope": "interleaved" if stated.get("rope_interleaved") else keys.rope,
        "activation": stated.get("hidden_act", "silu"),
    }
    problems += differences(theirs, ours)
    for key, neutral in NEUTRAL.items():
        value = stated.get(key, rope.get(key))
        if value is not None and value not in neutral:
            problems.append(f"{key} is {value!r} there; our backbone has no such thing")
    window = stated.get("sliding_window") if stated.get("use_sliding_window", True) else None
    if window is not None and not (isinstance(window, int) and window >= model.context_length):
        problems.append(f"sliding_window is {window!r} there; attention here sees all {model.context_length} positions")
    kind = str(stated.get("model_type"))
    if kind in CONFIG_MAPPING and kind not in ARCHITECTURES:
        problems.append(f"model_type is {kind!r} there, another architecture than Llama's")
    return [f"{path}: {line}" for line in problems]


def ties(stated: dict[str, Any], keys: KeyMap, state: dict[str, Tensor]) -> list[str]:
    """What is wrong where the checkpoint's config.json says that its head is its embedding table."""
    if stated.get("tie_word_embeddings") is not True:
        return []
    table = keys.tensors.get(TABLE)
    if HEAD not in state:
        return [f"its config.json ties the head to the embeddings: map {HEAD} to {table} too"]
    if TABLE not in state or not torch.equal(state[TABLE], state[HEAD]):
        return [
            f"its config.json says tie_word_embeddings, but its head ({keys.tensors[HEAD]}) is not its table; "
            f"map {HEAD} to the table, or say false in config.json"
        ]
    return []


def assemble(
    stored: dict[str, Tensor], keys: KeyMap, interface: inputs.Inputs, model: Model
) -> tuple[dict[str, Tensor], list[str]]:
    """Our state dict from theirs, and what does not match, one line each."""
    with torch.device("meta"):
        expected = Transformer(interface.form, model).state_dict()
    wanted = expanded(keys, model.n_layers)
    problems, state, used = [], {}, set()
    fixed = {f"decoder.input.{name}": torch.from_numpy(array) for name, array in interface.arrays.items()}
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
        types = CODE_TYPES if name in fixed else WEIGHT_TYPES
        if other := {str(stored[source].dtype) for source in sources if stored[source].dtype not in types}:
            problems.append(f"{name}: stored as {', '.join(sorted(other))}, which is not a weight's value by itself")
            continue
        try:
            tensor = joined(name, [stored[source] for source in sources], keys, model)
        except RuntimeError as error:
            shapes = [tuple(stored[source].shape) for source in sources]
            problems.append(f"{name}: {shapes} cannot be joined ({one_line(error)[:80]})")
            continue
        if name in fixed:
            if problem := code_book_problem(tensor, fixed[name]):
                problems.append(problem)
            elif lower := rounded_to(tensor, fixed[name]):
                note(f"{name} is stored in {lower}: it is the config's, rounded; the model gets the exact one")
            state[name] = fixed[name]
        elif tensor.shape != target.shape:
            problems.append(f"{name}: {tuple(tensor.shape)} in the checkpoint, {tuple(target.shape)} by the config")
        elif not tensor.isfinite().all():
            problems.append(f"{name}: holds a value that is NaN or infinite")
        else:
            state[name] = alone(tensor, state.values())
    if missing:
        problems.append(f"missing in the checkpoint: {listed(missing)}")
    left = [name for name in stored if name not in used and not any(fnmatch.fnmatch(name, p) for p in keys.ignore)]
    if left:
        problems.append(f"left over in the checkpoint: {listed(left)}; map them, or list them under `ignore`")
    return state, problems


def alone(tensor: Tensor, others: Iterable[Tensor]) -> Tensor:
    """The tensor in float32 with memory of its own: a file of weights has no two names for one."""
    tensor = tensor.to(torch.float32).contiguous()
    memory = tensor.untyped_storage()
    shared = any(memory.data_ptr() == other.untyped_storage().data_ptr() for other in others)
    return tensor.clone() if shared or memory.nbytes() > tensor.nbytes else tensor


def note(line: str) -> None:
    """Say what a user may want to know, and what stops nothing."""
    print(f"import: {line}", file=sys.stderr, flush=True)


# -------------------------------------------------------------------- writing


def card(name: str, model: Model, files: list[Path]) -> str:
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

After `import tokencodes`, Transformers' Auto classes load this folder. {standalone.NEEDS}

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
    export.place(out, weights, tokenizer)
    end = export.end_of_text(tokenizer) if tokenizer else None
    where = key_map or LLAMA
    keys = parse(KeyMap, read_yaml(where), str(where))
    files = weight_files(weights, keys)
    path, stated = stated_beside(weights)
    problems = stated_elsewhere(path, stated, keys, model)
    if "model_type" in stated and str(stated["model_type"]) not in CONFIG_MAPPING:
        note(
            f"{path}: model_type is {stated['model_type']!r}, which Transformers does not know; the key map must fit it"
        )
    stored: dict[str, Tensor] = {}
    for file in files:
        tensors = read(file, keys.within)
        if twice := sorted(stored.keys() & tensors.keys()):
            problems.append(f"{file}: holds again what a file before it has: {listed(twice)}")
        stored.update(tensors)
    held = inputs.assemble(interface, None, model.vocab_size, model.d_model, model.init_std)
    state, more = assemble(stored, keys, held, model)
    if problems := [*problems, *more, *ties(stated, keys, state)]:
        raise UserError("\n".join(line if line.startswith(str(weights)) else f"{weights}: {line}" for line in problems))
    with torch.device("meta"):
        net = Transformer(held.form, model)
    net.load_state_dict(state, strict=True, assign=True)
    ids = {} if end is None else {f"{kind}_token_id": end for kind in ("bos", "eos", "pad")}
    facts: dict[str, Any] = {
        "interface": name,
        "seed": None,
        "codes_sha256": held.codes_sha256,
        "imported": {path.name: sha256_file(path) for path in files},
    }
    settings_ = adapter.to_config(interface, held, model, **ids, auto_map=standalone.AUTO_MAP)
    export.write_model(
        adapter.from_transformer(net, settings_),
        tokenizer,
        card(name, model, files),
        facts,
        out,
        lambda folder: check(net, folder, weights),
    )
    print(f"{out}: {sum(p.numel() for p in net.parameters()):,} parameters of {len(stored)} tensors")


def check(net: Transformer, folder: Path, weights: Path) -> None:
    """Load what was written, strictly; its logits must be finite, and those of the imported weights to the bit."""
    vocab_size = net.lm_head.out_features
    probe = torch.arange(N_PROBE)[None] * max(1, vocab_size // N_PROBE) % vocab_size
    with torch.no_grad():
        logits, expected = adapter.load(folder)(probe).logits, net.eval()(probe)
    if not logits.isfinite().all():
        raise UserError(f"{weights}: logits of its model are not finite; the weights overflow in float32")
    assert torch.equal(logits, expected), "a model directory gives other logits than the weights that it was made of"
