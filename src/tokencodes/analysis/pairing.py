"""Stored scores of two models, paired document by document.

Two results that did not ask the same of their models are refused, and the message names what differs.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import benchmark
from tokencodes.evaluate.scores import DOC_ID, DOC_SHA256, Scores, read_documents
from tokencodes.layout import Layout, parse_task_name
from tokencodes.train.final import Final

FRACTION = "fraction"  # the unit of a score that is a mean of 0 and 1 over documents
PATTERN = "*-*shot.json"


@dataclass(frozen=True)
class Likelihood:
    """A perplexity is a function of summed log-likelihoods: what divides them, and the unit of the mean."""

    counts: str | None  # None: one per document
    unit: str
    nats: float = 1.0  # of one unit


LIKELIHOODS = {
    "bits_per_byte": Likelihood("bytes", "bits per byte", math.log(2)),
    "byte_perplexity": Likelihood("bytes", "nats per byte"),
    "word_perplexity": Likelihood("words", "nats per word"),
    "nats_per_token": Likelihood("tokens", "nats per token"),
    "perplexity": Likelihood(None, "nats per document"),
}


@dataclass(frozen=True)
class Evaluation:
    """One model on one task: its record, and its scores by document, arrays (n documents,) in the order of `doc_id`."""

    path: str
    scores: Scores
    documents: dict[str, np.ndarray]


@dataclass(frozen=True)
class Paired:
    """Scores of two models on the same documents, float64 (n documents) each; NaN where a model has none.

    Of a likelihood: what each document costs in `unit`s, and `counts`, what its sum is divided by. `lower`: less is
    better.
    """

    a: np.ndarray
    b: np.ndarray
    counts: np.ndarray | None
    unit: str
    lower: bool


def read(path: Path) -> Evaluation:
    """One result: its record and the Parquet file beside it. Raises UserError naming a file that is damaged."""
    scores = Scores.read(path)
    return Evaluation(str(path), scores, read_documents(path, scores))


# ------------------------------------------------------------------- pairing


def measures(evaluation: Evaluation) -> list[str]:
    """The metrics of a result that can be paired: the one that the paper reports, and one likelihood if it has any."""
    names = [name for name in evaluation.scores.metrics if _has(evaluation, name)]
    headline = benchmark(evaluation.scores.task).metric
    likelihoods = [name for name in names if name in LIKELIHOODS]
    first = [headline] if headline in names else [name for name in names if name not in likelihoods][:1]
    return first + ([] if set(first) & set(likelihoods) else likelihoods[:1])


def _has(evaluation: Evaluation, metric: str) -> bool:
    columns = evaluation.documents
    if metric not in LIKELIHOODS:
        return metric in columns
    counts = LIKELIHOODS[metric].counts
    return "loglikelihood" in columns and (counts is None or counts in columns)


def refuse_unlike(a: Evaluation, b: Evaluation) -> None:
    """Raises UserError, naming what differs, unless both results asked the same of their models."""
    one, two = a.scores, b.scores
    for name, mine, other in (
        ("task", one.task, two.task),
        ("number of shots", one.shots, two.shots),
        ("task version", one.task_version, two.task_version),
        ("limit", one.limit, two.limit),
        ("engine version", _version(one.engine), _version(two.engine)),
    ):
        if mine != other:
            raise _unlike(a, b, f"the {name} is {_word(mine)} there and {_word(other)} here")
    if not all(np.array_equal(a.documents[key], b.documents[key]) for key in (DOC_ID, DOC_SHA256)):
        mine, other = (set(zip(e.documents[DOC_ID].tolist(), e.documents[DOC_SHA256], strict=True)) for e in (a, b))
        counts = f"{len(mine & other)} of {len(mine)} and {len(other)} are the same"
        raise _unlike(a, b, f"the document set differs: {counts}")
    if one.shots and one.data_sha256 != two.data_sha256:
        raise _unlike(a, b, "the examples before a question come from other data")


def _unlike(a: Evaluation, b: Evaluation, why: str) -> UserError:
    return UserError(f"{a.path} and {b.path} cannot be paired: {why}; score both models in the same way")


def _word(value: Any) -> str:
    return "none" if value is None else str(value)


def _version(engine: str) -> str:
    """The engine without precision and device, which follow a comma and change a score within rounding alone."""
    return engine.partition(",")[0]


def pair(a: Evaluation, b: Evaluation, metric: str) -> Paired | None:
    """The scores of both by document; None if one of them does not have the metric.

    Raises UserError if the results asked different things, or count the same documents in different units.
    """
    refuse_unlike(a, b)
    if not (_has(a, metric) and _has(b, metric)):
        return None
    if metric not in LIKELIHOODS:
        return Paired(a.documents[metric], b.documents[metric], None, FRACTION, lower=False)
    kind = LIKELIHOODS[metric]
    counts = None
    if kind.counts is not None:
        counts = a.documents[kind.counts]
        if not np.array_equal(counts, b.documents[kind.counts]):
            raise _unlike(a, b, f"{metric}: they count other {kind.counts} in the same documents")
    costs = (-e.documents["loglikelihood"] / kind.nats for e in (a, b))
    return Paired(*costs, counts, kind.unit, lower=True)


# ------------------------------------------------------------------- folders


@dataclass(frozen=True)
class Model:
    """Results of one model: `name` without its seed, the seed (None if its folder names none), and its folder."""

    name: str
    seed: int | None
    folder: Path


def find(path: Path) -> dict[str, list[Model]]:
    """The models, by name and each with its seeds, that a path stands for.

    It may be the folder of one model's results (results/x/eval/gf2-s0), the same without the seed for all of them
    (results/x/eval/gf2), its folder in models/ or runs/, or a whole results folder. A model has results if it was
    scored on a task or if its training ended. Raises UserError if there is no result.
    """
    path = Path(path)
    if path.parent.name in ("models", "runs"):
        path = path.parent.parent / "eval" / path.name
    if _has_results(path):
        return _grouped([path])
    for folder in (path / "eval", path):
        if models := _grouped(child for child in _candidates(folder) if _has_results(child)):
            return models
    seeds = [c for c in _candidates(path.parent) if re.fullmatch(rf"{re.escape(path.name)}-s\d+", c.name)]
    if models := _grouped(child for child in seeds if _has_results(child)):
        return models
    raise UserError(
        f"{path}: holds no results of `tokencodes evaluate` ({PATTERN}) and no finished run; name results/NAME, one "
        "model's folder in its eval/, or its folder in models/"
    )


def _candidates(folder: Path) -> list[Path]:
    """Folders of models in an eval/ folder; with those that runs/ beside it names, scored or not."""
    runs = (folder / run.name for run in folder.parent.glob("runs/*")) if folder.name == "eval" else ()
    return sorted({*folder.glob("*"), *runs})


def _final(folder: Path) -> Path | None:
    """Where the record of the training is of a model whose results lie in `folder`, results/x/eval/MODEL."""
    folder = folder.absolute()
    return Path(Layout(str(folder.parent.parent)).final(folder.name)) if folder.parent.name == "eval" else None


def _has_results(folder: Path) -> bool:
    final = _final(folder)
    return any(folder.glob(PATTERN)) or (final is not None and final.is_file())


def training(model: Model) -> Final | None:
    """The record of a model's training; None if there is none. Raises UserError if it is damaged."""
    final = _final(model.folder)
    return Final.read(final) if final is not None and final.is_file() else None


def _grouped(folders: Any) -> dict[str, list[Model]]:
    models: dict[str, list[Model]] = {}
    for folder in folders:
        name = folder.resolve().name
        match = re.fullmatch(r"(.+)-s(\d+)", name)
        model = Model(match[1], int(match[2]), folder) if match else Model(name, None, folder)
        models.setdefault(model.name, []).append(model)
    return {name: sorted(group, key=lambda model: model.seed or 0) for name, group in models.items()}


def by_seed(a: Sequence[Model], b: Sequence[Model]) -> list[tuple[Model, Model]]:
    """Which model is held against which: seed by seed; where each side has one model, these two.

    Raises UserError if one side has seeds that the other has not.
    """
    if len(a) == len(b) == 1:
        return [(a[0], b[0])]
    if [model.seed for model in a] != [model.seed for model in b]:
        seeds = [", ".join(_word(model.seed) for model in group) for group in (a, b)]
        names = [f"{group[0].name} in {group[0].folder.parent}" for group in (a, b)]
        raise UserError(
            f"{names[0]} has the seeds {seeds[0]}, {names[1]} {seeds[1]}: seeds are paired; name one model of each"
        )
    return list(zip(a, b, strict=True))


def files(model: Model) -> dict[tuple[str, int], Path]:
    """A model's result files by task and number of shots, sorted."""
    named = ((parse_task_name(path.stem), path) for path in sorted(model.folder.glob(PATTERN)))
    return {key: path for key, path in named if key}
