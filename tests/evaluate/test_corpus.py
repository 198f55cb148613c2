"""The corpus' held-out documents, from a real store, against lm-eval's rolling log-likelihood of their text."""

import math
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

import stages
from damage import damage, files_below
from drawing import cases
from tokencodes import config
from tokencodes.data import store
from tokencodes.errors import UserError
from tokencodes.evaluate import corpus, run
from tokencodes.evaluate.engine import Engine
from tokencodes.files import read_json
from tokencodes.spec import parse

N_DOCUMENTS = 24


@pytest.fixture(scope="module")
def settings(root: Path, llama_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> config.Config:
    """A local corpus with the small model's tokenizer, half of it held out."""
    value = yaml.safe_load((root / "config" / "quickstart.yaml").read_text())
    value["model"]["vocab_size"] = 1024
    value["interfaces"] = {"learned": {"kind": "table"}}
    value["data"]["source"] = {"kind": "local", "path": str(tmp_path_factory.mktemp("raw"))}
    value["data"]["tokenizer"] = {"kind": "local", "path": str(llama_dir / "tokenizer.json")}
    value["data"]["split"]["threshold"] = 0.5
    value["evaluate"]["tasks"] = [{"name": "corpus_validation", "shots": 0, "limit": None}]
    return parse(config.Config, value, "test config")


@pytest.fixture(scope="module")
def held_out(
    settings: config.Config, packaged: Path, llama_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """A store, and the text of each document."""
    passages = pq.read_table(packaged / "lambada_openai/default/test.parquet")["text"].to_pylist()
    texts = {
        f"d{i}": "\n".join(passages[4 * i : 4 * i + 2 + i % 3]) + " caf\u00e9 \u2603\n" for i in range(N_DOCUMENTS)
    }
    raw = Path(settings.data.source.path) / "part.parquet"
    pq.write_table(pa.table({"id": list(texts), "text": list(texts.values())}), raw)
    folder = tmp_path_factory.mktemp("corpus")
    stages.build_tokenizer(settings, folder / "tokenizer")
    stages.prepare_shard(settings, "part", raw, folder / "tokenizer", folder / "store" / "part")
    stages.index(settings, [folder / "store" / "part"], folder / "store" / "manifest.json")
    return folder / "store", texts


@pytest.fixture(scope="module")
def model_dir(llama_dir: Path, held_out: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with the tokenizer file that the store was made with."""
    folder = Path(shutil.copytree(llama_dir, tmp_path_factory.mktemp("models") / "small"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(held_out[0].parent / "tokenizer" / name, folder / name)
    return folder


def test_documents_score_as_their_text_does(
    settings: config.Config, held_out: tuple[Path, dict[str, str]], model_dir: Path, hflm: HFLM, tmp_path: Path
) -> None:
    path, texts = held_out
    out = tmp_path / "corpus.json"
    run.evaluate(settings.evaluate, model_dir, "corpus_validation", 0, None, path, out)
    result, table = read_json(out), pq.read_table(out.with_suffix(".parquet")).to_pydict()
    (shard,) = store.Store.open(path).split("validation")
    held = [texts[name] for name in shard.ids.to_pylist()]
    assert 5 < len(held) < N_DOCUMENTS - 5
    requests = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in held]
    np.testing.assert_allclose(table["loglikelihood"], hflm.loglikelihood_rolling(requests), rtol=1e-6)
    assert table["tokens"] == np.diff(shard.offsets).tolist()
    assert table["bytes"] == [len(text.encode()) for text in held]
    assert table["words"] == [len(re.split(r"\s+", text)) for text in held]
    total = -math.fsum(table["loglikelihood"])
    metrics = {name: metric["value"] for name, metric in result["metrics"].items()}
    assert metrics == pytest.approx(
        {
            "bits_per_byte": total / math.log(2) / sum(table["bytes"]),
            "byte_perplexity": math.exp(total / sum(table["bytes"])),
            "word_perplexity": math.exp(total / sum(table["words"])),
            "nats_per_token": total / sum(table["tokens"]),
        }
    )
    assert all(metric["stderr"] > 0 and metric["chance"] is None for metric in result["metrics"].values())
    assert result["n"] == len(held)
    assert result["data_sha256"] == store.Store.open(path).sha256
    assert result["label"] == "Corpus, held-out documents"
    assert "each token predicted once; not WikiText" in result["data"]


def test_a_limit_takes_the_first_documents(
    held_out: tuple[Path, dict[str, str]], engine: Engine, model_dir: Path
) -> None:
    found = store.Store.open(held_out[0])
    all_of_them, three = (corpus.read(found, engine.tokenizer, limit) for limit in (None, 3))
    assert three.sha256 == all_of_them.sha256[:3]
    _, columns = corpus.score(engine, three, 0)
    _, every = corpus.score(engine, all_of_them, 0)
    assert columns["loglikelihood"] == pytest.approx(every["loglikelihood"][:3], rel=1e-6)


def test_held_out_scores_are_bound_to_the_store(
    settings: config.Config, held_out: tuple[Path, dict[str, str]], model_dir: Path, tmp_path: Path
) -> None:
    """Damage to the split that is read is refused; damage to another file may be, or changes nothing."""
    path = tmp_path / "store"
    shutil.copytree(held_out[0], path)
    spec = settings.evaluate.model_copy(update={"bootstrap_iters": 0})

    def scores() -> tuple[dict, str]:
        run.evaluate(spec, model_dir, "corpus_validation", 0, None, path, tmp_path / "out.json")
        result = read_json(tmp_path / "out.json")
        return result["metrics"], result["data_sha256"]

    before = scores()
    for label, draw in cases("store", 16):
        file = draw.choice(files_below(path))
        whole = file.read_bytes()
        damage(file, draw)
        try:
            assert scores() == before and file.name not in ("validation.arrow", "manifest.json"), f"{label}: {file}"
        except UserError as error:
            assert "\n" not in str(error), label
        file.write_bytes(whole)


def test_a_store_of_another_tokenizer_is_refused(
    settings: config.Config, held_out: tuple[Path, dict[str, str]], llama_dir: Path, tmp_path: Path
) -> None:
    """The same vocabulary in another file: nothing says that its ids mean the same."""
    with pytest.raises(UserError, match="tokenizer_sha256"):
        run.evaluate(settings.evaluate, llama_dir, "corpus_validation", 0, None, held_out[0], tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()
