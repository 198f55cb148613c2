"""Megabytes of text a second of CPU time, turned into ids: ours, plain tiktoken and `tokenizers`, in one run.

    python benchmarks/encode.py [--megabytes 20] [--vocab-size 49152] [--rounds 3]

The text is that of the State of the Union addresses, again and again, each copy with some of its words exchanged for
others of its own. All candidates get the same documents in the same batches and must make arrays of ids of it;
CPU time of all threads counts, the best of some rounds in turn. `equal` says whether the ids are those of `tokenizers`.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tokencodes import config
from tokencodes.data import source, tokenizer

CONFIG = Path(__file__).resolve().parent.parent / "config" / "quickstart.yaml"
EXCHANGED = 0.05  # share of the words
BATCH = 64


def documents(settings: config.Config, folder: Path, n_bytes: int) -> list[str]:
    """The corpus with variation until it has `n_bytes`."""
    speeches = []
    for shard in source.shard_names(settings):
        raw = folder / f"{shard}.parquet"
        source.download(settings, shard, raw)
        speeches += pq.read_table(raw, columns=["text"])["text"].to_pylist()
    draw, made, size = random.Random(0), [], 0
    while True:
        for speech in speeches:
            words = speech.split(" ")
            for _ in range(int(len(words) * EXCHANGED)):
                words[draw.randrange(len(words))] = words[draw.randrange(len(words))]
            made.append(" ".join(words))
            size += len(made[-1].encode())
            if size >= n_bytes:
                return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--vocab-size", type=int, default=49_152)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    value = config.load(CONFIG).model_dump(mode="json")
    value["model"]["vocab_size"], value["interfaces"] = args.vocab_size, {"learned": {"kind": "table"}}
    settings = config.parse(config.Config, value, "benchmark")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.build(settings, Path(folder) / "tokenizer")
        encoder = tokenizer.Encoder(Path(folder) / "tokenizer")
        texts = documents(settings, Path(folder), args.megabytes * 1_000_000)
    size = sum(len(text.encode()) for text in texts) / 1e6
    plain = encoder.fast.encoding

    def reference(batch: list[str]) -> list[np.ndarray]:
        found = encoder.tokenizer.encode_batch(batch, add_special_tokens=False)
        return [np.array(each.ids, dtype=np.uint16) for each in found]

    candidates = {
        "tokenizers encode_batch": reference,
        "tiktoken": lambda batch: [np.array(plain.encode_ordinary(text), dtype=np.uint16) for text in batch],
        "ours": encoder.encode_batch,
    }
    best, equal = dict.fromkeys(candidates, float("inf")), dict.fromkeys(candidates, True)
    expected: list[np.ndarray] = []
    for _ in range(args.rounds):
        for name, encode in candidates.items():
            begun, made = time.process_time(), []
            for start in range(0, len(texts), BATCH):
                made += encode(texts[start : start + BATCH])
            best[name] = min(best[name], time.process_time() - begun)
            expected = expected or made
            equal[name] &= all(map(np.array_equal, made, expected))
    print(f"{size:.0f} MB, {len(texts):,} documents, {sum(map(len, expected)):,} tokens, V = {args.vocab_size:,}")
    print(f"{'':24} {'MB/CPU-s':>9} {'ratio':>6}  equal")
    for name, seconds in best.items():
        ratio = best["tokenizers encode_batch"] / seconds
        print(f"{name:24} {size / seconds:9.2f} {ratio:6.2f}  {'yes' if equal[name] else 'NO'}")


if __name__ == "__main__":
    main()
