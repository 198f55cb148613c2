"""What jobs ask the scheduler for, in a config."""

from pydantic import Field

from tokencodes.spec import Strict


class Resources(Strict):
    """What one job of a stage asks the scheduler for."""

    cpus: int = Field(1, ge=1)
    mem_mb: int | None = Field(None, ge=1)  # null: derived (tokencodes.planning.resources)
    runtime_min: int | None = Field(None, ge=1)  # the same
    gpus: int = Field(0, ge=0)


class StageResources(Strict):
    """By stage."""

    download: Resources = Resources()
    prepare: Resources = Resources()
    train: Resources = Resources()
    export: Resources = Resources()
    evaluate: Resources = Resources()
    report: Resources = Resources()
