"""The record of one model on one task, and the scores by document that belong to it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokencodes.errors import UserError
from tokencodes.evaluate.scores import Scores, documents_path, read_documents, write_documents

COLUMNS: dict[str, list[Any]] = {
    "doc_id": [2, 0, 1],
    "doc_sha256": ["c", "a", "b"],
    "acc": [0.1, 1.0, None],
    "subtask": ["x", "y", "y"],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "eval" / "gf2-s0" / "piqa-0shot.json"


def stored(path: Path, columns: dict[str, list[Any]] | None = None, **changes: Any) -> Scores:
    """Write a record and its documents."""
    columns = columns or COLUMNS
    metric = {"value": 1 / 3, "stderr": None, "chance": 0.5, "higher_is_better": True}
    hashes = {name: "0" * 64 for name in ("model_sha256", "tokenizer_sha256", "data_sha256")}
    facts: dict[str, Any] = {
        "model": "gf2-s0",
        "interface": "gf2",
        "seed": 0,
        "task": "piqa",
        "task_version": 1.0,
        "shots": 0,
        "limit": 3,
        "n": len(columns["doc_id"]),
        "data": "three documents",
        "label": "PIQA",
        "metrics": {"acc": metric},
        "documents_sha256": write_documents(documents_path(path), columns),
        "harness": "lm_eval 0",
        "engine": "tokencodes.evaluate.engine 3, fp32, cpu",
        "versions": {},
        "wall_s": 0.5,
        "truncated": 0,
    }
    scores = Scores(**facts | hashes | changes)
    scores.write(path)
    return scores


@pytest.mark.parametrize("version", [1.0, 1, "2a", None])
def test_the_same_values_come_back_bit_by_bit(path: Path, version: Any) -> None:
    written = stored(path, task_version=version)
    scores = Scores.read(path)
    assert scores == written and type(scores.task_version) is type(version)
    assert scores.metrics["acc"].value == 1 / 3
    documents = read_documents(path, scores)
    assert documents.keys() == COLUMNS.keys()
    assert documents["doc_id"].dtype == np.int64 and documents["acc"].dtype == np.float64
    assert documents["doc_id"].tolist() == [0, 1, 2]
    assert documents["doc_sha256"].tolist() == ["a", "b", "c"] and documents["subtask"].tolist() == ["y", "y", "x"]
    assert documents["acc"][[0, 2]].tolist() == [1.0, 0.1] and math.isnan(documents["acc"][1])


def test_each_changed_byte_of_the_documents_is_found(path: Path) -> None:
    scores = stored(path)
    parquet = documents_path(path)
    whole = parquet.read_bytes()
    for place in range(0, len(whole), 17):
        parquet.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match=r"piqa-0shot\.parquet: is not the file that piqa-0shot\.json"):
            read_documents(path, scores)
    parquet.unlink()
    with pytest.raises(UserError, match=r"piqa-0shot\.parquet: no such file.*tokencodes evaluate"):
        read_documents(path, scores)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"doc_id": [0, 0, 1]}, "a doc_id occurs twice"),
        ({"doc_id": [0, None, 1]}, "not whole numbers"),
        ({"doc_sha256": None}, "the column doc_sha256 is missing"),
    ],
)
def test_documents_that_are_not_a_stages_are_refused(path: Path, changed: dict[str, Any], message: str) -> None:
    columns = {name: values for name, values in (COLUMNS | changed).items() if values is not None}
    scores = stored(path, columns)
    with pytest.raises(UserError, match=message):
        read_documents(path, scores)


def test_a_count_that_the_documents_do_not_have_is_refused(path: Path) -> None:
    with pytest.raises(UserError, match="counts 4 documents, its Parquet file 3"):
        read_documents(path, stored(path, n=4))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_is_a_finite_number(path: Path, value: float) -> None:
    metric = {"value": value, "stderr": None, "chance": None, "higher_is_better": True}
    with pytest.raises(ValueError, match="finite"):
        stored(path, metrics={"acc": metric})
