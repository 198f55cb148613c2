"""One training step at the paper's shape on one GPU: tokens per second, MFU and peak memory, beside the plan.

    python benchmarks/train_step_gpu.py [--config config/paper.yaml] [--interfaces learned gf2] [--micro-batch 8]
        [--steps 10] [--no-compile] [--peak-tflops 989]
    python benchmarks/train_step_gpu.py --device cpu --tiny        the same program in small, to try it

Each row is a process of its own: an interface, with and without activation checkpointing and torch.compile, bfloat16
autocast, the trainer's own model, loss and optimizer, random tokens. MFU follows `tokencodes.model.shape`, one
convention for all interfaces: 6 FLOPs per token for each parameter of backbone matrices and head, plus causal
attention; the input is a look-up and counts nothing, nor does what activation checkpointing computes again. The peak is
the data sheet's dense bfloat16 figure for the GPUs that `tokencodes plan` knows, else --peak-tflops.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TINY = {"vocab_size": 512, "d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64, "context_length": 32}
WARM_UP = 3  # steps before the clock starts: kernels are chosen, memory is taken, the optimizer's state is made


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=ROOT / "config" / "paper.yaml")
    parser.add_argument("--interfaces", nargs="+", default=["learned", "gf2"])
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--peak-tflops", type=float)
    parser.add_argument("--no-compile", action="store_true", help="leave out the rows with torch.compile")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a shape for seconds on a CPU; its figures mean nothing")
    parser.add_argument("--worker", nargs=3, metavar=("INTERFACE", "CHECKPOINTING", "COMPILE"))
    args = parser.parse_args(arguments)
    if args.device == "cpu" and not args.tiny:
        parser.error("--device cpu is for --tiny alone; the paper's shape needs a GPU")
    return args


def worker(args: argparse.Namespace) -> dict[str, float]:
    import torch

    from tokencodes import config
    from tokencodes.interfaces import inputs
    from tokencodes.model import accounting, shape, transformer
    from tokencodes.planning import memory
    from tokencodes.train import distributed, optim
    from tokencodes.train.loop import SummedLoss

    name, checkpointing, compiled = args.worker[0], *(value == "yes" for value in args.worker[1:])
    settings = config.load(args.config)
    model = settings.model.model_copy(update=TINY if args.tiny else {})
    changes = {"micro_batch_size": args.micro_batch, "precision": "bf16", "activation_checkpointing": checkpointing}
    train = settings.train.model_copy(update=changes)
    interface, device = settings.interface(name), torch.device(args.device, 0 if args.device == "cuda" else None)
    distributed.make_deterministic(1, 0)
    parts = inputs.assemble(interface, None, model.vocab_size, model.d_model, model.init_std)
    net = transformer.create(parts.form, parts.arrays, model, 0)
    net.to(device)
    net.decoder.checkpointing = checkpointing
    module = SummedLoss(net, train.loss_chunk_tokens)
    run = torch.compile(module) if compiled else module
    optimizer = optim.build(net, train)
    batch = (args.micro_batch, model.context_length + 1)
    tokens = torch.randint(model.vocab_size, batch, generator=torch.Generator().manual_seed(0)).to(device)
    n_tokens = args.micro_batch * model.context_length

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        (loss / n_tokens).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), train.grad_clip)
        optimizer.step()
        loss.item()  # waits for the GPU

    begun = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    warm_up = time.perf_counter() - begun
    seconds = []
    for _ in range(args.steps):
        begun = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begun)
    counts = accounting.count(interface, model)
    planned = memory.rank_bytes(counts, model, train, "ddp")
    return {
        "tokens_per_s": n_tokens / statistics.median(seconds),
        "flops_per_token": shape.flops_per_token(model),
        "peak_mib": distributed.peak_memory_mib(device),
        "planned_mib": planned / 2**20,
        "warm_up_s": warm_up,
    }


def peak_flops(device_name: str, given: float | None) -> float | None:
    """FLOP/s of the GPU: what was given, else the data sheet's for one that the plan knows."""
    from tokencodes.planning import plan

    if given is not None:
        return given * 1e12
    if "PCIe" in device_name or "NVL" in device_name:  # of a known name, with other clocks
        return None
    short = device_name.replace("NVIDIA ", "").replace(" ", "-")
    known = [flops for name, flops in plan.PEAK_FLOPS.items() if short.startswith(name.split("-")[0])]
    return known[0] if known else None


def measure(args: argparse.Namespace, device_name: str) -> None:
    peak = peak_flops(device_name, args.peak_tflops) if args.device == "cuda" else None
    print(f"{device_name}; micro-batch {args.micro_batch}; MFU: 6 N per token (backbone and head) and causal attention")
    print(
        f"{'interface':<16}{'checkpointing':>14}{'compile':>9}{'tokens/s':>11}{'MFU':>8}{'peak MiB':>10}"
        f"{'planned':>9}{'warm-up s':>11}"
    )
    for interface in args.interfaces:
        for checkpointing in ("no", "yes"):
            for compiled in ("no",) if args.no_compile else ("no", "yes"):
                line = [sys.executable, __file__, *sys.argv[1:], "--worker", interface, checkpointing, compiled]
                done = subprocess.run(line, capture_output=True, text=True)
                row = f"{interface:<16}{checkpointing:>14}{compiled:>9}"
                if done.returncode:
                    print(f"{row}  {done.stderr.strip().splitlines()[-1][:100]}", flush=True)  # such as out of memory
                    continue
                measured = json.loads(done.stdout.splitlines()[-1])
                mfu = f"{measured['tokens_per_s'] * measured['flops_per_token'] / peak:.1%}" if peak else "-"
                print(
                    f"{row}{measured['tokens_per_s']:>11,.0f}{mfu:>8}{measured['peak_mib']:>10,.0f}"
                    f"{measured['planned_mib']:>9,.0f}{measured['warm_up_s']:>11.1f}",
                    flush=True,
                )


def main() -> int:
    args = parse()
    if args.worker:
        print(json.dumps(worker(args)))
        return 0
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        print("train_step_gpu: torch sees no GPU here; run it on one, or try the program with --device cpu --tiny")
        return 2
    measure(args, torch.cuda.get_device_name(0) if args.device == "cuda" else "CPU, in small: no figure means anything")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
