"""The table of our models beside those of others, from results that are written here."""

from pathlib import Path

import pytest
import yaml
from simulate import write_json

from tokencodes import config
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import label
from tokencodes.evaluate.scores import Scores
from tokencodes.files import read_json
from tokencodes.report import others
from tokencodes.spec import parse

OTHER = "smollm2_135m_instruct_q4"


@pytest.fixture
def settings(root: Path) -> config.Config:
    value = yaml.safe_load((root / "config" / "references.yaml").read_text())
    value["evaluate"]["tasks"] = [
        {"name": name, "shots": shots, "limit": None}
        for name, shots in (("hellaswag", 0), ("mmlu", 5), ("mmlu_continuation", 0), ("corpus_validation", 0))
    ]
    return parse(config.Config, value, "test")


def store(folder: Path, model: str, task: str, shots: int, n: int, **metrics: tuple) -> None:
    keys = ("value", "stderr", "chance", "higher_is_better")
    Scores(
        model=model,
        interface=None,
        seed=None,
        task=task,
        task_version=1.0,
        shots=shots,
        limit=None,
        n=n,
        data="invented",
        label=label(task, "pypi"),
        metrics={name: dict(zip(keys, (*four, True), strict=True)) for name, four in metrics.items()},
        model_sha256=("e" if model == OTHER else "c") * 64,
        config_sha256="b" * 64,
        tokenizer_sha256="a" * 64,
        data_sha256="d" * 64,
        documents_sha256="0" * 64,
        harness="lm_eval",
        engine="tokencodes",
        versions={},
        wall_s=1.0,
        truncated=0,
    ).write(folder / "eval" / model / f"{task}-{shots}shot.json")


def test_models_stand_beside_each_other(settings: config.Config, tmp_path: Path) -> None:
    store(tmp_path, "learned-s0", "hellaswag", 0, 100, acc=(0.26, 0.04, 0.25), acc_norm=(0.29, 0.0456, 0.25))
    store(tmp_path, OTHER, "hellaswag", 0, 10_042, acc=(0.35, 0.005, 0.25), acc_norm=(0.409, 0.0049, 0.25))
    store(tmp_path, "gf2-s0", "corpus_validation", 0, 14, bits_per_byte=(2.194, 0.055, None))
    others.write(settings, tmp_path, tmp_path / "tables")
    text = (tmp_path / "tables/references.md").read_text()
    header = next(line for line in text.splitlines() if line.startswith("| Benchmark"))
    assert [cell.strip() for cell in header.strip("|").split("|")] == [
        *("Benchmark, metric", "n", "Chance", "learned", "binary12", "gf2", "SmolLM2-135M-Instruct, 4-bit (Q4_1)"),
    ]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if " metric" not in line
    ]
    rows = {row[0]: row[1:] for row in rows if len(row) > 3}
    assert rows["HellaSwag, acc_norm"] == ["100–10,042", "25.00", "29.0 ± 4.6", "–", "–", "40.90 ± 0.49"]
    assert list(rows).index("HellaSwag, acc_norm") < list(rows).index("HellaSwag, acc")
    assert rows["Corpus, held-out documents, bits_per_byte"][2:] == ["–", "–", "2.194 ± 0.055", "–"]
    assert rows["MMLU, 5 shots, acc"] == ["–", "", "–", "–", "–", "–"]
    assert "MMLU, cloze (not the paper's), acc" in rows
    assert "MMLU asks for the letter" in text and "chance" in text
    assert {path.suffix for path in (tmp_path / "tables").iterdir()} == {".csv", ".md", ".tex", ".txt"}
    line = next(line for line in (tmp_path / "tables/references.csv").read_text().splitlines() if ",0.409," in line)
    assert "e" * 64 in line and OTHER in line


def test_a_result_of_another_task_is_refused(settings: config.Config, tmp_path: Path) -> None:
    store(tmp_path, OTHER, "hellaswag", 0, 10, acc=(0.3, 0.1, 0.25))
    path = tmp_path / "eval" / OTHER / "hellaswag-0shot.json"
    path.rename(path.with_name("mmlu-5shot.json"))
    with pytest.raises(UserError, match=r"mmlu-5shot\.json: is about another task"):
        others.write(settings, tmp_path, tmp_path / "tables")
    with pytest.raises(UserError, match="no model under `references`"):
        others.write(settings.model_copy(update={"references": {}}), tmp_path, tmp_path / "tables")


@pytest.mark.parametrize("there", [False, True])
def test_no_results_at_all_are_refused(settings: config.Config, tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "nowhere"
    if there:
        (folder / "eval" / "learned-s0").mkdir(parents=True)
    with pytest.raises(UserError, match="nowhere: holds no results"):
        others.write(settings, folder, tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


def test_what_was_not_asked_alike_is_named_and_nan_is_nan(settings: config.Config, tmp_path: Path) -> None:
    for model in ("learned-s0", "binary12-s0", "gf2-s0"):
        store(tmp_path, model, "hellaswag", 0, 100, acc_norm=(0.29, 0.0456, 0.25))
    store(tmp_path, OTHER, "hellaswag", 0, 60, acc_norm=(None, None, 0.25))
    path = tmp_path / "eval" / OTHER / "hellaswag-0shot.json"
    write_json(path, read_json(path) | {"task_version": 9.0, "limit": 60})
    table = others.beside(settings, tmp_path)
    assert [note for note in table.notes if "HellaSwag" in note] == [
        f"HellaSwag: {OTHER} with another version of the task than the others.",
        f"HellaSwag: {OTHER} with another limit than the others.",
    ]
    assert "but for what the notes name" in table.caption
    assert table.rows[0][-1] == "NaN"
