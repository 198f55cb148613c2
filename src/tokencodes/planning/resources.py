"""What one job of each stage asks the scheduler for, where the config says null: from the sizes of model and shards.

Memory is a process' own, on the host; what a stage maps from disk does not count. Imported by every Snakemake of a run:
it must not import torch.
"""

import math

from tokencodes import config
from tokencodes.model.spec import Model
from tokencodes.planning.corpus import BYTES_PER_TOKEN, MB_PER_CPU_SECOND, RAW_SHARE
from tokencodes.planning.spec import StageResources

FLOAT32 = 4
CHECKPOINT_COPIES = 3  # weights and AdamW's two moments, gathered on the host to be written
TRAINING_COPIES = 4  # with gradients: what a rank on a CPU holds
MODEL_COPIES = 4  # validation holds two models, each read from a file into memory
MB, MIB, MINUTE = 10**6, 2**20, 60
# Python, torch and its libraries; or Arrow, a long document and what is remembered of a corpus' pieces. As measured, at
# most 900 in the quickstart (validation) and 1300 of preparation (a document of 110 MB).
PROCESS_MB = 2000
DOCUMENT_BYTES = 400  # of a shard's document, until the shard is written: id, key, length
TOKENS_A_DOCUMENT = 500  # where data.expected does not tell the number of documents: short web pages
SLACK = 1.25  # for what an allocator keeps back
LEAST_MIN = 60  # whatever the size: a slow file system, a store that is hashed
SAFETY = 4  # times the expected duration
SLOW_DISK, SLOW_NETWORK = 100 * MB, 5 * MB  # bytes a second
BUDGET_MIN = 60  # a training job's limit lies so far behind its own time budget
SCORING_MIN = 480  # no figure of the config tells the length of the benchmarks
UNKNOWN_TRAINING_MIN = 1440


def parameters(model: Model) -> int:
    """Trainable parameters of the largest interface, a learned table: embeddings, blocks, norms, head."""
    d = model.d_model
    block = 4 * d * d + 3 * d * model.d_ff + 2 * d
    return 2 * model.vocab_size * d + model.n_layers * block + d


def asked(settings: config.Config) -> StageResources:
    """The config's `resources` with every null filled in."""
    weights = parameters(settings.model) * FLOAT32
    text = _text_bytes_a_shard(settings)
    train, ranks = settings.train, settings.train.n_gpus
    on_host = weights if train.device == "cuda" else weights * TRAINING_COPIES  # a rank's; built before it moves
    mem_mb = {
        "download": PROCESS_MB,
        "prepare": PROCESS_MB + _mb(_documents_a_shard(settings) * DOCUMENT_BYTES),
        "train": _mb(ranks * on_host + CHECKPOINT_COPIES * weights) + ranks * PROCESS_MB,
        "export": _mb(MODEL_COPIES * weights) + PROCESS_MB,
        "evaluate": _mb(2 * weights) + PROCESS_MB,
        "report": PROCESS_MB,
    }
    runtime_min = {
        "download": _minutes(text * RAW_SHARE / SLOW_NETWORK),
        "prepare": _minutes(text / (MB_PER_CPU_SECOND * MB)),
        "train": math.ceil(train.time_budget_min) + BUDGET_MIN if train.time_budget_min else UNKNOWN_TRAINING_MIN,
        "export": _minutes(MODEL_COPIES * weights / SLOW_DISK),
        "evaluate": SCORING_MIN,
        "report": LEAST_MIN,
    }
    filled = {}
    for stage, given in settings.resources:
        derived = {"mem_mb": mem_mb[stage], "runtime_min": runtime_min[stage]}
        filled[stage] = given.model_copy(update={key: n for key, n in derived.items() if getattr(given, key) is None})
    return StageResources(**filled)


def by_stage(settings: config.Config) -> dict[str, dict[str, int | str]]:
    """The same as Snakemake's resources. `gpus` is for the limit of a local run, `gres` for Slurm."""
    return {
        stage: {
            "mem_mb": job.mem_mb,
            "runtime": job.runtime_min,
            "cpus_per_task": job.cpus,
            "gpus": job.gpus,
            **({"gres": f"gpu:{job.gpus}"} if job.gpus else {}),
        }
        for stage, job in asked(settings)
    }


def _text_bytes_a_shard(settings: config.Config) -> float:
    """From data.expected, which the config may leave out: then 0, and the least durations hold."""
    source, expected = settings.data.source, settings.data.expected
    n_shards = getattr(source, "n_shards", 1)
    if expected.tokens is not None:
        return expected.tokens * BYTES_PER_TOKEN / n_shards
    return (expected.raw_bytes or 0) / RAW_SHARE / n_shards


def _documents_a_shard(settings: config.Config) -> float:
    """From data.expected; 0 if that is left out."""
    expected, n_shards = settings.data.expected, getattr(settings.data.source, "n_shards", 1)
    return (expected.documents or (expected.tokens or 0) / TOKENS_A_DOCUMENT) / n_shards


def _mb(size: float) -> int:
    return math.ceil(SLACK * size / MIB)  # Slurm's megabyte is 2^20 bytes


def _minutes(seconds: float) -> int:
    return max(LEAST_MIN, math.ceil(SAFETY * seconds / MINUTE))
