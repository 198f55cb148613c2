"""What a checkpoint costs: ours beside torch.save and torch.distributed.checkpoint, in one run, on one disk.

    python benchmarks/checkpoint.py [--mib 1024] [--rounds 3] [--folder DIR] [--config config/paper.yaml]

Ours writes safetensors, flushes them to the disk, hashes them and renames them; loading hashes them again. The others
write and flush. The last lines estimate a save of a config's largest model at this disk's speed, as a share of the time
between two checkpoints (`tokencodes plan`: days per model at 40 % of an H100's peak).
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint

from tokencodes import config
from tokencodes.planning import plan
from tokencodes.train import checkpoint

MIB = 2**20
GPU = "H100-SXM"


def state(mib: int) -> dict[str, dict[str, torch.Tensor]]:
    """Weights and twice as many moments, in matrices of 16 MiB."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(4 * MIB, generator=generator) for _ in range(mib // 16)]
    third = len(drawn) // 3
    return {
        "model": {f"w{n}": tensor for n, tensor in enumerate(drawn[:third])},
        "optimizer": {f"m{n}": tensor for n, tensor in enumerate(drawn[third:])},
        "rng": {"cpu": torch.get_rng_state()},
    }


def flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def ours(parts: dict, folder: Path) -> tuple[Callable, Callable]:
    def load():
        newest = checkpoint.latest(folder, {})
        return [newest.tensors(part) for part in checkpoint.PARTS]

    return lambda: checkpoint.save(folder, 1, parts, {}, keep=1), load


def torch_save(parts: dict, folder: Path) -> tuple[Callable, Callable]:
    def save():
        torch.save(parts, folder / "all.pt")
        flush(folder)

    return save, lambda: torch.load(folder / "all.pt", weights_only=True)


def distributed(parts: dict, folder: Path) -> tuple[Callable, Callable]:
    def save():
        torch.distributed.checkpoint.save(parts, checkpoint_id=folder, no_dist=True)
        flush(folder)

    def load():
        into = {part: {name: torch.empty_like(tensor) for name, tensor in of.items()} for part, of in parts.items()}
        torch.distributed.checkpoint.load(into, checkpoint_id=folder, no_dist=True)

    return save, load


CANDIDATES = {"ours": ours, "torch.save": torch_save, "torch.distributed.checkpoint": distributed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, help="a folder on the disk to measure; by default the system's temporary one"
    )
    parser.add_argument("--config", type=Path, default=Path("config/paper.yaml"))
    args = parser.parse_args()
    parts = state(args.mib)
    size = sum(tensor.nbytes for of in parts.values() for tensor in of.values())
    seconds = {name: ([], []) for name in CANDIDATES}
    for _ in range(args.rounds):
        for name, build in CANDIDATES.items():
            folder = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=args.folder))
            for action, times in zip(build(parts, folder), seconds[name], strict=True):
                begun = time.perf_counter()
                action()
                times.append(time.perf_counter() - begun)
            shutil.rmtree(folder)
    print(f"{size / MIB:,.0f} MiB, medians of {args.rounds} rounds in turns\n")
    print(f"{'':<30}{'save s':>8}{'MB/s':>8}{'load s':>8}{'MB/s':>8}")
    medians = {name: [statistics.median(times) for times in pair] for name, pair in seconds.items()}
    for name, (save, load) in medians.items():
        print(f"{name:<30}{save:>8.2f}{size / save / 1e6:>8.0f}{load:>8.2f}{size / load / 1e6:>8.0f}")
    settings = config.load(args.config)
    planned = plan.make(settings)
    largest = max(each["checkpoint_bytes"] for each in planned["interfaces"].values())
    save = largest * medians["ours"][0] / size
    between = planned["days_per_model"][GPU] * 86_400 * settings.train.checkpoint_every / settings.train.max_steps
    print(
        f"\n{settings.name}: {largest / 2**30:.1f} GiB every {settings.train.checkpoint_every:,} updates: {save:.0f} s "
        f"at this speed, {save / between:.2%} of {between / 60:.0f} min between two on {settings.train.n_gpus} {GPU}"
    )


if __name__ == "__main__":
    main()
