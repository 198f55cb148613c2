"""`final.json`: the record of a finished training."""

from typing import ClassVar

from pydantic import Field

from tokencodes.records import Record


class Final(Record):
    """What a finished run came to, and the hashes of what it was made from. Written last, by `tokencodes train`."""

    kind: ClassVar[str] = "the record of a finished training"
    made_by: ClassVar[str] = "tokencodes train"

    interface: str = Field(description="name of the interface in the config")
    seed: int = Field(ge=0, description="decides initialisation and data order")
    step: int = Field(ge=1, description="optimizer steps")
    tokens: int = Field(ge=1, description="predicted tokens in all steps")
    train_loss: float = Field(description="mean loss of the last `validate_every` steps, nats per token")
    val_loss: float = Field(description="mean loss on the held-out windows after the last step, nats per token")
    unigram_entropy: float = Field(description="of the training tokens, nats per token")
    unigram_cross_entropy: float = Field(description="of the held-out tokens under that unigram model, nats per token")
    checkpoint: str = Field(description="the final checkpoint, relative to the run's folder")
    model_sha256: str = Field(description="of the weights file in that checkpoint")
    metrics_sha256: str = Field(description="of metrics.jsonl")
    store_sha256: str = Field(description="of the token store's manifest")
    tokenizer_sha256: str = Field(description="of tokenizer.json")
    codes_sha256: str | None = Field(description="of the code book's values; null if the input is trained")
    run_sha256: str = Field(description="of the part of the config that decides the weights")
    code: str | None = Field(description="digest of the training code")
    versions: dict[str, str] = Field(description="of tokencodes, torch, numpy and Python")
    hardware: dict[str, str | int] = Field(description="device, ranks and CPU threads of the last part of the run")
    wall_s: float = Field(ge=0, description="seconds in the steps that count")
    energy_j: float | None = Field(description="energy that the GPUs used in these steps, in joules; null if unknown")
