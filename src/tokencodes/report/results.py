"""A run's stored results as tables: what is there, what is missing, and where each number came from.

Reads results/<name>/ alone: no model, no GPU, no network. What the config expects and no file gives is a gap (no row),
never a zero; a value that its stage could not compute (null) is NaN and stays NaN. Everything read is remembered with
its hash, so that each number can be followed to its file.
"""

import csv
import functools
import hashlib
import json
import math
import operator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from tokencodes.analysis import pairing
from tokencodes.analysis.pairing import Evaluation
from tokencodes.config import Config
from tokencodes.data.manifest import TIMING, ShardTiming, StoreManifest
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import benchmark
from tokencodes.evaluate.catalogue import label as benchmark_label
from tokencodes.evaluate.spec import Task
from tokencodes.layout import model_name
from tokencodes.model.shape import Params
from tokencodes.records import Record
from tokencodes.train.final import Final
from tokencodes.validate.validation import Validation

PARAMETERS = ("trainable", "input", "head", "backbone", "buffers")
REMAKE = "delete it and run the stage that writes it again"


@dataclass(frozen=True)
class Published:
    """One figure of the paper. `text` is how it was printed; `value` is in `unit` (percent, perplexity or count)."""

    value: float
    text: str
    stderr: float | None
    unit: str
    note: str
    source: str


@functools.cache
def published() -> dict[tuple[str, str, int | None, str], Published]:
    """The paper's figures by (task, metric, shots, model), from reference.csv; what was not given has no entry."""
    text = resources.files("tokencodes.report").joinpath("published.csv").read_text(encoding="utf-8")
    figures = {}
    for row in csv.DictReader(text.splitlines()):
        shots = int(row["shots"]) if row["shots"] else None
        printed = row["value"]
        if row["note"].startswith("approximate: "):
            printed = "≈ " + row["note"].removeprefix("approximate: ").split(";")[0].replace("-", "–")
        figures[row["task"], row["metric"], shots, row["model"]] = Published(
            value=float(row["value"]),
            text=printed,
            stderr=float(row["stderr"]) if row["stderr"] else None,
            unit=row["unit"],
            note=row["note"],
            source=row["source"],
        )
    return figures


def paper_count(model: str | None, metric: str, task: str = "parameters") -> int | None:
    """A count of the paper's accounting for one of its models; None if the paper does not give it."""
    figure = published().get((task, metric, None, model or ""))
    return int(figure.value) if figure and figure.unit == "count" else None


PAPER_MODEL = "Learned"  # whose size stands for the paper's in a comparison of sizes
PAPER_BUDGET = 0.9  # of the paper's training tokens, or as much above them, is about its budget
REFERENCE = "src/tokencodes/report/published.csv"  # where a reader finds the paper's figures, each with its source


@dataclass(frozen=True, eq=False)
class Results:
    """What results/<name>/ holds.

    params: interface + PARAMETERS (counts). runs: one row a finished training run: interface, seed, step, tokens,
    train_loss, val_loss, unigram_entropy, unigram_cross_entropy (nats a token), wall_s, path. curves: interface, seed,
    step, loss, val_loss (NaN where not measured). evaluations: one row an evaluation file. scores: one row a metric of
    one: interface, seed, task, shots, metric, value, stderr, chance, n, path. documents: scores by document, by
    (interface, seed, task, shots). checks: interface, seed, name, passed, detail, path. store: the data store's
    manifest. timings: what preparing a shard took (TIMED), by its name. finals: what final.json holds by
    (interface, seed).
    files: SHA-256 by path relative to `root`. A table without a file behind it is empty.
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
    finals: dict[tuple[str, int], dict[str, Any]]
    files: dict[str, str]

    def models(self) -> list[tuple[str, int]]:
        """(interface, seed) of each model that the config asks for, in its order."""
        return [(interface, seed) for interface in self.settings.interfaces for seed in self.settings.seeds]

    def baseline(self) -> str:
        """The interface that the others are compared with: `display.baseline`, else `learned`, else the first."""
        return self.settings.display.baseline_of(list(self.settings.interfaces))

    def evaluation(self, interface: str, seed: int, task: Task) -> Evaluation | None:
        """Scores by document of one model on one task; None if they are not there."""
        return self.documents.get((interface, seed, task.name, task.shots))

    @functools.cached_property
    def _by_score(self) -> dict[tuple[str, int, str, str], pd.DataFrame]:
        keys = ["task", "shots", "metric", "interface"]
        return dict(iter(self.scores.groupby(keys, sort=False))) if len(self.scores) else {}

    @functools.cached_property
    def _labels(self) -> dict[tuple[str, int], str]:
        found: dict[tuple[str, int], str] = {}
        for task, shots, label in zip(*(self.evaluations[key] for key in ("task", "shots", "label")), strict=True):
            found.setdefault((task, shots), label)
        return found

    def score(self, task: Task, metric: str, interface: str) -> pd.DataFrame:
        """The rows of one metric of one interface, a row a seed, in the config's order of seeds."""
        return self._by_score.get((task.name, task.shots, metric, interface), self.scores.iloc[:0])

    def metrics(self, task: Task) -> list[str]:
        """The metrics that any model has for a task, the one that the paper reports first."""
        found = list(dict.fromkeys(key[2] for key in self._by_score if key[:2] == (task.name, task.shots)))
        headline = benchmark(task.name).metric
        return sorted(found, key=lambda metric: metric != headline) or [headline]

    def label(self, task: Task) -> str:
        """What to call a task: what its result files say, else the benchmark's name."""
        name = self._labels.get((task.name, task.shots)) or benchmark_label(task.name, self.settings.evaluate.data)
        return f"{name}, {task.shots} shots" if task.shots else name

    def paper_model(self, interface: str) -> str | None:
        """The paper's model that the config puts beside an interface."""
        return self.settings.interfaces[interface].paper_model

    def unlike_paper(self) -> list[str]:
        """What keeps this run from being set against the paper's figures: its `size`, its `budget`; [] if nothing."""
        train, budget = self.settings.train, paper_count(PAPER_MODEL, "target_tokens", task="training")
        counts = dict(zip(self.params.interface, self.params.trainable, strict=True))
        pairs = [
            (counts.get(interface), paper_count(self.paper_model(interface), "trainable"))
            for interface in self.settings.interfaces
            if self.paper_model(interface)
        ]
        why = [] if pairs and all(ours is not None and ours == theirs for ours, theirs in pairs) else ["size"]
        share = train.max_steps * train.tokens_per_step / budget if budget else 0.0
        near = PAPER_BUDGET <= share <= 1 / PAPER_BUDGET
        return why if near else [*why, "budget"]

    def bins(self) -> list[tuple[int, int, int, int]]:
        """Documents by length: from, below (tokens), kept, too short; from the first to the last bin that has any."""
        found = self.store["lengths"] if self.store else None
        if found is None:
            return []
        every = list(zip(found["edges"][:-1], found["edges"][1:], found["kept"], found["too_few_tokens"], strict=True))
        filled = [at for at, (_, _, kept, short) in enumerate(every) if kept or short]
        return every[filled[0] : filled[-1] + 1] if filled else []

    def unigram(self) -> dict[str, float]:
        """The unigram lines (nats a token) of the data: the entropy, and the cross entropy on the held-out split."""
        names = ("unigram_entropy", "unigram_cross_entropy")
        if self.store is not None:
            return {name: self.store[name] for name in names}
        if len(self.runs):
            return {name: float(self.runs[name].iloc[0]) for name in names}
        return {}


Kind = TypeVar("Kind", bound=Record)


class _Reader:
    """Reads files below `root` and remembers their hashes; a damaged one is a UserError that names it."""

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

    def object(self, relative: str) -> dict[str, Any] | None:
        content = self.bytes(relative)
        return None if content is None else self.parse(content, relative)

    def record(self, kind: type[Kind], relative: str) -> Kind | None:
        """The record at a path; None if there is none."""
        return None if self.bytes(relative) is None else kind.read(self.root / relative)

    def journal(self, relative: str, final: dict[str, Any] | None, *, whole: bool) -> list[tuple[int, float, float]]:
        """(step, loss, held-out loss) of each line, or of those that have a held-out loss; NaN if not measured.

        Of a run that has not ended, a last line without its line end is still being written.
        """
        content = self.bytes(relative)
        if content is None:
            return []
        if final is not None and final.get("metrics_sha256", self.files[relative]) != self.files[relative]:
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
            value = self.parse(line, f"{relative} line {number}")
            try:
                loss, held_out = value["loss"], value.get("val_loss")
                points.append(
                    (
                        operator.index(value["step"]),
                        math.nan if loss is None else float(loss),
                        math.nan if held_out is None else float(held_out),
                    )
                )
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"{self.root / relative} line {number}: step, loss or val_loss is missing or no number ({error}); "
                    "delete the run's folder and train again"
                ) from None
        return points

    def parse(self, content: bytes, where: str) -> dict[str, Any]:
        try:
            value = json.loads(content)
        except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
            raise UserError(f"{self.root / where}: not valid JSON ({error}); {REMAKE}") from None
        if not isinstance(value, dict):
            raise UserError(f"{self.root / where}: a JSON object is expected, not {type(value).__name__}; {REMAKE}")
        return value

    def get(self, value: Any, where: str, *keys: str) -> Any:
        for depth, key in enumerate(keys):
            if not isinstance(value, dict) or key not in value:
                raise UserError(f"{self.root / where}: the key {'.'.join(keys[: depth + 1])} is missing; {REMAKE}")
            value = value[key]
        return value

    def number(self, value: Any, where: str, *keys: str) -> float:
        """The number at `keys`; null is NaN."""
        found = self.get(value, where, *keys)
        if found is None:
            return math.nan
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise UserError(f"{self.root / where}: {'.'.join(keys)} is {found!r}, not a number; {REMAKE}")
        return found

    def count(self, value: Any, where: str, *keys: str) -> int:
        found = self.number(value, where, *keys)
        if not isinstance(found, int) or found < 0:
            raise UserError(f"{self.root / where}: {'.'.join(keys)} is {found!r}, not a count; {REMAKE}")
        return found

    def same(self, value: dict[str, Any], where: str, **expected: Any) -> None:
        """Refuse a file that is about something else than its path says."""
        for key, wanted in expected.items():
            if (found := self.get(value, where, key)) != wanted:
                raise UserError(f"{self.root / where}: {key} is {found!r}, not {wanted!r} as its path says; {REMAKE}")


def read(settings: Config, root: Path | str, *, with_curves: bool = True) -> Results:
    """Read results/<name>/; without `with_curves`, of the losses only the steps that have a held-out one.

    Raises UserError naming the file if `root` is missing or a file in it is damaged, and the config's key if an
    interface stands for a model that the paper does not have.
    """
    models = {model for _, _, _, model in published()}
    for name, interface in settings.interfaces.items():
        if interface.paper_model is not None and interface.paper_model not in models:
            raise UserError(
                f"interfaces.{name}.paper_model: no results of {interface.paper_model!r} are known; "
                f"known: {', '.join(sorted(models))}"
            )
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"{root}: no such results folder; run the workflow, or give --results results/<name>")
    reader = _Reader(root)
    models = [(interface, seed) for interface in settings.interfaces for seed in settings.seeds]
    finals, store = {}, _read_store(reader)
    runs, curves, evaluations, scores, documents, checks = [], [], [], [], {}, []
    for interface, seed in models:
        _read_run(reader, interface, seed, finals, runs, curves, with_curves=with_curves)
        _read_checks(reader, interface, seed, checks)
        for task in settings.evaluate.tasks:
            _read_evaluation(reader, interface, seed, task, evaluations, scores, documents)
    return Results(
        settings=settings,
        root=root,
        params=_frame(_read_params(reader, settings), "interface", *PARAMETERS),
        store=store,
        timings=_read_timings(reader, store),
        runs=_frame(runs, "interface", "seed", "step", *_FINAL, "path"),
        curves=pd.concat(curves, ignore_index=True) if curves else _frame([], *_CURVE),
        evaluations=_frame(evaluations, "interface", "seed", "task", "shots", "label", "n", "limit", "path"),
        scores=_frame(scores, "interface", "seed", "task", "shots", "metric", "value", "stderr", "chance", "n", "path"),
        documents=documents,
        checks=_frame(checks, "interface", "seed", "name", "passed", "detail", "path"),
        finals=finals,
        files=dict(sorted(reader.files.items())),
    )


def _frame(rows: list[dict[str, Any]], *columns: str) -> pd.DataFrame:
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(columns))


def _read_params(reader: _Reader, settings: Config) -> list[dict[str, Any]]:
    record = reader.record(Params, "params.json")
    counts = record.interfaces if record else {}
    return [{"interface": name, **counts[name].model_dump()} for name in settings.interfaces if name in counts]


STORE = "data/store/manifest.json"
TIMED = ("wall_s", "cpu_s", "encode_cpu_s", "encoded_bytes", "encoded_tokens")


def _read_store(reader: _Reader) -> dict[str, Any] | None:
    record = reader.record(StoreManifest, STORE)
    return None if record is None else record.model_dump()


def _read_timings(reader: _Reader, store: dict[str, Any] | None) -> dict[str, dict[str, float]]:
    """Those that exist: a store that was copied may have none."""
    names = [shard["name"] for shard in (store or {"shards": []})["shards"]]
    records = {name: reader.record(ShardTiming, f"{Path(STORE).parent}/{name}/{TIMING}") for name in names}
    return {name: record.model_dump(include=set(TIMED)) for name, record in records.items() if record}


_CURVE = ("interface", "seed", "step", "loss", "val_loss")
_FINAL = ("tokens", "train_loss", "val_loss", "unigram_entropy", "unigram_cross_entropy", "wall_s")


def _read_run(
    reader: _Reader, interface: str, seed: int, finals: dict, runs: list, curves: list, *, with_curves: bool
) -> None:
    where = f"runs/{model_name(interface, seed)}/final.json"
    record = reader.record(Final, where)
    final = None if record is None else record.model_dump()
    if final is not None:
        reader.same(final, where, interface=interface, seed=seed)
        finals[interface, seed] = final
        runs.append({key: final[key] for key in ("interface", "seed", "step", *_FINAL)} | {"path": where})
    where = f"runs/{model_name(interface, seed)}/metrics.jsonl"
    if points := reader.journal(where, final, whole=with_curves):
        frame = pd.DataFrame(points, columns=["step", "loss", "val_loss"])
        frame.insert(0, "interface", interface)
        frame.insert(1, "seed", seed)
        curves.append(frame)


def _read_checks(reader: _Reader, interface: str, seed: int, checks: list) -> None:
    where = f"validation/{model_name(interface, seed)}.json"
    record = reader.record(Validation, where)
    if record is None:
        return
    reader.same(record.model_dump(), where, model=model_name(interface, seed))
    for check in record.checks:
        checks.append({"interface": interface, "seed": seed, **check.model_dump(), "path": where})


def _check_means(reader: _Reader, content: dict[str, Any], where: str, columns: dict[str, np.ndarray]) -> None:
    """A score that is a mean over documents must be the mean of those beside it; a group's may be weighted."""
    if "subtask" in columns:
        return
    for metric in reader.get(content, where, "metrics"):
        stated = reader.number(content, where, "metrics", metric, "value")
        mean = columns[metric].mean() if metric in columns else math.nan
        if not any(map(math.isnan, (stated, mean))) and not math.isclose(stated, mean, rel_tol=1e-6, abs_tol=1e-9):
            raise UserError(
                f"{reader.root / where}: {metric} is {stated}, but the documents in the Parquet file beside it have a "
                f"mean of {mean:.6g}; run `tokencodes evaluate` again"
            )


def _read_evaluation(
    reader: _Reader, interface: str, seed: int, task: Task, evaluations: list, scores: list, documents: dict
) -> None:
    where = f"eval/{model_name(interface, seed)}/{task.name}-{task.shots}shot.json"
    content = reader.object(where)
    if content is None:
        return
    reader.same(content, where, interface=interface, seed=seed, task=task.name, shots=task.shots)
    if (limit := content.get("limit")) != task.limit:
        raise UserError(
            f"{reader.root / where}: limit is {limit or 'none'}, in the config {task.limit or 'none'}; run `tokencodes "
            "evaluate` again, or give the config that it was scored with"
        )
    key = {"interface": interface, "seed": seed, "task": task.name, "shots": task.shots}
    if (by_document := reader.bytes(where.removesuffix(".json") + ".parquet")) is not None:
        documents[tuple(key.values())] = pairing.parse(content, by_document, str(reader.root / where))
        _check_means(reader, content, where, documents[tuple(key.values())].documents)
    n = reader.count(content, where, "n")
    details = ("task_version", "limit", "data", "harness", "engine", "wall_s", "truncated", "data_sha256")
    evaluations.append(
        key
        | {"label": str(reader.get(content, where, "label")), "n": n}
        | {detail: content.get(detail) for detail in details}
        | {"path": where}
    )
    for metric in reader.get(content, where, "metrics"):
        scores.append(
            key
            | {"metric": metric}
            | {part: reader.number(content, where, "metrics", metric, part) for part in ("value", "stderr", "chance")}
            | {
                "higher_is_better": reader.get(content, where, "metrics", metric, "higher_is_better"),
                "n": n,
                "path": where,
            }
        )
