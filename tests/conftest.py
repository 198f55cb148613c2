"""What several test packages share."""

import contextlib
import os
import random
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drawing import EFFORT, SEED
from tokencodes.spec import parse

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that reached for the hub would not be a test of this project
os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported; a stage sets it before that

ROOT = Path(__file__).resolve().parent.parent


def pytest_report_header() -> str:
    """The seed of the cases that are drawn at random."""
    return f"random cases: SEED={SEED} EFFORT={EFFORT}"


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def wheel_cache() -> Path:
    """Where data wheels are kept between test runs: TOKENCODES_TEST_CACHE, else the config's default cache."""
    return Path(os.environ.get("TOKENCODES_TEST_CACHE", "~/.cache/tokencodes")).expanduser()


@dataclass(frozen=True)
class Tiny:
    """A corpus of made-up words, its byte-level BPE and its store: what a training test needs, in a second."""

    folder: Path
    value: dict[str, Any]  # the config as plain values

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer"

    def config(self, **changes: Any):
        """The config, with sections updated: config(train={"max_steps": 3})."""
        from tokencodes import config

        merged = {**self.value}
        for key, change in changes.items():
            merged[key] = {**merged.get(key, {}), **change} if isinstance(change, dict) else change
        return parse(config.Config, merged, "test")


@pytest.fixture(scope="session")
def quickstart(root, wheel_cache):
    """config/quickstart.yaml, with the cache of the tests."""
    from tokencodes import config
    from tokencodes.spec import parse

    value = config.load(root / "config" / "quickstart.yaml").model_dump(mode="json")
    return parse(config.Config, {**value, "cache": str(wheel_cache)}, "quickstart")


@pytest.fixture
def one_line(capsys):
    """Runs a command line that must end with exit code 2 and one line; returns the line."""

    from tokencodes import cli

    def run(*arguments) -> str:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("prepare s:")]
        assert code == 2 and len(said) == 1 and said[0].startswith("tokencodes: error: "), (code, said)
        return said[0]

    return run


@contextlib.contextmanager
def files_up_to(n_bytes: int):
    """The kernel refuses to write a file beyond `n_bytes`, as `ulimit -f` does: a disk that is really full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def small_files():
    return files_up_to


TINY_V, TINY_CONTEXT = 300, 16


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Tiny:
    """Prepared through the project's own data stages from local files."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    import stages
    from tokencodes import config

    folder = tmp_path_factory.mktemp("tiny")
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 6))) for _ in range(80)]
    corpus = [" ".join(draw.choices(words, k=draw.randint(20, 120))) + "." for _ in range(240)]
    (folder / "corpus").mkdir()
    for number in range(2):
        rows = corpus[number::2]
        ids = [f"doc-{number}-{i}" for i in range(len(rows))]
        pq.write_table(pa.table({"text": rows, "id": ids}), folder / "corpus" / f"part-{number}.parquet")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=TINY_V, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    bpe.train_from_iterator(corpus, trainer)
    bpe.save(str(folder / "bpe.json"))
    value = {
        "name": "tiny",
        "seeds": [0],
        "interfaces": {
            "learned": {"kind": "table"},
            "binary9": {"kind": "code", "codebook": {"kind": "binary"}},
            "gf2": {"kind": "code", "codebook": {"kind": "gf2"}},
        },
        "model": {
            "vocab_size": TINY_V,
            "d_model": 32,
            "n_layers": 2,
            "n_heads": 2,
            "d_ff": 48,
            "context_length": TINY_CONTEXT,
        },
        "data": {
            "source": {"kind": "local", "path": str(folder / "corpus")},
            "tokenizer": {"kind": "local", "path": str(folder / "bpe.json")},
            "min_tokens": TINY_CONTEXT + 1,
            "split": {"seed": 0, "threshold": 0.1},
        },
        "train": {
            "max_steps": 12,
            "warmup_steps": 3,
            "peak_lr": 3e-3,
            "min_lr": 3e-4,
            "n_gpus": 1,
            "micro_batch_size": 2,
            "grad_accum_steps": 2,
            "tokens_per_step": 4 * TINY_CONTEXT,
            "precision": "fp32",
            "device": "cpu",
            "checkpoint_every": 5,
            "validate_every": 4,
            "validation_windows": 6,
        },
        "evaluate": {"data": "hub", "tasks": [{"name": "corpus_validation"}], "device": "cpu"},
    }
    settings = parse(config.Config, value, "tiny")
    stages.build_tokenizer(settings, folder / "tokenizer")
    shards = []
    for shard in stages.shard_names(settings):
        raw = folder / "raw" / f"{shard}.parquet"
        stages.download(settings, shard, raw)
        stages.prepare_shard(settings, shard, raw, folder / "tokenizer", folder / "store" / shard)
        shards.append(folder / "store" / shard)
    stages.index(settings, shards, folder / "store" / "manifest.json")
    return Tiny(folder, value)
