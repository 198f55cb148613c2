"""Results of invented models, in the files that the evaluation writes."""

from pathlib import Path
from typing import Any

import pytest

from tokencodes.evaluate.scores import Scores, write_documents
from tokencodes.layout import Layout


class Stored:
    """A results folder with one file per model and task."""

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
        fields = {
            "model": model,
            "interface": None,
            "seed": None,
            "task": task,
            "task_version": 1.0,
            "shots": 0,
            "limit": None,
            "n": n,
            "data": "invented",
            "label": task.upper(),
            "metrics": {
                name: {"value": 0.5, "stderr": None, "chance": None, "higher_is_better": True} for name in metrics
            },
            "model_sha256": "c" * 64,
            "config_sha256": "b" * 64,
            "tokenizer_sha256": "a" * 64,
            "data_sha256": "d" * 64,
            "harness": "lm_eval",
            "engine": "tokencodes.evaluate.engine 1, fp32, cpu",
            "versions": {},
            "wall_s": 1.0,
            "truncated": 0,
        } | changes
        path = Path(Layout(str(self.root)).scores(model, task, fields["shots"]))
        fields["documents_sha256"] = write_documents(path.with_suffix(".parquet"), columns)
        Scores.model_validate(fields).write(path)
        return path


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """An empty results folder, the test's own."""
    return Stored(tmp_path / "run")
