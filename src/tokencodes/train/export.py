"""`tokencodes export`: the final checkpoint as a Transformers model directory, with a record of its origin."""

import os
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from tokencodes.data.manifest import MANIFEST, TokenizerManifest
from tokencodes.errors import UserError, one_line
from tokencodes.files import sha256_file, whole_folder, write_text
from tokencodes.interfaces import codes, inputs
from tokencodes.interfaces.spec import is_fixed
from tokencodes.model import adapter, hf, origin, standalone
from tokencodes.model.origin import Origin
from tokencodes.model.transformer import Transformer
from tokencodes.train import checkpoint
from tokencodes.train.final import Final
from tokencodes.train.spec import Run, load_run

CODEBOOK = "decoder.input.codebook"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
# A folder is a model directory of ours, which may be replaced, if it has a file of MARKS and only files of OURS.
# tokencodes.json is not the only mark: before a rule runs again, Snakemake deletes its declared outputs and leaves the
# other files.
MARKS = (origin.FILE, f"{standalone.ENTRY}.py")
OURS = (
    *("config.json", "generation_config.json", "model.safetensors", "README.md", ".snakemake_timestamp"),
    *(*MARKS, *TOKENIZER_FILES, "configuration_tokencodes.py", "tokencodes_*.py"),
)


def trained(run_dir: Path) -> tuple[Run, Transformer, inputs.Inputs, Final]:
    """The run, its final weights (float32, CPU), its input and its final.json.

    Raises UserError if the run is not finished, or if the checkpoint is not the one that final.json names.
    """
    final = Final.read(run_dir / "final.json")
    run = load_run(run_dir / "run.yaml")
    path = run_dir / final.checkpoint
    try:
        final_checkpoint = checkpoint.verify(path)
    except ValueError as error:
        raise UserError(f"{error}; train again") from None
    if final_checkpoint.manifest["files"]["model.safetensors"]["sha256"] != final.model_sha256:
        raise UserError(f"{path}: its weights are not those of {run_dir / 'final.json'}; train again")
    try:
        tensors = final_checkpoint.tensors("model")
        codebook = tensors[CODEBOOK].numpy() if is_fixed(run.interface) else None
        model_input = inputs.assemble(
            run.interface, codebook, run.model.vocab_size, run.model.d_model, run.model.init_std
        )
        model = Transformer(model_input.form, run.model)
        model.load_state_dict(tensors, strict=True, assign=True)
    except (RuntimeError, KeyError, SafetensorError) as error:
        raise UserError(f"{path}: is not the model of {run_dir / 'run.yaml'} ({one_line(error)[:160]})") from None
    if model_input.codes_sha256 != final.codes_sha256:
        raise UserError(f"{path}: its code book is not that of {run_dir / 'final.json'}; train again")
    return run, model.eval(), model_input, final


def end_of_text(tokenizer: Path) -> int:
    """The id of the end-of-text token. Raises UserError if the folder is not one of `tokencodes tokenizer`."""
    manifest = TokenizerManifest.read(tokenizer / MANIFEST)
    if not (tokenizer / "tokenizer.json").is_file():
        raise UserError(f"{tokenizer / 'tokenizer.json'}: no such file; run `tokencodes tokenizer` and name its folder")
    return manifest.eos_token_id


def card(run: Run, final: Final) -> str:
    """README.md of the model directory."""
    train, model = run.train, run.model
    return f"""---
library_name: transformers
license: apache-2.0
pipeline_tag: text-generation
---
# {run.name}: {run.interface_name}, seed {run.seed}

A decoder language model whose input interface is `{run.interface_name}`, trained by Token Codes
{final.versions["tokencodes"]}. It takes part in a comparison of input interfaces and is not meant for other use.

```python
import tokencodes  # without the package: see below
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
```

{standalone.NEEDS}

| what | value |
|---|---|
| layers, width, heads | {model.n_layers}, {model.d_model}, {model.n_heads} |
| FFN width, context | {model.d_ff}, {model.context_length} |
| vocabulary | {model.vocab_size} |
| predicted tokens | {final.tokens} in {final.step} updates of {train.tokens_per_step} |
| rate | peak {train.peak_lr}, {train.warmup_steps} warm-up steps, cosine to {train.min_lr} |
| validation loss | {final.val_loss:.4f} nats per token (unigram entropy {final.unigram_entropy:.4f}) |
| weights | sha256 {final.model_sha256} of the checkpoint |
| corpus store, tokenizer | sha256 {final.store_sha256}, {final.tokenizer_sha256} |

The whole run, resolved, is in tokencodes.json.
"""


def export(run_dir: Path, tokenizer: Path, out: Path, *, codes_file: Path | None = None) -> None:
    """Write `out`: config.json, model.safetensors, generation_config.json, tokenizer files, the model's code, README.md
    and tokencodes.json. Raises UserError if the tokenizer or the code book is not the run's, or if `out` may not be
    replaced (see `place`).
    """
    place(out, run_dir, tokenizer)
    end = end_of_text(tokenizer)
    run, model, model_input, final = trained(run_dir)
    if codes_file is not None:
        codebook = codes.load(codes_file, run.interface, run.model.vocab_size)
        if codes.sha256(codebook) != final.codes_sha256:
            raise UserError(f"{codes_file}: is not the code book that {run_dir} was trained with")
    if sha256_file(tokenizer / "tokenizer.json") != final.tokenizer_sha256:
        raise UserError(f"{tokenizer / 'tokenizer.json'}: is not the tokenizer that {run_dir} was trained with")
    settings = adapter.to_config(
        run.interface,
        model_input,
        run.model,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        auto_map=standalone.AUTO_MAP,
    )
    facts = {
        "interface": run.interface_name,
        "seed": run.seed,
        "checkpoint_sha256": final.model_sha256,
        "store_sha256": final.store_sha256,
        "tokenizer_sha256": final.tokenizer_sha256,
        "codes_sha256": final.codes_sha256,
        "run": run.model_dump(mode="json"),
    }
    write_model(adapter.from_transformer(model, settings).to(torch.float32), tokenizer, card(run, final), facts, out)
    print(f"{out}: {sum(p.numel() for p in model.parameters()):,} parameters")


def place(out: Path, *sources: Path | None) -> Path:
    """`out` as an absolute path that may be written: it is absent, empty, or a model directory of ours.

    Raises UserError if it is anything else, or if it is, contains or lies in one of `sources`, the files that the model
    is made from.
    """
    where = out.resolve()
    for source in sources:
        origin_path = None if source is None else source.resolve()
        if origin_path and (where.is_relative_to(origin_path) or origin_path.is_relative_to(where)):
            raise UserError(
                f"{out}: is, contains or lies in {source}, from which the model is made; name another folder"
            )
    if where.exists() and not where.is_dir():
        raise UserError(f"{out}: is a file; name a folder for the model")
    names = sorted(path.name for path in where.iterdir()) if where.exists() else []
    foreign = [name for name in names if not any(fnmatch(name, ours) for ours in OURS) or (where / name).is_dir()]
    if names and (foreign or not set(MARKS) & set(names)):
        reason = f"contains {foreign[0]}, which is not part of one" if foreign else f"has no {MARKS[0]}"
        raise UserError(f"{out}: is not empty and not a model directory of ours ({reason}); name another folder")
    return where


def write_model(
    model: hf.TokenCodesForCausalLM,
    tokenizer: Path | None,
    readme: str,
    facts: dict[str, Any],
    out: Path,
    check: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Write a model directory: `model`, the tokenizer's files, the model's code, README.md, and tokencodes.json with
    `facts` and the hash of the weights.

    The directory is written under a temporary name, where `check` may refuse it by an exception. Then it replaces
    `out`; the old files are removed last. Raises UserError if `out` may not be replaced (see `place`) or cannot be
    written.
    """
    place(out)
    try:
        with whole_folder(out, ours=OURS, what="a model") as folder:
            _fill(folder, model, tokenizer, readme, facts)
            check(folder)
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{out}: cannot be written ({os.strerror(error.errno).lower()}); name another folder") from None


def _fill(
    folder: Path, model: hf.TokenCodesForCausalLM, tokenizer: Path | None, readme: str, facts: dict[str, Any]
) -> None:
    """Write all files of a model directory into `folder`."""
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder, max_shard_size="1TB")  # one file: its hash is the model's
    for name in TOKENIZER_FILES if tokenizer else ():
        if (tokenizer / name).exists():
            shutil.copyfile(tokenizer / name, folder / name)
    standalone.write(folder)
    write_text(folder / "README.md", readme)
    Origin(**facts, **origin.hashes(folder)).write(folder / origin.FILE)
