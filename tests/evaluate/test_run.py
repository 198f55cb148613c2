"""The stage as a whole: the harness' own scores, the same bits again, and the user's mistakes in one line."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import lm_eval
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from safetensors.torch import load_file, save_file

from tokencodes import cli
from tokencodes.errors import UserError
from tokencodes.evaluate import run, tasks
from tokencodes.evaluate.scores import Scores, read_documents
from tokencodes.evaluate.spec import Evaluate
from tokencodes.evaluate.taskdata import TaskData, open_data
from tokencodes.files import read_json, sha256_file, write_json
from tokencodes.model import origin

Configure = Callable[..., Evaluate]
LIMIT = 20


@pytest.mark.parametrize("task", ["hellaswag", "winogrande", "arc_easy", "lambada_openai"])
def test_scores_are_those_of_the_harness(
    task: str, configure: Configure, llama_dir: Path, hflm: HFLM, packaged: Path, tmp_path: Path
) -> None:
    """lm_eval.simple_evaluate with HFLM: every metric and standard error."""
    settings = configure(task, limit=LIMIT)
    out = tmp_path / "eval" / "scores.json"
    run.evaluate(settings, llama_dir, task, 0, packaged, None, out)
    ours = Scores.read(out).model_dump()
    loaded = tasks.load(task, 0, open_data(settings, task, packaged), tmp_path)
    found = lm_eval.simple_evaluate(
        hflm,
        tasks=list(loaded["tasks"].values()),
        task_manager=TaskManager(include_defaults=False),
        limit=LIMIT,
        bootstrap_iters=settings.bootstrap_iters,
    )
    theirs = {key.partition(",")[0]: value for key, value in found["results"][task].items() if "," in key}
    assert {name for name in theirs if not name.endswith("_stderr")} == ours["metrics"].keys()
    for name, metric in ours["metrics"].items():
        assert metric["value"] == pytest.approx(theirs[name], rel=1e-4)
        assert metric["stderr"] == pytest.approx(theirs[f"{name}_stderr"], rel=1e-4)
        assert metric["higher_is_better"] == found["higher_is_better"][task][name]
    assert ours["n"] == LIMIT
    assert ours["task_version"] == found["versions"][task]
    assert ours["harness"] == f"lm_eval {lm_eval.__version__}"
    assert ours["model_sha256"] == sha256_file(llama_dir / "model.safetensors")
    documents = read_documents(out, Scores.read(out))
    assert documents["doc_id"].tolist() == list(range(LIMIT))
    assert documents["doc_sha256"].tolist() == [sample["doc_hash"] for sample in found["samples"][task]]
    assert documents["acc"].tolist() == [float(sample["acc"]) for sample in found["samples"][task]]
    assert np.mean(documents["acc"]) == pytest.approx(ours["metrics"]["acc"]["value"])


def test_chance_levels(configure: Configure, llama_dir: Path, packaged: Path, tmp_path: Path) -> None:
    """From the number of choices of the documents that were scored; some questions of ARC have three or five."""
    settings = configure("arc_challenge", limit=300)
    run.evaluate(settings, llama_dir, "arc_challenge", 0, packaged, None, tmp_path / "arc.json")
    rows = pq.read_table(packaged / "arc_challenge/ARC-Challenge/test.parquet")["choices"].to_pylist()[:300]
    chance = math.fsum(1 / len(row["text"]) for row in rows) / 300
    assert {len(row["text"]) for row in rows} > {4}
    metrics = read_json(tmp_path / "arc.json")["metrics"]
    assert metrics["acc"]["chance"] == metrics["acc_norm"]["chance"] == pytest.approx(chance, abs=1e-12)
    run.evaluate(
        configure("lambada_openai", limit=2), llama_dir, "lambada_openai", 0, packaged, None, tmp_path / "l.json"
    )
    metrics = read_json(tmp_path / "l.json")["metrics"]
    assert (metrics["acc"]["chance"], metrics["perplexity"]["chance"]) == (0.0, None)


def test_the_same_bits_again_and_no_talk(
    configure: Configure, llama_dir: Path, packaged: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = configure("lambada_openai", limit=10)
    results = []
    for folder in ("a", "b"):
        out = tmp_path / folder / "scores.json"
        run.evaluate(settings, llama_dir, "lambada_openai", 0, packaged, None, out)
        results.append((Scores.read(out).model_dump() | {"wall_s": 0}, sha256_file(out.with_suffix(".parquet"))))
    assert results[0] == results[1]
    said = capfd.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 2  # one line per run: where the result is
    assert results[0][0]["label"] == "LAMBADA (white space collapsed)"


def test_mmlu_is_recomputed_from_its_documents(
    configure: Configure, llama_dir: Path, packaged: Path, tmp_path: Path
) -> None:
    """The group's score is the mean over documents; its standard error is the pooled one of the subjects."""
    run.evaluate(configure("mmlu", limit=3), llama_dir, "mmlu", 0, packaged, None, tmp_path / "mmlu.json")
    result = read_json(tmp_path / "mmlu.json")
    documents = pq.read_table(tmp_path / "mmlu.parquet").to_pandas()
    assert result["n"] == len(documents) == 57 * 3
    assert documents.doc_id.is_unique
    assert documents.subtask.nunique() == 57
    metric = result["metrics"]["acc"]
    assert metric["value"] == pytest.approx(documents.acc.mean(), abs=1e-12)
    subjects = documents.groupby("subtask").acc
    sizes, errors = subjects.size(), subjects.sem()
    variance = ((sizes - 1) * sizes * errors**2).sum() / (sizes.sum() - 57)
    assert metric["stderr"] == pytest.approx(math.sqrt(variance / sizes.sum()), abs=1e-12)
    assert metric["chance"] == 0.25


def test_wikitext_on_the_harness_own_data(
    configure: Configure, llama_dir: Path, hflm: HFLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With data: hub; the hub is stood in for by pages in WikiText's form."""
    pages = [
        f" = Page {i} = \n The ship , built in 19{i} , had 3 @,@ 500 tons ; it 's sunk . \n" * (3 + i) for i in range(5)
    ]
    rows = datasets.Dataset.from_dict({"page": pages})
    splits = datasets.DatasetDict({"train": rows, "validation": rows, "test": rows})
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda **keys: asked.append(keys) or splits)
    commit = "647234772b9554e208af6c826f23b99e3cac88c8"
    settings = configure("wikitext", data="hub", revisions={"wikitext": commit})
    run.evaluate(settings, llama_dir, "wikitext", 0, None, None, tmp_path / "wikitext.json")
    assert [(keys["path"], keys["name"]) for keys in asked] == [
        ("EleutherAI/wikitext_document_level", "wikitext-2-raw-v1")
    ]
    assert [keys["revision"] for keys in asked] == [commit]
    result = read_json(tmp_path / "wikitext.json")
    assert commit in result["data"]
    documents = pq.read_table(tmp_path / "wikitext.parquet").to_pydict()
    assert documents.keys() == {"doc_id", "doc_sha256", "loglikelihood", "words", "bytes"}
    assert documents["bytes"] == [len(page.encode()) for page in pages]
    total, words = math.fsum(documents["loglikelihood"]), sum(documents["words"])
    metric = result["metrics"]["word_perplexity"]
    assert metric == {
        "value": pytest.approx(math.exp(-total / words)),
        "stderr": None,
        "chance": None,
        "higher_is_better": False,
    }
    assert result["label"] == "WikiText"
    found = lm_eval.simple_evaluate(
        hflm,
        tasks=list(tasks.load("wikitext", 0, TaskData(None, "", None), tmp_path)["tasks"].values()),
        task_manager=TaskManager(include_defaults=False),
    )
    assert metric["value"] == pytest.approx(found["results"]["wikitext"]["word_perplexity,none"], rel=1e-5)


# -------------------------------------------------------------- the user's mistakes


@pytest.fixture
def command(root: Path, packaged: Path, wheel_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Call the command line; give its exit code and what it said on stderr."""
    value = yaml.safe_load((root / "config" / "quickstart.yaml").read_text())
    value["cache"] = str(wheel_cache)
    value["evaluate"]["tasks"] = [
        {"name": "piqa", "shots": 0, "limit": 2},
        {"name": "winogrande", "shots": 0, "limit": None},
        {"name": "corpus_validation", "shots": 0, "limit": None},
    ]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(value))
    out = tmp_path / "out.json"
    out.write_text("what was there")

    def call(model: Path, task: str = "piqa", data: Path | None = packaged) -> tuple[int, str]:
        more = ["--benchmarks", str(data)] if data else []
        code = cli.main(
            ["evaluate", "--config", str(path), "--model", str(model), "--task", task, "--out", str(out), *more]
        )
        assert (out.read_text() == "what was there") == (code != 0)
        return code, capsys.readouterr().err

    return call


def copy_of(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "model"))


def refused(result: tuple[int, str], *words: str) -> None:
    code, said = result
    assert code == 2
    assert len(said.splitlines()) == 1
    for word in words:
        assert word in said


def test_a_good_model_passes(command: Any, llama_dir: Path) -> None:
    code, _ = command(llama_dir)
    assert code == 0


def test_unknown_task(command: Any, llama_dir: Path) -> None:
    refused(command(llama_dir, "winogrand"), "evaluate.tasks", "winogrande 0-shot")


def test_missing_data(command: Any, llama_dir: Path, tmp_path: Path) -> None:
    refused(command(llama_dir, data=None), "evaluate.data", "--benchmarks")
    refused(command(llama_dir, data=tmp_path / "nowhere"), str(tmp_path / "nowhere"))
    refused(command(llama_dir, "corpus_validation"), "--store")


def test_a_folder_that_is_no_model(command: Any, llama_dir: Path, tmp_path: Path) -> None:
    refused(command(tmp_path), "no config.json")
    model = copy_of(llama_dir, tmp_path)
    (model / "model.safetensors").unlink()
    refused(command(model), "safetensors")


def test_a_damaged_model(command: Any, llama_dir: Path, tmp_path: Path) -> None:
    model = copy_of(llama_dir, tmp_path)
    with open(model / "model.safetensors", "r+b") as file:
        file.truncate(1000)
    refused(command(model), str(model), "cannot be loaded")


@pytest.mark.parametrize(
    ("layers", "said"),
    [(3, "lacks the tensor model.layers.2."), (1, "unlike its config, the tensor model.layers.1.")],
)
def test_weights_that_are_not_the_configs(
    command: Any, llama_dir: Path, tmp_path: Path, layers: int, said: str
) -> None:
    """Transformers would draw the missing ones at random, and score them."""
    model = copy_of(llama_dir, tmp_path)
    value = json.loads((model / "config.json").read_text())
    assert value["num_hidden_layers"] == 2
    write_json(model / "config.json", value | {"num_hidden_layers": layers})
    refused(command(model), str(model), said, "more; get the model again")


@pytest.mark.parametrize("missing", [0, 3, "all"])
def test_a_tensor_that_is_missing(command: Any, llama_dir: Path, tmp_path: Path, missing: Any) -> None:
    model = copy_of(llama_dir, tmp_path)
    weights = load_file(model / "model.safetensors")
    names = sorted(weights)
    for name in names if missing == "all" else [names[missing]]:
        del weights[name]
    save_file(weights or {"x": torch.zeros(1)}, model / "model.safetensors", metadata={"format": "pt"})
    refused(command(model), str(model), "lacks the tensor")


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("tokenizer.json", lambda value: {}, "cannot be loaded"),
        ("config.json", lambda value: value | {"hidden_act": "nonsense"}, "cannot be loaded"),
        ("config.json", lambda value: value | {"num_hidden_layers": "two"}, "cannot be loaded"),
        ("config.json", lambda value: value | {"intermediate_size": 8}, "cannot be loaded"),
        ("config.json", lambda value: value | {"model_type": "nonsense"}, "cannot be loaded"),
        ("config.json", lambda value: value | {"quantization_config": {"bits": 4}}, "are quantized"),
        ("config.json", lambda value: [], "is not a mapping of keys"),
    ],
)
def test_a_model_directory_that_libraries_stumble_on(
    command: Any, llama_dir: Path, tmp_path: Path, file: str, change: Any, problem: str
) -> None:
    model = copy_of(llama_dir, tmp_path)
    write_json(model / file, change(json.loads((model / file).read_text())))
    refused(command(model), str(model), problem)


def test_what_the_result_is_called(
    command: Any, llama_dir: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(llama_dir)
    assert command(Path("."))[0] == 0
    assert json.loads((tmp_path / "out.json").read_text())["model"] == llama_dir.name
    line = ["evaluate", "--config", str(tmp_path / "config.yaml"), "--model", str(llama_dir), "--task", "piqa"]
    assert cli.main([*line, "--out", str(tmp_path / "out.parquet")]) == 2
    assert "name a .json file" in capsys.readouterr().err


def test_another_tokenizer_of_the_same_size(command: Any, llama_dir: Path, tmp_path: Path) -> None:
    """Ours names the tokenizer that it was trained with; every result names the one that was used."""
    model = copy_of(llama_dir, tmp_path)
    hashes = {**origin.hashes(model), "tokenizer_sha256": sha256_file(model / "tokenizer.json")}
    origin.Origin(interface="gf2", seed=0, **hashes).write(model / origin.FILE)
    assert command(model)[0] == 0
    before = read_json(tmp_path / "out.json")["tokenizer_sha256"]
    (tmp_path / "out.json").write_text("what was there")
    value = json.loads((model / "tokenizer_config.json").read_text())
    write_json(model / "tokenizer_config.json", value | {"model_max_length": 77})
    assert command(model)[0] == 0
    assert read_json(tmp_path / "out.json")["tokenizer_sha256"] != before
    (tmp_path / "out.json").write_text("what was there")
    value = json.loads((model / "tokenizer.json").read_text())
    vocab = value["model"]["vocab"]
    one, two = list(vocab)[300:302]
    vocab[one], vocab[two] = vocab[two], vocab[one]
    write_json(model / "tokenizer.json", value)
    refused(command(model), "its tokenizer.json is not the one")


def test_a_tokenizers_config_is_no_tokenizer(command: Any, llama_dir: Path, tmp_path: Path) -> None:
    model = copy_of(llama_dir, tmp_path)
    (model / "tokenizer.json").unlink()
    assert (model / "tokenizer_config.json").exists()
    refused(command(model), "has no tokenizer")


def test_no_tokenizer(command: Any, llama_dir: Path, tmp_path: Path) -> None:
    model = copy_of(llama_dir, tmp_path)
    for path in model.glob("tokenizer*"):
        path.unlink()
    refused(command(model), "has no tokenizer")


def test_a_tokenizer_of_another_size(command: Any, llama_dir: Path, tmp_path: Path) -> None:
    model = copy_of(llama_dir, tmp_path)
    value = json.loads((model / "tokenizer.json").read_text())
    kept = {token for token, index in value["model"]["vocab"].items() if index < 1000}
    value["model"]["vocab"] = {token: i for token, i in value["model"]["vocab"].items() if token in kept}
    value["model"]["merges"] = [pair for pair in value["model"]["merges"] if {*pair, "".join(pair)} <= kept]
    (model / "tokenizer.json").write_text(json.dumps(value))
    refused(command(model), "1,000", "1,024")


def test_weights_that_are_not_the_stated_ones(command: Any, llama_dir: Path, tmp_path: Path) -> None:
    model = copy_of(llama_dir, tmp_path)
    hashes = {**origin.hashes(model), "model_sha256": "0" * 64}
    origin.Origin(interface="gf2", seed=1, **hashes).write(model / origin.FILE)
    refused(command(model), "tokencodes.json", "export")
    write_json(model / origin.FILE, {"interface": "gf2", "seed": 1, "model_sha256": "0" * 64})
    refused(command(model), "tokencodes.json", "schema version", "tokencodes export")


def test_logits_that_are_not_finite(command: Any, llama_dir: Path, tmp_path: Path) -> None:
    model = copy_of(llama_dir, tmp_path)
    weights = load_file(model / "model.safetensors")
    weights["lm_head.weight"] = torch.full_like(weights["lm_head.weight"], float("inf"))
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    refused(command(model), str(model), "not finite", "piqa, document")


def test_no_cuda(
    configure: Configure, llama_dir: Path, packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"evaluate\.device"):
        run.evaluate(configure("piqa", device="cuda"), llama_dir, "piqa", 0, packaged, None, tmp_path / "out.json")
