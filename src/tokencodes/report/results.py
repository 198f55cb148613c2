"""A run's stored results as tables: one row per result, with the file that it came from.

Reads results/<name>/ alone: no model, no GPU, no network. A result that the config expects and no file holds is a gap
(no row), never a zero; a value that its stage could not compute (null) is NaN and stays NaN. The hash of each file is
kept, so that each number can be followed to its file.
"""

import functools
import hashlib
import json
import math
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from tokencodes.analysis.pairing import Evaluation
from tokencodes.config import Config
from tokencodes.data.manifest import TIMING, ShardTiming, StoreManifest
from tokencodes.errors import UserError
from tokencodes.evaluate import catalogue
from tokencodes.evaluate.scores import SUBTASK, Scores, documents_path, read_documents
from tokencodes.evaluate.spec import Task
from tokencodes.layout import Layout, model_name
from tokencodes.model.shape import Params
from tokencodes.records import Record
from tokencodes.report.published import published
from tokencodes.train.final import Final
from tokencodes.validate.validation import Validation

PARAMETERS = ("trainable", "input", "head", "backbone", "buffers")
STORE = "data/store/manifest.json"
TIMED = ("wall_s", "cpu_s", "encode_cpu_s", "encoded_bytes", "encoded_tokens")
ENDS = ("train_loss", "val_loss", "unigram_entropy", "unigram_cross_entropy")  # of a run, in nats per token
MEASURED = ("value", "stderr", "chance")


@dataclass(frozen=True, eq=False)
class Results:
    """What results/<name>/ holds; the order of rows is the config's.

    params: interface + PARAMETERS (counts). runs: one row per finished training: interface, seed, step, tokens, ENDS,
    path. curves: interface, seed, step, loss, val_loss (NaN where it was not measured). evaluations: one row per file
    of scores. scores: one row per model, task and metric: interface, seed, task, shots, metric, MEASURED,
    higher_is_better, n, path. documents: scores by document, by (interface, seed, task, shots). checks: interface,
    seed, name, passed, detail, path. store: the manifest of the data store. timings: TIMED of each shard, by its name.
    finals: the records of training by (interface, seed). files: SHA-256 by path relative to `root`. A table whose
    files do not exist is empty.
    """

    settings: Config
    root: Path
    params: pd.DataFrame
    store: dict[str, Any] | None
    timings: dict[str, dict[str, float]]
    runs: pd.DataFrame
    curves: pd.DataFrame
    evaluations: pd.DataFrame
    scores: pd.DataFrame
    documents: dict[tuple[str, int, str, int], Evaluation]
    checks: pd.DataFrame
    finals: dict[tuple[str, int], Final]
    files: dict[str, str]

    def models(self) -> list[tuple[str, int]]:
        """(interface, seed) of each model that the config asks for, in its order."""
        return [(interface, seed) for interface in self.settings.interfaces for seed in self.settings.seeds]

    def baseline(self) -> str:
        """The interface that the others are compared with: `display.baseline`, else `learned`, else the first."""
        return self.settings.display.baseline_of(list(self.settings.interfaces))

    def evaluation(self, interface: str, seed: int, task: Task) -> Evaluation | None:
        """Scores by document of one model on one task; None if there are none."""
        return self.documents.get((interface, seed, task.name, task.shots))

    @functools.cached_property
    def _by_score(self) -> dict[tuple[str, int, str, str], pd.DataFrame]:
        keys = ["task", "shots", "metric", "interface"]
        return dict(iter(self.scores.groupby(keys, sort=False))) if len(self.scores) else {}

    @functools.cached_property
    def _labels(self) -> dict[tuple[str, int], str]:
        every = self.evaluations.drop_duplicates(["task", "shots"])
        return dict(zip(zip(every.task, every.shots, strict=True), every.label, strict=True))

    def score(self, task: Task, metric: str, interface: str) -> pd.DataFrame:
        """The rows of one metric of one interface, one per seed."""
        return self._by_score.get((task.name, task.shots, metric, interface), self.scores.iloc[:0])

    def metrics(self, task: Task) -> list[str]:
        """The metrics that any model has for a task, the one that the paper reports first."""
        names = dict.fromkeys(key[2] for key in self._by_score if key[:2] == (task.name, task.shots))
        return headline_first(task.name, names)

    def label(self, task: Task) -> str:
        """What to call a task: the name in its result files, else the benchmark's name."""
        return title_of(task, self._labels.get((task.name, task.shots)), self.settings.evaluate.data)

    def paper_model(self, interface: str) -> str | None:
        """The paper's model that the config puts beside an interface."""
        return self.settings.interfaces[interface].paper_model

    def losses(self, interface: str) -> list[float]:
        """The held-out loss of each finished run of an interface, nats per token."""
        return [float(loss) for loss in self.runs[self.runs.interface == interface].val_loss]

    def bins(self) -> list[tuple[int, int, int, int]]:
        """Documents by length: from, below (tokens), kept, too short; from the first to the last bin that has any."""
        lengths = self.store["lengths"] if self.store else None
        if lengths is None:
            return []
        edges = lengths["edges"]
        every = list(zip(edges[:-1], edges[1:], lengths["kept"], lengths["too_few_tokens"], strict=True))
        filled = [at for at, (_, _, kept, short) in enumerate(every) if kept or short]
        return every[filled[0] : filled[-1] + 1] if filled else []

    def unigram(self) -> dict[str, float]:
        """The unigram lines (nats per token) of the data: entropy, and cross entropy on the held-out split."""
        if self.store is not None:
            return {name: self.store[name] for name in ENDS[2:]}
        return {name: float(self.runs[name].iloc[0]) for name in ENDS[2:]} if len(self.runs) else {}


def headline_first(task: str, metrics: Any) -> list[str]:
    """Metrics of a task, the one that the paper reports first; this one alone if there are none."""
    headline = catalogue.benchmark(task).metric
    return sorted(metrics, key=lambda metric: metric != headline) or [headline]


def title_of(task: Task, label: str | None, data: str) -> str:
    """What a table calls a task, with its number of shots."""
    name = label or catalogue.label(task.name, data)
    return f"{name}, {task.shots} shots" if task.shots else name


_CURVE = ("step", "loss", "val_loss", "interface", "seed")
Kind = TypeVar("Kind", bound=Record)


class _Reader:
    """Reads files below `root` and keeps their hashes; a damaged one is a UserError that names it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, str] = {}

    def bytes(self, relative: str) -> bytes | None:
        try:
            content = (self.root / relative).read_bytes()
        except FileNotFoundError:
            return None
        self.files[relative] = hashlib.sha256(content).hexdigest()
        return content

    def record(self, kind: type[Kind], relative: str, **expected: Any) -> Kind | None:
        """The record at a path; None if there is none. It must be about what its path says, `expected`."""
        if self.bytes(relative) is None:
            return None
        record = kind.read(self.root / relative)
        for key, value in expected.items():
            if getattr(record, key) != value:
                raise UserError(
                    f"{self.root / relative}: {key} is {getattr(record, key)!r}, not {value!r} as its path says; "
                    f"delete it and run `{kind.made_by}` again"
                )
        return record

    def journal(self, relative: str, final: Final | None, *, whole: bool) -> list[tuple[int, float, float]]:
        """(step, loss, held-out loss) of each line, or of those that have a held-out loss; NaN if not measured.

        If the run has not ended, a last line without a line end is still being written.
        """
        content = self.bytes(relative)
        if content is None:
            return []
        if final is not None and final.metrics_sha256 != self.files[relative]:
            raise UserError(
                f"{self.root / relative}: is not the file that final.json beside it was written for; restore it, or "
                "delete the run's folder and train again"
            )
        *lines, last = content.split(b"\n")
        if last and final is not None:
            lines.append(last)
        points = []
        for number, line in enumerate(lines, start=1):
            if not whole and b'"val_loss"' not in line:
                continue
            try:
                value = json.loads(line)
                losses = value["loss"], value.get("val_loss")
                numbers = (math.nan if loss is None else float(loss) for loss in losses)
                points.append((operator.index(value["step"]), *numbers))
            except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
                raise UserError(
                    f"{self.root / relative} line {number}: step, loss or val_loss is missing or no number "
                    f"({error!r:.200}); delete the run's folder and train again"
                ) from None
        return points


def read(settings: Config, root: Path | str, *, with_curves: bool = True) -> Results:
    """Read results/<name>/; without `with_curves`, only those steps of the curves that have a held-out loss.

    Raises UserError naming the file if `root` is missing or a file in it is damaged, and the config's key if an
    interface stands for a model that the paper does not have.
    """
    known = {model for _, _, _, model in published()}
    for name, interface in settings.interfaces.items():
        if interface.paper_model is not None and interface.paper_model not in known:
            raise UserError(
                f"interfaces.{name}.paper_model: no results of {interface.paper_model!r} are known; "
                f"known: {', '.join(sorted(known))}"
            )
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"{root}: no such results folder; run the workflow, or give --results results/<name>")
    reader, layout = _Reader(root), Layout(".")
    finals, store = {}, reader.record(StoreManifest, STORE)
    curves, evaluations, scores, documents, checks = [], [], [], {}, []
    for interface in settings.interfaces:
        for seed in settings.seeds:
            key, model = {"interface": interface, "seed": seed}, model_name(interface, seed)
            if final := reader.record(Final, _relative(layout.final(model)), **key):
                finals[interface, seed] = final
            journal = f"runs/{model}/metrics.jsonl"
            if points := reader.journal(journal, final, whole=with_curves):
                curves.append(pd.DataFrame(points, columns=["step", "loss", "val_loss"]).assign(**key))
            path = _relative(layout.validation(model))
            if validation := reader.record(Validation, path, model=model):
                checks += [key | check.model_dump() | {"path": path} for check in validation.checks]
            for task in settings.evaluate.tasks:
                _read_scores(reader, key, task, evaluations, scores, documents)
    params = reader.record(Params, "params.json")
    counts = params.interfaces if params else {}
    own = ("interface", "seed", "task", "shots")
    return Results(
        settings=settings,
        root=root,
        params=_frame(
            [{"interface": name, **counts[name].model_dump()} for name in settings.interfaces if name in counts],
            *("interface", *PARAMETERS),
        ),
        store=None if store is None else store.model_dump(),
        timings=_read_timings(reader, store),
        runs=_frame(
            [final.model_dump() | {"path": f"runs/{model_name(*key)}/final.json"} for key, final in finals.items()],
            *("interface", "seed", "step", "tokens", *ENDS, "path"),
        ),
        curves=pd.concat(curves, ignore_index=True) if curves else _frame([], *_CURVE),
        evaluations=_frame(evaluations, *own, "label", "n", "limit", "truncated", "path"),
        scores=_frame(scores, *own, "metric", *MEASURED, "higher_is_better", "n", "path"),
        documents=documents,
        checks=_frame(checks, "interface", "seed", "name", "passed", "detail", "path"),
        finals=finals,
        files=dict(sorted(reader.files.items())),
    )


def _relative(path: str) -> str:
    return path.removeprefix("./")


def _frame(rows: list[dict[str, Any]], *columns: str) -> pd.DataFrame:
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(columns))


def _read_timings(reader: _Reader, store: StoreManifest | None) -> dict[str, dict[str, float]]:
    """Those that exist: a store that was copied may have none."""
    timings = {}
    for shard in store.shards if store else []:
        if timing := reader.record(ShardTiming, f"{Path(STORE).parent}/{shard.name}/{TIMING}"):
            timings[shard.name] = timing.model_dump(include=set(TIMED))
    return timings


def _read_scores(
    reader: _Reader, key: dict[str, Any], task: Task, evaluations: list, rows: list, documents: dict
) -> None:
    """One model on one task: its record, and its scores by document if their file is there."""
    where = _relative(Layout(".").scores(model_name(*key.values()), task.name, task.shots))
    key = key | {"task": task.name, "shots": task.shots}
    scores = reader.record(Scores, where, **key)
    if scores is None:
        return
    path = reader.root / where
    if scores.limit != task.limit:
        raise UserError(
            f"{path}: limit is {scores.limit or 'none'}, in the config {task.limit or 'none'}; run `tokencodes "
            "evaluate` again, or give the config that it was scored with"
        )
    if reader.bytes(str(documents_path(Path(where)))) is not None:
        evaluation = Evaluation(str(path), scores, read_documents(path, scores))
        documents[tuple(key.values())] = evaluation
        _check_means(evaluation)
    details = scores.model_dump(exclude={"metrics", "versions"})
    evaluations.append(key | details | {"path": where})
    for metric, measured in scores.metrics.items():
        numbers = {part: math.nan if value is None else value for part, value in measured.model_dump().items()}
        rows.append(key | {"metric": metric} | numbers | {"n": scores.n, "path": where})


def _check_means(evaluation: Evaluation) -> None:
    """A score that is a mean over documents must be the mean of those beside it; a group's may be weighted."""
    if SUBTASK in evaluation.documents:
        return
    for metric, measured in evaluation.scores.metrics.items():
        mean = evaluation.documents[metric].mean() if metric in evaluation.documents and evaluation.scores.n else None
        if measured.value is None or mean is None or math.isnan(mean):
            continue
        if not math.isclose(measured.value, mean, rel_tol=1e-6, abs_tol=1e-9):
            raise UserError(
                f"{evaluation.path}: {metric} is {measured.value}, but the documents in the Parquet file beside it "
                f"have a mean of {mean:.6g}; run `tokencodes evaluate` again"
            )
