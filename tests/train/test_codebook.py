"""A code book from its command to a validated model: for codes that see spelling, for a file, for a shared code."""

import json

import numpy as np
import pytest

from tokencodes.cli import main
from tokencodes.errors import UserError
from tokencodes.files import sha256_file
from tokencodes.interfaces.codes import CodesRecord, sha256
from tokencodes.train import loop
from tokencodes.train.final import Final
from tokencodes.validate.validation import Validation
from tokencodes.yamlfile import dump

WIDTH = 32  # d_model of the tiny model


def own_codes(folder):
    """300 codes that somebody made elsewhere."""
    values = np.random.default_rng(0).standard_normal((300, WIDTH)).astype(np.float32)
    np.save(folder / "own.npy", values)
    return {"kind": "file", "path": str(folder / "own.npy"), "sha256": sha256_file(folder / "own.npy"), "width": WIDTH}


INTERFACES = {
    "spelled": lambda folder: {"codebook": {"kind": "bytes", "width": WIDTH, "n_hashes": 2}},
    "own": lambda folder: {"codebook": {**own_codes(folder), "values": "float32"}, "scale": "matched"},
    "halves": lambda folder: {"codebook": {"kind": "binary", "width": 9}, "lift": "hadamard", "permutation_seed": 1},
}


def stage(*arguments) -> None:
    assert main([str(argument) for argument in arguments]) == 0, arguments


@pytest.mark.parametrize("name", INTERFACES)
def test_from_the_code_book_to_a_validated_model(tiny, tmp_path, name):
    settings = tiny.config(interfaces={name: {"kind": "code", **INTERFACES[name](tmp_path)}}, train={"max_steps": 4})
    file, codes = tmp_path / "config.yaml", tmp_path / "codes" / f"{name}.npy"
    file.write_text(dump(settings))
    (tmp_path / "run.yaml").write_text(dump(settings.run(name, 0)))
    stage("codes", "--config", file, "--interface", name, "--tokenizer", tiny.tokenizer, "--out", codes)
    common = ["--codes", codes, "--out"]
    stage("train", "--run", tmp_path / "run.yaml", "--store", tiny.store, *common, tmp_path / "run")
    assert Final.read(tmp_path / "run/final.json").codes_sha256 == CodesRecord.read(codes.with_suffix(".json")).sha256
    run = ["--run-dir", tmp_path / "run"]
    stage("export", *run, "--tokenizer", tiny.tokenizer, *common, tmp_path / "model")
    stage("validate", "--model", tmp_path / "model", *run, "--store", tiny.store, *common, tmp_path / "valid.json")
    validation = Validation.read(tmp_path / "valid.json")
    assert validation.passed and "code_book" in [check.name for check in validation.checks]


def test_codes_that_see_spelling_need_the_tokenizer_or_the_code_book(tiny, tmp_path):
    settings = tiny.config(interfaces={"spelled": {"kind": "code", **INTERFACES["spelled"](tmp_path)}})
    with pytest.raises(UserError, match="give --tokenizer, or a code book by --codes"):
        loop.train(settings.run("spelled", 0), tiny.store, tmp_path / "run")


def test_shared_codes_are_refused_before_the_first_step(tiny, tmp_path, one_line):
    """64 distinct codes for 300 tokens: said by `codes`, not after training."""
    np.save(
        tmp_path / "own.npy",
        np.tile(np.eye(64, WIDTH, dtype=np.float32) + np.arange(64, dtype=np.float32)[:, None], (5, 1))[:300],
    )
    keys = {"kind": "file", "path": str(tmp_path / "own.npy"), "sha256": sha256_file(tmp_path / "own.npy")}
    section = {"kind": "code", "codebook": {**keys, "width": WIDTH, "values": "float32"}}
    settings = tiny.config(interfaces={"own": section}).model_dump(mode="json")
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    command = ["codes", "--config", tmp_path / "config.yaml", "--interface", "own", "--out", tmp_path / "codes.npy"]
    assert "interfaces.own.codebook: 300 tokens have only 64 distinct codes" in one_line(*command)
    with pytest.raises(UserError, match="only 64 distinct codes"):
        loop.train(tiny.config(interfaces={"own": section}).run("own", 0), tiny.store, tmp_path / "run")
    assert not list((tmp_path / "run").glob("*.json*"))
    settings["interfaces"]["own"]["shared"] = True
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    stage(*command)


def test_another_code_book_than_that_of_the_checkpoints_is_refused(tiny, tmp_path):
    """A run does not go on with other codes, even if the spec says the same."""
    section = {"kind": "code", **INTERFACES["spelled"](tmp_path)}
    settings = tiny.config(interfaces={"spelled": section}, train={"max_steps": 4})
    (tmp_path / "config.yaml").write_text(dump(settings))
    command = ["codes", "--config", tmp_path / "config.yaml", "--interface", "spelled", "--out", tmp_path / "codes.npy"]
    stage(*command, "--tokenizer", tiny.tokenizer)
    run = settings.run("spelled", 0)
    loop.train(run, tiny.store, tmp_path / "run", codes_file=tmp_path / "codes.npy")
    (tmp_path / "run/final.json").unlink()
    record = CodesRecord.read(tmp_path / "codes.json")
    codes = np.load(tmp_path / "codes.npy")[::-1].copy()
    np.save(tmp_path / "codes.npy", codes)
    record.model_copy(update={"sha256": sha256(codes)}).write(tmp_path / "codes.json")
    with pytest.raises(UserError, match="belongs to another run: codes_sha256"):
        loop.train(run, tiny.store, tmp_path / "run", codes_file=tmp_path / "codes.npy")


def test_a_trained_input_takes_no_code_book(tiny, tmp_path):
    with pytest.raises(UserError, match="leave --codes out"):
        loop.train(tiny.config().run("learned", 0), tiny.store, tmp_path / "run", codes_file=tmp_path / "codes.npy")
