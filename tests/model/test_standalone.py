"""An exported model loads after `import tokencodes`, whichever comes first, and without the package at all."""

import ast
import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib

import pytest
import torch
from packaging.requirements import Requirement

from making import create, inputs_of
from tokencodes.interfaces import codes
from tokencodes.interfaces.spec import CodeInterface
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.model import adapter, standalone
from tokencodes.model.spec import Model

MODEL = Model(vocab_size=200, d_model=32, n_layers=1, n_heads=2, d_ff=48, context_length=32)
SPEC = CodeInterface(kind="code", codebook={"kind": "gf2"}, scale="matched")
IDS = torch.arange(1, 9)[None]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    net = create(SPEC, MODEL)
    settings = adapter.to_config(SPEC, inputs_of(SPEC, MODEL), MODEL, eos_token_id=0, auto_map=standalone.AUTO_MAP)
    adapter.from_transformer(net, settings).save_pretrained(folder)
    standalone.write(folder)
    return folder, net(IDS).detach()


def run(code: str, folder, tmp_path) -> dict:
    env = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


REPORT = """
import sys, json, torch
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], **kwargs)
print(json.dumps({"class": type(model).__module__, "logits": model(torch.arange(1, 9)[None]).logits.tolist()}))
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import tokencodes; from transformers import AutoModelForCausalLM",
        "from transformers import AutoModelForCausalLM; import tokencodes",
        "import transformers; import tokencodes; from transformers import AutoModelForCausalLM",
        "import tokencodes; from transformers import AutoConfig, AutoModelForCausalLM",
    ],
)
def test_import_of_the_package_is_enough(saved, tmp_path, imports):
    folder, logits = saved
    found = run(f"{imports}; kwargs = {{}}\n{REPORT}", folder, tmp_path)
    assert found["class"] == "tokencodes.model.hf" and torch.equal(torch.tensor(found["logits"]), logits)


@pytest.mark.parametrize(
    "order",
    [
        "import tokencodes; from transformers import AutoConfig",
        "from transformers import AutoConfig; import tokencodes",
    ],
)
def test_the_config_alone_is_known_too(saved, tmp_path, order):
    code = f"{order}; import sys, json; print(json.dumps(AutoConfig.from_pretrained(sys.argv[1]).hidden_size))"
    assert run(code, saved[0], tmp_path) == 32


def test_import_of_the_package_brings_neither_torch_nor_transformers(tmp_path):
    code = "import sys, json, tokencodes; print(json.dumps(sorted({'torch', 'transformers'} & set(sys.modules))))"
    assert run(code, "", tmp_path) == []


WITHOUT = "import sys; sys.modules['tokencodes'] = None; from transformers import AutoModelForCausalLM, AutoConfig\n"


def test_without_the_package_its_own_code_loads_it(saved, tmp_path):
    folder, logits = saved
    found = run(f"{WITHOUT}kwargs = {{'trust_remote_code': True}}\n{REPORT}", folder, tmp_path)
    assert found["class"].endswith(standalone.ENTRY) and torch.equal(torch.tensor(found["logits"]), logits)


@pytest.mark.parametrize("start", ["import tokencodes\n", "import sys; sys.modules['tokencodes'] = None\n"])
def test_the_body_alone_loads_with_the_package_and_without(saved, tmp_path, start):
    code = f"""{start}
import sys, json, torch
from transformers import AutoModel
model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code={"None" in start})
print(json.dumps(list(model(torch.arange(1, 9)[None]).last_hidden_state.shape)))
"""
    assert run(code, saved[0], tmp_path) == [1, 8, 32]


def test_what_the_card_says_it_needs_is_what_the_code_imports_and_the_package_asks_for(saved, root):
    stated = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    asked = {each.name: str(each.specifier) for each in map(Requirement, stated)}
    for name in ("transformers", "pydantic", "torch"):
        assert f"{name}{asked[name]}" in standalone.NEEDS
    brought = {Requirement(line).name for line in importlib.metadata.requires("transformers") if "extra" not in line}
    names = {"yaml": "pyyaml"}
    for path in saved[0].glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for top in {module.split(".")[0] for module in modules} - sys.stdlib_module_names:
                assert names.get(top, top) in brought | {"transformers", "pydantic", "torch"}, (path.name, top)


def test_the_standalone_code_checks_the_code_book_too(saved, tmp_path):
    from safetensors.torch import load_file, save_file

    folder, _ = saved
    tensors = load_file(folder / "model.safetensors")
    assert torch.equal(tensors["model.decoder.input.codebook"], torch.from_numpy(codes.build(SPEC, Vocabulary(200))))
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in folder.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    tensors["model.decoder.input.codebook"][3, 1] ^= 1
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    code = f"""{WITHOUT}
import json
try:
    AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
    print(json.dumps("loaded"))
except ValueError as error:
    print(json.dumps(str(error)))
"""
    assert "codebook is not the one" in run(code, broken, tmp_path)


def test_every_import_of_ours_is_flattened(saved):
    folder, _ = saved
    for name in standalone.MODULES.values():
        text = (folder / f"{name}.py").read_text()
        assert "from tokencodes" not in text and "import tokencodes\n" not in text
        compile(text, name, "exec")
