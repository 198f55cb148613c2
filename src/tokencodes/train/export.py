"""The final checkpoint as a Transformers model directory, with what it was made from beside it."""

import shutil
from pathlib import Path
from typing import Any

import torch
import transformers

from tokencodes import config
from tokencodes.errors import UserError
from tokencodes.files import fsync_directory, fsync_file, read_json, sha256_file, write_json, write_text
from tokencodes.model import hf, standalone
from tokencodes.model.transformer import Transformer
from tokencodes.train import checkpoint

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def trained(run_dir: Path) -> tuple[config.Run, Transformer, dict[str, Any]]:
    """The run, its final weights (float32, CPU) and its final.json.

    Raises UserError if the run is not finished, or if the checkpoint is not the one that final.json names.
    """
    final = read_json(run_dir / "final.json")
    run = config.load_run(run_dir / "run.yaml")
    path = run_dir / final["checkpoint"]
    try:
        found = checkpoint.verify(path)
    except ValueError as error:
        raise UserError(f"{error}; train again") from None
    if found.manifest["files"]["model.safetensors"]["sha256"] != final["model_sha256"]:
        raise UserError(f"{path}: its weights are not those of {run_dir / 'final.json'}; train again")
    model = Transformer(run.interface, run.model)
    model.load_state_dict(found.tensors("model"), strict=True)
    return run, model.eval(), final


def card(run: config.Run, final: dict[str, Any]) -> str:
    """README.md of the model directory."""
    train, model = run.train, run.model
    return f"""---
library_name: transformers
license: apache-2.0
pipeline_tag: text-generation
---
# {run.name}: {run.interface_name}, seed {run.seed}

A decoder language model whose input interface is `{run.interface_name}`, trained by Token Codes
{final["versions"]["tokencodes"]}. It takes part in a comparison of input interfaces and is not meant for other use.

```python
import tokencodes  # without the package: pass trust_remote_code=True, which runs the code in this folder
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
```

| what | value |
|---|---|
| layers, width, heads | {model.n_layers}, {model.d_model}, {model.n_heads} |
| FFN width, context | {model.d_ff}, {model.context_length} |
| vocabulary | {model.vocab_size} |
| predicted tokens | {final["tokens"]} in {final["step"]} updates of {train.tokens_per_step} |
| rate | peak {train.peak_lr}, {train.warmup_steps} warm-up steps, cosine to {train.min_lr} |
| validation loss | {final["val_loss"]:.4f} nats a token (unigram entropy {final["unigram_entropy"]:.4f}) |
| weights | sha256 {final["model_sha256"]} of the checkpoint |
| corpus store, tokenizer | sha256 {final["store_sha256"]}, {final["tokenizer_sha256"]} |

The whole run, resolved, is in tokencodes.json.
"""


def export(run_dir: Path, tokenizer: Path, out: Path) -> None:
    """Write `out`: config.json, model.safetensors, generation_config.json, tokenizer files, the model's code, README.md
    and tokencodes.json. Raises UserError if the tokenizer is not the run's.
    """
    run, model, final = trained(run_dir)
    if sha256_file(tokenizer / "tokenizer.json") != final["tokenizer_sha256"]:
        raise UserError(f"{tokenizer / 'tokenizer.json'}: is not the tokenizer that {run_dir} was trained with")
    ids = read_json(tokenizer / "manifest.json")
    settings = hf.to_config(
        run.interface,
        run.model,
        bos_token_id=ids["eos_token_id"],
        eos_token_id=ids["eos_token_id"],
        pad_token_id=ids["eos_token_id"],
        auto_map=standalone.AUTO_MAP,
    )
    facts = {
        "interface": run.interface_name,
        "seed": run.seed,
        "checkpoint_sha256": final["model_sha256"],
        "store_sha256": final["store_sha256"],
        "tokenizer_sha256": final["tokenizer_sha256"],
        "run": run.model_dump(mode="json"),
    }
    write_model(hf.from_transformer(model, settings).to(torch.float32), tokenizer, card(run, final), facts, out)
    print(f"{out}: {sum(p.numel() for p in model.parameters()):,} parameters")


def write_model(
    adapter: hf.TokenCodesForCausalLM, tokenizer: Path | None, readme: str, facts: dict[str, Any], out: Path
) -> None:
    """A model directory: `adapter`, the tokenizer's files, the model's own code, README.md, and as tokencodes.json
    `facts` and the hash of the weights. It is written under a temporary name and renamed."""
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    transformers.utils.logging.disable_progress_bar()
    adapter.save_pretrained(temporary, max_shard_size="1TB")  # one file: its hash is the model's
    for name in TOKENIZER_FILES if tokenizer else ():
        if (tokenizer / name).exists():
            shutil.copyfile(tokenizer / name, temporary / name)
    standalone.write(temporary)
    write_text(temporary / "README.md", readme)
    write_json(temporary / "tokencodes.json", {**facts, "model_sha256": sha256_file(temporary / "model.safetensors")})
    for path in temporary.iterdir():
        shutil.copymode(temporary / "README.md", path)  # safetensors are written for their owner alone
        fsync_file(path)
    shutil.rmtree(out, ignore_errors=True)
    temporary.rename(out)
    fsync_directory(out.parent)
