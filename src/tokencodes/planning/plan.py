"""`tokencodes plan`: what a config will ask for, before any job runs. No network, no weight is allocated.

FLOPs follow model/accounting.py, one convention for all interfaces. Memory is what one rank holds: float32 weights,
gradients and two AdamW moments (16 bytes a parameter; under ddp on several GPUs 4 more, for the buckets in which
gradients meet; under fsdp each rank's share, and one whole block while it works), stored buffers, and the activations
that backward needs. Days are at a stated share of the peak (MFU).
"""

import json
import math
from typing import Any

from tokencodes import config
from tokencodes.data import source
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import CORPUS_TASK
from tokencodes.model import accounting, shape
from tokencodes.model.shape import Counts
from tokencodes.model.spec import Model
from tokencodes.planning import corpus, resources
from tokencodes.train.spec import Train

FLOAT32 = 4
TRAINING_COPIES = 4  # weights, gradients, AdamW's two moments
CHECKPOINT_COPIES = 3  # weights and the two moments
GIB = 2**30
DEFAULT_MFU = 0.4  # what well-kept 1-2 B trainers reach on H100s; an assumption, until a run has measured its own
# Dense bfloat16 peak in FLOP/s and memory in bytes, from NVIDIA's data sheets.
GPUS = {
    "A100-80GB": (312e12, 80 * 10**9),
    "H100-SXM": (989e12, 80 * 10**9),
    "H200": (989e12, 141 * 10**9),
}


def activation_bytes(model: Model, train: Train) -> int:
    """Bytes of tensors that one micro-batch adds to the state of training, at its peak: in the loss, or in a block's
    backward pass if that is more.

    A block keeps, a token: input and normalised input of its two norms in float32 (a fused norm keeps half of that); in
    the products' precision the inputs of the two products behind them, q, k, v, rotated q and k and the attention's
    output, and of the MLP gate, up, silu(gate) and their product. Its backward pass has the gradients of gate and up
    besides. With activation checkpointing it keeps its input alone, and one block at a time has all. Under autocast
    each matrix has a bfloat16 copy. Attention is taken not to store T x T. What the allocator keeps back is not in it.
    """
    low = 2 if train.precision == "bf16" else FLOAT32
    d, f = model.d_model, model.d_ff
    tokens = train.micro_batch_size * model.context_length
    block = tokens * (4 * FLOAT32 * d + low * 8 * d + low * 4 * f)
    residual = tokens * FLOAT32 * d
    backward = tokens * low * 2 * f
    copies = low * model.n_layers * (4 * d * d + 3 * d * f) if low < FLOAT32 else 0
    loss = loss_bytes(model.vocab_size, d, tokens, train.loss_chunk_tokens, low)
    if train.activation_checkpointing:
        blocks = model.n_layers * residual + max(loss, block + backward)
    else:
        blocks = model.n_layers * block + max(loss, backward)
    return blocks + copies + 3 * residual


def loss_bytes(vocab_size: int, d_model: int, tokens: int, chunk: int, low: int) -> int:
    """Bytes that the loss has at its peak: a chunk's float32 logits and the head's float32 gradient; under autocast, in
    `low` bytes, besides: the chunk's logits, the head's weights and one chunk's share of their gradient.
    """
    logits, head = min(chunk, tokens) * vocab_size, vocab_size * d_model
    copies = low * (logits + 2 * head) if low < FLOAT32 else 0
    return FLOAT32 * (logits + head) + copies


def state_bytes(counts: Counts, model: Model, n_gpus: int, parallel: str) -> int:
    """Bytes of weights, gradients, moments and buffers on one rank; between ranks, ddp adds the buckets in which
    gradients meet, which accumulation keeps beside them."""
    whole = counts.trainable * FLOAT32 * TRAINING_COPIES
    if n_gpus == 1:
        return whole + counts.buffers
    if parallel == "ddp":
        return whole + counts.trainable * FLOAT32 + counts.buffers
    block = (4 * model.d_model**2 + 3 * model.d_model * model.d_ff) * FLOAT32
    outside = (counts.input + counts.head) * FLOAT32  # kept whole from forward to backward
    return whole // n_gpus + 2 * (block + outside) + counts.buffers


def make(settings: config.Config, mfu: float = DEFAULT_MFU) -> dict[str, Any]:
    """The plan as plain values; bytes, FLOPs, tokens and counts."""
    model, train = settings.model, settings.train
    shards = source.shard_names(settings)
    flops = shape.flops_per_token(model) * train.max_steps * train.tokens_per_step
    n_models = len(settings.interfaces) * len(settings.seeds)
    tasks = [task.name for task in settings.evaluate.tasks]
    others = settings.references.values()  # of another tokenizer: no score on the store's tokens
    of_others = sum(spec.kind == "import" or name != CORPUS_TASK for spec in others for name in tasks)
    tokens = train.max_steps * train.tokens_per_step
    days = {name: flops / (train.n_gpus * peak * mfu) / 86_400 for name, (peak, _) in GPUS.items()}
    asked = resources.asked(settings)
    interfaces = {}
    for name, interface in settings.interfaces.items():
        counts = accounting.count(interface, model)
        interfaces[name] = {
            **counts.model_dump(),
            "memory_per_gpu_bytes": {
                parallel: state_bytes(counts, model, train.n_gpus, parallel) + activation_bytes(model, train)
                for parallel in ("ddp", "fsdp")
            },
            "checkpoint_bytes": counts.trainable * FLOAT32 * CHECKPOINT_COPIES + counts.buffers,
            "export_bytes": counts.trainable * FLOAT32 + counts.buffers,
        }
    disk = sum(
        len(settings.seeds) * (row["checkpoint_bytes"] * train.keep_checkpoints + row["export_bytes"])
        for row in interfaces.values()
    )
    return {
        "name": settings.name,
        "tokens_per_model": tokens,
        "flops_per_token": shape.flops_per_token(model),
        "flops_per_model": flops,
        "mfu": mfu,
        "days_per_model": days,
        "train_jobs_per_model": {name: math.ceil(n * 24 * 60 / asked.train.runtime_min) for name, n in days.items()},
        "gpu_days_of_training": {name: n * train.n_gpus * n_models for name, n in days.items()},
        "interfaces": interfaces,
        "disk_for_models_bytes": disk,
        "shards": shards,
        "data": corpus.estimate(settings, tokens),
        "jobs": {
            "download": len(shards),
            "prepare": len(shards),
            "train": n_models,
            "export": n_models,
            "validate": n_models,
            "evaluate": n_models * len(tasks) + of_others,
        },
        "resources": asked.model_dump(mode="json"),
    }


def command(settings: config.Config, *, as_json: bool, mfu: float) -> None:
    """Print the plan as text or JSON."""
    if not 0 < mfu <= 1:
        raise UserError(f"--mfu {mfu:g}: a share of the peak lies above 0 and is at most 1")
    plan = make(settings, mfu)
    if as_json:
        print(json.dumps(plan, indent=2))
        return
    train = settings.train
    print(f"{plan['name']}: {len(settings.interfaces)} interfaces x {len(settings.seeds)} seeds")
    print(
        f"  tokens a model    {plan['tokens_per_model']:,} in {train.max_steps:,} updates of {train.tokens_per_step:,}"
    )
    print(f"  FLOPs a token     {plan['flops_per_token']:,}; a model {plan['flops_per_model']:.3e}")
    print(f"  disk for models   {plan['disk_for_models_bytes'] / GIB:,.1f} GiB (checkpoints kept, exports)")
    print(f"  shards            {len(plan['shards'])}: {plan['shards'][0]} ... {plan['shards'][-1]}")
    print(f"  jobs              {', '.join(f'{count} {stage}' for stage, count in plan['jobs'].items())}")
    for line in corpus.lines(plan["data"], settings):
        print(line)
    print(f"  {'a job of':<24}{'CPUs':>16}{'GPUs':>17}{'GiB':>8}{'hours at most':>18}")
    for stage, row in plan["resources"].items():
        size, hours = row["mem_mb"] / 1024, row["runtime_min"] / 60
        print(f"  {stage:<24}{row['cpus']:>16}{row['gpus']:>17}{size:>8.1f}{hours:>18.1f}")
    print(f"  {'interface':<24}{'trainable':>16}{'GiB a GPU: ddp':>17}{'fsdp':>8}{'GiB a checkpoint':>18}")
    for name, row in plan["interfaces"].items():
        ddp, fsdp = (row["memory_per_gpu_bytes"][parallel] / GIB for parallel in ("ddp", "fsdp"))
        checkpoint = row["checkpoint_bytes"] / GIB
        print(f"  {name:<24}{row['trainable']:>16,}{ddp:>17.1f}{fsdp:>8.1f}{checkpoint:>18.2f}")
    limit = plan["resources"]["train"]["runtime_min"] / 60
    print(
        f"  {'GPU':<24}{'days a model':>16}{f'jobs of {limit:g} h':>17}{'GPU-days in all':>26}"
        f"   at {mfu:.0%} of peak, {train.n_gpus} GPU(s)"
    )
    for name, days in plan["days_per_model"].items():
        jobs, gpu_days = plan["train_jobs_per_model"][name], plan["gpu_days_of_training"][name]
        print(f"  {name:<24}{days:>16.1f}{jobs:>17}{gpu_days:>26.1f}")
