"""Stop training runs at random moments, continue them, and compare their bits with those of an uninterrupted run.

    python benchmarks/soak.py --run results/quickstart/runs/gf2-s0/run.yaml --store results/quickstart/data/store
        [--ranks 1] [--steps 2000] [--checkpoint-every 10] [--seed 0]
        [--minutes 20 [--every 30 60]]      one run, interrupted for that long, then left alone until it ends
        [--runs 50 [--kills 2]]             or that many runs in a row, each interrupted that often at any moment

Stops are SIGTERM, SIGUSR1, SIGINT, SIGKILL and, with --runs, a time budget of a fraction of a second. One signal in
three is sent while a checkpoint is being written. The uninterrupted run comes first. The exit code is 0 if weights,
optimizer state and metrics.jsonl have the same bits in all runs, else 1.
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
from collections.abc import Callable
from pathlib import Path

import psutil

from tokencodes.errors import EXIT_STOPPED_EARLY
from tokencodes.spec import parse
from tokencodes.train import checkpoint
from tokencodes.train.spec import Run, load_run
from tokencodes.yamlfile import dump

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL)
BUDGET = ("--time-budget", "0.001")  # minutes: over when the first step is done
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
MORE_STARTS = 5  # than stops, before a run that does not end counts as one that cannot


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
        time.sleep(0.0005)


def kill_job(process: subprocess.Popen) -> None:
    """Kill all processes of the job at once, as a scheduler does; torchrun's are in sessions of their own."""
    launcher = psutil.Process(process.pid)
    launcher.suspend()  # it would start more of them while they are listed
    for each in (launcher, *launcher.children(recursive=True)):
        each.kill()


def stop_once(line: list[str], out: Path, wait: float, draw: random.Random, patience: float) -> str | None:
    """Start the run and send it one signal after `wait` seconds; returns its name, None if the run had ended."""
    process = subprocess.Popen(line, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(wait)
    except subprocess.TimeoutExpired:
        pass
    writing, kind = draw.random() < 1 / 3, draw.choice(SIGNALS)
    if writing:
        wait_for_writing(out, process, patience)
    sent = None
    if process.poll() is None:
        sent = f"{kind.name}{' during a save' if writing else ''}"
        kill_job(process) if kind == signal.SIGKILL else process.send_signal(kind)
    process.wait()
    return sent


def soak(line: list[str], out: Path, args: argparse.Namespace, draw: random.Random) -> Counter:
    """One run that gets a signal every so often, for --minutes."""
    sent, until = Counter(), time.monotonic() + args.minutes * 60
    while time.monotonic() < until and not (out / "final.json").exists():
        if stop := stop_once(line, out, draw.uniform(*args.every), draw, max(args.every)):
            sent[stop] += 1
            print(f"  {sum(sent.values())} signals so far, the last {stop}", file=sys.stderr, flush=True)
    finish(line, out)
    return sent


def one_of_many(line: list[str], out: Path, args: argparse.Namespace, draw: random.Random, straight: float) -> Counter:
    """One run, stopped --kills times at moments drawn from the duration of the uninterrupted one."""
    sent = Counter()
    for _ in range(args.kills):
        if draw.random() < 1 / (len(SIGNALS) + 1):
            subprocess.run([*line, *BUDGET], env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            sent["time budget"] += 1
        elif stop := stop_once(line, out, draw.uniform(0, straight), draw, straight):
            sent[stop] += 1
    finish(line, out)
    return sent


def finish(line: list[str], out: Path) -> None:
    """Start the run until it is done."""
    for _ in range(MORE_STARTS):
        done = subprocess.run(line, env=ENV, capture_output=True, text=True)
        if (out / "final.json").exists():
            return
        if done.returncode not in (EXIT_STOPPED_EARLY, 0):
            raise SystemExit(f"the run cannot be continued: {done.stderr.strip().splitlines()[-1]}")
    raise SystemExit(f"the run did not end in {MORE_STARTS} starts")


def straight_run(start: Callable[[Path], list[str]], folder: Path) -> tuple[dict[str, str], float]:
    begun = time.monotonic()
    subprocess.run(start(folder), env=ENV, check=True, capture_output=True)
    return bits(folder), time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--every", type=float, nargs=2, default=(30, 60), metavar=("LOW", "HIGH"), help="seconds")
    parser.add_argument("--runs", type=int, help="so many runs in a row instead of one long one")
    parser.add_argument("--kills", type=int, default=2, help="stops in each of --runs")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    value = load_run(args.run).model_dump(mode="json")
    train = value["train"]
    train.update(max_steps=args.steps, checkpoint_every=args.checkpoint_every, on_code_change="refuse", log_every=100)
    if args.ranks != train["n_gpus"]:
        train.update(n_gpus=args.ranks, micro_batch_size=train["micro_batch_size"] * train["n_gpus"] // args.ranks)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    run = folder / "run.yaml"
    run.write_text(dump(parse(Run, value, "the soak's run")))

    def start(out: Path) -> list[str]:
        return command(run, args.store, out, args.ranks)

    draw, sent, different = random.Random(args.seed), Counter(), []
    expected, straight = straight_run(start, folder / "straight")
    begun = time.monotonic()
    for number in range(args.runs or 1):
        out = folder / f"killed-{number}"
        if args.runs:
            sent += one_of_many(start(out), out, args, draw, straight)
        else:
            sent += soak(start(out), out, args, draw)
        actual = bits(out)
        unequal = [name for name in expected if actual[name] != expected[name]]
        different += [number] if unequal else []
        print(f"run {number + 1}: {'DIFFERENT: ' + ', '.join(unequal) if unequal else 'same bits'}", flush=True)
        if not unequal:
            shutil.rmtree(out)
    killed = time.monotonic() - begun
    print(f"{args.steps} steps, {args.ranks} rank(s): uninterrupted {straight:.0f} s, interrupted {killed:.0f} s")
    print(f"stops: {', '.join(f'{count} {name}' for name, count in sorted(sent.items()))}")
    print(f"{(args.runs or 1) - len(different)} of {args.runs or 1} ended with the bits of the uninterrupted run")
    if different:
        print(f"the runs that differ are kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
