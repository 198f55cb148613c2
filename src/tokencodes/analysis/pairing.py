"""Stored scores of two models, document by document: read, held against each other, and laid side by side.

Reads what `tokencodes evaluate` writes: TASK-Nshot.json and, beside it, the same name with .parquet, a row a document.
Two results that do not ask the same of a model are refused by the name of what differs; what is not there is a gap.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokencodes.errors import UserError, one_line
from tokencodes.evaluate.catalogue import benchmark
from tokencodes.files import read_json
from tokencodes.layout import Layout
from tokencodes.train.final import Final

FRACTION = "fraction"  # the unit of a score that is a mean of 0 and 1 over documents
PATTERN = "*-*shot.json"
AGAIN = "run `tokencodes evaluate` again"


@dataclass(frozen=True)
class Likelihood:
    """A perplexity is a function of summed log-likelihoods: what divides them, and the unit of the mean."""

    counts: str | None  # None: one a document
    unit: str
    nats: float = 1.0  # of one unit


LIKELIHOODS = {
    "bits_per_byte": Likelihood("bytes", "bits a byte", math.log(2)),
    "byte_perplexity": Likelihood("bytes", "nats a byte"),
    "word_perplexity": Likelihood("words", "nats a word"),
    "nats_per_token": Likelihood("tokens", "nats a token"),
    "perplexity": Likelihood(None, "nats a document"),
}


@dataclass(frozen=True)
class Evaluation:
    """One model on one task. `documents`: arrays by column, (n documents) each, in the order of `doc_id`."""

    path: str
    model: str
    task: str
    shots: int
    version: Any
    limit: int | None
    label: str
    data_sha256: str | None
    engine: str | None
    metrics: tuple[str, ...]
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


# ------------------------------------------------------------------- reading


def read(path: Path) -> Evaluation:
    """One result: its JSON and the Parquet beside it. Raises UserError naming a file that is missing or damaged."""
    documents = path.with_suffix(".parquet")
    try:
        content = documents.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{documents}: no such file, so {path.name} has no scores by document; {AGAIN}") from None
    return parse(read_json(path), content, str(path))


def parse(result: Any, documents: bytes, where: str) -> Evaluation:
    """The same from what the two files hold; `where` names the JSON file in messages."""
    try:
        found = Evaluation(
            path=where,
            model=str(result["model"]),
            task=str(result["task"]),
            shots=int(result["shots"]),
            version=result["task_version"],
            limit=result["limit"],
            label=str(result["label"]),
            data_sha256=result.get("data_sha256"),
            engine=result.get("engine"),
            metrics=tuple(result["metrics"]),
            documents=_columns(documents, f"{where.removesuffix('.json')}.parquet"),
        )
        n = int(result["n"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{where}: is not a result of `tokencodes evaluate` ({error!r}); {AGAIN}") from None
    if n != len(found.documents["doc_id"]):
        raise UserError(f"{where}: counts {n} documents, its Parquet file {len(found.documents['doc_id'])}; {AGAIN}")
    return found


def _columns(content: bytes, where: str) -> dict[str, np.ndarray]:
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        table = file.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{where}: not a whole Parquet file ({one_line(error)}); {AGAIN}") from None
    if missing := {"doc_id", "doc_sha256"} - set(table.column_names):
        raise UserError(f"{where}: the column {', '.join(sorted(missing))} is missing; {AGAIN}")
    columns = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_floating(column.type):
            columns[name] = column.to_numpy().astype(np.float64)
        elif name == "doc_id" and pa.types.is_integer(column.type) and not column.null_count:
            columns[name] = column.to_numpy()
        elif name == "doc_id":
            raise UserError(f"{where}: doc_id is {column.type}, not whole numbers; {AGAIN}")
        else:
            columns[name] = column.to_numpy()
    if (np.diff(columns["doc_id"]) <= 0).any():
        order = np.argsort(columns["doc_id"])
        columns = {name: values[order] for name, values in columns.items()}
    if not np.diff(columns["doc_id"]).all():
        raise UserError(f"{where}: a doc_id stands there twice; {AGAIN}")
    return columns


# ------------------------------------------------------------------- pairing


def measures(evaluation: Evaluation) -> list[str]:
    """The metrics of a result that can be paired: the one that the paper reports, and one likelihood if it has any."""
    found = [name for name in evaluation.metrics if _has(evaluation, name)]
    headline = benchmark(evaluation.task).metric
    likelihoods = [name for name in found if name in LIKELIHOODS]
    first = [headline] if headline in found else [name for name in found if name not in likelihoods][:1]
    return first + ([] if set(first) & set(likelihoods) else likelihoods[:1])


def _has(evaluation: Evaluation, metric: str) -> bool:
    columns = evaluation.documents
    if metric not in LIKELIHOODS:
        return metric in columns
    counts = LIKELIHOODS[metric].counts
    return "loglikelihood" in columns and (counts is None or counts in columns)


def refuse_unlike(a: Evaluation, b: Evaluation) -> None:
    """Raises UserError, naming what differs, unless both results asked the same of their models."""
    for name, mine, other in (
        ("task", a.task, b.task),
        ("number of shots", a.shots, b.shots),
        ("task version", a.version, b.version),
        ("limit", a.limit, b.limit),
        ("engine version", _version(a.engine), _version(b.engine)),
    ):
        if mine != other:
            raise _unlike(a, b, f"the {name} is {_said(mine)} there and {_said(other)} here")
    same = np.array_equal(a.documents["doc_id"], b.documents["doc_id"]) and np.array_equal(
        a.documents["doc_sha256"], b.documents["doc_sha256"]
    )
    if not same:
        one, two = (set(zip(e.documents["doc_id"].tolist(), e.documents["doc_sha256"], strict=True)) for e in (a, b))
        raise _unlike(a, b, f"the document set differs: {len(one & two)} of {len(one)} and {len(two)} are the same")
    if a.shots and a.data_sha256 != b.data_sha256:
        raise _unlike(a, b, "the examples before a question come from other data")


def _unlike(a: Evaluation, b: Evaluation, why: str) -> UserError:
    return UserError(f"{a.path} and {b.path} cannot be paired: {why}; score both models in the same way")


def _said(value: Any) -> str:
    return "none" if value is None else str(value)


def _version(engine: str | None) -> str | None:
    """Precision and device, which follow a comma, change a score within rounding alone."""
    return None if engine is None else engine.partition(",")[0]


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
        if found := _grouped(child for child in _candidates(folder) if _has_results(child)):
            return found
    seeds = [c for c in _candidates(path.parent) if re.fullmatch(rf"{re.escape(path.name)}-s\d+", c.name)]
    if found := _grouped(child for child in seeds if _has_results(child)):
        return found
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
        seeds = [", ".join(_said(model.seed) for model in group) for group in (a, b)]
        names = [f"{group[0].name} in {group[0].folder.parent}" for group in (a, b)]
        raise UserError(
            f"{names[0]} has the seeds {seeds[0]}, {names[1]} {seeds[1]}: seeds are paired; name one model of each"
        )
    return list(zip(a, b, strict=True))


def files(model: Model) -> dict[tuple[str, int], Path]:
    """A model's result files by task and number of shots, sorted."""
    found = {}
    for path in sorted(model.folder.glob(PATTERN)):
        if match := re.fullmatch(r"(.+)-(\d+)shot", path.stem):
            found[match[1], int(match[2])] = path
    return found
