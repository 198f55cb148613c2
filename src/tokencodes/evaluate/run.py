"""One model on one benchmark: the stage behind `tokencodes evaluate`."""

import contextlib
import io
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
from tokencodes.errors import UserError, one_line
from tokencodes.evaluate import catalogue
from tokencodes.evaluate.catalogue import CORPUS_TASK
from tokencodes.evaluate.packaged import check_task
from tokencodes.evaluate.scores import Scores, documents_path, write_documents
from tokencodes.evaluate.spec import Evaluate, Task
from tokencodes.evaluate.taskdata import open_data
from tokencodes.files import digest, read_json, sha256_file
from tokencodes.model import origin
from tokencodes.model.weights import weight_files, weights_sha256

ENGINE_VERSION = 3  # goes up when the engine would give another number
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")  # one is needed
TOKENIZER_FILES = (*VOCABULARIES, "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
LONGEST_REASON = 300  # characters
SPARE_ROWS = 0.02  # published models round their vocabulary up; phi-2, the extreme, has 1.8 % rows without a token


def evaluate(
    spec: Evaluate,
    model_dir: Path,
    task: str,
    shots: int,
    benchmarks_dir: Path | None,
    store_dir: Path | None,
    out_json: Path,
) -> None:
    """Score a Transformers model directory on one task; write Scores to `out_json` (last) and the Parquet beside it.

    `benchmarks_dir` is what the stage `benchmarks` wrote; `store_dir`, for the corpus' own documents, the token store.

    Raises UserError for an unknown task, missing or damaged data, a model directory that is not whole or not matched by
    its tokenizer, and logits that are not finite.
    """
    started = time.perf_counter()
    if out_json.suffix != ".json" or out_json.is_dir():
        raise UserError(f"--out {out_json}: name a .json file; the documents' scores go to the .parquet beside it")
    limit = _configured(spec, task, shots).limit
    if spec.data == "pypi":
        check_task(task, shots)
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported, below
    data = None if task == CORPUS_TASK else open_data(spec, task, benchmarks_dir)
    files = _model_files(model_dir)
    provenance = _provenance(model_dir, files)
    _quiet_environment(spec.cpu_threads)
    with _compute(spec):
        engine = _engine(spec, model_dir, list(files), f"evaluate {model_dir.name} {task} {shots}-shot")
        if data is None:
            scored = _corpus(spec, engine, model_dir, store_dir, limit)
        else:
            from tokencodes.evaluate import harness

            scored = harness.score(engine, task, shots, data, limit, spec.bootstrap_iters)
    columns = scored.pop("columns")
    scores = Scores(
        model=model_dir.resolve().name,
        **provenance,
        task=task,
        shots=shots,
        limit=limit,
        n=len(columns["doc_id"]),
        label=catalogue.label(task, spec.data),
        **scored | {"data_sha256": scored["data_sha256"] or digest(columns["doc_sha256"])},
        documents_sha256=write_documents(documents_path(out_json), columns),
        harness=f"lm_eval {version('lm_eval')}",
        engine=_description(engine, spec.precision),
        versions=_versions(),
        wall_s=round(time.perf_counter() - started, 3),
        truncated=len(engine.truncated),
    )
    scores.write(out_json)
    headline = catalogue.benchmark(task).metric
    value = scores.metrics[headline].value if headline in scores.metrics else None
    print(f"{out_json}: {scores.label}: {headline} {value} ({scores.n:,} documents)", file=sys.stderr)


# ---------------------------------------------------------------- before


def _configured(spec: Evaluate, task: str, shots: int) -> Task:
    for entry in spec.tasks:
        if (entry.name, entry.shots) == (task, shots):
            return entry
    known = [f"{entry.name} {entry.shots}-shot" for entry in spec.tasks]
    name = f"{task} {shots}-shot"
    raise UserError(f"evaluate.tasks: the config has no {name!r}{catalogue.nearest(name, known)}")


def _model_files(model_dir: Path) -> dict[str, str]:
    """The files of a model directory that decide its scores, and their hashes. No other file of it is read."""
    if not (model_dir / origin.CONFIG).is_file():
        raise UserError(f"{model_dir}: is not a model directory (no config.json); run `tokencodes export`")
    names = [origin.CONFIG, *weight_files(model_dir)]
    if not any((model_dir / name).is_file() for name in VOCABULARIES):
        raise UserError(f"{model_dir}: has no tokenizer; save the one that the model was trained with there")
    names += [name for name in TOKENIZER_FILES if (model_dir / name).is_file()]
    return {name: sha256_file(model_dir / name) for name in names}


def _provenance(model_dir: Path, files: dict[str, str]) -> dict[str, Any]:
    """interface, seed (None if the model is not ours), and the hashes of weights, config and tokenizer."""
    tokenizer = {name: files[name] for name in TOKENIZER_FILES if name in files}
    hashes = {
        "model_sha256": weights_sha256(files),
        "config_sha256": files[origin.CONFIG],
        "tokenizer_sha256": digest(tokenizer),
    }
    path = model_dir / origin.FILE
    if not path.is_file():
        return {"interface": None, "seed": None, **hashes}
    recorded = origin.Origin.read(path)
    if problem := recorded.mismatch(hashes):
        raise UserError(f"{model_dir}: {problem}; export the model again")
    if recorded.tokenizer_sha256 not in (None, files.get("tokenizer.json")):
        raise UserError(
            f"{model_dir}: its tokenizer.json is not the one that its {origin.FILE} names; export the model again"
        )
    return {"interface": recorded.interface, "seed": recorded.seed, **hashes}


def _quiet_environment(threads: int) -> None:
    """Set variables that libraries read when they are imported."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic algorithms ask of CUDA
    os.environ["DISABLE_MULTIPROC"] = "1"  # lm-eval bootstraps in this process, with the same draws


@contextlib.contextmanager
def _compute(spec: Evaluate) -> Iterator[None]:
    """The config's threads and deterministic algorithms; what libraries print on stdout is dropped."""
    import torch
    import transformers

    from tokencodes.evaluate import tasks

    tasks.quiet()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(spec.cpu_threads)
    torch.set_deterministic_debug_mode("error")  # torch.use_deterministic_algorithms without its import of the compiler
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)


def _load(model_dir: Path, files: list[str]) -> tuple[Any, Any, dict[str, Any]]:
    """Tokenizer, model (float32, CPU) and what Transformers reports of the loading, from these files alone.

    They are linked into an empty folder, so that no other file of `model_dir` can change what is loaded.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = read_json(model_dir / origin.CONFIG)
    if not isinstance(config, dict):
        raise UserError(f"{model_dir / origin.CONFIG}: is not a mapping of keys; get the model again")
    if config.get("quantization_config"):
        raise UserError(f"{model_dir}: its weights are quantized; save the model in float32 or bfloat16")
    with tempfile.TemporaryDirectory(prefix="tokencodes-model-") as folder:
        for name in files:
            (Path(folder) / name).symlink_to((model_dir / name).resolve())

        def refused(error: Exception) -> UserError:
            reason = one_line(error) or repr(error)
            return UserError(
                f"{model_dir}: cannot be loaded: {reason.replace(folder, str(model_dir))[:LONGEST_REASON]}"
            )

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # a damaged file makes the library raise exceptions of any kind
            raise refused(error) from None
        try:
            model, loading = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
        except Exception as error:  # the same
            expected = isinstance(error, OSError | ValueError | SafetensorError | UserError)
            if not expected and (model_dir / origin.FILE).is_file():
                raise  # most likely a fault of our own model's code
            raise refused(error) from None
    return tokenizer, model, loading


def _engine(spec: Evaluate, model_dir: Path, files: list[str], title: str) -> Any:
    """The model in float32 on the config's device, behind the engine."""
    import torch

    import tokencodes.model.hf  # noqa: F401  (registers our model type)
    from tokencodes.evaluate.engine import Engine

    device = spec.device
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("evaluate.device: cuda, but this machine has no CUDA device; set cpu or auto")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer, model, loading = _load(model_dir, files)
    for what, key in (("lacks", "missing_keys"), ("holds, unlike its config,", "unexpected_keys")):
        if names := sorted(loading[key]):  # Transformers would initialise missing ones at random and ignore others
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
        max_batch_tokens=spec.max_batch_tokens,
        autocast=torch.bfloat16 if spec.precision == "bf16" else None,
        name=str(model_dir),
        title=title,
    )


# --------------------------------------------------------------- scoring


def _corpus(spec: Evaluate, engine: Any, model_dir: Path, store_dir: Path | None, limit: int | None) -> dict[str, Any]:
    from tokencodes.evaluate import corpus

    store = corpus.open_store(store_dir, engine.model.config.vocab_size, sha256_file(model_dir / "tokenizer.json"))
    documents = corpus.read(store, engine.tokenizer, limit)
    metrics, columns = corpus.score(engine, documents, spec.bootstrap_iters)
    n = len(documents.tokens)
    return {
        "task_version": corpus.TASK_VERSION,
        "data": f"{n:,} documents of the corpus' validation split, scored by document in windows of "
        f"{engine.max_length:,} tokens, each token predicted once; not WikiText",
        "data_sha256": store.sha256,
        "metrics": metrics,
        "columns": {"doc_id": list(range(n)), "doc_sha256": documents.sha256, **columns},
    }


# ----------------------------------------------------------------- after


def _description(engine: Any, precision: str) -> str:
    """The engine's version, and how it computed the scores."""
    layout = "common beginnings shared" if engine.branching else "each input a row of its own"
    batches = ", each row a batch of its own" if engine.alone else ""
    return f"tokencodes.evaluate.engine {ENGINE_VERSION}, {precision}, {engine.device.type}, {layout}{batches}"


def _versions() -> dict[str, str]:
    packages = ("torch", "transformers", "tokenizers", "datasets", "lm_eval", "numpy")
    return {
        "tokencodes": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
