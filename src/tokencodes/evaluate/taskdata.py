"""The data that a task reads: exactly the bytes whose hashes the manifest states."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tokencodes.errors import UserError, one_line
from tokencodes.evaluate.manifest import MANIFEST, BenchmarksManifest
from tokencodes.evaluate.spec import Evaluate
from tokencodes.files import inside

HUB = "lm-eval's own data set, from the Hugging Face hub"


Tables = dict[str, dict[str, pa.Table]]  # by configuration (dataset_name of a task, or "default") and split


@dataclass(frozen=True)
class TaskData:
    """The data of a task: its `tables` (None: lm-eval's own data set, from the hub), a description, a hash of the rows.

    `revision` is the commit of a data set on the hub; None: the newest.
    """

    tables: Tables | None
    description: str
    sha256: str | None
    revision: str | None = None


def open_data(spec: Evaluate, task: str, benchmarks_dir: Path | None) -> TaskData:
    """The data of one task, each file checked by its hash.

    Raises UserError if the data are missing or damaged, or were made for another config.
    """
    if spec.data == "hub":
        revision = spec.revisions.get(task)
        pinned = f"commit {revision}" if revision else "the newest commit at the time"
        return TaskData(None, f"{HUB}, {pinned}", None, revision)
    if benchmarks_dir is None:
        raise UserError("evaluate.data is pypi: give --benchmarks, what `tokencodes benchmarks` wrote")
    path = benchmarks_dir / MANIFEST
    manifest = BenchmarksManifest.read(path)
    again = f"run `{manifest.made_by}` again"
    if manifest.data != spec.data:
        raise UserError(f"{path}: was not written for evaluate.data: {spec.data}; {again}")
    if manifest.wheel != spec.wheel:
        raise UserError(f"{path}: was made from another wheel than evaluate.wheel names; {again}")
    entry = manifest.tasks.get(task)
    if entry is None or entry.folder is None:
        raise UserError(f"{path}: has no data for {task}; {again}")
    folder = inside(benchmarks_dir, entry.folder)
    tables: Tables = {}
    for relative, recorded in entry.files.items():
        path = inside(folder, relative)
        tables.setdefault(recorded.configuration, {})[recorded.split] = _read(path, recorded.sha256, again)
    return TaskData(tables, entry.description, entry.sha256)


def _read(path: Path, sha256: str, again: str) -> pa.Table:
    """A Parquet file with this hash. What is parsed are the bytes that were hashed."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise UserError(f"{path}: is not the file that was written; {again}")
        return pq.read_table(pa.BufferReader(content))
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}); {again}") from None
