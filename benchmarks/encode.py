"""Megabytes of text encoded per CPU second: ours, `tokenizers`, tiktoken and datasets.map, in one run.

    python benchmarks/encode.py [--megabytes 200] [--vocab-size 49152] [--rounds 3] [--new-words]

The text is that of the State of the Union addresses, repeated. Each copy has some of its words exchanged, and is cut
into documents. All candidates get the same documents and one thread each. The measure is CPU time, the best of several
rounds in turns. `equal` says whether the ids are those of `tokenizers`. `first` is the first round, when ours knows no
piece yet. The last line is the whole stage, from a Parquet file to a shard of the store, with the share of its CPU time
that is not encoding.
"""

import os

os.environ["RAYON_NUM_THREADS"] = "1"  # read when `tokenizers` is imported
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiktoken
from transformers import PreTrainedTokenizerFast

from tokencodes import config
from tokencodes.data import prepare, source, tokenizer
from tokencodes.data.encoder import Encoder
from tokencodes.data.manifest import TIMING
from tokencodes.data.pieces import byte_letters
from tokencodes.spec import parse

CONFIG = Path(__file__).resolve().parent.parent / "config" / "quickstart.yaml"
EXCHANGED = 0.05  # share of the words
BATCH = 1024  # documents per call; the default of datasets.map is 1000
REFERENCE = "tokenizers encode_batch"
# The reference's pieces as one pattern: a run of white space is taken whole before a digit, as it is at the end.
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++|\s+(?![^\s\p{N}])|\s"


def documents(settings: config.Config, folder: Path, n_bytes: int, document_bytes: int) -> list[str]:
    """The corpus with variation until it has `n_bytes`, in documents of some `document_bytes`, cut between words."""
    speeches = []
    for shard in source.shard_names(settings.data.source):
        raw = folder / f"{shard}.parquet"
        source.download(settings.data.source, shard, raw, cache=settings.cache)
        speeches += pq.read_table(raw, columns=["text"])["text"].to_pylist()
    draw, made, size = random.Random(0), [], 0
    while True:
        for speech in speeches:
            words = speech.split(" ")
            for _ in range(int(len(words) * EXCHANGED)):
                words[draw.randrange(len(words))] = words[draw.randrange(len(words))]
            step = max(1, len(words) * document_bytes // len(speech))
            for start in range(0, len(words), step):
                made.append(" ".join(words[start : start + step]))
                size += len(made[-1].encode())
                if size >= n_bytes:
                    return made


def new_words(n_bytes: int, document_bytes: int) -> list[str]:
    """Documents of random words, of Latin letters and of Cyrillic ones in turn: almost no word repeats."""
    draw, made, size = random.Random(0), [], 0
    alphabets = ["".join(map(chr, range(first, last))) for first, last in ((0x61, 0x7B), (0x430, 0x450))]
    while size < n_bytes:
        letters, words, length = alphabets[len(made) % len(alphabets)], [], 0
        while length < document_bytes:
            words.append("".join(draw.choices(letters, k=draw.randint(2, 9))))
            length += len(words[-1].encode()) + 1
        made.append(" ".join(words))
        size += length
    return made


def batches(texts: list[str]) -> Iterator[list[str]]:
    return (texts[start : start + BATCH] for start in range(0, len(texts), BATCH))


def by_tokenizers(encoder: Encoder) -> Callable[[list[str]], list[np.ndarray]]:
    def encode(texts: list[str]) -> list[np.ndarray]:
        made = []
        for batch in batches(texts):
            encodings = encoder.tokenizer.encode_batch(batch, add_special_tokens=False)
            made += [np.array(each.ids, dtype=np.uint16) for each in encodings]
        return made

    return encode


def by_tiktoken(folder: Path) -> Callable[[list[str]], list[np.ndarray]]:
    value = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    control = {token["content"] for token in value["added_tokens"]}
    bytes_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    vocab = {token: i for token, i in value["model"]["vocab"].items() if token not in control}
    ranks = {bytes(bytes_of[letter] for letter in token): i for token, i in vocab.items()}
    encoding = tiktoken.Encoding("ranks", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    return lambda texts: [np.array(encoding.encode_ordinary(text), dtype=np.uint16) for text in texts]


def by_datasets(folder: Path) -> Callable[[list[str]], list[np.ndarray]]:
    fast = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    fast.backend_tokenizer.encode_special_tokens = True
    features = datasets.Features({"ids": datasets.List(datasets.Value("uint16"))})

    def ids(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": fast(batch["text"], add_special_tokens=False)["input_ids"]}

    def encode(texts: list[str]) -> list[np.ndarray]:
        encoded = datasets.Dataset.from_dict({"text": texts}).map(
            ids,
            batched=True,
            remove_columns=["text"],
            features=features,
            keep_in_memory=True,
            load_from_cache_file=False,
        )
        return encoded.with_format("numpy")["ids"][:]

    return encode


def stage(settings: config.Config, encoder_folder: Path, texts: list[str], folder: Path) -> dict[str, float]:
    """timing.json of `tokencodes prepare` over the documents."""
    names = [f"d{i}" for i in range(len(texts))]
    pq.write_table(pa.table({"text": texts, "id": names}), folder / "raw.parquet", row_group_size=1000)
    raw = folder / "raw.parquet"
    prepare.prepare_shard(settings.data, settings.model.vocab_size, "s", raw, encoder_folder, folder / "s")
    return json.loads((folder / "s" / TIMING).read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--vocab-size", type=int, default=49_152)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--document-bytes", type=int, default=20_000)
    parser.add_argument("--new-words", action="store_true", help="random words instead: the worst case for ours")
    args = parser.parse_args()
    datasets.disable_progress_bars()
    value = config.load(CONFIG).model_dump(mode="json")
    value["model"]["vocab_size"], value["interfaces"] = args.vocab_size, {"learned": {"kind": "table"}}
    settings = parse(config.Config, value, "benchmark")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.build(settings.data.tokenizer, args.vocab_size, folder / "tokenizer", cache=settings.cache)
        encoder = Encoder(folder / "tokenizer")
        size_of = args.megabytes * 1_000_000, args.document_bytes
        texts = new_words(*size_of) if args.new_words else documents(settings, folder, *size_of)
        size = sum(len(text.encode()) for text in texts) / 1e6
        candidates = {
            REFERENCE: by_tokenizers(encoder),
            "datasets.map": by_datasets(folder / "tokenizer"),
            "tiktoken": by_tiktoken(folder / "tokenizer"),
            "ours": lambda texts: [ids for batch in batches(texts) for ids in encoder.encode_batch(batch)],
        }
        best, first, equal = {}, {}, {}
        expected: list[np.ndarray] = []
        for _ in range(args.rounds):
            for label, encode in candidates.items():
                begun = time.process_time()
                made = encode(texts)
                seconds = time.process_time() - begun
                best[label], first[label] = min(best.get(label, seconds), seconds), first.get(label, seconds)
                expected = expected or made
                equal[label] = equal.get(label, True) and all(map(np.array_equal, made, expected))
                del made
        timing = stage(settings, folder / "tokenizer", texts, folder)
    print(f"{size:.0f} MB, {len(texts):,} documents, {sum(map(len, expected)):,} tokens, V = {args.vocab_size:,}")
    print(f"{'':24} {'MB/CPU-s':>9} {'ratio':>6} {'first':>6}  equal")
    for label, seconds in best.items():
        ratio, at_first = best[REFERENCE] / seconds, first[REFERENCE] / first[label]
        print(f"{label:24} {size / seconds:9.2f} {ratio:6.2f} {at_first:6.2f}  {'yes' if equal[label] else 'NO'}")
    other = 1 - timing["encode_cpu_s"] / timing["cpu_s"]
    print(
        f"tokencodes prepare, the whole stage: {timing['encoded_bytes'] / 1e6 / timing['cpu_s']:.2f} MB/CPU-s, "
        f"{other:.0%} of it not encoding"
    )


if __name__ == "__main__":
    main()
