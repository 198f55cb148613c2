"""Export: the same bytes twice, only from a finished run and its own files, and never over what is not a model."""

import random
import shutil

import pytest
import torch
from safetensors.torch import load_file

from tokencodes.cli import main
from tokencodes.errors import UserError
from tokencodes.files import sha256_file
from tokencodes.train import export


@pytest.fixture
def run(straight, tmp_path):
    """A finished run, the test's own."""
    return shutil.copytree(straight("gf2"), tmp_path / "run")


@pytest.fixture
def model(run, tiny, tmp_path):
    """Its model directory."""
    export.export(run, tiny.tokenizer, tmp_path / "model")
    return tmp_path / "model"


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_exports_are_the_same_bytes_twice(run, model, tiny, tmp_path):
    export.export(run, tiny.tokenizer, tmp_path / "again")
    assert contents(model) == contents(tmp_path / "again")


def test_an_export_replaces_a_model_of_ours(run, model, tiny):
    before = contents(model)
    (model / "config.json").write_text("{}")
    export.export(run, tiny.tokenizer, model)
    assert contents(model) == before


def test_export_refuses_a_foreign_tokenizer_and_an_unfinished_run(run, model, tiny, tmp_path, capsys):
    other = shutil.copytree(tiny.tokenizer, tmp_path / "tokenizer")
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text() + " ")
    before = contents(model)
    line = ["export", "--run-dir", str(run), "--tokenizer", str(other), "--out", str(model)]
    assert main(line) == 2 and "is not the tokenizer" in capsys.readouterr().err
    (run / "final.json").unlink()
    line[4] = str(tiny.tokenizer)
    assert main(line) == 2 and "no such file" in capsys.readouterr().err
    assert contents(model) == before


def test_a_changed_checkpoint_is_not_exported(run, tiny, tmp_path, capsys):
    """One bit of any file of the final checkpoint that export reads."""
    random_source = random.Random(20)
    (checkpoint,) = sorted((run / "checkpoints").iterdir())[-1:]
    weights = checkpoint / "model.safetensors"
    content = weights.read_bytes()
    for _ in range(5):
        place = random_source.randrange(len(content))
        weights.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        line = ["export", "--run-dir", str(run), "--tokenizer", str(tiny.tokenizer), "--out", str(tmp_path / "out")]
        assert main(line) == 2, place
        assert "train again" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["notes.txt", "model.bin", "sub/config.json", ".git/HEAD"])
@pytest.mark.parametrize("beside_a_model", [False, True])
def test_a_folder_with_files_of_others_is_never_replaced(run, model, tiny, tmp_path, name, beside_a_model):
    out = model if beside_a_model else tmp_path / "mine"
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text("mine")
    before = contents(out)
    with pytest.raises(UserError, match="not a model directory of ours"):
        export.export(run, tiny.tokenizer, out)
    assert contents(out) == before


def test_the_sources_of_a_model_are_never_its_place(run, tiny):
    for out in (run, run / "model", run.parent, tiny.tokenizer):
        with pytest.raises(UserError, match="is, contains or lies in"):
            export.export(run, tiny.tokenizer, out)
    with pytest.raises(UserError, match="is a file"):
        export.export(run, tiny.tokenizer, _file(run.parent / "file"))


def _file(path):
    path.write_text("mine")
    return path


def test_the_model_has_the_checkpoints_weights(run, model):
    final = export.trained(run)[3]
    assert sha256_file(run / final.checkpoint / "model.safetensors") == final.model_sha256
    trained, exported = (load_file(folder / "model.safetensors") for folder in (run / final.checkpoint, model))
    assert len(exported) == len(trained)
    for name, tensor in trained.items():
        (same,) = (other for key, other in exported.items() if key.removeprefix("model.") == name)
        assert torch.equal(tensor, same), name
