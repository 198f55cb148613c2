"""The weights of a model directory, as files."""

from collections.abc import Mapping
from pathlib import Path

from tokencodes.errors import UserError
from tokencodes.files import digest, read_json

WEIGHTS = "model.safetensors"
SUFFIX = ".safetensors"
INDEX = f"{WEIGHTS}.index.json"  # of weights in several files; not read if there is one of the name above


def weight_files(model_dir: Path) -> list[str]:
    """Names of the files that Transformers loads as the weights: one file, or an index and the files that it lists.

    Raises UserError if there are none, or if the index lists anything but files of this directory.
    """
    if (model_dir / WEIGHTS).is_file():
        return [WEIGHTS]
    if not (model_dir / INDEX).is_file():
        raise UserError(f"{model_dir}: has no {WEIGHTS}; save the model in that format")
    index = read_json(model_dir / INDEX)
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{model_dir / INDEX}: has no map of tensors to files; save the model again")
    shards = sorted(set(names.values()))
    for name in shards:
        if name != Path(name).name or not name.endswith(SUFFIX) or "\0" in name or not (model_dir / name).is_file():
            raise UserError(
                f"{model_dir / INDEX}: lists {name!r}, which is no weights file of this folder; get it again"
            )
    return [INDEX, *shards]


def weights_sha256(files: Mapping[str, str]) -> str:
    """The hash of weights, given the hashes of files by name: that of one file, or of the hashes of several by name."""
    if WEIGHTS in files:
        return files[WEIGHTS]
    return digest({name: sha256 for name, sha256 in files.items() if name == INDEX or name.endswith(SUFFIX)})
