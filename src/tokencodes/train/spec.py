"""The optimisation recipe in a config, and `Run`: all that decides the bits of one trained model."""

from typing import Any, Literal

from pydantic import Field, model_validator

from tokencodes.data.spec import Data
from tokencodes.interfaces.spec import Interface, interface_problems
from tokencodes.model.spec import Model
from tokencodes.spec import Strict

SEEDS_END = 2**63  # generators take 63 bits
NOT_IDENTITY = (
    "n_gpus",
    "parallel",
    "micro_batch_size",
    "grad_accum_steps",
    "device",
    "compile",
    "activation_checkpointing",
    "loss_chunk_tokens",
    "checkpoint_every",
    "keep_checkpoints",
    "log_every",
    "tensorboard",
    "peak_tflops",
    "time_budget_min",
    "on_code_change",
)


class Train(Strict):
    """The optimisation recipe (paper's values in config/paper.yaml; `ours` where the paper is silent)."""

    max_steps: int = Field(ge=1)
    warmup_steps: int = Field(ge=0)
    peak_lr: float = Field(gt=0)
    min_lr: float = Field(ge=0)
    weight_decay: float = Field(0.01, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)  # ours
    beta2: float = Field(0.95, ge=0, lt=1)  # ours
    adam_eps: float = Field(1e-8, gt=0)  # ours
    grad_clip: float = Field(1.0, gt=0)
    n_gpus: int = Field(ge=1)  # ranks of one training job; on a CPU device: processes
    parallel: Literal["ddp", "fsdp"] = "ddp"  # whole copies on each rank, or sharded weights and optimizer state
    micro_batch_size: int = Field(ge=1)
    grad_accum_steps: int = Field(ge=1)
    tokens_per_step: int = Field(ge=1)  # stated and asserted: n_gpus * micro_batch_size * grad_accum_steps * context
    precision: Literal["fp32", "bf16"] = "bf16"  # bf16: autocast over fp32 weights
    device: Literal["cpu", "cuda", "auto"] = "auto"
    cpu_threads: int = Field(1, ge=1)  # part of the run's identity: sums on a CPU depend on it
    compile: bool = False
    activation_checkpointing: bool = False  # keep each block's input alone and compute the rest again for backward
    loss_chunk_tokens: int = Field(1024, ge=1)  # ours: rows of logits that exist at one time
    checkpoint_every: int = Field(ge=1)
    keep_checkpoints: int = Field(2, ge=2)
    validate_every: int = Field(ge=1)
    validation_windows: int = Field(ge=1)
    log_every: int = Field(1, ge=1)
    tensorboard: bool = False  # curves for TensorBoard under DIR/tensorboard too
    peak_tflops: float | None = Field(None, gt=0)  # of one GPU in `precision`, for the MFU in timing.jsonl
    time_budget_min: float | None = Field(None, gt=0)  # stop, save and exit 75 after this many minutes
    on_code_change: Literal["refuse", "restart", "continue"] = "refuse"  # what a checkpoint of other code is worth

    @model_validator(mode="after")
    def _schedule(self) -> "Train":
        if self.warmup_steps >= self.max_steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is not below max_steps {self.max_steps}")
        if self.min_lr > self.peak_lr:
            raise ValueError(f"min_lr {self.min_lr} is above peak_lr {self.peak_lr}")
        return self


def split_problems(model: Model, data: Data, train: Train) -> list[str]:
    problems = []
    product = train.n_gpus * train.micro_batch_size * train.grad_accum_steps * model.context_length
    if product != train.tokens_per_step:
        problems.append(
            f"train.tokens_per_step: {train.tokens_per_step} is not n_gpus {train.n_gpus} x micro_batch_size "
            f"{train.micro_batch_size} x grad_accum_steps {train.grad_accum_steps} x context_length "
            f"{model.context_length} = {product}"
        )
    if data.min_tokens < model.context_length + 1:
        problems.append(
            f"data.min_tokens: {data.min_tokens} is below context_length + 1 = {model.context_length + 1}; "
            "a window would not fit into every document"
        )
    return problems


class Run(Strict):
    """All that decides the bits of one trained model: what `tokencodes train --run` reads."""

    name: str
    interface_name: str
    seed: int = Field(ge=0, lt=SEEDS_END)
    interface: Interface
    model: Model
    data: Data
    train: Train

    @model_validator(mode="after")
    def _consistent(self) -> "Run":
        """A run's file may be edited, to move to other hardware: what a config must hold, it must hold too."""
        problems = [
            *interface_problems(
                "interface", self.interface_name, self.interface, self.model.vocab_size, self.model.d_model
            ),
            *split_problems(self.model, self.data, self.train),
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be continued: what decides the weights.

        Not in it: names, the pace of saving and talking, the device, and how the global batch is split into ranks,
        micro-batches and accumulation (`tokens_per_step` is in it): a run may move to other hardware, within rounding.
        """
        value = self.model_dump(mode="json")
        for key in ("name", "interface_name"):
            del value[key]
        del value["interface"]["paper_model"]
        for key in NOT_IDENTITY:
            del value["train"][key]
        return value | {"data": self.data.contents()}
