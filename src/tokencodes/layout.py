"""Every path of a run, in one place: used by the rules (with wildcards), the stages and the report.

The arguments of the methods are names, or Snakemake's wildcards in braces: `layout.final("{model}")`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tokencodes.files import expanded

MODEL = re.compile(r"(?P<interface>[a-z0-9][a-z0-9_.]*)-s(?P<seed>\d+)")
TASK = re.compile(r"(?P<task>.+)-(?P<shots>\d+)shot")


def model_name(interface: str, seed: int | str) -> str:
    """The name of one trained model, in folders and tables."""
    return f"{interface}-s{seed}"


def parse_model_name(name: str) -> tuple[str, int] | None:
    """Interface and seed of a model's name; None if it is not the name of a model that a run trained."""
    match = MODEL.fullmatch(name)
    return (match["interface"], int(match["seed"])) if match else None


def task_name(task: str, shots: int | str) -> str:
    """The name of a task with its number of shots, in files and tables."""
    return f"{task}-{shots}shot"


def parse_task_name(name: str) -> tuple[str, int] | None:
    """Task and number of shots; None if it is no such name."""
    match = TASK.fullmatch(name)
    return (match["task"], int(match["shots"])) if match else None


@dataclass(frozen=True)
class Layout:
    """The folder `results/<name>/` of a run. Paths are strings, as Snakemake needs them."""

    root: str

    @classmethod
    def of(cls, results: str, name: str) -> "Layout":
        """The layout of the run `name` under the config's `results`, which may begin with `~`."""
        return cls(str(expanded(Path(results, name))))

    # -------------------------------------------------------------- the run

    @property
    def config(self) -> str:
        """The resolved config."""
        return f"{self.root}/config.yaml"

    @property
    def params(self) -> str:
        """The parameter accounting."""
        return f"{self.root}/params.json"

    @property
    def lock(self) -> str:
        """Held by the call of Snakemake that works here."""
        return f"{self.root}/.lock"

    @property
    def slurm(self) -> str:
        """The name of the Slurm jobs of the last call."""
        return f"{self.root}/.slurm"

    def log(self, *names: str) -> str:
        """A log; its folder and its name without the ending."""
        return f"{self.root}/logs/{'/'.join(names)}.log"

    def benchmark(self, *names: str) -> str:
        """Snakemake's measurements of a job, beside its log."""
        return f"{self.root}/logs/{'/'.join(names)}.tsv"

    # ----------------------------------------------------------------- data

    @property
    def data(self) -> str:
        """What is made of the corpus and of the benchmarks."""
        return f"{self.root}/data"

    def raw(self, shard: str) -> str:
        """A raw shard."""
        return f"{self.data}/raw/{shard}.parquet"

    @property
    def tokenizer(self) -> str:
        """The folder of the tokenizer."""
        return f"{self.data}/tokenizer"

    @property
    def store(self) -> str:
        """The folder of the token store."""
        return f"{self.data}/store"

    @property
    def store_manifest(self) -> str:
        """The store's record, written last."""
        return f"{self.store}/manifest.json"

    def shard(self, shard: str) -> str:
        """The folder of one shard in the store."""
        return f"{self.store}/{shard}"

    def benchmarks(self, task: str) -> str:
        """The folder of a task's data."""
        return f"{self.data}/benchmarks/{task}"

    # --------------------------------------------------------------- models

    def codes(self, interface: str) -> str:
        """The code book of an interface."""
        return f"{self.root}/codes/{interface}.npy"

    def codes_record(self, interface: str) -> str:
        """What the code book is: hash, width, rank, weights."""
        return f"{self.root}/codes/{interface}.json"

    def run(self, model: str) -> str:
        """The folder in which a model is trained."""
        return f"{self.root}/runs/{model}"

    def final(self, model: str) -> str:
        """The record of a finished training, written last."""
        return f"{self.run(model)}/final.json"

    def model(self, model: str) -> str:
        """The exported model's folder; or that of a model that others trained."""
        return f"{self.root}/models/{model}"

    def validation(self, model: str) -> str:
        """The record of a model's checks."""
        return f"{self.root}/validation/{model}.json"

    # -------------------------------------------------------------- results

    def eval(self, model: str) -> str:
        """The folder of a model's scores."""
        return f"{self.root}/eval/{model}"

    def scores(self, model: str, task: str, shots: int | str) -> str:
        """The record of a model's scores on a task."""
        return f"{self.root}/eval/{model}/{task_name(task, shots)}.json"

    def documents(self, model: str, task: str, shots: int | str) -> str:
        """The scores by document, beside the record."""
        return f"{self.root}/eval/{model}/{task_name(task, shots)}.parquet"

    @property
    def tables(self) -> str:
        """The folder of the tables."""
        return f"{self.root}/tables"

    @property
    def figures(self) -> str:
        """The folder of the figures."""
        return f"{self.root}/figures"

    @property
    def report(self) -> str:
        """The page."""
        return f"{self.root}/report.html"
