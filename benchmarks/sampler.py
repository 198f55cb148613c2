"""How many training windows per second one core reads from a store.

    python benchmarks/sampler.py [--shards 16] [--documents 1000] [--context 2048] [--seconds 3]

The store has random tokens and lies in a temporary folder. The lengths of its documents are log-normal above one
window, as in a web corpus. The measure is CPU time of this process, for calls of several sizes. The peer is the plain
use of a flat token file: per window one random offset and a slice of the memory map, stacked; it knows no documents,
shards or steps. The tokens are in the page cache: a disk can be slower than either.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tokencodes.data import store
from tokencodes.data.manifest import FORMAT, ShardEntry, StoreManifest
from tokencodes.data.sampler import Sampler

VOCAB_SIZE = 49_152


def make(folder: Path, n_shards: int, n_documents: int, length: int) -> store.Store:
    """A store with a train split alone, of `n_shards` shards."""
    generator = np.random.default_rng(0)
    entries = []
    for number in range(n_shards):
        name = f"shard-{number:05d}"
        (folder / name).mkdir()
        lengths = (length + generator.lognormal(7, 1, n_documents)).astype(np.int64)
        tokens = generator.integers(0, VOCAB_SIZE, int(lengths.sum()), dtype=np.uint16)
        tokens.tofile(folder / "tokens")
        header = {
            "format_version": FORMAT,
            "vocab_size": VOCAB_SIZE,
            "documents": n_documents,
            "tokens": len(tokens),
            "max_id": int(tokens.max()),
        }
        ids = [f"{name}-{i}" for i in range(n_documents)]
        keys = [0] * n_documents
        store.write_split(folder / name / "train.arrow", ids, keys, lengths.tolist(), folder / "tokens", header)
        entries.append(ShardEntry.model_construct(name=name))  # the counts that it lacks are not read
    return store.Store(folder, StoreManifest.model_construct(sha256="", shards=entries))


def flat(path: Path, length: int) -> Callable[[int, int], np.ndarray]:
    """The peer: random slices of one file of tokens."""
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    generator = np.random.default_rng(0)

    def windows(_: int, n: int) -> np.ndarray:
        starts = generator.integers(0, len(tokens) - length, n)
        return np.stack([tokens[start : start + length].astype(np.int64) for start in starts])

    return windows


def pace(windows: Callable[[int, int], np.ndarray], n: int, seconds: float) -> float:
    """Windows per CPU second, in calls of `n`."""
    for step in range(3):
        windows(step, n)
    begun, done, step = time.process_time(), 0, 3
    while time.process_time() - begun < seconds:
        done += len(windows(step, n))
        step += 1
    return done / (time.process_time() - begun)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--documents", type=int, default=1000, help="of each shard")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    args = parser.parse_args()
    length = args.context + 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        corpus = make(folder, args.shards, args.documents, length)
        sampler = Sampler(corpus, "train", args.context, 0)
        n_tokens = sum(len(tokens) for tokens in sampler.tokens)
        np.concatenate(sampler.tokens).tofile(folder / "tokens")
        peer = flat(folder / "tokens", length)
        print(
            f"{args.shards} shards, {sampler.n_documents:,} documents, {n_tokens:,} tokens; windows of {length} tokens"
        )
        print(f"{'windows/call':>14} {'sampler, windows/s':>20} {'flat file, windows/s':>22} {'ratio':>7}")
        for n in (8, 64, 512):
            ours = pace(lambda step, n: sampler.windows(step, range(n)), n, args.seconds)
            theirs = pace(peer, n, args.seconds)
            print(f"{n:>14} {ours:>20,.0f} {theirs:>22,.0f} {ours / theirs:>7.2f}")


if __name__ == "__main__":
    main()
