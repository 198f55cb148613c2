"""Importing: Transformers' Llama as the stand-in of a published checkpoint, and all that must not pass as ours."""

import json
import os
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from peer import llama_of
from tokencodes.errors import UserError
from tokencodes.model import hf
from tokencodes.train import published

IDS = torch.arange(0, 300, 7)[None]
BOOK = "model.codebook"


@pytest.fixture(scope="module")
def llama(tiny, tmp_path_factory):
    """A Llama of the tiny config's shape, its norms away from one, saved as Transformers saves it."""
    model = tiny.config().model
    torch.manual_seed(0)
    peer = llama_of(model).eval()
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1 if "norm" in name else 0.02)
    folder = tmp_path_factory.mktemp("llama")
    peer.save_pretrained(folder)
    return peer, folder


@pytest.fixture
def checkpoint(llama, tmp_path):
    """A copy of the Llama's folder, with `change` applied to its tensors."""

    def make(change=None):
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        tensors = load_file(llama[1] / "model.safetensors")
        if change is not None:
            change(tensors)
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text((llama[1] / "config.json").read_text())
        return folder

    return make


def fixed(tiny, kind=torch.uint8):
    """Change a Llama's tensors into those of a fixed-code model: a V x K buffer in place of the table."""
    book = published.interfaces.build(tiny.config().interface("gf2"), 300, 32, 0.02).codebook

    def change(tensors):
        del tensors["model.embed_tokens.weight"]
        tensors[BOOK] = book.to(kind)

    return change


def key_map(tmp_path, **changes):
    value = yaml.safe_load(published.LLAMA.read_text())
    path = tmp_path / "map.yaml"
    path.write_text(yaml.safe_dump({**value, **changes}))
    return path


def bring(tiny, folder, out, name="learned", key_map=None, tokenizer=None, **changes):
    published.import_checkpoint(tiny.config(**changes), name, folder, key_map, tokenizer, out)
    return hf.load(out)


def test_a_llama_comes_out_with_its_logits(tiny, llama, tmp_path):
    peer, folder = llama
    model = bring(tiny, folder, tmp_path / "out", tokenizer=tiny.tokenizer)
    torch.testing.assert_close(model(IDS).logits, peer(IDS).logits, rtol=1e-5, atol=1e-5)
    facts = json.loads((tmp_path / "out" / "tokencodes.json").read_text())
    assert (
        facts["interface"] == "learned" and facts["seed"] is None and list(facts["imported"]) == ["model.safetensors"]
    )
    assert (tmp_path / "out" / "tokenizer.json").is_file()


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_a_fixed_code_book_of_any_type_is_held_against_the_configs(tiny, llama, checkpoint, tmp_path, kind):
    folder = checkpoint(fixed(tiny, kind))
    model = bring(tiny, folder, tmp_path / "out", "gf2")
    peer = LlamaForCausalLM.from_pretrained(llama[1])
    with torch.no_grad():  # the table that says the same
        peer.model.embed_tokens.weight.copy_(model.model.decoder.input(torch.arange(300)))
        torch.testing.assert_close(model(IDS).logits, peer(IDS).logits, rtol=1e-5, atol=1e-5)


def test_a_learned_code_is_taken_as_it_is(tiny, checkpoint, tmp_path):
    code = torch.randn(300, 9)

    def change(tensors):
        del tensors["model.embed_tokens.weight"]
        tensors[BOOK] = code

    interfaces = {"coded": {"kind": "code", "codebook": {"kind": "learned", "width": 9}}}
    model = bring(tiny, checkpoint(change), tmp_path / "out", "coded", interfaces=interfaces)
    assert torch.equal(model.model.decoder.input.codebook, code)


def test_interleaved_rotations_are_turned_into_ours(tiny, llama, checkpoint, tmp_path):
    def interleave(tensors):
        for name in tensors:
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                halves = tensors[name].unflatten(0, (2, 2, -1))  # heads, half, pair
                tensors[name] = halves.transpose(1, 2).flatten(0, 2).contiguous()

    folder = checkpoint(interleave)
    model = bring(tiny, folder, tmp_path / "out", key_map=key_map(tmp_path, rope="interleaved"))
    torch.testing.assert_close(model(IDS).logits, llama[0](IDS).logits, rtol=1e-5, atol=1e-5)
    wrong = bring(tiny, folder, tmp_path / "wrong")
    assert (wrong(IDS).logits - llama[0](IDS).logits).abs().max() > 1e-3


def test_pytorch_files_hold_data_alone(tiny, llama, tmp_path):
    folder = tmp_path / "pt"
    folder.mkdir()
    torch.save({"step": 7, "net": load_file(llama[1] / "model.safetensors")}, folder / "weights.pt")
    names = key_map(tmp_path, files=["weights.pt"], within="net")
    model = bring(tiny, folder, tmp_path / "out", key_map=names)
    torch.testing.assert_close(model(IDS).logits, llama[0](IDS).logits, rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match="no table of tensors"):
        bring(tiny, folder, tmp_path / "out", key_map=key_map(tmp_path, files=["weights.pt"]))


class Runs:
    """What pickle would run."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_a_pytorch_file_that_would_run_code_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Runs()}, tmp_path / "weights.pt")
    with pytest.raises(UserError, match="cannot be read as tensors alone"):
        bring(tiny, tmp_path, tmp_path / "out", key_map=key_map(tmp_path, files=["weights.pt"]))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "link/secret.safetensors"])
def test_no_path_of_a_map_leaves_the_folder(tiny, checkpoint, tmp_path, name):
    folder = checkpoint()
    (folder / "link").symlink_to(tmp_path)
    save_file({"x": torch.zeros(1)}, tmp_path / "secret.safetensors")
    with pytest.raises(UserError, match="leaves the folder"):
        bring(tiny, folder, tmp_path / "out", key_map=key_map(tmp_path, files=[name]))


def drop(name):
    return lambda tensors: tensors.pop(name)


def put(name, value):
    return lambda tensors: tensors.update({name: value(tensors[name]) if name in tensors else value(None)})


def spoiled(tensor):
    tensor = tensor.clone()
    tensor.view(-1)[5] = float("nan")
    return tensor


WRONG = {
    "missing": (
        drop("model.layers.1.mlp.up_proj.weight"),
        r"missing in the checkpoint: model\.layers\.1\.mlp\.up_proj",
    ),
    "left over": (
        put("model.layers.2.x", lambda _: torch.zeros(1)),
        r"left over in the checkpoint: model\.layers\.2\.x;",
    ),
    "shape": (
        put("lm_head.weight", lambda t: t[:299].clone()),
        r"lm_head\.weight: \(299, 32\) in the checkpoint, \(300",
    ),
    "parts": (
        put("model.layers.0.self_attn.k_proj.weight", lambda t: t[:, :9].clone()),
        r"qkv\.weight: .*cannot be joined",
    ),
    "fewer heads": (
        put("model.layers.0.self_attn.k_proj.weight", lambda t: t[:16].clone()),
        r"qkv.weight: \(80, 32\) in",
    ),
    "not a number": (put("model.norm.weight", spoiled), r"decoder\.norm\.weight: holds a value that is NaN"),
}


@pytest.mark.parametrize(("change", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_match_is_named_and_nothing_is_written(tiny, checkpoint, tmp_path, change, said):
    folder = checkpoint(change)
    with pytest.raises(UserError, match=said):
        bring(tiny, folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("row", [0, 299])
def test_a_code_book_of_other_rows_is_refused_by_row(tiny, checkpoint, tmp_path, row):
    def change(tensors):
        fixed(tiny)(tensors)
        tensors[BOOK][row, 2] ^= 1

    with pytest.raises(UserError, match=rf"codebook: differs .* in 1 of 300 row\(s\); the first is {row}: \["):
        bring(tiny, checkpoint(change), tmp_path / "out", "gf2")


def test_another_interface_is_refused(tiny, checkpoint, tmp_path):
    with pytest.raises(UserError, match=r"codebook: differs .* in \d+ of 300 row"):
        bring(tiny, checkpoint(fixed(tiny)), tmp_path / "out", "binary9")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("rms_norm_eps", 1e-6, "norm_eps is 1e-06 there and 1e-05 here"),
        ("num_attention_heads", 4, "n_heads is 4 there and 2 here"),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 5e5}, "rope_theta is 500000.0 there"),
        ("rope_parameters", {"rope_type": "llama3", "rope_theta": 1e4}, "rope_type is 'llama3' there"),
        ("hidden_act", "gelu", "activation is 'gelu' there"),
    ],
)
def test_what_no_shape_shows_is_read_from_its_config(tiny, checkpoint, tmp_path, key, value, said):
    folder = checkpoint()
    stated = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**stated, key: value}))
    with pytest.raises(UserError, match=said):
        bring(tiny, folder, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tensors": {"decoder.norm.weight": "model.norm.weight"}}, "lm_head.weight: the key map does not say"),
        ({"tensors": {"decoder.nrom.weight": "model.norm.weight"}}, "no tensor of ours: decoder.nrom.weight"),
        ({"tensor": {}}, "unknown key; did you mean 'tensors'"),
        ({"files": ["none.safetensors"]}, "no such file; the key map lists it"),
    ],
)
def test_a_wrong_map_is_named(tiny, checkpoint, tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        bring(tiny, checkpoint(), tmp_path / "out", key_map=key_map(tmp_path, **changes))


def test_the_command_line(tiny, llama, tmp_path):
    from tokencodes import config

    (tmp_path / "config.yaml").write_text(config.dump(tiny.config()))
    line = [
        sys.executable,
        "-m",
        "tokencodes.cli",
        "import",
        "--config",
        tmp_path / "config.yaml",
        "--weights",
        llama[1],
    ]
    for name, code in (("learned", 0), ("gf2", 2)):
        done = subprocess.run([*line, "--interface", name, "--out", tmp_path / name], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
    assert "left over in the checkpoint: model.embed_tokens.weight" in done.stderr and "Traceback" not in done.stderr
    import tokencodes  # noqa: F401  names the model type to Transformers

    assert AutoModelForCausalLM.from_pretrained(tmp_path / "learned").config.model_type == "tokencodes"
