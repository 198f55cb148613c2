"""One training step on a CPU, ours beside Transformers' Llama and litgpt: tokens per second and peak memory.

    python benchmarks/train_step.py [--rounds 5] [--steps 4] [--only ours-fp32 hf-fp32 ...]

Each candidate is a process of its own. All have the same shape, batch and fused AdamW, and take turns: a round runs a
few steps of each, so that a machine whose speed drifts slows all of them. Speed is that of a candidate's median round,
and ratios are of these medians. Memory is the peak resident memory of a process with its imports; `without imports` is
its growth after torch was loaded. litgpt is no dependency of ours: `pip install --no-deps litgpt lightning
lightning-utilities torchmetrics jsonargparse pytorch-lightning`, or put what `pip install --target` wrote on
PYTHONPATH. Without it, its rows are left out.
"""

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time

from tokencodes.interfaces.form import TableForm
from tokencodes.model.spec import Model

SHAPE = {"vocab_size": 49_152, "d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024, "context_length": 256}
BATCH = 8
LOSS_CHUNK_TOKENS = 256  # ours alone has it: rows of logits at one time; the logits of the whole batch are 384 MiB
CANDIDATES = (
    *("ours-fp32", "hf-fp32", "litgpt-fp32"),
    *("ours-bf16", "hf-bf16", "litgpt-bf16"),
    *("ours-bf16-compile", "hf-bf16-compile"),
)
PAIRS = (  # ours, and its peer
    ("ours-fp32", "hf-fp32"),
    ("ours-fp32", "litgpt-fp32"),
    ("ours-bf16", "hf-bf16"),
    ("ours-bf16", "litgpt-bf16"),
    ("ours-bf16-compile", "hf-bf16"),
    ("ours-bf16-compile", "litgpt-bf16"),
    ("ours-bf16-compile", "hf-bf16-compile"),
)


def ours():
    import torch

    from tokencodes.model import transformer
    from tokencodes.train.loop import SummedLoss

    settings = Model(**SHAPE)
    model = transformer.create(TableForm(kind="table"), {}, settings, 0)
    module = SummedLoss(model, LOSS_CHUNK_TOKENS)
    return model, module, lambda run, tokens: run(tokens[:, :-1], tokens[:, 1:]) / tokens[:, 1:].numel(), torch.compile


def hf():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=SHAPE["vocab_size"],
            hidden_size=SHAPE["d_model"],
            intermediate_size=SHAPE["d_ff"],
            num_hidden_layers=SHAPE["n_layers"],
            num_attention_heads=SHAPE["n_heads"],
            max_position_embeddings=SHAPE["context_length"],
            tie_word_embeddings=False,
            use_cache=False,
        )
    )
    return model, model, lambda run, tokens: run(input_ids=tokens[:, :-1], labels=tokens[:, :-1]).loss, torch.compile


def litgpt():
    import torch
    from litgpt.model import GPT, Config
    from torch.nn import functional as F

    model = GPT(
        Config(
            n_layer=SHAPE["n_layers"],
            n_embd=SHAPE["d_model"],
            n_head=SHAPE["n_heads"],
            padded_vocab_size=SHAPE["vocab_size"],
            vocab_size=SHAPE["vocab_size"],
            block_size=SHAPE["context_length"],
            rotary_percentage=1.0,
            parallel_residual=False,
            bias=False,
            norm_class_name="RMSNorm",
            mlp_class_name="LLaMAMLP",
            intermediate_size=SHAPE["d_ff"],
        )
    )
    model.max_seq_length = SHAPE["context_length"]

    def loss(run, tokens):
        return F.cross_entropy(run(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return model, model, loss, torch.compile


def worker(name: str) -> None:
    """Serve requests of n steps from stdin; answer seconds, and at the end the peak memory."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    family, precision, *rest = name.split("-")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model, module, loss, compile_ = {"ours": ours, "hf": hf, "litgpt": litgpt}[family]()
    run = compile_(module) if rest else module
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(SHAPE["vocab_size"], (BATCH, SHAPE["context_length"] + 1), generator=generator)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            value = loss(run, tokens)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return value.item()

    begun = time.perf_counter()
    first = step()
    print(json.dumps({"loss": first, "s": time.perf_counter() - begun}), flush=True)
    for line in sys.stdin:
        begun = time.perf_counter()
        for _ in range(int(line)):
            step()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            json.dumps({"s": time.perf_counter() - begun, "peak_mib": peak / 1024, "own_mib": (peak - before) / 1024}),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=CANDIDATES, choices=CANDIDATES)
    parser.add_argument("--worker")
    args = parser.parse_args()
    if args.worker:
        worker(args.worker)
        return
    names = [name for name in args.only if not name.startswith("litgpt") or importlib.util.find_spec("litgpt")]
    env = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    processes, ask = {}, {}
    for name in names:
        line = [sys.executable, __file__, "--worker", name]
        processes[name] = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
        )
        ready = json.loads(processes[name].stdout.readline())
        print(f"{name}: first step {ready['s']:.1f} s, loss {ready['loss']:.4f}", file=sys.stderr, flush=True)
    seconds = {name: [] for name in names}
    for _ in range(args.rounds):
        for name in names:
            processes[name].stdin.write(f"{args.steps}\n")
            processes[name].stdin.flush()
            ask[name] = json.loads(processes[name].stdout.readline())
            seconds[name].append(ask[name]["s"])
    tokens = args.steps * BATCH * SHAPE["context_length"]
    print(
        f"{SHAPE}, batch {BATCH}, our loss in chunks of {LOSS_CHUNK_TOKENS}; {args.threads} thread(s), {args.rounds} "
        f"rounds of {args.steps} steps, in turns; load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores\n"
    )
    print(f"{'candidate':<20}{'tokens/s':>10}{'peak MiB':>10}{'without imports':>17}")
    for name in names:
        pace = tokens / statistics.median(seconds[name])
        print(f"{name:<20}{pace:>10,.0f}{ask[name]['peak_mib']:>10,.0f}{ask[name]['own_mib']:>17,.0f}")
    print(f"\n{'ratio':<40}{'tokens/s':>10}{'memory':>8}")
    for mine, theirs in PAIRS:
        if mine in seconds and theirs in seconds:
            speed = statistics.median(seconds[theirs]) / statistics.median(seconds[mine])
            memory = ask[mine]["peak_mib"] / ask[theirs]["peak_mib"]
            print(f"{mine + ' / ' + theirs:<40}{speed:>10.2f}{memory:>8.2f}")
    for process in processes.values():
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
