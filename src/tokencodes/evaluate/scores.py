"""The scores of one model on one task: the record, and the scores by document in the Parquet file beside it.

The one form of `results/<run>/eval/<model>/<task>-<shots>shot.{json,parquet}`. Needs neither torch nor lm-eval.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from tokencodes.errors import UserError, one_line
from tokencodes.files import atomic_path, sha256_file
from tokencodes.records import Record
from tokencodes.spec import SHA256

DOC_ID, DOC_SHA256, SUBTASK = "doc_id", "doc_sha256", "subtask"  # columns that are no scores
AGAIN = "run `tokencodes evaluate` again"

Hash = Annotated[str, Field(pattern=SHA256)]
Count = Annotated[int, Field(ge=0)]


class Metric(BaseModel):
    """One metric over all documents of a task. Immutable; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    value: float | None = Field(description="over all documents; accuracies are fractions; null if it is not finite")
    stderr: float | None = Field(description="standard error; null where the harness computes none")
    chance: float | None = Field(
        description=(
            "accuracy of a model that guesses: the mean of 1 / number of choices. Null for perplexities and for tasks "
            "that are not plain multiple choice"
        )
    )
    higher_is_better: bool = Field(description="whether a larger value is better")


class Scores(Record):
    """The scores of one model on one task."""

    kind: ClassVar[str] = "the scores of a model on a task"
    made_by: ClassVar[str] = "tokencodes evaluate"

    model: str = Field(description="name of the model directory")
    interface: str | None = Field(description="name of the interface; null for a model that others trained")
    seed: int | None = Field(description="of the run; null if the model was not trained here")
    task: str = Field(description="lm-eval's name of the task, or `corpus_validation`")
    task_version: float | int | str | None = Field(description="lm-eval's version of the task")
    shots: Count = Field(description="solved examples before each question")
    limit: int | None = Field(description="the first documents that were scored; null: all")
    n: Count = Field(description="number of documents that were scored")
    data: str = Field(description="what the data are, and their origin")
    label: str = Field(description="name of the benchmark in tables, with a note if its data differ from the harness'")
    metrics: dict[str, Metric] = Field(description="scores by the name of the metric")
    model_sha256: Hash = Field(description="of the weights; of several files, of their hashes by name")
    tokenizer_sha256: Hash = Field(description="of the tokenizer's files, with those that name its special tokens")
    data_sha256: Hash = Field(description="of the data's rows, independent of the file that holds them")
    documents_sha256: Hash = Field(description="of the Parquet file beside this one: the scores by document")
    harness: str = Field(description="lm-eval and its version")
    engine: str = Field(
        description=(
            "the engine's version, which goes up when a score would change; then precision, kind of device and layout "
            "of the inputs"
        )
    )
    versions: dict[str, str] = Field(description="versions of Python and of the packages that computed the scores")
    wall_s: float = Field(ge=0, description="seconds that the stage took")
    truncated: Count = Field(description="number of documents whose context was cut")


def documents_path(path: Path) -> Path:
    """The Parquet file beside a record."""
    return path.with_suffix(".parquet")


def write_documents(path: Path, columns: dict[str, list[Any]]) -> str:
    """Write the scores by document, one row per document, to a Parquet file; its SHA-256.

    `doc_id` is int64, `doc_sha256` and `subtask` are strings, and each other column is float64.
    """
    types = {DOC_ID: pa.int64(), DOC_SHA256: pa.string(), SUBTASK: pa.string()}
    table = pa.table({name: pa.array(values, types.get(name, pa.float64())) for name, values in columns.items()})
    with atomic_path(path) as temporary:  # each document has its own hash, so a dictionary would only cost time
        pq.write_table(table, temporary, compression="zstd", use_dictionary=[SUBTASK], write_page_checksum=True)
    return sha256_file(path)


def read_documents(path: Path, scores: Scores) -> dict[str, np.ndarray]:
    """The scores by document that belong to `scores`, the record at `path`: arrays (n,) by column, sorted by `doc_id`.

    `doc_id` is int64, `doc_sha256` and `subtask` hold strings, all others are float64. Raises UserError if the file is
    missing, or if it is not the one that the record was written for.
    """
    parquet = documents_path(path)
    try:
        content = parquet.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{parquet}: no such file, so {path.name} has no scores by document; {AGAIN}") from None
    if hashlib.sha256(content).hexdigest() != scores.documents_sha256:
        raise UserError(f"{parquet}: is not the file that {path.name} was written for; {AGAIN}")
    try:
        table = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{parquet}: not a whole Parquet file ({one_line(error)}); {AGAIN}") from None
    if missing := {DOC_ID, DOC_SHA256} - set(table.column_names):
        raise UserError(f"{parquet}: the column {', '.join(sorted(missing))} is missing; {AGAIN}")
    if table[DOC_ID].type != pa.int64() or table[DOC_ID].null_count:
        raise UserError(f"{parquet}: {DOC_ID} is {table[DOC_ID].type}, not whole numbers; {AGAIN}")
    if table.num_rows != scores.n:
        raise UserError(f"{path}: counts {scores.n} documents, its Parquet file {table.num_rows}; {AGAIN}")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    order = np.argsort(columns[DOC_ID], kind="stable")
    if not np.diff(columns[DOC_ID][order]).all():
        raise UserError(f"{parquet}: a {DOC_ID} occurs twice; {AGAIN}")
    return {name: values[order] for name, values in columns.items()}
