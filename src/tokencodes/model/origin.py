"""`tokencodes.json`: the record of a model directory's origin."""

from typing import Any, ClassVar

from pydantic import Field

from tokencodes.records import Record

FILE = "tokencodes.json"


class Origin(Record):
    """The origin of the weights in a model directory: a run of ours, an import, or a model that others trained."""

    kind: ClassVar[str] = "the origin of a model"
    made_by: ClassVar[str] = "tokencodes export"

    interface: str | None = Field(None, description="name of the interface; null for a model that others trained")
    seed: int | None = Field(None, description="of the run; null if the model was not trained here")
    model_sha256: str = Field(description="of the weights in this folder")
    checkpoint_sha256: str | None = Field(None, description="of the weights in the run's final checkpoint")
    store_sha256: str | None = Field(None, description="of the token store that the run was trained on")
    tokenizer_sha256: str | None = Field(None, description="of the tokenizer that the run was trained with")
    codes_sha256: str | None = Field(None, description="of the code book's values; null if the input is trained")
    run: dict[str, Any] | None = Field(None, description="the run's resolved config")
    imported: dict[str, str] | None = Field(None, description="imported files and their SHA-256")
    reference: str | None = Field(None, description="name under `references` in the config")
    source: dict[str, Any] | None = Field(None, description="that entry of the config")
