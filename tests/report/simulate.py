"""A results folder of invented numbers in the real layout: seeded, with several seeds, gaps and NaN where asked."""

import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import norm

from tokencodes import config, files
from tokencodes.data.manifest import ShardTiming, StoreManifest
from tokencodes.evaluate.scores import Scores, write_documents
from tokencodes.evaluate.spec import Task
from tokencodes.interfaces.vocabulary import bits_needed
from tokencodes.model.shape import Params
from tokencodes.records import DIGEST, VERSION, Record
from tokencodes.report.render import Table
from tokencodes.spec import parse
from tokencodes.train.final import Final
from tokencodes.validate.validation import Validation
from tokencodes.yamlfile import dump

# metric: (chance or None, typical value, higher is better)
METRICS: dict[str, dict[str, tuple[float | None, float, bool]]] = {
    "hellaswag": {"acc": (0.25, 0.26, True), "acc_norm": (0.25, 0.28, True)},
    "piqa": {"acc": (0.5, 0.53, True), "acc_norm": (0.5, 0.51, True)},
    "winogrande": {"acc": (0.5, 0.49, True)},
    "arc_easy": {"acc": (0.25, 0.28, True), "acc_norm": (0.25, 0.27, True)},
    "arc_challenge": {"acc": (0.25, 0.2, True), "acc_norm": (0.25, 0.24, True)},
    "openbookqa": {"acc": (0.25, 0.15, True), "acc_norm": (0.25, 0.27, True)},
    "commonsense_qa": {"acc": (0.2, 0.19, True)},
    "mmlu": {"acc": (0.25, 0.24, True)},
    "lambada_openai": {"acc": (0.0, 0.0, True), "perplexity": (None, 51_234.5, False)},
    "wikitext": {"word_perplexity": (None, 612.0, False), "bits_per_byte": (None, 1.75, False)},
    "corpus_validation": {
        "word_perplexity": (None, 1834.0, False),
        "byte_perplexity": (None, 3.61, False),
        "bits_per_byte": (None, 1.852, False),
    },
}
LABELS = {
    "hellaswag": "HellaSwag",
    "piqa": "PIQA",
    "winogrande": "WinoGrande",
    "arc_easy": "ARC-Easy",
    "arc_challenge": "ARC-Challenge",
    "openbookqa": "OpenBookQA",
    "commonsense_qa": "CommonsenseQA",
    "mmlu": "MMLU",
    "lambada_openai": "LAMBADA (white space collapsed)",
    "wikitext": "WikiText",
    "corpus_validation": "Corpus, held-out documents",
}


def write_json(path: Path, value: Any) -> None:
    """Write JSON. A record that a test has changed gets the digests that its stage would have given it."""
    if isinstance(value, dict) and VERSION in value:
        value = {key: part for key, part in value.items() if key not in (VERSION, DIGEST)}
        documents_file = path.with_suffix(".parquet")
        if "documents_sha256" in value and documents_file.exists():
            value["documents_sha256"] = files.sha256_file(documents_file)
        if "shards" in value:
            value["sha256"] = files.digest({key: part for key, part in value.items() if key != "sha256"})
        value = {VERSION: Record.version, **value}
        value[DIGEST] = files.digest(value)
    files.write_json(path, value)


def write_params(path: Path, counts: dict[str, dict[str, int]]) -> None:
    """The parameter accounting, as `tokencodes params` writes it."""
    Params(interfaces=counts).write(path)


def parameters(settings: config.Config) -> dict[str, dict[str, int]]:
    """Table 1 by the paper's formula."""
    m = settings.model
    backbone = m.n_layers * (4 * m.d_model**2 + 3 * m.d_model * m.d_ff + 2 * m.d_model) + m.d_model
    table = m.vocab_size * m.d_model
    bits = bits_needed(m.vocab_size)
    rows = {}
    for name, interface in settings.interfaces.items():
        width = bits if interface.kind == "table" else (interface.codebook.width or bits)
        learned_code = interface.kind == "code" and interface.codebook.kind == "learned"
        input_ = table if interface.kind == "table" else m.vocab_size * width if learned_code else 0
        buffers = 0 if interface.kind == "table" or learned_code else m.vocab_size * width
        rows[name] = {
            "trainable": backbone + table + input_,
            "input": input_,
            "head": table,
            "backbone": backbone,
            "buffers": buffers,
        }
    return rows


EDGES = sorted({int(2 ** (i / 2)) for i in range(65)})  # of the lengths' histogram, as prepare has them


def histogram(settings: config.Config, kept: int, short: int) -> dict[str, list[int]]:
    """Log-normal lengths above and below the least that is kept."""
    rng, least = np.random.default_rng(0), settings.data.min_tokens
    long = least + rng.lognormal(math.log(4 * least), 1, kept).astype(int)
    little = np.clip(rng.lognormal(math.log(least / 3), 0.5, short).astype(int), 1, least - 1)
    counts = {"kept": long, "too_few_tokens": little}
    return {"edges": EDGES} | {fate: np.histogram(found, EDGES)[0].tolist() for fate, found in counts.items()}


def timing(index: int) -> ShardTiming:
    """What preparing a shard took."""
    return ShardTiming(
        raw_bytes=1_500_000,
        wall_s=1.5 + 0.01 * index,
        cpu_s=1.25,
        encode_cpu_s=1.0,
        encoded_bytes=4_000_000 + index,
        encoded_tokens=905_000 + index,
    )


def many_shards(value: dict[str, Any], n: int = 234) -> dict[str, Any]:
    """A store's index with `n` shards of a web corpus' size, in place of four small ones."""
    rng = np.random.default_rng(1)
    rows, shards = 812_000, []
    for index in range(n):
        kept = int(rows * rng.uniform(0.08, 0.11))
        tokens = int(kept * rng.uniform(4200, 4600))
        held_out = kept // 1000
        dropped = {"duplicate_id": 3, "invalid_utf8": 1, "too_few_bytes": rows // 2}
        dropped["too_few_tokens"] = rows - kept - sum(dropped.values())
        shards.append(
            {"name": f"shard-{index:05d}-of-{n:05d}", "sha256": f"{index:064x}", "rows_in": rows, "kept": kept}
            | {"dropped": dropped, "tokens": tokens}
            | {"train": {"documents": kept - held_out, "tokens": tokens - held_out * 4400}}
            | {"validation": {"documents": held_out, "tokens": held_out * 4400}}
            | {"characters": tokens * 4, "bytes": tokens * 4}
        )
    fates = shards[0]["dropped"]
    total = {key: sum(s[key] for s in shards) for key in ("rows_in", "kept", "tokens", "characters", "bytes")}
    total["dropped"] = {reason: sum(s["dropped"][reason] for s in shards) for reason in fates}
    for split in ("train", "validation"):
        total[split] = {key: sum(s[split][key] for s in shards) for key in ("documents", "tokens")}
    least = 2049
    shapes = {"kept": (math.log(2.2), 0.7, 1), "too_few_tokens": (math.log(0.45), 0.5, -1)}
    lengths = {"edges": EDGES}
    for fate, (middle, width, side) in shapes.items():
        drawn = least * rng.lognormal(middle, width, 200_000)
        found, _ = np.histogram(drawn[(drawn - least) * side > 0], EDGES)
        n_documents = total["kept"] if fate == "kept" else total["dropped"][fate]
        scaled = (found / found.sum() * n_documents).astype(int)
        scaled[found.argmax()] += n_documents - scaled.sum()
        lengths[fate] = scaled.tolist()
    return value | total | {"lengths": lengths, "shards": shards}


def store(settings: config.Config) -> StoreManifest:
    """The data store's manifest."""
    shards = []
    for index in range(4):
        shards.append(
            {
                "name": f"shard-{index:05d}-of-00004",
                "sha256": f"{index:064x}",
                "rows_in": 62,
                "kept": 60,
                "dropped": {"too_few_bytes": 1, "too_few_tokens": 1, "null_text": 0},
                "tokens": 900_000 + index,
                "train": {"documents": 57, "tokens": 855_000 + index},
                "validation": {"documents": 3, "tokens": 45_000},
                "characters": 3_900_000,
                "bytes": 3_950_000,
            }
        )
    total = {
        "rows_in": 248,
        "kept": 240,
        "dropped": {"too_few_bytes": 4, "too_few_tokens": 4, "null_text": 0},
        "tokens": sum(s["tokens"] for s in shards),
        "train": {"documents": 228, "tokens": sum(s["train"]["tokens"] for s in shards)},
        "validation": {"documents": 12, "tokens": 180_000},
        **{key: sum(s[key] for s in shards) for key in ("characters", "bytes")},
        "lengths": histogram(settings, 240, 4),
    }
    fields = {
        "format_version": 1,
        "vocab_size": settings.model.vocab_size,
        "tokenizer_sha256": "a" * 64,
        "data_sha256": "b" * 64,
        "shards": shards,
        **total,
        "duplicate_ids_across_shards": 0,
        "unigram_entropy": 6.7934,
        "unigram_cross_entropy": 6.8412,
    }
    return StoreManifest.model_validate(fields | {"sha256": files.digest(fields)})


def curve(settings: config.Config, rng: np.random.Generator, index: int) -> list[dict[str, Any]]:
    """A loss that falls from ln V to well under the unigram entropy; validation every `validate_every` steps."""
    train, start = settings.train, math.log(settings.model.vocab_size)
    floor = start - 2.85 + 0.06 * index + 0.02 * rng.standard_normal()
    lines = []
    for step in range(1, train.max_steps + 1):
        along = step / train.max_steps
        smooth = floor + (start - floor) * math.exp(-5.5 * along**0.75)
        line = {
            "step": step,
            "loss": smooth + 0.06 * rng.standard_normal(),
            "lr": train.peak_lr * min(1.0, step / max(1, train.warmup_steps)),
            "grad_norm": 1.0 + 0.2 * rng.random(),
            "tokens": step * train.tokens_per_step,
        }
        if step % train.validate_every == 0 or step == train.max_steps:
            line["val_loss"] = smooth + 0.05 + 0.01 * rng.standard_normal()
        lines.append(line)
    return lines


DOCUMENTS = {"corpus_validation": 12, "wikitext": 62}  # that a task has without a limit; others have 1,000
SEED_SD, OWN_SD = 0.02, 0.4  # of a model's liking of all documents, and of one, beside a document's own difficulty of 1


def documents(
    task: Task, rng: np.random.Generator, place: int, n: int | None = None
) -> dict[str, list[float] | list[int] | list[str]]:
    """Scores by document: what is hard for one model is hard for the next; later interfaces are a little worse."""
    n = n or task.limit or DOCUMENTS.get(task.name, 1000)
    difficulty = np.random.default_rng(len(task.name)).standard_normal(n)
    liking = SEED_SD * rng.standard_normal() - 0.04 * place + OWN_SD * rng.standard_normal(n) - difficulty
    columns: dict[str, Any] = {"doc_id": list(range(n)), "doc_sha256": [f"{number:064x}" for number in range(n)]}
    metrics = METRICS[task.name]
    for metric, (_, typical, _) in metrics.items():
        if metric.startswith("acc"):
            bar = norm.isf(typical) * math.hypot(1, OWN_SD)
            columns[metric] = (liking > bar).astype(float).tolist()
    if {"word_perplexity", "byte_perplexity"} & set(metrics):
        words = np.random.default_rng(n).integers(200, 4000, n).astype(float)
        nats = words * (math.log(metrics["word_perplexity"][1]) - 0.05 * liking)
        columns |= {"loglikelihood": (-nats).tolist(), "words": words.tolist()}
        columns["bytes"] = (np.ceil(words * math.log(metrics["word_perplexity"][1]) / math.log(2) / 1.85)).tolist()
    elif "perplexity" in metrics:
        columns["loglikelihood"] = (-math.log(metrics["perplexity"][1]) + liking).tolist()
    return columns


def value_of(metric: str, columns: dict[str, Any]) -> float:
    """A metric from its documents, as the harness defines it."""
    if metric.startswith("acc"):
        return float(np.mean(columns[metric]))
    nats = -math.fsum(columns["loglikelihood"])
    counted = {"word_perplexity": "words", "perplexity": None}.get(metric, "bytes")
    mean = nats / (math.fsum(columns[counted]) if counted else len(columns["doc_id"]))
    return mean / math.log(2) if metric == "bits_per_byte" else math.exp(mean)


def evaluation(interface: str, seed: int, task: Task, columns: dict[str, Any]) -> dict[str, Any]:
    """One evaluation result, from its documents."""
    n = len(columns["doc_id"])
    metrics = {}
    for metric, (chance, _, higher) in METRICS[task.name].items():
        value = value_of(metric, columns)
        stderr = math.sqrt(value * (1 - value) / (n - 1)) if metric.startswith("acc") else 0.05 * value
        metrics[metric] = {"value": value, "stderr": stderr, "chance": chance, "higher_is_better": higher}
    return Scores(
        model=f"{interface}-s{seed}",
        interface=interface,
        seed=seed,
        task=task.name,
        task_version=1.0,
        shots=task.shots,
        limit=task.limit,
        n=n,
        data="invented",
        label=LABELS[task.name],
        metrics=metrics,
        model_sha256="c" * 64,
        config_sha256="b" * 64,
        tokenizer_sha256="a" * 64,
        data_sha256="d" * 64,
        documents_sha256="0" * 64,  # write_json puts that of the file beside it
        harness="lm_eval 0.4.12",
        engine="tokencodes",
        versions={"torch": "2.13.0", "lm_eval": "0.4.12", "python": "3.11.9"},
        wall_s=4.25,
        truncated=0,
    ).content()


def final(
    settings: config.Config, interface: str, seed: int, lines: list[dict[str, Any]], index: StoreManifest
) -> Final:
    """The record of a training that wrote these lines."""
    position = list(settings.interfaces).index(interface)
    return Final(
        interface=interface,
        seed=seed,
        step=lines[-1]["step"],
        tokens=lines[-1]["tokens"],
        train_loss=lines[-1]["loss"],
        val_loss=lines[-1]["val_loss"],
        unigram_entropy=index.unigram_entropy,
        unigram_cross_entropy=index.unigram_cross_entropy,
        checkpoint=f"checkpoints/step_{lines[-1]['step']:07d}",
        model_sha256=f"{position:064x}",
        metrics_sha256=hashlib.sha256(journal(lines).encode()).hexdigest(),
        store_sha256=index.sha256,
        tokenizer_sha256="a" * 64,
        codes_sha256=None if settings.interfaces[interface].kind == "table" else "f" * 64,
        run_sha256="d" * 64,
        code="9" * 64,
        versions={"torch": "2.13.0", "tokencodes": "0.1.0", "python": "3.11.9"},
        hardware={"machine": "x86_64", "cpus": 2, "device": "cpu"},
        wall_s=61.5 + position,
        energy_j=54_000.0 if position else None,
    )


def journal(lines: list[dict[str, Any]]) -> str:
    """The text of metrics.jsonl."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def results(settings: config.Config, root: Path, *, random_seed: int = 0) -> Path:
    """Write a whole results folder of `settings` at `root`; return it."""
    root.mkdir(parents=True, exist_ok=True)
    files.write_text(root / "config.yaml", dump(settings))
    write_params(root / "params.json", parameters(settings))
    index = store(settings)
    index.write(root / "data/store/manifest.json")
    for position, shard in enumerate(index.shards):
        timing(position).write(root / "data/store" / shard.name / "timing.json")
    for seed in settings.seeds:
        for position, interface in enumerate(settings.interfaces):
            rng = np.random.default_rng([random_seed, seed, position])
            name = f"{interface}-s{seed}"
            lines = curve(settings, rng, position)
            files.write_text(root / "runs" / name / "metrics.jsonl", journal(lines))
            final(settings, interface, seed, lines, index).write(root / "runs" / name / "final.json")
            checks = [
                {"name": check, "passed": True, "detail": detail}
                for check, detail in (
                    ("parameter counts", "1,573,504 trainable, as the closed form gives"),
                    ("code book", "4096 x 12 values equal an independent computation"),
                    ("logits", "trainer and export equal bit for bit"),
                    ("generation", "16 greedy tokens, twice the same"),
                )
            ]
            Validation(model=name, passed=True, checks=checks).write(root / "validation" / f"{name}.json")
            for task in settings.evaluate.tasks:
                path = root / "eval" / name / f"{task.name}-{task.shots}shot.json"
                columns = documents(task, rng, position)
                write_documents(path.with_suffix(".parquet"), columns)
                write_json(path, evaluation(interface, seed, task, columns))
    return root


def controls(settings: config.Config) -> config.Config:
    """`settings` with eight interfaces of long names, all benchmarks and three seeds: as wide as a run gets."""
    value = settings.model_dump(mode="json")
    code = value["interfaces"]["binary12"]
    for name, codebook, lift in (
        ("binary_permuted_ids", {"kind": "binary"}, "tile"),
        ("gaussian_matched_norm", {"kind": "gaussian", "width": 12}, "tile"),
        ("linear_hadamard_redundant", {"kind": "linear", "width": 24}, "hadamard"),
        ("learned_code_orthogonal_lift", {"kind": "learned", "width": 12}, "orthogonal"),
        ("gf2_second_recoding", {"kind": "gf2", "seed": 2}, "tile"),
    ):
        value["interfaces"][name] = code | {"codebook": codebook, "lift": lift, "paper_model": None}
    value["seeds"] = [0, 1, 2]
    value["evaluate"]["tasks"] = [
        {"name": name, "shots": 0, "limit": 100 if name != "corpus_validation" else None} for name in METRICS
    ] + [{"name": "mmlu", "shots": 5, "limit": 100}]
    return parse(config.Config, value, "controls")


def paper_size(settings: config.Config) -> config.Config:
    """`settings` with the paper's architecture, corpus, benchmarks and budget."""
    value = settings.model_dump(mode="json")
    value["interfaces"]["binary16"] = value["interfaces"].pop("binary12")
    value["interfaces"] = {name: value["interfaces"][name] for name in ("learned", "binary16", "gf2")}
    value["model"] |= {
        "vocab_size": 49152, "d_model": 2048, "n_layers": 24, "n_heads": 32, "d_ff": 8192, "context_length": 2048
    }  # fmt: skip
    value["data"]["min_tokens"] = 2049
    value["data"]["source"] = {
        "kind": "hub", "repo": "HuggingFaceTB/smollm-corpus", "n_shards": 2,
        "pattern": "fineweb-edu-dedup/train-{shard:05d}-of-00234.parquet",
    }  # fmt: skip
    value["evaluate"] |= {"data": "hub"}
    value["train"] |= {
        "max_steps": 382500, "warmup_steps": 2000, "n_gpus": 2, "micro_batch_size": 8, "grad_accum_steps": 8,
        "tokens_per_step": 262144, "validate_every": 2500,
    }  # fmt: skip
    value["evaluate"]["tasks"] = [
        {"name": name, "shots": 0, "limit": None} for name in METRICS if name != "corpus_validation"
    ]
    return parse(config.Config, value, "paper size")


def table_rows(table: Table, **values: Any) -> list[dict[str, Any]]:
    """The records of a table that have these values."""
    return [r for r in table.records if all(r[key] == value for key, value in values.items())]


def column(folder: Path, interface: str, seed: int, task: str, metric: str) -> np.ndarray:
    """A column of a model's scores by document."""
    return pq.read_table(folder / f"eval/{interface}-s{seed}/{task}-0shot.parquet")[metric].to_numpy()


KINDS = {
    "quickstart": ("quickstart", lambda settings: settings),
    "controls": ("quickstart", controls),
    "paper_size": ("quickstart", paper_size),
    "shipped_controls": ("controls", lambda settings: settings),
}

if __name__ == "__main__":
    shipped, change = KINDS[sys.argv[1]]
    results(change(config.load(f"config/{shipped}.yaml")), Path(sys.argv[2]))
