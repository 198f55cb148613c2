"""The memory that `tokencodes plan` expects of a rank, beside what training steps take, on a CPU.

    python benchmarks/plan_memory.py

Each shape is a job of its own. `tensors` is the exact peak of torch's CPU allocator, from its profiler's record of each
allocation; the plan is compared with it. `resident` is the growth of the process' peak resident memory since torch was
loaded. It also contains the allocator's reserve, the profiler's records and the work space of matrix products.

Two ranks under ddp are two processes. Under fsdp, one rank is measured and the other one is simulated: collectives
return at once, and the buffers that they would fill stay as they are. With real ones, Gloo's own thread is sometimes
the last to free a buffer, which the profiler does not see. The figure then depends on the machine's load (7 to 17 %
more on two cores).
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tokencodes.interfaces.spec import CodeInterface, TableInterface
from tokencodes.model.spec import Model
from tokencodes.train.spec import Train

BASE_MODEL = {"d_model": 128, "n_layers": 4, "n_heads": 4, "d_ff": 512, "vocab_size": 4096, "context_length": 128}
BASE_TRAIN = {
    "max_steps": 10,
    "warmup_steps": 1,
    "peak_lr": 1e-4,
    "min_lr": 1e-5,
    "n_gpus": 1,
    "micro_batch_size": 8,
    "grad_accum_steps": 2,
    "precision": "fp32",
    "checkpoint_every": 10,
    "validate_every": 10,
    "validation_windows": 1,
    "loss_chunk_tokens": 128,
}
CODE = {"kind": "code", "codebook": {"kind": "gf2"}}
SHAPES: tuple[tuple[dict, dict, dict], ...] = (  # changes of model and train, and the interface
    ({}, {}, {"kind": "table"}),
    ({}, {}, CODE),
    ({}, {"loss_chunk_tokens": 1024}, CODE),
    ({}, {"precision": "bf16"}, CODE),
    ({}, {"precision": "bf16", "loss_chunk_tokens": 512}, {"kind": "table"}),
    ({}, {"activation_checkpointing": True}, CODE),
    ({}, {"activation_checkpointing": True, "precision": "bf16"}, {"kind": "table"}),
    ({"d_model": 256, "d_ff": 1024}, {"micro_batch_size": 1}, {"kind": "table"}),
    ({"n_layers": 8, "d_ff": 256}, {"micro_batch_size": 16}, CODE),
    ({"vocab_size": 49_152, "n_layers": 2}, {"loss_chunk_tokens": 256}, CODE),
    ({"d_model": 256, "d_ff": 1024}, {"n_gpus": 2, "parallel": "ddp", "micro_batch_size": 4}, {"kind": "table"}),
    ({"d_model": 256, "d_ff": 1024}, {"n_gpus": 2, "parallel": "fsdp", "micro_batch_size": 4}, {"kind": "table"}),
)
N_STEPS = 2  # the first makes the optimizer's state, so the second has everything


@contextlib.contextmanager
def job(train: Train) -> Iterator[Any]:
    """The ranks of a training job; under fsdp without torchrun, one rank among simulated ones."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from tokencodes.train import distributed

    if train.n_gpus == 1 or "WORLD_SIZE" in os.environ:
        with distributed.job(train) as ranks:
            yield ranks
        return
    dist.init_process_group("fake", rank=0, world_size=train.n_gpus, store=FakeStore())
    try:
        yield distributed.Ranks(0, train.n_gpus, torch.device("cpu"))
    finally:
        dist.destroy_process_group()


def measure(model_changes: dict[str, Any], train_changes: dict[str, Any], interface: dict[str, Any]) -> dict[str, int]:
    """Planned and measured bytes of one rank: this process, alone, under torchrun, or beside simulated ranks."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from tokencodes.interfaces import inputs
    from tokencodes.model import accounting, transformer
    from tokencodes.planning import memory
    from tokencodes.train import optim
    from tokencodes.train.loop import SummedLoss

    model = Model(**{**BASE_MODEL, **model_changes})
    value = {**BASE_TRAIN, **train_changes}
    value["tokens_per_step"] = (
        value["n_gpus"] * value["micro_batch_size"] * value["grad_accum_steps"] * model.context_length
    )
    train = Train(**value)
    kind = TableInterface if interface["kind"] == "table" else CodeInterface
    spec = kind.model_validate(interface)
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with job(train) as ranks, profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        parts = inputs.assemble(spec, None, model.vocab_size, model.d_model, model.init_std)
        net = transformer.create(parts.form, parts.arrays, model, 0)
        net.decoder.checkpointing = train.activation_checkpointing
        module = ranks.wrap(SummedLoss(net, train.loss_chunk_tokens), net.decoder.layers, train.parallel)
        optimizer = optim.build(net, train)
        ids = torch.randint(model.vocab_size, (train.micro_batch_size, model.context_length + 1))
        for _ in range(N_STEPS):
            optimizer.zero_grad(set_to_none=True)
            for micro in range(train.grad_accum_steps):
                with ranks.accumulating(module, last=micro == train.grad_accum_steps - 1):
                    with torch.autocast("cpu", torch.bfloat16, enabled=train.precision == "bf16"):
                        loss = module(ids[:, :-1], ids[:, 1:])
                    loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), train.grad_clip)
            optimizer.step()
        del module, optimizer, net, loss  # before the ranks part
    counts = accounting.count(spec, model)
    return {
        "planned": memory.rank_bytes(counts, model, train, train.parallel),
        "tensors": peak_of_tensors(profiler),
        "resident": 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before),
    }


def peak_of_tensors(profiler: Any) -> int:
    """Peak bytes that torch's allocator had given out, from the profiler's record of its allocations."""
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    allocated = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        allocated += event.nbytes()
        peak = max(peak, allocated)
    return peak


def name_of(model: dict, train: dict, interface: dict) -> str:
    parts = [interface["kind"], *(f"{key} {value}" for part in (model, train) for key, value in part.items())]
    return ", ".join(parts)


def main() -> None:
    if len(sys.argv) > 1:
        measured = measure(*json.loads(sys.argv[1]))
        if os.environ.get("RANK", "0") == "0":
            print("\n" + json.dumps(measured), flush=True)
        return
    print(f"{BASE_MODEL}, micro-batch {BASE_TRAIN['micro_batch_size']}, fp32, loss chunk 128,")
    print("except for what a row names\n")
    print(f"{'MiB':<84}{'planned':>9}{'tensors':>9}{'ratio':>7}{'resident':>10}")
    for shape in SHAPES:
        n_ranks = shape[1].get("n_gpus", 1)
        start = [sys.executable]
        if n_ranks > 1 and shape[1]["parallel"] == "ddp":
            start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_ranks)]
        done = subprocess.run([*start, __file__, json.dumps(shape)], capture_output=True, text=True)
        if done.returncode:
            print(f"{name_of(*shape):<84} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
            continue
        measured = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"planned"')))
        planned, tensors, resident = (measured[key] / 2**20 for key in ("planned", "tensors", "resident"))
        print(
            f"{name_of(*shape):<84}{planned:>9,.1f}{tensors:>9,.1f}{planned / tensors:>7.2f}{resident:>10,.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
