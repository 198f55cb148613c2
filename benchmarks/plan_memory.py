"""What `tokencodes plan` says a rank will hold, beside what one training step really holds, on a CPU.

    python benchmarks/plan_memory.py

Each shape is a process of its own; measured is its peak resident memory less what it held before the model was built.
"""

import json
import resource
import subprocess
import sys

SHAPES = (  # (model, train): weights dominate, activations dominate, logits dominate
    ({"d_model": 512, "n_layers": 8, "d_ff": 2048, "vocab_size": 8192, "context_length": 256}, {"micro_batch_size": 1}),
    ({"d_model": 256, "n_layers": 8, "d_ff": 1024, "vocab_size": 8192, "context_length": 512}, {"micro_batch_size": 8}),
    ({"d_model": 512, "n_layers": 4, "d_ff": 2048, "vocab_size": 8192, "context_length": 512}, {"micro_batch_size": 4}),
    (
        {"d_model": 256, "n_layers": 4, "d_ff": 1024, "vocab_size": 49_152, "context_length": 256},
        {"micro_batch_size": 8, "loss_chunk_tokens": 1024},
    ),
    (
        {"d_model": 512, "n_layers": 8, "d_ff": 2048, "vocab_size": 8192, "context_length": 512},
        {"micro_batch_size": 4, "precision": "bf16"},
    ),
    (
        {"d_model": 512, "n_layers": 8, "d_ff": 2048, "vocab_size": 8192, "context_length": 512},
        {"micro_batch_size": 8, "activation_checkpointing": True},
    ),
)
BASE = {
    "max_steps": 10,
    "warmup_steps": 1,
    "peak_lr": 1e-4,
    "min_lr": 1e-5,
    "n_gpus": 1,
    "grad_accum_steps": 2,
    "precision": "fp32",
    "checkpoint_every": 10,
    "validate_every": 10,
    "validation_windows": 1,
}


def worker(model_value: dict, train_value: dict) -> None:
    import torch

    from tokencodes import config, plan
    from tokencodes.model import accounting, transformer
    from tokencodes.train import optim
    from tokencodes.train.loop import SummedLoss

    torch.set_num_threads(1)
    model = config.Model(n_heads=8, **model_value)
    tokens_per_step = train_value["micro_batch_size"] * model.context_length * BASE["grad_accum_steps"]
    train = config.Train(**{**BASE, **train_value, "tokens_per_step": tokens_per_step})
    interface = config.TableInterface(kind="table")
    before = _resident()
    net = transformer.Transformer(interface, model)
    transformer.initialise(net, model, 0)
    net.decoder.checkpointing = train.activation_checkpointing
    module = SummedLoss(net, train.loss_chunk_tokens)
    optimizer = optim.build(net, train)
    ids = torch.randint(model.vocab_size, (train.micro_batch_size, model.context_length + 1))
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(train.grad_accum_steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=train.precision == "bf16"):
                loss = module(ids[:, :-1], ids[:, 1:])
            loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    measured = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    counts = accounting.count(interface, model)
    planned = plan.state_bytes(counts, model, 1, "ddp") + plan.activation_bytes(model, train)
    print(json.dumps({"measured": measured, "planned": planned}))


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    if len(sys.argv) > 1:
        worker(*json.loads(sys.argv[1]))
        return
    print(f"{'shape':<100}{'planned MiB':>12}{'measured':>10}{'ratio':>8}")
    for shape in SHAPES:
        done = subprocess.run([sys.executable, __file__, json.dumps(shape)], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        planned, measured = found["planned"] / 2**20, found["measured"] / 2**20
        name = " ".join(f"{key}={value}" for part in shape for key, value in part.items())
        print(f"{name:<100}{planned:>12,.0f}{measured:>10,.0f}{planned / measured:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
