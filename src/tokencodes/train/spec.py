"""The optimisation recipe in a config, and `Run`: everything that determines the bits of one trained model."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from tokencodes.data.spec import Data
from tokencodes.interfaces.spec import Interface, interface_problems
from tokencodes.model.spec import Model
from tokencodes.spec import MAX_COUNT, MAX_REAL, Identifier, Name, Seed, Strict, parse
from tokencodes.yamlfile import read_yaml

MAX_RANKS = 100_000
MAX_THREADS = 10_000
MAX_MINUTES = 10**7  # 19 years
MAX_TFLOPS = 10**6  # of one GPU
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

    max_steps: int = Field(ge=1, le=MAX_COUNT, description="number of updates. *Paper:* 382,500")
    warmup_steps: int = Field(ge=0, le=MAX_COUNT, description="updates of linear warm-up. *Paper:* 2,000")
    peak_lr: float = Field(gt=0, le=MAX_REAL, description="learning rate after warm-up. *Paper:* 1.5e-4")
    min_lr: float = Field(ge=0, le=MAX_REAL, description="learning rate at the end of the cosine decay. *Paper:* 1e-5")
    weight_decay: float = Field(0.01, ge=0, le=MAX_REAL, description="on matrices only (*paper*)")
    beta1: float = Field(0.9, ge=0, lt=1, description="of AdamW")
    beta2: float = Field(0.95, ge=0, lt=1, description="of AdamW")
    adam_eps: float = Field(1e-8, gt=0, le=1, description="epsilon of AdamW")
    grad_clip: float = Field(1.0, gt=0, le=MAX_REAL, description="bound on the norm of the whole gradient (*paper*)")
    n_gpus: int = Field(
        ge=1,
        le=MAX_RANKS,
        description=(
            "ranks of one training job: GPUs, or processes on a CPU; more than one start through torchrun. *Paper:* 2"
        ),
    )
    parallel: Literal["ddp", "fsdp"] = Field(
        "ddp", description="`ddp`: a whole copy on each rank. `fsdp`: sharded weights and optimizer state"
    )
    micro_batch_size: int = Field(ge=1, le=MAX_COUNT, description="windows per forward pass. *Paper:* 8")
    grad_accum_steps: int = Field(ge=1, le=MAX_COUNT, description="forward passes per update. *Paper:* 8")
    tokens_per_step: int = Field(
        ge=1,
        le=MAX_COUNT,
        description="must be `n_gpus` x `micro_batch_size` x `grad_accum_steps` x `context_length`. *Paper:* 262,144",
    )
    precision: Literal["fp32", "bf16"] = Field(
        "bf16", description="`bf16`: autocast over fp32 weights (*paper*). `fp32`"
    )
    device: Literal["cpu", "cuda", "auto"] = Field(
        "auto", description="`cpu`, `cuda`, or `auto`: a GPU if there is one"
    )
    cpu_threads: int = Field(
        1,
        ge=1,
        le=MAX_THREADS,
        description="threads per process; part of a run's identity, since the order of sums on a CPU depends on it",
    )
    compile: bool = Field(False, description="use torch.compile: slow to start, faster after that")
    activation_checkpointing: bool = Field(
        False,
        description=(
            "keep only the input of each block and compute the rest again in the backward pass: less memory, about a "
            "third more work, the same bits"
        ),
    )
    loss_chunk_tokens: int = Field(
        1024, ge=1, le=MAX_COUNT, description="rows of logits that exist at one time: less memory or more speed"
    )
    checkpoint_every: int = Field(ge=1, le=MAX_COUNT, description="updates between checkpoints")
    keep_checkpoints: int = Field(2, ge=2, le=MAX_COUNT, description="number of checkpoints that stay on disk")
    validate_every: int = Field(ge=1, le=MAX_COUNT, description="updates between measurements of the validation loss")
    validation_windows: int = Field(ge=1, le=MAX_COUNT, description="windows per measurement")
    log_every: int = Field(1, ge=1, le=MAX_COUNT, description="updates between lines of progress")
    tensorboard: bool = Field(
        False,
        description=(
            "also write the curves for TensorBoard, into `tensorboard/` of the run folder (`pip install tensorboard`)"
        ),
    )
    peak_tflops: float | None = Field(
        None,
        gt=0,
        le=MAX_TFLOPS,
        description="peak of one GPU in `precision`, for the utilisation (MFU) in `timing.jsonl`; null: not computed",
    )
    time_budget_min: float | None = Field(
        None,
        gt=0,
        le=MAX_MINUTES,
        description="stop, save and exit 75 after this many minutes; set it below the scheduler's time limit",
    )
    on_code_change: Literal["refuse", "restart", "continue"] = Field(
        "refuse",
        description=(
            "what to do if the training code has changed since a checkpoint. `refuse`: keep a finished model, with a "
            "warning, and do not continue an unfinished one. `restart`: train again. `continue`: accept the new code"
        ),
    )

    @model_validator(mode="after")
    def _schedule(self) -> "Train":
        if self.warmup_steps >= self.max_steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is not below max_steps {self.max_steps}")
        if self.min_lr > self.peak_lr:
            raise ValueError(f"min_lr {self.min_lr} is above peak_lr {self.peak_lr}")
        return self


def split_problems(model: Model, data: Data, train: Train) -> list[str]:
    """Contradictions between sections: one line per problem, each with its key."""
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
    """Everything that determines the bits of one trained model: what `tokencodes train --run` reads."""

    name: Name
    interface_name: Identifier
    seed: Seed
    interface: Interface
    model: Model
    data: Data
    train: Train

    @model_validator(mode="after")
    def _consistent(self) -> "Run":
        """Check what a config is checked for: users may edit a run's file to move to other hardware."""
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
        """The values that determine the weights. They must be equal for training to continue from a checkpoint.

        Names, the intervals of saving and logging, and the device are not part of it. Neither is the split of the
        global batch into ranks, micro-batches and accumulation, so a run may move to other hardware; results then agree
        within rounding. `tokens_per_step` is part of it.
        """
        value = self.model_dump(mode="json")
        for key in ("name", "interface_name"):
            del value[key]
        del value["interface"]["paper_model"]
        for key in NOT_IDENTITY:
            del value["train"][key]
        return value | {"data": self.data.contents()}


def load_run(path: Path | str) -> Run:
    """Read and validate a run file, as `tokencodes resolve --interface NAME --seed N` writes it."""
    return parse(Run, read_yaml(path), str(path))
