"""Our models beside models that others trained, on the same benchmarks: what `tokencodes others` writes.

references.{csv,md,tex} and, for a terminal, references.txt. Values are read from the stored results of each model; the
two kinds of models stand in columns of their own, and a reference's column says what it is.
"""

from pathlib import Path
from typing import Any

from tokencodes.config import Config
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import CORPUS_TASK, benchmark, label, letters_note
from tokencodes.evaluate.spec import Task
from tokencodes.files import read_json, write_text
from tokencodes.report import render
from tokencodes.report.render import GAP, Table

FORMATS = {"csv": render.to_csv, "md": render.to_markdown, "tex": render.to_latex}
WIDTH = 100  # columns of references.txt


def write(settings: Config, results_dir: Path, out: Path) -> None:
    """Write the table to the folder `out`. Raises UserError if a result file is damaged, or no reference is named."""
    if not settings.references:
        raise UserError("the config names no model under `references`; there is nothing to put beside ours")
    if not any((results_dir / "eval").glob("*/*.json")):
        raise UserError(f"{results_dir}: holds no results of `tokencodes evaluate`; give --results results/<name>")
    table = beside(settings, results_dir)
    for suffix, notation in FORMATS.items():
        write_text(out / f"references.{suffix}", notation(table))
    write_text(out / "references.txt", render.to_text(table, WIDTH) + "\n")


def beside(settings: Config, results_dir: Path) -> Table:
    """A row a task and metric, the paper's metric first; a column a model."""
    ours = [f"{name}-s{seed}" for name in settings.interfaces for seed in settings.seeds]
    models = {name: name.removesuffix("-s0") if settings.seeds == [0] else name for name in ours}
    models |= {name: spec.label for name, spec in settings.references.items()}
    rows, records, sources, unlike, cut = [], [], [], [], []
    for task in settings.evaluate.tasks:
        found = {name: _result(results_dir, name, task) for name in models}
        there = {name: result for name, result in found.items() if result is not None}
        title = next((r["label"] for r in there.values()), label(task.name, settings.evaluate.data))
        title += f", {task.shots} shots" if task.shots else ""
        unlike += _unlike(title, there)
        cut += [f"{title} ({name}: {r['truncated']:,})" for name, r in there.items() if r.get("truncated")]
        for metric in _metrics(task, there):
            cells = {name: result["metrics"].get(metric) for name, result in there.items()}
            counts = sorted({result["n"] for result in there.values()})
            chances = [cell["chance"] for cell in cells.values() if cell and cell["chance"] is not None]
            n = GAP if not counts else f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,}–{counts[-1]:,}"
            shown = (_cell(metric, cells.get(name), found[name]) for name in models)
            chance = _shown(metric, chances[0], counts[-1]) if chances else ""
            rows.append((f"{title}, {metric}", n, chance, *shown))
            sources.append(f"eval/*/{task.name}-{task.shots}shot.json")
            for name in models:
                cell, result = cells.get(name) or {}, there.get(name) or {}
                records.append(
                    {"task": task.name, "shots": task.shots, "label": title, "metric": metric, "model": name}
                    | {"called": models[name], "ours": name in ours, "n": result.get("n"), "value": cell.get("value")}
                    | {"stderr": cell.get("stderr"), "chance": cell.get("chance")}
                    | {key: result.get(key) for key in ("task_version", "model_sha256", "data_sha256", "engine")}
                )
    note = letters_note(task.name for task in settings.evaluate.tasks)
    corpus = any(task.name == CORPUS_TASK for task in settings.evaluate.tasks)
    notes = [
        f"n: documents scored. Chance: of a model that guesses. {GAP}: no such result. ± is the standard error over "
        "documents. Models of others were trained elsewhere, on other data and for longer; they show the scale.",
        *([note] if note else []),
        *(["The corpus' own documents are scored by models of our tokenizer alone."] if corpus else []),
        *([f"Documents whose context was cut to fit: {'; '.join(cut)}."] if cut else []),
        *unlike,
    ]
    but = ", but for what the notes name" if unlike else ""
    return Table(
        name="references",
        caption=f"Our models beside models of others, on the same documents{but}. Accuracies in percent.",
        header=("Benchmark, metric", "n", "Chance", *models.values()),
        rows=tuple(rows),
        records=tuple(records),
        notes=tuple(notes),
        sources=tuple(sources),
        aside=3 + len(ours),
    )


def _result(results_dir: Path, model: str, task: Task) -> dict[str, Any] | None:
    path = results_dir / "eval" / model / f"{task.name}-{task.shots}shot.json"
    if not path.exists():
        return None
    result = read_json(path)
    missing = {"label", "n", "metrics", "task", "shots"} - set(result)
    if missing or (result["task"], result["shots"]) != (task.name, task.shots):
        what = f"lacks {', '.join(sorted(missing))}" if missing else "is about another task than its path says"
        raise UserError(f"{path}: {what}; delete it and run the workflow again")
    return result


def _unlike(title: str, there: dict[str, dict[str, Any]]) -> list[str]:
    """A sentence for each thing that models were not asked alike on one task."""
    said = []
    for key, what in (("task_version", "version of the task"), ("limit", "limit"), ("data_sha256", "data")):
        values: dict[Any, list[str]] = {}
        for name, result in there.items():
            values.setdefault(result.get(key), []).append(name)
        if len(values) > 1:
            rare = min(values.values(), key=len)
            said.append(f"{title}: {', '.join(rare)} with another {what} than the others.")
    return said


def _metrics(task: Task, there: dict[str, dict[str, Any]]) -> list[str]:
    """The metrics that any model has, the benchmark's own first."""
    headline = benchmark(task.name).metric
    found = dict.fromkeys(metric for result in there.values() for metric in result["metrics"])
    return sorted(found, key=lambda metric: metric != headline) or [headline]


def _shown(metric: str, value: float | None, n: int) -> str:
    return "NaN" if value is None else render.metric_format(metric, value, n)(value)


def _cell(metric: str, cell: dict[str, Any] | None, result: dict[str, Any] | None) -> str:
    if cell is None or result is None:
        return GAP
    if cell["value"] is None:
        return "NaN"
    value = _shown(metric, cell["value"], result["n"])
    return value if cell["stderr"] is None else f"{value} ± {_shown(metric, cell['stderr'], result['n'])}"
