"""The one typed description of a run: what each key means, its range and its default.

A config file is YAML and is checked whole before the first job. Unknown keys are refused. The shipped files in
config/ spell out every key; the resolved form is written beside each artefact. Sources of the values: "paper" is
Bochkov (2026), "Do Language Models Need a Trainable Input Embedding Table?"; "ours" is a choice of this project where
the paper is silent.
"""

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from tokencodes.data.spec import Data
from tokencodes.errors import UserError
from tokencodes.evaluate.spec import Evaluate, HubReference, ImportedReference, ReferenceModel, WheelReference
from tokencodes.files import write_text
from tokencodes.interfaces.spec import CodeInterface, Interface, TableInterface, interface_problems
from tokencodes.model.spec import Model
from tokencodes.planning.spec import StageResources
from tokencodes.report.spec import Display
from tokencodes.spec import NAME, Strict, nearest, parse
from tokencodes.train.spec import SEEDS_END, Run, Train, split_problems
from tokencodes.yamlfile import dump, read_yaml


class Config(Strict):
    """A whole experiment: what one call of snakemake makes under results/<name>/."""

    name: str = Field(pattern=NAME, description="name of the run; everything that it makes lies in `results/<name>/`")
    # A folder; braces are Snakemake's wildcards.
    results: str = Field("results", pattern=r"^[^{}]*[^{}/\s][^{}]*$", description="folder of all runs")
    cache: str = Field("~/.cache/tokencodes", description="folder of downloaded wheels, shared by all runs")
    seeds: list[int] = Field(
        min_length=1,
        description=(
            "one model for each interface and seed; the seed decides initialisation and data order. *Paper:* one. For"
            " one seed, all interfaces see the same windows in the same order"
        ),
    )
    interfaces: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")], Interface] = Field(min_length=1)
    model: Model
    data: Data
    train: Train
    evaluate: Evaluate
    references: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")], ReferenceModel] = Field(
        default_factory=dict
    )
    resources: StageResources = StageResources()
    display: Display = Display()

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
            problems += interface_problems(
                f"interfaces.{name}", name, interface, self.model.vocab_size, self.model.d_model
            )
        problems += split_problems(self.model, self.data, self.train)
        for name, reference in self.references.items():
            if isinstance(reference, ImportedReference) and reference.interface not in self.interfaces:
                known = nearest(reference.interface, list(self.interfaces))
                problems.append(f"references.{name}.interface: {reference.interface!r} is not in interfaces{known}")
        problems += self.display.problems(list(self.interfaces))
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
