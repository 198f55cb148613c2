"""Results of invented models, in the files that the evaluation writes."""

from pathlib import Path
from typing import Any

import pytest

from tokencodes.evaluate.scores import write_documents
from tokencodes.files import write_json


class Stored:
    """A results folder with one file a model and task."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, model: str, task: str, scores: dict[str, list[float | None]], **changes: Any) -> Path:
        """Write one result; `changes` replaces keys of its JSON, `doc_id` and `doc_sha256` columns of its Parquet."""
        n = len(next(iter(scores.values())))
        columns: dict[str, list[Any]] = {
            "doc_id": changes.pop("doc_id", list(range(n))),
            "doc_sha256": changes.pop("doc_sha256", [f"{number:064x}" for number in range(n)]),
            **scores,
        }
        metrics = [name for name in scores if name.startswith("acc")]
        if "loglikelihood" in scores:
            metrics.append(
                "bits_per_byte" if "bytes" in scores else "word_perplexity" if "words" in scores else "perplexity"
            )
        result = {
            "model": model,
            "task": task,
            "task_version": 1.0,
            "shots": 0,
            "limit": None,
            "n": n,
            "label": task.upper(),
            "metrics": {name: {} for name in metrics},
            "data_sha256": "d" * 64,
            "engine": "tokencodes.evaluate.engine 1, fp32, cpu",
        } | changes
        path = self.root / "eval" / model / f"{task}-{result['shots']}shot.json"
        write_documents(path.with_suffix(".parquet"), columns)
        write_json(path, result)
        return path


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """An empty results folder, the test's own."""
    return Stored(tmp_path / "run")
