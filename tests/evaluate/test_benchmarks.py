"""Packaged benchmark data: counts, the rebuilt splits, and the manifest that guards them."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokencodes.data import wheel
from tokencodes.errors import UserError
from tokencodes.evaluate import benchmarks
from tokencodes.evaluate.manifest import BenchmarksManifest
from tokencodes.evaluate.packaged import PACKAGED
from tokencodes.evaluate.spec import Evaluate
from tokencodes.evaluate.taskdata import open_data
from tokencodes.files import sha256_file

Configure = Callable[..., Evaluate]

# Sizes of the published splits that the harness scores.
PUBLISHED = {
    "hellaswag": 10_042,
    "piqa": 1_838,
    "winogrande": 1_267,
    "commonsense_qa": 1_221,
    "arc_easy": 2_376,
    "arc_challenge": 1_172,
    "openbookqa": 500,
    "lambada_openai": 5_153,
    "mmlu": 14_042,
    "commonsense_qa_cloze": 1_221,
}
QUESTIONS = {
    "arc_easy": ("ARC-Easy", "question"),
    "arc_challenge": ("ARC-Challenge", "question"),
    "openbookqa": ("main", "question_stem"),
}


@pytest.fixture(scope="session")
def archive(configure: Configure, wheel_cache: Path) -> benchmarks.Archive:
    return benchmarks.Archive(wheel.fetch(configure("piqa").wheel, wheel_cache))


def test_every_document_is_there(packaged: Path) -> None:
    manifest = BenchmarksManifest.read(packaged / "manifest.json")
    assert manifest.tasks.keys() == PUBLISHED.keys() == PACKAGED.keys() - {"mmlu_continuation"}
    assert benchmarks.SOURCES["mmlu_continuation"] == benchmarks.SOURCES["mmlu"]
    for task, rows in PUBLISHED.items():
        evaluated = benchmarks.SOURCES[task].evaluated
        files = [file for file in manifest.tasks[task].files.values() if file.split == evaluated]
        assert sum(file.rows for file in files) == rows
        assert f"{rows:,} documents" in manifest.tasks[task].description


@pytest.mark.parametrize("task", QUESTIONS)
def test_the_validation_split_rebuilt_from_requests_is_the_packaged_one(
    task: str, packaged: Path, archive: benchmarks.Archive
) -> None:
    """Compared here as plain rows, against the data set that the wheel's authors saved."""
    configuration, question = QUESTIONS[task]
    saved = pq.read_table(packaged / task / configuration / "validation.parquet")
    again = benchmarks.rebuilt(archive.documents(f"{task}/val_rc_5shot"), question, saved.schema)
    assert benchmarks.differences(again, saved, question) == 0
    rows, rebuilt = saved.to_pylist(), again.to_pylist()
    assert [row["id"] for row in rows] == [row["id"] for row in rebuilt]
    assert [row[question] for row in rows] == [row[question] for row in rebuilt]
    assert [row["choices"]["text"] for row in rows] == [row["choices"]["text"] for row in rebuilt]
    wrong = {**rebuilt[3], "answerKey": "B" if rebuilt[3]["answerKey"] != "B" else "A"}
    for changed, count in (([*rebuilt[:3], wrong, *rebuilt[4:]], 1), (rebuilt[:-2], 2)):
        assert benchmarks.differences(pa.Table.from_pylist(changed, schema=saved.schema), saved, question) == count


@pytest.mark.parametrize("task", QUESTIONS)
def test_the_test_split_agrees_with_the_lettered_requests(
    task: str, packaged: Path, archive: benchmarks.Archive
) -> None:
    """Another set of requests of the same questions, with the choices in the prompt, names the same answers."""
    configuration, _ = QUESTIONS[task]
    rows = pq.read_table(packaged / task / configuration / "test.parquet").to_pylist()
    lettered = archive.documents(f"{task}/test_mc_5shot")
    assert [row["id"] for row in rows] == [document["id"] for document in lettered]
    for row, document in zip(rows, lettered, strict=True):
        assert "ABCDEFGH"[document["gold"]] == row["answerKey"]
        for letter, text in zip(row["choices"]["label"], row["choices"]["text"], strict=True):
            assert f"\n {letter}. {text}" in document["query"]


def test_lambada_is_collapsed_and_ends_in_its_answer(packaged: Path, archive: benchmarks.Archive) -> None:
    texts = pq.read_table(packaged / "lambada_openai/default/test.parquet")["text"].to_pylist()
    documents = archive.documents("lambada/bpb_0shot")
    assert all(text == " ".join(text.split()) for text in texts)
    assert [text.split(" ")[-1] for text in texts] == [document["answers_text"][0] for document in documents]


def test_datasets_reads_a_folder_by_its_card(packaged: Path, tmp_path: Path) -> None:
    found = datasets.load_dataset(str(packaged / "arc_easy"), "ARC-Easy", cache_dir=str(tmp_path))
    assert {split: rows.num_rows for split, rows in found.items()} == {"validation": 570, "test": 2_376}
    found = datasets.load_dataset(str(packaged / "mmlu"), "anatomy", cache_dir=str(tmp_path))
    assert {split: rows.num_rows for split, rows in found.items()} == {"dev": 5, "validation": 14, "test": 135}


def test_only_what_the_tasks_need_and_the_same_bytes_again(
    packaged: Path, configure: Configure, wheel_cache: Path, tmp_path: Path
) -> None:
    settings = configure("piqa", "corpus_validation")
    benchmarks.fetch(settings, wheel_cache, tmp_path / "a")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["manifest.json", "piqa"]
    entries = BenchmarksManifest.read(tmp_path / "a/manifest.json").tasks
    assert entries == {"piqa": BenchmarksManifest.read(packaged / "manifest.json").tasks["piqa"]}
    relative = "piqa/default/validation.parquet"
    assert sha256_file(tmp_path / "a" / relative) == sha256_file(packaged / relative)


def test_one_task_alone(packaged: Path, configure: Configure, wheel_cache: Path, tmp_path: Path) -> None:
    settings = configure("piqa", "winogrande", "wikitext", "corpus_validation")
    benchmarks.fetch(
        settings, wheel_cache, tmp_path / "piqa", "piqa"
    )  # that another task has no data is that task's error
    whole, alone = (BenchmarksManifest.read(folder / "manifest.json") for folder in (packaged, tmp_path / "piqa"))
    assert alone == whole.model_copy(update={"tasks": {"piqa": whole.tasks["piqa"]}})
    benchmarks.fetch(settings, wheel_cache, tmp_path / "corpus", "corpus_validation")
    assert BenchmarksManifest.read(tmp_path / "corpus" / "manifest.json").tasks == {}
    with pytest.raises(UserError, match="'winogrand'; did you mean 'winogrande'"):
        benchmarks.fetch(settings, wheel_cache, tmp_path / "none", "winogrand")


def test_hub_data_is_left_to_the_harness(configure: Configure, wheel_cache: Path, tmp_path: Path) -> None:
    settings = configure("hellaswag", "wikitext", data="hub")
    benchmarks.fetch(settings, wheel_cache, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    manifest = BenchmarksManifest.read(tmp_path / "manifest.json")
    assert (manifest.data, manifest.wheel) == ("hub", None)
    assert manifest.tasks.keys() == {"hellaswag", "wikitext"}
    assert open_data(settings, "hellaswag", tmp_path).folder is None


@pytest.mark.parametrize(
    ("task", "shots", "message"),
    [
        ("helaswag", 0, "did you mean 'hellaswag'"),
        ("gsm8k", 0, "evaluate.data: hub"),
        ("wikitext", 0, "corpus_validation"),
        ("piqa", 5, "5-shot"),
        ("corpus_validation", 1, "shots: 0"),
    ],
)
def test_a_task_without_packaged_data_is_refused_before_anything_is_written(
    task: str, shots: int, message: str, configure: Configure, wheel_cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        benchmarks.fetch(configure(task, shots=shots), wheel_cache, tmp_path / "out")
    assert not (tmp_path / "out").exists()
