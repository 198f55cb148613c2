"""`tokencodes.json`: the record of a model directory's origin."""

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from tokencodes.errors import UserError, one_line
from tokencodes.files import sha256_file
from tokencodes.model.weights import weight_files, weights_sha256
from tokencodes.records import Record

FILE = "tokencodes.json"
CONFIG = "config.json"


class Origin(Record):
    """The origin of the weights in a model directory: a run of ours, an import, or a model that others trained."""

    kind: ClassVar[str] = "the origin of a model"
    made_by: ClassVar[str] = "tokencodes export"

    interface: str | None = Field(None, description="name of the interface; null for a model that others trained")
    seed: int | None = Field(None, description="of the run; null if the model was not trained here")
    model_sha256: str = Field(description="of the weights in this folder")
    config_sha256: str = Field(description="of the config.json in this folder")
    checkpoint_sha256: str | None = Field(None, description="of the weights in the run's final checkpoint")
    store_sha256: str | None = Field(None, description="of the token store that the run was trained on")
    tokenizer_sha256: str | None = Field(None, description="of the tokenizer that the run was trained with")
    codes_sha256: str | None = Field(None, description="of the code book's values; null if the input is trained")
    run: dict[str, Any] | None = Field(None, description="the run's resolved config")
    imported: dict[str, str] | None = Field(None, description="imported files and their SHA-256")
    reference: str | None = Field(None, description="name under `references` in the config")
    source: dict[str, Any] | None = Field(None, description="that entry of the config")

    def mismatch(self, hashes: dict[str, str]) -> str | None:
        """Which file of a model directory, with these `hashes`, is not the one that this record names; or None."""
        if hashes["config_sha256"] != self.config_sha256:
            return f"its {CONFIG} is not the one that its {FILE} names"
        if hashes["model_sha256"] != self.model_sha256:
            return f"its weights are not those that its {FILE} names"
        return None


def hashes(model_dir: Path) -> dict[str, str]:
    """The hashes of a model directory's weights and config, as an Origin names them.

    Raises UserError if the weights are incomplete (`weights.weight_files`).
    """
    files = {name: sha256_file(model_dir / name) for name in weight_files(model_dir)}
    return {"model_sha256": weights_sha256(files), "config_sha256": sha256_file(model_dir / CONFIG)}


def problem(model_dir: Path) -> str | None:
    """What is wrong with a local model directory, by its own tokencodes.json; None without one, or if all is right."""
    if not (model_dir / FILE).is_file():
        return None
    try:
        return Origin.read(model_dir / FILE).mismatch(hashes(model_dir))
    except (UserError, OSError) as error:
        return one_line(error)
