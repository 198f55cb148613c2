"""Counts and FLOPs of a model from its shape alone, without torch; and the record of a run's parameter accounting."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tokencodes.model.spec import Model
from tokencodes.records import Record


class Counts(BaseModel):
    """Trainable parameters by part, and stored values that are not trained."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trainable: int = Field(ge=1, description="trainable parameters in all")
    input: int = Field(ge=0, description="of these, in the input interface")
    head: int = Field(ge=1, description="of these, in the output head")
    backbone: int = Field(ge=1, description="of these, in the blocks and the final norm")
    buffers: int = Field(ge=0, description="stored values that are not trained: code book and lift")


class Params(Record):
    """`params.json`: the parameter accounting of each interface (paper, Table 1)."""

    kind: ClassVar[str] = "the parameter accounting"
    made_by: ClassVar[str] = "tokencodes params"

    interfaces: dict[str, Counts] = Field(description="by the interface's name")


def block_parameters(model: Model) -> int:
    """Parameters of one decoder block: 4 d^2 + 3 d f + 2 d (paper, the check of Table 1)."""
    d, f = model.d_model, model.d_ff
    return 4 * d * d + 3 * d * f + 2 * d


def backbone_parameters(model: Model) -> int:
    """Parameters of all blocks and the final norm."""
    return model.n_layers * block_parameters(model) + model.d_model


def head_parameters(model: Model) -> int:
    """Parameters of the untied output head; a learned table has as many."""
    return model.vocab_size * model.d_model


def flops_per_token(model: Model) -> int:
    """Training FLOPs per predicted token, forward and backward, two for a multiply-add.

    6 per parameter of the backbone's matrices and of the head, and causal attention, 6 * n_layers * d_model *
    context_length. The input is a look-up for every interface and counts nothing, so the figure is the same for all.
    """
    d, f = model.d_model, model.d_ff
    matrices = model.n_layers * (4 * d * d + 3 * d * f) + head_parameters(model)
    return 6 * matrices + 6 * model.n_layers * d * model.context_length
