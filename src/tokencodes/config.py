"""The one typed description of a run: what each key means, its range and its default.

A config file is YAML and is checked whole before the first job. Unknown keys are refused. The shipped files in
config/ contain every key; the resolved form is written beside each artefact. Sources of the values: "paper" is
Bochkov (2026), "Do Language Models Need a Trainable Input Embedding Table?"; "ours" is a choice of this project where
the paper is silent.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from tokencodes.data.spec import Data
from tokencodes.errors import UserError
from tokencodes.evaluate.spec import Evaluate, HubReference, ImportedReference, ReferenceModel, WheelReference
from tokencodes.files import expanded, write_text
from tokencodes.interfaces.spec import CodeInterface, Interface, TableInterface, interface_problems
from tokencodes.model.spec import Model
from tokencodes.planning.spec import StageResources
from tokencodes.report.spec import Display
from tokencodes.spec import MAX_ENTRIES, Identifier, Name, PathText, Seed, Strict, first_problems, nearest, parse
from tokencodes.train.spec import Run, Train, split_problems
from tokencodes.yamlfile import dump, parse_yaml, read_yaml, typed

MAX_MODELS = 10_000  # trainings of a config
MAX_EVALUATIONS = 100_000  # jobs that score a model on a task
MAX_RESOLVED_BYTES = 100_000  # the workflow hands a config over as one argument; Linux admits 128 kB


class Config(Strict):
    """A whole experiment: what one call of snakemake makes under results/<name>/."""

    name: Name = Field(description="name of the run; everything that it makes lies in `results/<name>/`")
    results: PathText = Field("results", description="folder of all runs")
    cache: PathText = Field("~/.cache/tokencodes", description="folder of downloaded wheels, shared by all runs")
    seeds: list[Seed] = Field(
        min_length=1,
        max_length=MAX_ENTRIES,
        description=(
            "one model for each interface and seed; the seed decides initialisation and data order. *Paper:* one. For"
            " one seed, all interfaces see the same windows in the same order"
        ),
    )
    interfaces: dict[Identifier, Interface] = Field(min_length=1, max_length=MAX_ENTRIES)
    model: Model
    data: Data
    train: Train
    evaluate: Evaluate
    references: dict[Identifier, ReferenceModel] = Field(default_factory=dict, max_length=MAX_ENTRIES)
    resources: StageResources = StageResources()
    display: Display = Display()

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("a seed is named twice")
        return seeds

    @model_validator(mode="after")
    def _consistent(self) -> "Config":
        if problems := first_problems(self._problems()):
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Contradictions between keys, and sizes of the whole: one line each, with its key."""
        for name, interface in self.interfaces.items():
            yield from interface_problems(
                f"interfaces.{name}", name, interface, self.model.vocab_size, self.model.d_model
            )
        yield from split_problems(self.model, self.data, self.train)
        for name, reference in self.references.items():
            if isinstance(reference, ImportedReference) and reference.interface not in self.interfaces:
                known = nearest(reference.interface, list(self.interfaces))
                yield f"references.{name}.interface: {reference.interface!r} is not in interfaces{known}"
        yield from self.display.problems(list(self.interfaces))
        models = len(self.interfaces) * len(self.seeds)
        evaluations = (models + len(self.references)) * len(self.evaluate.tasks)
        if models > MAX_MODELS:
            yield f"interfaces x seeds: are {models:,} models; at most {MAX_MODELS:,}: make several configs"
        if evaluations > MAX_EVALUATIONS:
            yield f"models x tasks: are {evaluations:,} jobs; at most {MAX_EVALUATIONS:,}: make several configs"
        size = len(shlex.quote(self.model_dump_json()).encode())
        if size > MAX_RESOLVED_BYTES:
            yield f"the config: has {size:,} bytes with every key; at most {MAX_RESOLVED_BYTES:,}: make several configs"

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
            raise UserError(f"interface {name!r} is not in the config{nearest(name, list(self.interfaces))}")
        return self.interfaces[name]

    def reference(self, name: str) -> WheelReference | HubReference | ImportedReference:
        """The reference model of that name, or a UserError with the nearest one."""
        if name not in self.references:
            raise UserError(f"reference {name!r} is not in the config{nearest(name, list(self.references))}")
        return self.references[name]


def load(path: Path | str) -> Config:
    """Read and validate a config file."""
    return parse(Config, read_yaml(path), str(path))


def read_merged(files: Sequence[Path | str], overrides: Mapping[str, Any]) -> Config:
    """Read and validate what Snakemake takes for a config: `files`, in which later ones win, and `--config KEY=VALUE`.

    Raises UserError, a line for each problem, for whatever the workflow cannot run here (see `check`).
    """
    value: Any = {}
    for path in files:
        value = _merged(value, read_yaml(path))
    try:
        value = _merged(value, typed(overrides))
    except ValueError as error:
        raise UserError(f"--config: {error}") from None
    settings = parse(Config, value, ", ".join([*map(str, files), *(["--config"] if overrides else [])]))
    check(settings)
    return settings


def _merged(lower: Any, upper: Any) -> Any:
    """`upper` over `lower`: mappings key by key, as Snakemake merges them."""
    if not isinstance(lower, dict) or not isinstance(upper, dict):
        return upper
    return lower | {key: _merged(lower.get(key), value) for key, value in upper.items()}


def check(settings: Config) -> None:
    """Raises UserError, a line for each problem, for what only this machine shows: home folders, local shards, tasks
    that the packaged data cannot serve.
    """
    from tokencodes.evaluate import packaged  # tasks and Arrow: a stage that has a valid config needs neither

    for path in (settings.results, settings.cache):
        expanded(path)
    packaged.check(settings.evaluate)
    if settings.data.source.kind == "local":
        from tokencodes.data.source import shard_names

        shard_names(settings.data.source)
    if settings.data.tokenizer.kind == "local":
        expanded(settings.data.tokenizer.path)


def schema_text() -> str:
    """The JSON schema of a config file (config/schema.json)."""
    return json.dumps(Config.model_json_schema(), indent=2)


def resolve(
    path: Path | str, out: Path, *, interface: str | None = None, seed: int | None = None, as_json: bool = False
) -> None:
    """Write the config with every key to `out`; with `interface` and `seed`, the run file of that model.

    `path` is a file, or with `as_json` the config itself as JSON text (how the workflow hands it over).
    """
    settings = parse(Config, parse_yaml(str(path), "--config"), "--config") if as_json else load(path)
    if (interface is None) != (seed is None):
        raise UserError("--interface and --seed belong together")
    write_text(out, dump(settings if interface is None or seed is None else settings.run(interface, seed)))
