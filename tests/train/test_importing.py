"""Importing: Transformers' Llama as the stand-in of a published checkpoint, and all that must not pass as ours."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from making import inputs_of
from peer import llama_of
from tokencodes import cli
from tokencodes.errors import UserError
from tokencodes.interfaces import codes
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.model import adapter
from tokencodes.train import export, importing, loop
from tokencodes.yamlfile import dump

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
    book = torch.from_numpy(codes.build(tiny.config().interface("gf2"), Vocabulary(300)))

    def change(tensors):
        del tensors["model.embed_tokens.weight"]
        tensors[BOOK] = book.to(kind)

    return change


def key_map(tmp_path, **changes):
    value = yaml.safe_load(importing.LLAMA.read_text())
    path = tmp_path / "map.yaml"
    path.write_text(yaml.safe_dump({**value, **changes}))
    return path


def bring(tiny, folder, out, name="learned", key_map=None, tokenizer=None, **changes):
    importing.import_checkpoint(tiny.config(**changes), name, folder, key_map, tokenizer, out)
    return adapter.load(out)


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


@pytest.mark.parametrize("parts", [("qkv",), ("q", "kv"), ("qk", "v")], ids=" ".join)
def test_interleaved_rotations_are_turned_however_the_parts_are_joined(tiny, llama, tmp_path, parts):
    stored = load_file(llama[1] / "model.safetensors")
    names = yaml.safe_load(importing.LLAMA.read_text())
    spec = inputs_of(tiny.config().interface("learned"), tiny.config().model)
    expected, problems = importing.assemble(
        stored, importing.KeyMap(**{**names, "rope": "interleaved"}), spec, tiny.config().model
    )
    assert not problems
    layer = "model.layers.{layer}.self_attn."
    fused = {name: tensor for name, tensor in stored.items() if not name.endswith(("q_proj.weight", "k_proj.weight"))}
    for number in map(str, range(tiny.config().model.n_layers)):
        at = layer.replace("{layer}", number)
        for part in parts:
            fused[at + part] = torch.cat([stored[f"{at}{letter}_proj.weight"] for letter in part])
        del fused[f"{at}v_proj.weight"]
    names["tensors"]["decoder.layers.{layer}.attention.qkv.weight"] = [layer + part for part in parts]
    found, problems = importing.assemble(
        fused, importing.KeyMap(**{**names, "rope": "interleaved"}), spec, tiny.config().model
    )
    assert not problems and found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_tied_head_is_mapped_to_the_table(tiny, llama, checkpoint, tmp_path):
    folder = checkpoint(lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(UserError, match=r"missing in the checkpoint: lm_head\.weight$"):
        bring(tiny, folder, tmp_path / "out")
    state_beside(folder, tie_word_embeddings=True)
    said = "ties the head to the embeddings: map lm_head.weight to model.embed_tokens.weight too"
    with pytest.raises(UserError, match=said):
        bring(tiny, folder, tmp_path / "out")
    tensors = yaml.safe_load(importing.LLAMA.read_text())["tensors"]
    tied = key_map(tmp_path, tensors={**tensors, "lm_head.weight": "model.embed_tokens.weight"})
    model = bring(tiny, folder, tmp_path / "out", key_map=tied)
    peer = LlamaForCausalLM.from_pretrained(folder)
    assert peer.lm_head.weight is peer.model.embed_tokens.weight
    torch.testing.assert_close(model(IDS).logits, peer(IDS).logits, rtol=1e-5, atol=1e-5)


def test_a_head_of_its_own_contradicts_a_tied_one(tiny, checkpoint, tmp_path):
    folder = checkpoint()
    state_beside(folder, tie_word_embeddings=True)
    with pytest.raises(UserError, match=r"says tie_word_embeddings, but its head \(lm_head\.weight\) is not its table"):
        bring(tiny, folder, tmp_path / "out")


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_a_continuous_code_book_in_half_precision_is_the_configs_rounded(tiny, checkpoint, tmp_path, capsys, kind):
    section = {"coded": {"kind": "code", "codebook": {"kind": "gaussian", "width": 9}}}
    book = torch.from_numpy(codes.build(tiny.config(interfaces=section).interface("coded"), Vocabulary(300)))

    def change(tensors):
        del tensors["model.embed_tokens.weight"]
        tensors[BOOK] = book.to(kind)

    folder = checkpoint(change)
    model = bring(tiny, folder, tmp_path / "out", "coded", interfaces=section)
    assert torch.equal(model.model.decoder.input.codebook, book)
    assert f"codebook is stored in {kind}: it is the config's, rounded" in capsys.readouterr().err
    tensors = load_file(folder / "model.safetensors")
    tensors[BOOK][7, 2] *= 1.01
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"differs .* in 1 of 300 row\(s\); the first is 7"):
        bring(tiny, folder, tmp_path / "out", "coded", interfaces=section)


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
        bring(tiny, tmp_path / "weights.pt", tmp_path / "out", key_map=key_map(tmp_path, files=["weights.pt"]))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "link/secret.safetensors"])
def test_no_path_of_a_map_leaves_the_folder(tiny, checkpoint, tmp_path, name):
    folder = checkpoint()
    (folder / "link").symlink_to(tmp_path)
    save_file({"x": torch.zeros(1)}, tmp_path / "secret.safetensors")
    with pytest.raises(UserError, match="leaves the folder"):
        bring(tiny, folder, tmp_path / "out", key_map=key_map(tmp_path, files=[name]))


def test_a_snapshot_of_the_hubs_cache_is_links_to_its_own_store(tiny, checkpoint, tmp_path):
    folder = checkpoint()
    snapshot, blobs = tmp_path / "models--x" / "snapshots" / "abc", tmp_path / "models--x" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name in ("model.safetensors", "config.json"):
        shutil.copy(folder / name, blobs / f"blob-{name[:5]}")
        (snapshot / name).symlink_to(f"../../blobs/blob-{name[:5]}")
    listed = key_map(tmp_path, files=["model.safetensors"])
    bring(tiny, snapshot, tmp_path / "out", key_map=listed)
    facts = json.loads((tmp_path / "out" / "tokencodes.json").read_text())
    assert list(facts["imported"]) == ["model.safetensors"]
    (snapshot / "up.safetensors").symlink_to(folder / "model.safetensors")
    for name in ("../../blobs/blob-model", "up.safetensors"):
        with pytest.raises(UserError, match="leaves the folder"):
            bring(tiny, snapshot, tmp_path / "out", key_map=key_map(tmp_path, files=[name]))


def state_beside(folder, **changes):
    stated = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**stated, **changes}))


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
    "8-bit integers": (
        put("model.layers.1.mlp.up_proj.weight", lambda t: t.to(torch.int8)),
        r"layers\.1\.mlp\.gate_up\.weight: stored as torch\.int8",
    ),
    "8-bit floats": (
        put("model.norm.weight", lambda t: t.to(torch.float8_e4m3fn)),
        r"decoder\.norm\.weight: stored as torch\.float8_e4m3fn",
    ),
    "complex": (put("lm_head.weight", lambda t: t.to(torch.complex64)), r"lm_head\.weight: stored as torch\.complex64"),
    "no dimension": (
        put("model.layers.0.self_attn.q_proj.weight", lambda t: t[0, 0].clone()),
        r"qkv\.weight: .*cannot be joined",
    ),
    "not a number": (put("model.norm.weight", spoiled), r"decoder\.norm\.weight: has a value that is NaN"),
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
        ("rope_scaling", {"type": "linear", "factor": 2.0}, "rope_type is 'linear' there"),
        ("rope_scaling", "linear", "rope_scaling is 'linear', which is no description"),
        ("rope_parameters", [1], r"rope_parameters is \[1\], which is no description"),
        ("rope_parameters", {"full_attention": {"rope_theta": 5e5}}, "which is no description of one rotation"),
        ("partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5 there"),
        ("rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5 there"),
        ("embedding_multiplier", 12.0, "embedding_multiplier is 12.0 there"),
        ("logits_scaling", 8, "logits_scaling is 8 there"),
        ("sliding_window", 8, "sliding_window is 8 there"),
        ("head_dim", 8, "head_dim is 8 there and 16 here"),
        ("rope_interleaved", True, "rope is 'interleaved' there and 'half' here"),
        ("model_type", "gemma", "model_type is 'gemma' there"),
    ],
)
def test_what_no_shape_shows_is_read_from_its_config(tiny, checkpoint, tmp_path, key, value, said):
    folder = checkpoint()
    state_beside(folder, **{key: value})
    with pytest.raises(UserError, match=said) as refused:
        bring(tiny, folder, tmp_path / "out")
    assert len(str(refused.value).splitlines()) == 1


def test_what_changes_nothing_in_its_config_is_passed_over(tiny, checkpoint, tmp_path, capsys):
    folder = checkpoint()
    neutral = {"partial_rotary_factor": 1.0, "logits_scaling": 1.0, "sliding_window": None, "head_dim": 16}
    state_beside(folder, **neutral, model_type="ours_alone", rope_scaling=None, attention_bias=False)
    bring(tiny, folder, tmp_path / "out")
    assert "model_type is 'ours_alone', which Transformers does not know" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"tensors": {"decoder.norm.weight": "model.norm.weight"}},
            "lm_head.weight: the key map does not say which tensors",
        ),
        ({"tensors": {"decoder.nrom.weight": "model.norm.weight"}}, "no tensor of ours: decoder.nrom.weight"),
        ({"tensor": {}}, "unknown key; did you mean 'tensors'"),
        ({"files": ["none.safetensors"]}, "no such file; the key map lists it"),
        ({"files": ["a\0.safetensors"]}, r"the control character U\+0000"),
        ({"tensors": {"lm_head.weight": []}}, "tensors.lm_head.weight"),
    ],
)
def test_a_wrong_map_is_named(tiny, checkpoint, tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        bring(tiny, checkpoint(), tmp_path / "out", key_map=key_map(tmp_path, **changes))


def test_the_command_line(tiny, llama, tmp_path):
    (tmp_path / "config.yaml").write_text(dump(tiny.config()))
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


UNREADABLE = {
    "garbage": (b"garbage" * 9, "cannot be read as tensors alone"),
    "nothing": (b"", "cannot be read as tensors alone"),
    "cut": (b"PK\3\4" + bytes(40), "cannot be read as tensors alone"),
    "pickle of a list": (b"\x80\x02]q\0.", "cannot be read as tensors alone|no table of tensors"),
    "a number for a name": ({7: torch.zeros(1)}, "names a tensor 7"),
    "sparse": ({"x": torch.eye(2).to_sparse()}, "x: sparse, quantized or without values"),
    "meta": ({"x": torch.empty(2, device="meta")}, "x: sparse, quantized or without values"),
}


@pytest.mark.parametrize(("held", "said"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_pytorch_file_that_cannot_serve_is_named(tiny, tmp_path, held, said):
    path = tmp_path / "weights.pt"
    if isinstance(held, bytes):
        path.write_bytes(held)
    else:
        torch.save(held, path)
    with pytest.raises(UserError, match=said) as refused:
        bring(tiny, path, tmp_path / "out")
    assert str(path) in str(refused.value)


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """The folder of a finished run of two steps, and its export."""
    folder = tmp_path_factory.mktemp("trained")
    settings = tiny.config(train={"max_steps": 2, "warmup_steps": 1, "min_lr": 0.0})
    loop.train(settings.run("learned", 0), tiny.store, folder / "run")
    export.export(folder / "run", tiny.tokenizer, folder / "model")
    return folder


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def command(capsys, *arguments):
    """Exit code and lines on the error stream; a traceback would be raised here."""
    capsys.readouterr()
    return cli.main([str(argument) for argument in arguments]), capsys.readouterr().err.splitlines()


PLACES = {
    "the source": lambda home: home / "source",
    "inside the source": lambda home: home / "source" / "new",
    "above the source": lambda home: home,
    "the tokenizer": lambda home: home / "tokenizer",
    "a link to the source": lambda home: home / "link",
    "here": lambda home: ".",
    "a folder of something else": lambda home: home / "other",
    "a checkpoint of others": lambda home: home / "published",
    "a model with something else in it": lambda home: home / "mixed",
    "a file": lambda home: home / "file",
    "below a file": lambda home: home / "file" / "model",
}


@pytest.mark.parametrize("at", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("stage", ["import", "export"])
def test_what_stands_at_out_is_never_removed_unless_it_is_a_model_of_ours(
    tiny, llama, trained, tmp_path, monkeypatch, capsys, stage, at
):
    shutil.copytree(llama[1] if stage == "import" else trained / "run", tmp_path / "source")
    shutil.copytree(tiny.tokenizer, tmp_path / "tokenizer")
    shutil.copytree(llama[1], tmp_path / "published")
    shutil.copytree(trained / "model", tmp_path / "mixed")
    for name in ("other", "mixed"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("a file")
    (tmp_path / "link").symlink_to("source")
    (tmp_path / "config.yaml").write_text(dump(tiny.config()))
    monkeypatch.chdir(tmp_path / "other")
    before = contents(tmp_path)
    source = (
        ["--config", tmp_path / "config.yaml", "--interface", "learned", "--weights", tmp_path / "source"]
        if stage == "import"
        else ["--run-dir", tmp_path / "source"]
    )
    out = at(tmp_path)
    code, said = command(capsys, stage, *source, "--tokenizer", tmp_path / "tokenizer", "--out", out)
    assert code == 2 and len(said) == 1 and f"{out}: " in said[0], said
    assert contents(tmp_path) == before


def test_a_model_of_ours_is_replaced_whole_or_not_at_all(tiny, trained, tmp_path, monkeypatch):
    out = tmp_path / "model"
    export.export(trained / "run", tiny.tokenizer, out)
    (out / "tokencodes.json").unlink()  # as Snakemake does before it runs a rule again
    (out / "config.json").unlink()
    export.export(trained / "run", tiny.tokenizer, out)
    assert contents(out) == contents(trained / "model")
    (out / "README.md").write_text("the old one")
    before = contents(tmp_path)
    rename = type(out).rename

    def fails(path, target):
        if path.name.endswith(".tmp") and target == out:
            raise OSError("power")
        return rename(path, target)

    monkeypatch.setattr(type(out), "rename", fails)
    with pytest.raises(OSError, match="power"):
        export.export(trained / "run", tiny.tokenizer, out)
    assert contents(tmp_path) == before
    monkeypatch.undo()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    export.export(trained / "run", tiny.tokenizer, type(out)("."))
    assert contents(tmp_path / "empty") == contents(trained / "model")


def test_a_model_that_fails_its_check_replaces_nothing(tiny, llama, trained, checkpoint, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(trained / "model", out)

    def overflow(tensors):
        tensors["lm_head.weight"] = torch.full_like(tensors["lm_head.weight"], 3e38)

    folder = checkpoint(overflow)
    with pytest.raises(UserError, match="logits of its model are not finite"):
        bring(tiny, folder, out)
    assert contents(out) == contents(trained / "model") and not list(tmp_path.glob(".out*"))


SPOILED = {
    "no tokenizer.json": ("tokenizer/tokenizer.json", None),
    "a manifest of nothing": ("tokenizer/manifest.json", "{}"),
    "a manifest that is a list": ("tokenizer/manifest.json", "[]"),
    "a final.json of nothing": ("run/final.json", "{}"),
    "a final.json that is a list": ("run/final.json", "[]"),
    "a config.json that is a list": ("weights/config.json", "[1]"),
}


@pytest.mark.parametrize(("name", "text"), SPOILED.values(), ids=SPOILED.keys())
def test_a_file_that_another_stage_writes_is_read_with_care(tiny, llama, trained, tmp_path, capsys, name, text):
    shutil.copytree(tiny.tokenizer, tmp_path / "tokenizer")
    shutil.copytree(trained / "run", tmp_path / "run")
    shutil.copytree(llama[1], tmp_path / "weights")
    (tmp_path / "config.yaml").write_text(dump(tiny.config()))
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    tail = ["--tokenizer", tmp_path / "tokenizer", "--out", tmp_path / "out"]
    weights = ["--config", tmp_path / "config.yaml", "--interface", "learned", "--weights", tmp_path / "weights"]
    stages = {"import": weights, "export": ["--run-dir", tmp_path / "run"]}
    for stage in {"run": ["export"], "weights": ["import"], "tokenizer": ["import", "export"]}[name.split("/")[0]]:
        code, said = command(capsys, stage, *stages[stage], *tail)
        assert code == 2 and len(said) == 1 and str(tmp_path / name) in said[0], said
    assert not (tmp_path / "out").exists()
