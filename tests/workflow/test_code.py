"""What an edit of the code makes run again."""

import pytest

pytestmark = pytest.mark.workflow

LOOP, TABLES = "src/tokencodes/train/loop.py", "src/tokencodes/report/tables.py"
MODEL = "src/tokencodes/model/transformer.py"
RETRAINED = {"train": 2, "export": 2, "validate": 2, "evaluate": 4, "tables": 1, "figures": 1, "report": 1}


def test_a_cosmetic_edit_runs_nothing(finished):
    for path in (LOOP, TABLES, MODEL):
        finished.edit(path, '"""', '"""Reworded: ')
        finished.edit(path, "\nimport math\n", "\n\nimport math  # for nothing else\n")
    assert finished.planned() == {}


@pytest.mark.parametrize("path", ["src/tokencodes/data/hub.py", "src/tokencodes/data/wheel.py"])
def test_another_way_to_fetch_the_same_bytes_runs_nothing(finished, path):
    finished.edit(path, "import shutil\n", "import shutil\n\nASIDE = 1\n")
    assert finished.planned() == {}


def test_an_edit_of_the_encoder_prepares_and_trains_again(finished):
    finished.edit("src/tokencodes/data/pieces.py", "import re\n", "import re\n\nASIDE = 1\n")
    assert finished.planned() == RETRAINED | {"tokenizer": 1, "prepare": 2, "index": 1}


def test_an_edit_of_the_tables_redraws_them_alone(finished):
    finished.edit(TABLES, "SUMMARY_WIDTH = 100", "SUMMARY_WIDTH = 90")
    planned = finished.planned()
    assert planned.pop("tables") == 1
    assert set(planned) <= {"report"}  # the page shows them
    finished.snakemake()
    assert finished.planned() == {}


def test_an_edit_of_the_model_retrains_after_a_warning(finished):
    assert "warning" not in finished.snakemake("--dry-run")
    finished.edit(MODEL, "import torch\n", "import torch\n\nASIDE = 1\n")
    output = finished.snakemake("--dry-run")
    assert output.count("tokencodes: warning: the training code has changed since learned-s0, binary9-s0") == 1
    assert finished.planned() == RETRAINED | {"accounting": 1}
    assert finished.planned("--rerun-triggers", "mtime", "input") == {}  # the way to accept it for one call
    assert "warning" not in finished.snakemake("--dry-run", "--rerun-triggers", "mtime", "input")


def test_another_harness_scores_again(finished):
    metadata = finished.folder / "src/lm_eval-99.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lm_eval\nVersion: 99.0\n")
    drawn = {"tables": 1, "figures": 1, "report": 1}
    assert finished.planned() == {"evaluate": 4} | drawn


def test_refuse_and_continue_keep_the_trained_models(finished):
    finished.edit(LOOP, "SAVE_MARGIN = 1.5", "SAVE_MARGIN = 1.6")
    assert finished.planned() == RETRAINED
    value = finished.config
    for choice, warnings in (("refuse", 1), ("continue", 0)):
        value["train"]["on_code_change"] = choice
        finished.configure(value)
        output = finished.snakemake("--dry-run")
        assert output.count("tokencodes: warning: the training code has changed") == warnings
        assert "train" not in finished.planned()
