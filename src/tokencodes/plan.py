"""`tokencodes plan`: what a config will ask for, before any job runs. No network, no weight is allocated.

Conventions. FLOPs count the matrix products of a training step, forward and backward, two for a multiply-add: 6 for
each backbone matrix and head parameter and token, plus causal attention, 6 * n_layers * d_model * context_length a
token. The input is a look-up for every interface and counts nothing, so the figure is the same for all. Memory is what
one data-parallel rank holds: float32 weights, gradients and two AdamW moments (16 bytes a parameter), stored buffers,
and the activations that backward needs.
"""

import json
from typing import Any

from tokencodes import config
from tokencodes.data import source
from tokencodes.model import accounting

FLOAT32 = 4
TRAINING_COPIES = 4  # weights, gradients, AdamW's two moments
CHECKPOINT_COPIES = 3  # weights and the two moments
GIB = 2**30


def flops_per_token(model: config.Model) -> int:
    """Training FLOPs a predicted token (module docstring)."""
    d, f = model.d_model, model.d_ff
    matrices = model.n_layers * (4 * d * d + 3 * d * f) + model.vocab_size * d
    return 6 * matrices + 6 * model.n_layers * d * model.context_length


def activation_bytes(model: config.Model, train: config.Train) -> int:
    """Bytes that the backward pass of one micro-batch reads: what the blocks save, and the logits of one loss chunk.

    A block saves, a token: two norm inputs in float32 (the residual stream); two norm outputs, q, k, v, the attention's
    output twice (as made and as the projection's input) in the products' precision; and of the MLP gate, up, silu(gate)
    and their product. Assumes attention that does not store its T x T weights.
    """
    low = 2 if train.precision == "bf16" else FLOAT32
    d, f = model.d_model, model.d_ff
    a_token = model.n_layers * (2 * FLOAT32 * d + low * 7 * d + low * 4 * f) + 2 * FLOAT32 * d
    logits = (
        2 * FLOAT32 * min(train.loss_chunk_tokens, train.micro_batch_size * model.context_length) * model.vocab_size
    )
    return train.micro_batch_size * model.context_length * a_token + logits


def make(settings: config.Config) -> dict[str, Any]:
    """The plan as plain values; bytes, FLOPs, tokens and counts."""
    model, train = settings.model, settings.train
    shards = source.shard_names(settings)
    n_models = len(settings.interfaces) * len(settings.seeds)
    tokens = train.max_steps * train.tokens_per_step
    interfaces = {}
    for name, interface in settings.interfaces.items():
        counts = accounting.count(interface, model)
        static = counts["trainable"] * FLOAT32 * TRAINING_COPIES + counts["buffers"]
        interfaces[name] = {
            **counts,
            "memory_per_gpu_bytes": static + activation_bytes(model, train),
            "checkpoint_bytes": counts["trainable"] * FLOAT32 * CHECKPOINT_COPIES + counts["buffers"],
            "export_bytes": counts["trainable"] * FLOAT32 + counts["buffers"],
        }
    disk = sum(
        len(settings.seeds) * (row["checkpoint_bytes"] * train.keep_checkpoints + row["export_bytes"])
        for row in interfaces.values()
    )
    return {
        "name": settings.name,
        "tokens_per_model": tokens,
        "flops_per_token": flops_per_token(model),
        "flops_per_model": flops_per_token(model) * tokens,
        "interfaces": interfaces,
        "disk_for_models_bytes": disk,
        "shards": shards,
        "jobs": {
            "download": len(shards),
            "prepare": len(shards),
            "train": n_models,
            "export": n_models,
            "validate": n_models,
            "evaluate": n_models * len(settings.evaluate.tasks),
        },
    }


def command(settings: config.Config, *, as_json: bool) -> None:
    """Print the plan as text or JSON."""
    plan = make(settings)
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
    print(f"  {'interface':<24}{'trainable':>16}{'GiB a GPU':>12}{'GiB a checkpoint':>18}")
    for name, row in plan["interfaces"].items():
        print(
            f"  {name:<24}{row['trainable']:>16,}{row['memory_per_gpu_bytes'] / GIB:>12.1f}"
            f"{row['checkpoint_bytes'] / GIB:>18.2f}"
        )
