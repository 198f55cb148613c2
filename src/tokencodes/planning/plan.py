"""`tokencodes plan`: what a config will cost, before any job runs. No network, no weight is allocated.

FLOPs follow model/shape.py, one convention for all interfaces; memory follows planning/memory.py. Days are at a stated
share of a GPU's peak (MFU).
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from tokencodes import config
from tokencodes.data import source
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import CORPUS_TASK
from tokencodes.model import accounting, shape
from tokencodes.planning import corpus, memory, resources

GIB = 2**30
MINUTES_PER_DAY, SECONDS_PER_DAY = 24 * 60, 86_400
DEFAULT_MFU = 0.4  # what well-kept 1-2 B trainers reach on H100s; an assumption, until a run has measured its own
# Dense bfloat16 peak in FLOP/s, from NVIDIA's data sheets.
PEAK_FLOPS = {"A100-80GB": 312e12, "H100-SXM": 989e12, "H200": 989e12}


def make(settings: config.Config, mfu: float = DEFAULT_MFU) -> dict[str, Any]:
    """The plan as plain values: bytes, FLOPs, tokens and counts."""
    train = settings.train
    interfaces = _interfaces(settings)
    tokens = train.max_steps * train.tokens_per_step
    jobs = resources.filled(settings)
    return {
        "name": settings.name,
        "tokens_per_model": tokens,
        **_compute(settings, tokens, mfu, jobs.train.runtime_min),
        "interfaces": interfaces,
        "disk_for_models_bytes": sum(
            len(settings.seeds) * (row["checkpoint_bytes"] * train.keep_checkpoints + row["export_bytes"])
            for row in interfaces.values()
        ),
        "shards": source.shard_names(settings.data.source),
        "data": corpus.estimate(settings, tokens),
        "jobs": _jobs(settings),
        "resources": jobs.model_dump(mode="json"),
    }


def _compute(settings: config.Config, tokens: int, mfu: float, job_min: int) -> dict[str, Any]:
    """FLOPs, and days and jobs by kind of GPU."""
    n_gpus = settings.train.n_gpus
    flops = shape.flops_per_token(settings.model) * tokens
    days = {gpu: flops / (n_gpus * peak * mfu) / SECONDS_PER_DAY for gpu, peak in PEAK_FLOPS.items()}
    n_models = len(settings.interfaces) * len(settings.seeds)
    return {
        "flops_per_token": shape.flops_per_token(settings.model),
        "flops_per_model": flops,
        "mfu": mfu,
        "days_per_model": days,
        "train_jobs_per_model": {gpu: math.ceil(n * MINUTES_PER_DAY / job_min) for gpu, n in days.items()},
        "gpu_days_of_training": {gpu: n * n_gpus * n_models for gpu, n in days.items()},
    }


def _interfaces(settings: config.Config) -> dict[str, dict[str, Any]]:
    """By interface: parameters, and bytes of a rank, a checkpoint and an exported model."""
    table = {}
    for name, interface in settings.interfaces.items():
        counts = accounting.count(interface, settings.model)
        table[name] = {
            **counts.model_dump(),
            "memory_per_gpu_bytes": {
                parallel: memory.rank_bytes(counts, settings.model, settings.train, parallel)
                for parallel in ("ddp", "fsdp")
            },
            "checkpoint_bytes": memory.checkpoint_bytes(counts),
            "export_bytes": memory.export_bytes(counts),
        }
    return table


def _jobs(settings: config.Config) -> dict[str, int]:
    """The number of jobs by stage."""
    n_shards = len(source.shard_names(settings.data.source))
    n_models = len(settings.interfaces) * len(settings.seeds)
    tasks = [task.name for task in settings.evaluate.tasks]
    of_references = sum(
        reference.kind == "import" or task != CORPUS_TASK  # the store has tokens of our tokenizer
        for reference in settings.references.values()
        for task in tasks
    )
    return {
        "download": n_shards,
        "prepare": n_shards,
        "train": n_models,
        "export": n_models,
        "validate": n_models,
        "evaluate": n_models * len(tasks) + of_references,
    }


# ---------------------------------------------------------------------- text


def command(settings: config.Config, *, as_json: bool, mfu: float) -> None:
    """Print the plan as text or JSON. Raises UserError if `mfu` is no share."""
    if not 0 < mfu <= 1:
        raise UserError(f"--mfu {mfu:g}: a share of the peak lies above 0 and is at most 1")
    plan = make(settings, mfu)
    if as_json:
        print(json.dumps(plan, indent=2))
        return
    for line in [
        *_summary(plan, settings),
        *corpus.lines(plan["data"], settings),
        *_resource_table(plan),
        *_interface_table(plan),
        *_gpu_table(plan, settings),
    ]:
        print(line)


def _summary(plan: dict[str, Any], settings: config.Config) -> Iterator[str]:
    train = settings.train
    yield f"{plan['name']}: {len(settings.interfaces)} interfaces x {len(settings.seeds)} seeds"
    updates = f"{train.max_steps:,} updates of {train.tokens_per_step:,}"
    yield f"  tokens per model  {plan['tokens_per_model']:,} in {updates}"
    yield f"  FLOPs per token   {plan['flops_per_token']:,}; per model {plan['flops_per_model']:.3e}"
    yield f"  disk for models   {plan['disk_for_models_bytes'] / GIB:,.1f} GiB (checkpoints kept, exports)"
    yield f"  shards            {len(plan['shards'])}: {plan['shards'][0]} ... {plan['shards'][-1]}"
    yield f"  jobs              {', '.join(f'{count} {stage}' for stage, count in plan['jobs'].items())}"


def _resource_table(plan: dict[str, Any]) -> Iterator[str]:
    yield f"  {'one job':<24}{'CPUs':>16}{'GPUs':>18}{'GiB':>8}{'hours at most':>20}"
    for stage, row in plan["resources"].items():
        size, hours = row["mem_mb"] / 1024, row["runtime_min"] / 60
        yield f"  {stage:<24}{row['cpus']:>16}{row['gpus']:>18}{size:>8.1f}{hours:>20.1f}"


def _interface_table(plan: dict[str, Any]) -> Iterator[str]:
    yield f"  {'interface':<24}{'trainable':>16}{'GiB per GPU: ddp':>18}{'fsdp':>8}{'GiB per checkpoint':>20}"
    for name, row in plan["interfaces"].items():
        ddp, fsdp = (row["memory_per_gpu_bytes"][parallel] / GIB for parallel in ("ddp", "fsdp"))
        yield f"  {name:<24}{row['trainable']:>16,}{ddp:>18.1f}{fsdp:>8.1f}{row['checkpoint_bytes'] / GIB:>20.2f}"


def _gpu_table(plan: dict[str, Any], settings: config.Config) -> Iterator[str]:
    limit = plan["resources"]["train"]["runtime_min"] / 60
    yield (
        f"  {'GPU':<24}{'days per model':>16}{f'jobs of {limit:g} h':>18}{'GPU-days in all':>28}"
        f"   at {plan['mfu']:.0%} of peak, {settings.train.n_gpus} GPU(s)"
    )
    for gpu, days in plan["days_per_model"].items():
        jobs, gpu_days = plan["train_jobs_per_model"][gpu], plan["gpu_days_of_training"][gpu]
        yield f"  {gpu:<24}{days:>16.1f}{jobs:>18}{gpu_days:>28.1f}"
