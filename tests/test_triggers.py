"""What makes Snakemake run a job again: each key of the config, and the code of training."""

import made_up
import pytest

from tokencodes import codeversion, triggers
from tokencodes.files import json_text

TODAY = codeversion.digest(triggers.TRAINING)


def final_text(**changes):
    return json_text(made_up.final(**changes).content())


def finished(folder, text):
    folder.mkdir()
    (folder / "final.json").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "restart", "keep"),
    [
        (final_text(code="abc"), TODAY, "abc"),
        (final_text(code=TODAY), TODAY, TODAY),
        (final_text(code=None), TODAY, TODAY),
        (final_text(code="abc").replace('"abc"', '"abd"'), TODAY, TODAY),
        ("{", TODAY, TODAY),
        ("[]", TODAY, TODAY),
    ],
    ids=["other code", "the same", "no code", "a changed digit", "damaged", "no object"],
)
def test_the_code_that_decides_whether_to_train_again(tmp_path, text, restart, keep):
    run = finished(tmp_path / "run", text)
    assert triggers.training_code(run, "restart") == restart
    assert triggers.training_code(run, "refuse") == triggers.training_code(run, "continue") == keep


def test_a_run_that_is_not_there_is_trained_by_todays_code(tmp_path):
    assert triggers.training_code(tmp_path / "none", "refuse") == TODAY


@pytest.mark.parametrize(
    ("options", "looks"),
    [
        ([], True),
        (["tables", "--rerun-triggers", "mtime", "input", "--config", "name=params"], False),
        (["--rerun-triggers", "mtime"], False),
        (["--rerun-triggers", "mtime", "params", "-n"], True),
    ],
)
def test_which_calls_compare_parameters(options, looks):
    assert triggers.looks_at_params(options) is looks
