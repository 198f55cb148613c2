"""The corpus' own held-out documents, scored one by one from the token store.

A document is cut into windows of the model's context length as lm-eval's rolling log-likelihood cuts a text: it starts
with the prefix token (BOS, else EOS), and each of its tokens is predicted exactly once. Tokens are the store's; words
and bytes, which let models of different vocabularies be compared, are those of the decoded text, counted as lm-eval
counts WikiText's. This is not WikiText, and no table calls it that.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lm_eval.api.metrics import bits_per_byte, bootstrap_stderr, weighted_mean, weighted_perplexity

from tokencodes.data.store import Store
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import CORPUS_TASK
from tokencodes.evaluate.engine import Engine

TASK_VERSION = 1  # goes up when a score would change


@dataclass(frozen=True)
class Documents:
    """Held-out documents: token ids, and of the decoded text its sha256, words and bytes."""

    tokens: list[np.ndarray]
    sha256: list[str]
    words: list[int]
    bytes: list[int]


def read(store: Store, tokenizer: object, limit: int | None) -> Documents:
    """The first `limit` documents of the validation split, shard by shard in the store's order (None: all).

    Raises UserError if there is none.
    """
    documents = Documents([], [], [], [])
    for shard in store.split("validation"):
        for index in range(len(shard.ids)):
            if limit is not None and len(documents.tokens) >= limit:
                break
            ids = shard.document(index).astype(np.int64)
            text = tokenizer.decode(ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            encoded = text.encode("utf-8")
            documents.tokens.append(ids)
            documents.sha256.append(hashlib.sha256(encoded).hexdigest())
            documents.words.append(len(re.split(r"\s+", text)))
            documents.bytes.append(len(encoded))
    if not documents.tokens:
        raise UserError("the store's validation split has no document; raise data.split.threshold and prepare it again")
    return documents


def open_store(path: Path | None, vocab_size: int, tokenizer_sha256: str) -> Store:
    """The store, checked against the model's vocabulary and tokenizer."""
    if path is None:
        raise UserError(f"{CORPUS_TASK}: give --store, the corpus' token store")
    return Store.open(path, vocab_size=vocab_size, tokenizer_sha256=tokenizer_sha256)


def nats_per_token(items: list[tuple[float, float]]) -> float:
    """Cross entropy from (log-likelihood, tokens) of each document."""
    return -weighted_mean(items)


METRICS = {  # name: (lm-eval's aggregation of (log-likelihood, count) pairs, what is counted)
    "bits_per_byte": (bits_per_byte, "bytes"),
    "byte_perplexity": (weighted_perplexity, "bytes"),
    "word_perplexity": (weighted_perplexity, "words"),
    "nats_per_token": (nats_per_token, "tokens"),
}


def score(
    engine: Engine, documents: Documents, bootstrap_iters: int
) -> tuple[dict[str, dict[str, object]], dict[str, list[float]]]:
    """Metrics over all documents, their standard errors by lm-eval's bootstrap over documents; columns by document."""
    labels = [(CORPUS_TASK, number) for number in range(len(documents.tokens))]
    columns = {
        "loglikelihood": engine.documents(documents.tokens, labels),
        "tokens": [float(len(ids)) for ids in documents.tokens],
        "words": [float(count) for count in documents.words],
        "bytes": [float(count) for count in documents.bytes],
    }
    metrics = {}
    for name, (aggregate, counted) in METRICS.items():
        items = list(zip(columns["loglikelihood"], columns[counted], strict=True))
        spread = bootstrap_iters > 0 and len(items) > 1
        metrics[name] = {
            "value": aggregate(items),
            "stderr": bootstrap_stderr(aggregate, items, bootstrap_iters) if spread else None,
            "chance": None,
            "higher_is_better": False,
        }
    return metrics, columns
