"""What jobs ask the scheduler for, in a config."""

from pydantic import Field

from tokencodes.spec import Strict

# Of one job; far above what a cluster grants.
MAX_CPUS = 100_000
MAX_MEM_MB = 10**9
MAX_RUNTIME_MIN = 10**7
MAX_GPUS = 100_000


class Resources(Strict):
    """What one job of a stage asks the scheduler for."""

    cpus: int = Field(1, ge=1, le=MAX_CPUS, description="CPU cores per job")
    mem_mb: int | None = Field(
        None,
        ge=1,
        le=MAX_MEM_MB,
        description=(
            "memory of the host, in MB; null: derived from the model's size, the number of ranks and what a "
            "checkpoint gathers"
        ),
    )
    runtime_min: int | None = Field(
        None,
        ge=1,
        le=MAX_RUNTIME_MIN,
        description=(
            "time limit in minutes; null: for `download` and `prepare` four times what `data.expected` implies, at "
            "least an hour; for `train` an hour above `time_budget_min`. State the partition's limit for `train`"
        ),
    )
    gpus: int = Field(0, ge=0, le=MAX_GPUS, description="GPUs per job; for `train` on a cluster, `train.n_gpus`")


class StageResources(Strict):
    """By stage."""

    download: Resources = Resources()
    prepare: Resources = Resources()
    train: Resources = Resources()
    export: Resources = Resources()
    evaluate: Resources = Resources()
    report: Resources = Resources()
