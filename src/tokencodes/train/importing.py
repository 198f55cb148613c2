"""`tokencodes import`: convert a published checkpoint of the same shape into a model directory of ours.

A key map (YAML) says which of its tensors become which of ours; the default has the names of Transformers' Llama. The
weights must be exactly the model that the config describes. If a tensor is missing, left over, of another shape or
type, or not finite, or if the code book differs from the config's, the error names it and nothing is written.
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
from transformers import CONFIG_MAPPING, LlamaConfig

from tokencodes import config
from tokencodes.errors import UserError, one_line
from tokencodes.files import differences, inside, read_json, sha256_file
from tokencodes.interfaces import inputs
from tokencodes.model import adapter, origin, standalone
from tokencodes.model.spec import Model
from tokencodes.model.transformer import Transformer
from tokencodes.spec import Strict, parse
from tokencodes.train import export
from tokencodes.yamlfile import read_yaml

LLAMA = Path(__file__).with_name("import_llama.yaml")
LAYER = "{layer}"
CODEBOOK, LIFT = "decoder.input.codebook", "decoder.input.lift"
NAMED = 4  # number of names that a message lists before "and n more"
TABLE, HEAD = "decoder.input.weight", "lm_head.weight"
INPUTS = (TABLE, CODEBOOK)  # a map may name both; a model has one of them
WEIGHT_TYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
)  # other types need scales, which no map names
CODE_TYPES = (*WEIGHT_TYPES, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ARCHITECTURES = ("llama", "tokencodes")  # model types that are accepted among those that Transformers knows
# Keys of a config.json that change what the weights compute, with their neutral values.
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

    # Our name: their name, or several names whose rows are joined in this order; {layer} stands for a layer's number
    tensors: dict[str, str | Annotated[list[str], Field(min_length=1)]]
    files: list[str] = Field(default_factory=list)  # in the folder of the weights; empty: all its *.safetensors
    within: str | None = None  # the key of a PyTorch file that contains the tensors
    # The pairs of coordinates that RoPE rotates: i and i + w / 2, or 2 i and 2 i + 1
    rope: Literal["half", "interleaved"] = "half"
    ignore: list[str] = Field(default_factory=list)  # patterns of tensor names that are not needed


def expanded(keys: KeyMap, n_layers: int) -> dict[str, list[str]]:
    """Our names to theirs, with {layer} replaced by the number of each layer."""
    mapping = {}
    for ours, theirs in keys.tensors.items():
        names = [theirs] if isinstance(theirs, str) else theirs
        for layer in map(str, range(n_layers if LAYER in ours else 1)):
            mapping[ours.replace(LAYER, layer)] = [name.replace(LAYER, layer) for name in names]
    return mapping


# -------------------------------------------------------------------- reading


def weight_files(weights: Path, keys: KeyMap) -> list[Path]:
    """The files with the tensors. Raises UserError if there are none, or if the map names one outside the folder."""
    if weights.is_file():
        return [weights]
    if not weights.is_dir():
        raise UserError(f"{weights}: no such file or folder; name the checkpoint's")
    paths = [listed_file(weights, name) for name in keys.files] or sorted(weights.glob("*.safetensors"))
    if not paths:
        raise UserError(f"{weights}: has no *.safetensors; list its files under `files` in the key map")
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: no such file; the key map lists it")
    return paths


def listed_file(weights: Path, name: str) -> Path:
    """The file `name` in the folder of the weights.

    In a snapshot of the hub's cache, it may be a link to the cache's own store of files. Raises UserError for any other
    path that leaves the folder.
    """
    if "\0" in name:
        raise UserError(f"{name!r} under `files` in the key map cannot be a file's name; correct it")
    root = weights.resolve()
    path = root / name
    blobs = root.parent.parent / "blobs"
    if root.parent.name == "snapshots" and ".." not in Path(name).parts and path.parent.resolve().is_relative_to(root):
        if path.resolve().parent == blobs:
            return path
    return inside(weights, name)


def read(path: Path, within: str | None) -> dict[str, Tensor]:
    """All tensors of a safetensors file, or of a PyTorch file that contains only data, on the CPU."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError:
        raise
    except Exception as error:  # an invalid file can fail anywhere in the library's reader
        raise UserError(f"{path}: cannot be read as tensors alone ({one_line(error)[:160]})") from None
    if within is not None:
        stored = stored.get(within) if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or not all(isinstance(tensor, Tensor) for tensor in stored.values()):
        raise UserError(f"{path}: has no table of tensors there; name its key as `within` in the key map")
    if unnamed := [name for name in stored if not isinstance(name, str)]:
        raise UserError(f"{path}: names a tensor {unnamed[0]!r}, which is not text; save the tensors under names")
    odd = [name for name, each in stored.items() if each.layout != torch.strided or each.is_meta or each.is_quantized]
    if odd:
        raise UserError(f"{path}: {listed(odd)}: sparse, quantized or without values; save plain tensors")
    return {name: tensor.detach() for name, tensor in stored.items()}


# ------------------------------------------------------------------ comparing


def listed(names: Iterable[str]) -> str:
    """The first names, and the number of the others."""
    names = list(names)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def joined(name: str, parts: list[Tensor], keys: KeyMap, model: Model) -> Tensor:
    """Join `parts` into our tensor `name`, in float32 (the code book keeps its type).

    Raises RuntimeError if their shapes do not fit together.
    """
    if name != CODEBOOK:
        parts = [part.to(torch.float32) for part in parts]
    tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
    if (
        keys.rope == "interleaved"
        and name.endswith("attention.qkv.weight")
        and tensor.shape[:1] == (3 * model.d_model,)
    ):
        q, k, v = tensor.chunk(3)  # of the joined tensor: a part may contain more than one of the three
        tensor = torch.cat([halves(q, model.n_heads), halves(k, model.n_heads), v])
    return tensor


def halves(weight: Tensor, n_heads: int) -> Tensor:
    """Reorder the rows of a query or key matrix (d, d) from interleaved pairs to pairs half a head apart."""
    return weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def rounded_to(stored: Tensor, expected: Tensor) -> torch.dtype | None:
    """The stored type of a continuous code book, if its precision is lower than ours; otherwise None."""
    both = stored.is_floating_point() and expected.is_floating_point()
    return stored.dtype if both and torch.finfo(stored.dtype).eps > torch.finfo(expected.dtype).eps else None


def code_book_problem(stored: Tensor, expected: Tensor) -> str | None:
    """How the values of a stored code book differ from the config's, in whatever type they are stored."""
    if stored.shape != expected.shape:
        return f"{CODEBOOK}: {tuple(stored.shape)} in the checkpoint, {tuple(expected.shape)} by the config"
    if lower := rounded_to(stored, expected):
        expected = expected.to(lower)
    wrong = (stored.double() != expected.double()).any(1).nonzero().flatten().tolist()
    if wrong:
        row = wrong[0]
        return (
            f"{CODEBOOK}: differs from what the config defines in {len(wrong)} of {len(expected)} row(s); the first is "
            f"{row}: {stored[row].tolist()} there, {expected[row].tolist()} here"
        )
    return None


def source_config(weights: Path) -> tuple[Path, dict[str, Any]]:
    """The path of config.json beside the weights, and its content; empty if there is no such file."""
    path = (weights if weights.is_dir() else weights.parent) / "config.json"
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise UserError(f"{path}: is not a mapping of keys; correct it, or import from a folder without it")
    return path, content


def rotations(source: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The rotation keys of a config.json, by the names of its newer form, and the entries that are not understood."""
    rope, problems = {}, []
    if source.get("rope_theta") is not None:
        rope["rope_theta"] = source["rope_theta"]
    for key in ("rope_parameters", "rope_scaling"):
        section = source.get(key) or {}
        if not isinstance(section, dict) or any(isinstance(value, dict) for value in section.values()):
            problems.append(f"{key} is {section!r}, which is no description of one rotation")
            continue
        kind = section.get("rope_type", section.get("type"))
        rope |= {name: value for name, value in section.items() if name in ("rope_theta", "partial_rotary_factor")}
        if kind not in (None, "default"):
            rope["rope_type"] = kind
    return rope, problems


def config_differences(path: Path, source: dict[str, Any], keys: KeyMap, model: Model) -> list[str]:
    """How a config.json beside the weights differs from our config, in settings that no tensor's shape shows."""
    if not source:
        return []
    rope, problems = rotations(source)
    llama = LlamaConfig()  # its defaults are the values of keys that the checkpoint's config.json leaves out
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
        "n_heads": source.get("num_attention_heads", llama.num_attention_heads),
        "n_key_value_heads": source.get("num_key_value_heads") or model.n_heads,
        "head_dim": source.get("head_dim") or head_dim,
        "norm_eps": source.get("rms_norm_eps", llama.rms_norm_eps),
        "rope_theta": rope.get("rope_theta", llama.default_theta),
        "rope_type": rope.get("rope_type", "default"),
        "rope": "interleaved" if source.get("rope_interleaved") else keys.rope,
        "activation": source.get("hidden_act", "silu"),
    }
    problems += differences(theirs, ours)
    for key, neutral in NEUTRAL.items():
        value = source.get(key, rope.get(key))
        if value is not None and value not in neutral:
            problems.append(f"{key} is {value!r} there; our backbone has no such thing")
    window = source.get("sliding_window") if source.get("use_sliding_window", True) else None
    if window is not None and not (isinstance(window, int) and window >= model.context_length):
        problems.append(f"sliding_window is {window!r} there; attention here sees all {model.context_length} positions")
    kind = str(source.get("model_type"))
    if kind in CONFIG_MAPPING and kind not in ARCHITECTURES:
        problems.append(f"model_type is {kind!r} there, another architecture than Llama's")
    return [f"{path}: {line}" for line in problems]


def ties(source: dict[str, Any], keys: KeyMap, state: dict[str, Tensor]) -> list[str]:
    """Problems with a head that the checkpoint's config.json ties to the embedding table."""
    if source.get("tie_word_embeddings") is not True:
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
    """Our state dict from the stored tensors, and one line per mismatch."""
    with torch.device("meta"):
        expected = Transformer(interface.form, model).state_dict()
    mapping = expanded(keys, model.n_layers)
    problems, state, used = [], {}, set()
    fixed = {f"decoder.input.{name}": torch.from_numpy(array) for name, array in interface.arrays.items()}
    if unknown := [name for name in mapping if name not in expected and name not in INPUTS]:
        problems.append(f"the key map names no tensor of ours: {listed(unknown)}")
    missing: list[str] = []
    for name, target in expected.items():
        sources = mapping.get(name)
        if name in fixed and (name == LIFT or sources is None):
            state[name] = fixed[name]  # defined by the config: the checkpoint need not have it
            continue
        if sources is None:
            problems.append(f"{name}: the key map does not say which tensors it is made from")
            continue
        if absent := [source for source in sources if source not in stored]:
            missing += absent
            continue
        used.update(sources)
        types = CODE_TYPES if name in fixed else WEIGHT_TYPES
        if other := {str(stored[source].dtype) for source in sources if stored[source].dtype not in types}:
            problems.append(f"{name}: stored as {', '.join(sorted(other))}, which needs scales to give a weight")
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
            problems.append(f"{name}: has a value that is NaN or infinite")
        else:
            state[name] = alone(tensor, state.values())
    if missing:
        problems.append(f"missing in the checkpoint: {listed(missing)}")
    unused = [name for name in stored if name not in used and not any(fnmatch.fnmatch(name, p) for p in keys.ignore)]
    if unused:
        problems.append(f"left over in the checkpoint: {listed(unused)}; map them, or list them under `ignore`")
    return state, problems


def alone(tensor: Tensor, others: Iterable[Tensor]) -> Tensor:
    """The tensor in float32, in memory of its own: a safetensors file has no two names for one memory."""
    tensor = tensor.to(torch.float32).contiguous()
    memory = tensor.untyped_storage()
    shared = any(memory.data_ptr() == other.untyped_storage().data_ptr() for other in others)
    return tensor.clone() if shared or memory.nbytes() > tensor.nbytes else tensor


def note(line: str) -> None:
    """Print a line that informs the user; the import continues."""
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
    """Write a model directory `out`, as `tokencodes export` does, from the tensors in `weights` (a file or a folder).

    `key_map` defaults to the names of Transformers' Llama. `tokenizer` is a folder of `tokencodes tokenizer`; a model
    without one cannot be evaluated. Raises UserError with one line per mismatch.
    """
    interface, model = settings.interface(name), settings.model
    export.place(out, weights, tokenizer)
    end = export.end_of_text(tokenizer) if tokenizer else None
    where = key_map or LLAMA
    keys = parse(KeyMap, read_yaml(where), str(where))
    files = weight_files(weights, keys)
    path, source = source_config(weights)
    if problem := origin.problem(path.parent):
        raise UserError(f"{path.parent}: {problem}; get the checkpoint again")
    problems = config_differences(path, source, keys, model)
    if "model_type" in source and str(source["model_type"]) not in CONFIG_MAPPING:
        note(
            f"{path}: model_type is {source['model_type']!r}, which Transformers does not know; the key map must fit it"
        )
    stored: dict[str, Tensor] = {}
    for file in files:
        tensors = read(file, keys.within)
        if twice := sorted(stored.keys() & tensors.keys()):
            problems.append(f"{file}: repeats tensors of an earlier file: {listed(twice)}")
        stored.update(tensors)
    model_input = inputs.assemble(interface, None, model.vocab_size, model.d_model, model.init_std)
    state, more = assemble(stored, keys, model_input, model)
    if problems := [*problems, *more, *ties(source, keys, state)]:
        raise UserError("\n".join(line if line.startswith(str(weights)) else f"{weights}: {line}" for line in problems))
    with torch.device("meta"):
        net = Transformer(model_input.form, model)
    net.load_state_dict(state, strict=True, assign=True)
    ids = {} if end is None else {f"{kind}_token_id": end for kind in ("bos", "eos", "pad")}
    facts: dict[str, Any] = {
        "interface": name,
        "seed": None,
        "codes_sha256": model_input.codes_sha256,
        "imported": {path.name: sha256_file(path) for path in files},
    }
    model_config = adapter.to_config(interface, model_input, model, **ids, auto_map=standalone.AUTO_MAP)
    export.write_model(
        adapter.from_transformer(net, model_config),
        tokenizer,
        card(name, model, files),
        facts,
        out,
        lambda folder: check(net, folder, weights),
    )
    print(f"{out}: {sum(p.numel() for p in net.parameters()):,} parameters of {len(stored)} tensors")


def check(net: Transformer, folder: Path, weights: Path) -> None:
    """Load the written model: its logits must be finite, and bit for bit those of the imported weights."""
    vocab_size = net.lm_head.out_features
    probe = torch.arange(N_PROBE)[None] * max(1, vocab_size // N_PROBE) % vocab_size
    with torch.no_grad():
        logits, expected = adapter.load(folder, verify=False)(probe).logits, net.eval()(probe)
    if not logits.isfinite().all():
        raise UserError(f"{weights}: logits of its model are not finite; the weights overflow in float32")
    assert torch.equal(logits, expected), "the model directory gives other logits than the imported weights"
