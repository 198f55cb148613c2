"""One task run by lm-eval's evaluator, with the engine as its model: metrics, and scores by document."""

import math
import tempfile
from pathlib import Path
from typing import Any

import lm_eval.evaluator

from tokencodes.evaluate import tasks
from tokencodes.evaluate.engine import Engine
from tokencodes.evaluate.taskdata import TaskData


def score(
    engine: Engine, task: str, shots: int, data: TaskData, limit: int | None, bootstrap_iters: int
) -> dict[str, Any]:
    """Metrics of a task over its first `limit` documents (None: all), and columns of scores by document.

    Raises UserError as `tasks.load` does.
    """
    with tempfile.TemporaryDirectory(prefix="tokencodes-evaluate-") as scratch:
        loaded = tasks.load(task, shots, data, Path(scratch))
        results = lm_eval.evaluator.evaluate(
            engine, loaded, limit=limit, bootstrap_iters=bootstrap_iters, log_samples=True
        )
        samples = [(name, sample) for name in loaded["tasks"] for sample in results["samples"][name]]
        guesses = chance(loaded["tasks"], samples)
    return {
        "task_version": results["versions"][task],
        "data": data.description,
        "data_sha256": data.sha256,
        "metrics": _metrics(results["results"][task], _direction(results, task, loaded["tasks"]), guesses),
        "columns": _columns(samples, grouped=bool(loaded["groups"])),
    }


def _direction(results: dict[str, Any], task: str, members: dict[str, Any]) -> dict[str, bool]:
    """higher_is_better by metric; of a group, its members'."""
    directions = results["higher_is_better"]
    return directions.get(task) or directions[next(iter(members))]


def chance(tasks: dict[str, Any], samples: list[tuple[str, dict[str, Any]]]) -> dict[str, float]:
    """Accuracy of a model that guesses: the mean of 1 / number of choices; 0 for a task without choices.

    Empty for a task that computes its scores by code of its own, or has several right choices.
    """
    if any(task.config.process_results is not None or task.multiple_target for task in tasks.values()):
        return {}
    guesses = []
    for name, sample in samples:
        task = tasks[name]
        choices = task.doc_to_choice(sample["doc"]) if task.OUTPUT_TYPE == "multiple_choice" else []
        guesses.append(1 / len(choices) if choices else 0.0)
    mean = math.fsum(guesses) / len(guesses)
    return {"acc": mean, "acc_norm": mean}


def _number(value: Any) -> float | None:
    """A finite float, else None (lm-eval writes "N/A" where there is no standard error)."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _name(metric: str, filter_name: str) -> str:
    return metric if filter_name == "none" else f"{metric}, {filter_name}"


def _metrics(
    results: dict[str, Any], higher_is_better: dict[str, bool], chance: dict[str, float]
) -> dict[str, dict[str, Any]]:
    metrics = {}
    for key, value in results.items():
        metric, comma, filter_name = key.partition(",")
        if not comma or metric.endswith("_stderr"):
            continue
        metrics[_name(metric, filter_name)] = {
            "value": _number(value),
            "stderr": _number(results.get(f"{metric}_stderr,{filter_name}")),
            "chance": chance.get(metric),
            "higher_is_better": higher_is_better[metric],
        }
    return metrics


COUNTS = {"word_perplexity": "words", "byte_perplexity": "bytes", "bits_per_byte": "bytes"}


def _columns(samples: list[tuple[str, dict[str, Any]]], *, grouped: bool) -> dict[str, list[Any]]:
    """Per-document scores of lm-eval's logged samples, one list per column; filters side by side."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for name, sample in samples:
        row = rows.setdefault((name, sample["doc_id"]), {"doc_sha256": sample["doc_hash"]})
        for metric in sample["metrics"]:
            value = sample[metric]
            if metric not in (*COUNTS, "perplexity") and not isinstance(value, int | float):
                continue  # such a metric is computed from all documents together; its parts are not scores
            if metric in COUNTS:
                row["loglikelihood"], row[COUNTS[metric]] = map(float, value)
            elif metric == "perplexity":
                row["loglikelihood"] = float(value)
            else:
                row[_name(metric, sample["filter"])] = float(value)
    names = list(dict.fromkeys(key for row in rows.values() for key in row))
    doc_ids = [number for number, _ in enumerate(rows)] if grouped else [doc_id for _, doc_id in rows]
    columns = {"doc_id": doc_ids, **{name: [row.get(name) for row in rows.values()] for name in names}}
    if grouped:
        columns["subtask"] = [name for name, _ in rows]
    return columns
