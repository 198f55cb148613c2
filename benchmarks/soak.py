"""Kill a training run again and again, at random moments, and compare what comes out with an uninterrupted run's bits.

    python benchmarks/soak.py --run results/quickstart/runs/gf2-s0/run.yaml --store results/quickstart/data/store
        [--minutes 20] [--every 30 60] [--ranks 1] [--steps 2000] [--seed 0]

Signals are drawn from TERM, USR1, INT and KILL; one in three is sent as soon as a checkpoint is being written. First
the straight run, then the same run under fire for `--minutes` at most: after that it is left alone until it is done.
Exit code 0 if weights, optimizer state and metrics.jsonl are the same bits, 1 if not.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tokencodes import config
from tokencodes.train import checkpoint

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL)
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(run: Path, store: Path, out: Path, ranks: int) -> list[str]:
    launcher = [sys.executable, "-m"]
    if ranks > 1:
        launcher += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m", "--"]
    return [*launcher, "tokencodes.cli", "train", "--run", str(run), "--store", str(store), "--out", str(out)]


def bits(out: Path) -> dict[str, str]:
    last = checkpoint.sorted_paths(out / "checkpoints")[-1]
    files = [*(last / f"{part}.safetensors" for part in checkpoint.PARTS), out / "metrics.jsonl"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def wait_for_writing(out: Path, process: subprocess.Popen, seconds: float) -> None:
    """Return as soon as a checkpoint is being written, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if any((out / "checkpoints").glob(".step_*.tmp")):
            return
        time.sleep(0.001)


def under_fire(line: list[str], out: Path, args: argparse.Namespace) -> Counter:
    draw, sent = random.Random(args.seed), Counter()
    until = time.monotonic() + args.minutes * 60
    while True:
        process = subprocess.Popen(line, env=ENV, stderr=subprocess.DEVNULL, start_new_session=True)
        while time.monotonic() < until:
            wait = draw.uniform(*args.every)
            try:
                process.wait(wait)
                break
            except subprocess.TimeoutExpired:
                pass
            writing = draw.random() < 1 / 3
            if writing:
                wait_for_writing(out, process, max(args.every))
            kind = draw.choice(SIGNALS)
            if process.poll() is None:
                sent[f"{kind.name}{' while writing' if writing else ''}"] += 1
                # a kill takes all processes of the job, as a scheduler's does
                os.killpg(process.pid, kind) if kind == signal.SIGKILL else process.send_signal(kind)
            process.wait()
            break
        process.wait()
        print(f"  exit {process.returncode}; {sum(sent.values())} signals so far", file=sys.stderr, flush=True)
        if (out / "final.json").exists():
            return sent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--every", type=float, nargs=2, default=(30, 60), metavar=("LOW", "HIGH"), help="seconds")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    value = config.load_run(args.run).model_dump(mode="json")
    train = value["train"]
    train.update(max_steps=args.steps, checkpoint_every=args.checkpoint_every, on_code_change="refuse", log_every=100)
    if args.ranks != train["n_gpus"]:
        train.update(n_gpus=args.ranks, micro_batch_size=train["micro_batch_size"] * train["n_gpus"] // args.ranks)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    run = folder / "run.yaml"
    run.write_text(config.dump(config.parse(config.Run, value, "the soak's run")))
    begun = time.monotonic()
    subprocess.run(command(run, args.store, folder / "straight", args.ranks), env=ENV, check=True, capture_output=True)
    straight = time.monotonic() - begun
    begun = time.monotonic()
    sent = under_fire(command(run, args.store, folder / "killed", args.ranks), folder / "killed", args)
    killed = time.monotonic() - begun
    expected, found = bits(folder / "straight"), bits(folder / "killed")
    print(f"{args.steps} steps, {args.ranks} rank(s): straight {straight:.0f} s, under fire {killed:.0f} s")
    print(f"signals: {', '.join(f'{count} {name}' for name, count in sorted(sent.items()))}")
    for name in expected:
        print(f"{name:<24}{'same bits' if expected[name] == found[name] else 'DIFFERENT'}")
    shutil.rmtree(folder)
    return 0 if expected == found else 1


if __name__ == "__main__":
    raise SystemExit(main())
