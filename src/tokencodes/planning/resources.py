"""What one job of each stage asks the scheduler for, where the config says null: from the sizes of model and shards.

Memory is a process' own, on the host; what a stage maps from disk does not count. Every Snakemake of a run imports this
module, so it must not import torch.
"""

import math

from tokencodes import config
from tokencodes.model.shape import backbone_parameters, head_parameters
from tokencodes.model.spec import Model
from tokencodes.planning.corpus import BYTES_PER_TOKEN, MB_PER_CPU_SECOND, RAW_SHARE
from tokencodes.planning.memory import CHECKPOINT_COPIES, FLOAT32, TRAINING_COPIES
from tokencodes.planning.spec import StageResources

MODEL_COPIES = 4  # validation holds two models, each read from a file into memory
MB, MIB, MINUTE = 10**6, 2**20, 60
# Python, torch and its libraries; or Arrow, a long document and the cache of a corpus' pieces. Measured: at most 900 MB
# in the quickstart (validation), and 1300 MB of preparation (a document of 110 MB).
PROCESS_MB = 2000
DOCUMENT_BYTES = 400  # per document of a shard, until the shard is written: id, key, length
TOKENS_PER_DOCUMENT = 500  # where data.expected does not state the number of documents: short web pages
SLACK = 1.25  # for what an allocator keeps back
MIN_RUNTIME_MIN = 60  # whatever the size: a slow file system, a store that is hashed
SAFETY = 4  # times the expected duration
SLOW_DISK, SLOW_NETWORK = 100 * MB, 5 * MB  # bytes per second
AFTER_BUDGET_MIN = 60  # between a training job's own time budget and its limit
SCORING_MIN = 480  # no key of the config gives the length of the benchmarks
UNKNOWN_TRAINING_MIN = 1440


def parameters(model: Model) -> int:
    """Trainable parameters of the largest interface, the learned table."""
    return backbone_parameters(model) + 2 * head_parameters(model)


def filled(settings: config.Config) -> StageResources:
    """The config's `resources` with every null filled in."""
    weights = parameters(settings.model) * FLOAT32
    text = _text_bytes_per_shard(settings)
    train, ranks = settings.train, settings.train.n_gpus
    # Of a rank: on a GPU only the model, built before it moves there.
    on_host = weights if train.device == "cuda" else weights * TRAINING_COPIES
    mem_mb = {
        "download": PROCESS_MB,
        "prepare": PROCESS_MB + _mb(_documents_per_shard(settings) * DOCUMENT_BYTES),
        "train": _mb(ranks * on_host + CHECKPOINT_COPIES * weights) + ranks * PROCESS_MB,
        "export": _mb(MODEL_COPIES * weights) + PROCESS_MB,
        "evaluate": _mb(2 * weights) + PROCESS_MB,
        "report": PROCESS_MB,
    }
    runtime_min = {
        "download": _minutes(text * RAW_SHARE / SLOW_NETWORK),
        "prepare": _minutes(text / (MB_PER_CPU_SECOND * MB)),
        "train": math.ceil(train.time_budget_min) + AFTER_BUDGET_MIN if train.time_budget_min else UNKNOWN_TRAINING_MIN,
        "export": _minutes(MODEL_COPIES * weights / SLOW_DISK),
        "evaluate": SCORING_MIN,
        "report": MIN_RUNTIME_MIN,
    }
    stages = {}
    for stage, stated in settings.resources:
        derived = {"mem_mb": mem_mb[stage], "runtime_min": runtime_min[stage]}
        stages[stage] = stated.model_copy(update={key: n for key, n in derived.items() if getattr(stated, key) is None})
    return StageResources(**stages)


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
        for stage, job in filled(settings)
    }


def _text_bytes_per_shard(settings: config.Config) -> float:
    """From data.expected; 0 if the config leaves that out: then the shortest durations hold."""
    source, expected = settings.data.source, settings.data.expected
    n_shards = getattr(source, "n_shards", 1)
    if expected.tokens is not None:
        return expected.tokens * BYTES_PER_TOKEN / n_shards
    return (expected.raw_bytes or 0) / RAW_SHARE / n_shards


def _documents_per_shard(settings: config.Config) -> float:
    """From data.expected; 0 if the config leaves that out."""
    expected, n_shards = settings.data.expected, getattr(settings.data.source, "n_shards", 1)
    return (expected.documents or (expected.tokens or 0) / TOKENS_PER_DOCUMENT) / n_shards


def _mb(size: float) -> int:
    return math.ceil(SLACK * size / MIB)  # Slurm's megabyte is 2^20 bytes


def _minutes(seconds: float) -> int:
    return max(MIN_RUNTIME_MIN, math.ceil(SAFETY * seconds / MINUTE))
