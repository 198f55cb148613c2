"""Validation: a right export passes every check; each kind of fault fails the check that names it."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from making import code
from tokencodes.cli import main
from tokencodes.errors import UserError
from tokencodes.interfaces import codebooks, codes, gf2
from tokencodes.interfaces.spec import CodeInterface
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.model.origin import Origin
from tokencodes.train import export, loop
from tokencodes.train.final import Final
from tokencodes.train.spec import load_run
from tokencodes.validate import checks

INTERFACES = {
    "learned": {"kind": "table"},
    "binary9": {"kind": "code", "codebook": {"kind": "binary"}},
    "gf2": {"kind": "code", "codebook": {"kind": "gf2"}},
    "biased": {"kind": "code", "codebook": {"kind": "gf2", "seed": 3, "random_bias": True}, "scale": "matched"},
    "wide": {"kind": "code", "codebook": {"kind": "linear", "width": 14}, "lift": "orthogonal"},
    "walsh": {"kind": "code", "codebook": {"kind": "binary"}, "lift": "hadamard", "permutation_seed": 4},
    "gaussian": {"kind": "code", "codebook": {"kind": "gaussian", "width": 9}, "scale": "matched"},
    "learned_code": {"kind": "code", "codebook": {"kind": "learned", "width": 9}},
}


@pytest.fixture(scope="module")
def exported(tiny, tmp_path_factory):
    """Folder with run/ and model/ of an interface, trained for a few steps."""
    done = {}

    def get(name):
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            settings = tiny.config(interfaces=INTERFACES, train={"max_steps": 4})
            loop.train(settings.run(name, 0), tiny.store, folder / "run")
            export.export(folder / "run", tiny.tokenizer, folder / "model")
            done[name] = folder
        return done[name]

    return get


def subject(tiny, folder):
    run = load_run(folder / "run" / "run.yaml")
    return checks.Subject(folder / "model", folder / "run", tiny.store, run, Final.read(folder / "run" / "final.json"))


def outcomes(tiny, folder, skip=("loads", "logits_finite", "logits_equal", "generation")) -> dict[str, str]:
    """Name and detail of each check that fails, of those that need no new process."""
    found, it = {}, subject(tiny, folder)
    for name, check in checks.applicable(it.run.interface):
        if name not in skip:
            try:
                check(it)
            except (checks.Failed, UserError) as failure:
                found[name] = str(failure)
    try:
        it.adapter  # noqa: B018
    except checks.Failed as failure:
        found["adapter"] = str(failure)
    return found


@pytest.fixture
def copy(exported, tmp_path):
    def make(name):
        shutil.copytree(exported(name), tmp_path / name)
        return tmp_path / name

    return make


@pytest.mark.parametrize("name", INTERFACES)
def test_a_right_export_passes(tiny, exported, name):
    assert outcomes(tiny, exported(name)) == {}


def test_the_command_writes_what_it_found_and_passes(tiny, exported, tmp_path):
    folder, out = exported("gf2"), tmp_path / "gf2.json"
    line = ["validate", "--model", folder / "model", "--run-dir", folder / "run", "--store", tiny.store, "--out", out]
    assert main([str(part) for part in line]) == 0
    report = json.loads(out.read_text())
    assert report["passed"] is True
    names = [check["name"] for check in report["checks"]]
    assert names == [
        *("files", "config", "parameters", "tensors", "code_book", "gf2_map", "lift"),
        *("loads", "logits_finite", "logits_equal", "losses_equal", "generation"),
    ]
    assert all(check["passed"] and check["detail"] for check in report["checks"])


def test_the_command_fails_with_a_line_for_each_check_and_keeps_the_report(tiny, copy, tmp_path, capsys):
    folder, out = copy("binary9"), tmp_path / "report.json"
    edit(folder, lambda tensors: flip(tensors, 5, 2))
    line = ["validate", "--model", folder / "model", "--run-dir", folder / "run", "--store", tiny.store, "--out", out]
    assert main([str(part) for part in line]) == 2
    errors = [text for text in capsys.readouterr().err.splitlines() if text.startswith("tokencodes: error")]
    report = json.loads(out.read_text())
    failed = [check["name"] for check in report["checks"] if not check["passed"]]
    assert report["passed"] is False and "code_book" in failed and "loads" in failed
    assert len(errors) == len(failed) and any("at token 5, coordinate 2" in text for text in errors)


def edit(folder, change):
    path = folder / "model" / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def flip(tensors, token, coordinate):
    tensors["model.decoder.input.codebook"][token, coordinate] ^= 1


@pytest.mark.parametrize("name", ["binary9", "gf2", "biased", "wide", "walsh"])
def test_any_flipped_bit_of_the_code_book_is_named(tiny, copy, name):
    folder = copy(name)
    codes = load_file(folder / "model" / "model.safetensors")["model.decoder.input.codebook"]
    draw = np.random.default_rng(len(name))
    for _ in range(6):
        token, coordinate = int(draw.integers(codes.shape[0])), int(draw.integers(codes.shape[1]))
        edit(folder, lambda tensors, at=(token, coordinate): flip(tensors, *at))
        found = outcomes(tiny, folder)
        assert (
            f"1 of {codes.numel()} entries differ, the first at token {token}, coordinate {coordinate}"
            in (found["code_book"])
        )
        assert "decoder.input.codebook" in found["tensors"]
        assert "codebook is not the one" in found["adapter"] and "files" in found
        edit(folder, lambda tensors, at=(token, coordinate): flip(tensors, *at))


def test_a_flipped_bit_in_any_weight_is_named(tiny, copy):
    folder = copy("gf2")
    for key in load_file(folder / "model" / "model.safetensors"):
        if "codebook" in key:
            continue

        def change(tensors, key=key):
            tensors[key].view(torch.int32).flatten()[-1] ^= 1

        edit(folder, change)
        found = outcomes(tiny, folder)
        assert found["tensors"] == f"not the checkpoint's bits: {key.removeprefix('model.')}"
        edit(folder, change)
    assert list(outcomes(tiny, folder)) in ([], ["files"])  # rewritten: the same tensors, maybe other file bytes


def test_a_missing_or_unknown_tensor_is_named(tiny, copy):
    folder = copy("gf2")
    edit(folder, lambda tensors: tensors.update(extra=tensors.pop("model.decoder.layers.0.mlp.down.weight")))
    found = outcomes(tiny, folder, skip=("loads", "logits_finite", "logits_equal", "losses_equal", "generation"))
    assert found["tensors"] == "missing tensors: decoder.layers.0.mlp.down.weight"
    assert "missing tensors" in found["adapter"] and "unknown tensors: extra" in found["adapter"]
    assert "trainable values are stored" in found["parameters"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_attention_heads", 4), ("rope_theta", 5000.0), ("tie_word_embeddings", True), ("rms_norm_eps", 1e-6)],
)
def test_a_changed_config_is_named(tiny, copy, key, value):
    folder = copy("gf2")
    path = folder / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    found = outcomes(tiny, folder)
    assert f"{key} is {value!r}" in found["config"]


def test_another_recoding_is_found(tiny, copy):
    """The whole code book, consistently of another seed, under a config that still says the old one."""
    folder = copy("gf2")
    other = CodeInterface(kind="code", codebook={"kind": "gf2", "seed": 1})
    values = torch.from_numpy(codes.build(other, Vocabulary(300)))
    edit(folder, lambda tensors: tensors.update({"model.decoder.input.codebook": values}))
    found = outcomes(tiny, folder)
    assert "not A of the seed" in found["gf2_map"] and "entries differ" in found["code_book"]


def test_a_bias_that_was_not_asked_for_is_found(tiny, copy):
    folder = copy("gf2")

    def shift(tensors):
        tensors["model.decoder.input.codebook"] ^= torch.tensor([1] + [0] * 8, dtype=torch.uint8)

    edit(folder, shift)
    assert "expected 0" in outcomes(tiny, folder)["gf2_map"]


def test_another_tokenizer_or_store_is_found(tiny, copy):
    folder = copy("learned")
    path = folder / "model" / "tokenizer.json"
    path.write_text(path.read_text().replace("<|endoftext|>", "<|endoftexx|>"))
    assert "tokenizer.json is not the one" in outcomes(tiny, folder)["files"]
    path = folder / "model" / "tokencodes.json"
    stated = Origin.read(path)
    stated.model_copy(update={"store_sha256": "0"}).write(path)
    assert "store_sha256" in outcomes(tiny, folder)["files"]
    path.write_text(json.dumps({**stated.content(), "store_sha256": "0"}))  # edited by hand
    assert "record_sha256" in outcomes(tiny, folder)["files"]


def test_the_other_way_of_the_papers_codes_is_independent(monkeypatch):
    """It must not lean on the code that it checks."""
    for kind, helpers in {"gf2": (codebooks.gf2, gf2), "binary": (codebooks.binary,), "linear": (gf2,)}.items():
        spec = code(kind, **({"width": 14} if kind == "linear" else {}))
        right = codes.build(spec, Vocabulary(1000))
        with monkeypatch.context() as patch:
            for helper in helpers:
                for name in ("bits", "apply", "to_array"):
                    patch.setattr(helper, name, None, raising=False)
            assert (codes.again(spec, Vocabulary(1000)) == right).all()


def test_another_code_book_than_the_runs_is_found(tiny, exported, tmp_path):
    folder, interface = exported("gf2"), tiny.config().interface("gf2")
    codes.write("gf2", interface, Vocabulary(300), None, tmp_path / "gf2.npy")
    held = dataclasses.replace(subject(tiny, folder), codes_file=tmp_path / "gf2.npy")
    assert "all codes distinct" in checks.code_book(held)
    final = held.final.model_copy(update={"codes_sha256": "0" * 64})
    with pytest.raises(checks.Failed, match=r"codes_sha256 in final\.json"):
        checks.code_book(dataclasses.replace(held, final=final))
    codes.write("gf2", code("gf2", seed=1), Vocabulary(300), None, tmp_path / "gf2.npy")
    with pytest.raises(UserError, match="made for another code book"):
        checks.code_book(held)
