"""The weights of a model directory, as files."""

from pathlib import Path

from tokencodes.errors import UserError
from tokencodes.files import digest, sha256_file


def weights_sha256(model_dir: Path) -> str:
    """The hash of a model directory's weights: of one file, or of the hashes of several by name.

    Raises UserError if the directory has no *.safetensors.
    """
    weights = {path.name: sha256_file(path) for path in sorted(model_dir.glob("*.safetensors"))}
    if not weights:
        raise UserError(f"{model_dir}: has no *.safetensors; save the model in that format")
    return next(iter(weights.values())) if len(weights) == 1 else digest(weights)
