"""Our models beside models that others trained, on the same benchmarks: what `tokencodes others` writes.

references.{csv,md,tex} and, for a terminal, references.txt. Values are read from the stored results of each model; the
two kinds of models stand in columns of their own, and a reference's column says what it is.
"""

from pathlib import Path
from typing import Any

from tokencodes.config import Config
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import CORPUS_TASK, letters_note
from tokencodes.evaluate.scores import Metric, Scores
from tokencodes.evaluate.spec import Task
from tokencodes.files import write_text
from tokencodes.layout import Layout, model_name, task_name
from tokencodes.report import render
from tokencodes.report.render import GAP, Table
from tokencodes.report.results import headline_first, title_of

WIDTH = 100  # columns of references.txt


def write(settings: Config, results_dir: Path, out: Path) -> None:
    """Write the table to the folder `out`. Raises UserError if a result file is damaged, or no reference is named."""
    if not settings.references:
        raise UserError("the config names no model under `references`; there is nothing to put beside ours")
    if not any((results_dir / "eval").glob("*/*.json")):
        raise UserError(f"{results_dir}: holds no results of `tokencodes evaluate`; give --results results/<name>")
    table = beside(settings, results_dir)
    for suffix, notation in render.FILES.items():
        write_text(out / f"references.{suffix}", notation(table))
    write_text(out / "references.txt", render.to_text(table, WIDTH) + "\n")


def beside(settings: Config, results_dir: Path) -> Table:
    """A row per task and metric, the paper's metric first; a column per model."""
    ours = [model_name(name, seed) for name in settings.interfaces for seed in settings.seeds]
    first = model_name("", 0)
    models = {name: name.removesuffix(first) if settings.seeds == [0] else name for name in ours}
    models |= {name: spec.label for name, spec in settings.references.items()}
    rows, records, sources, unlike, cut = [], [], [], [], []
    for task in settings.evaluate.tasks:
        scored = {name: scores for name in models if (scores := _scores(results_dir, name, task))}
        label = next((scores.label for scores in scored.values()), None)
        title = title_of(task, label, settings.evaluate.data)
        unlike += _unlike(title, scored)
        cut += [f"{title} ({name}: {scores.truncated:,})" for name, scores in scored.items() if scores.truncated]
        n = sorted(scores.n for scores in scored.values())
        for metric in headline_first(task.name, dict.fromkeys(m for scores in scored.values() for m in scores.metrics)):
            measured = {name: scores.metrics[metric] for name, scores in scored.items() if metric in scores.metrics}
            chance = next((each.chance for each in measured.values() if each.chance is not None), None)
            cells = (_cell(metric, measured.get(name), scored.get(name)) for name in models)
            shown = "" if chance is None else render.score_format(metric, n[-1], chance)(chance)
            rows.append((f"{title}, {metric}", render.span(n), shown, *cells))
            sources.append(f"eval/*/{task_name(task.name, task.shots)}.json")
            for name, called in models.items():
                record = {"task": task.name, "shots": task.shots, "label": title, "metric": metric, "model": name}
                record |= {"called": called, "ours": name in ours}
                record |= {key: getattr(measured.get(name), key, None) for key in ("value", "stderr", "chance")}
                keys = ("n", "task_version", "model_sha256", "data_sha256", "engine")
                records.append(record | {key: getattr(scored.get(name), key, None) for key in keys})
    letters = letters_note(task.name for task in settings.evaluate.tasks)
    corpus = any(task.name == CORPUS_TASK for task in settings.evaluate.tasks)
    notes = [
        f"n: documents scored. Chance: of a model that guesses. {GAP}: no such result. ± is the standard error over "
        "documents. Models of others were trained elsewhere, on other data and for longer; they show the scale.",
        *([letters] if letters else []),
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


def _scores(results_dir: Path, model: str, task: Task) -> Scores | None:
    path = Path(Layout(str(results_dir)).scores(model, task.name, task.shots))
    if not path.exists():
        return None
    scores = Scores.read(path)
    if (scores.task, scores.shots) != (task.name, task.shots):
        raise UserError(f"{path}: is about another task than its path says; delete it and run the workflow again")
    return scores


def _unlike(title: str, scored: dict[str, Scores]) -> list[str]:
    """A sentence for each way in which models were not asked alike on one task."""
    sentences = []
    for key, what in (("task_version", "version of the task"), ("limit", "limit"), ("data_sha256", "data")):
        values: dict[Any, list[str]] = {}
        for name, scores in scored.items():
            values.setdefault(getattr(scores, key), []).append(name)
        if len(values) > 1:
            rare = min(values.values(), key=len)
            sentences.append(f"{title}: {', '.join(rare)} with another {what} than the others.")
    return sentences


def _cell(metric: str, measured: Metric | None, scores: Scores | None) -> str:
    if measured is None or scores is None:
        return GAP
    if measured.value is None:
        return "NaN"
    show = render.score_format(metric, scores.n, measured.value)
    return show(measured.value) if measured.stderr is None else f"{show(measured.value)} ± {show(measured.stderr)}"
