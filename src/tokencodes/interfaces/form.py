"""What a model must know of its input interface: shapes and one factor, not how the codes were made.

A form is stored in the model's config.json. With the weights, which hold the code book, it is all that a model needs to
run; the recipe of the codes stays with the run.
"""

from typing import Annotated, Literal

from pydantic import Field

from tokencodes.spec import Strict


class TableForm(Strict):
    """A trainable V x d table."""

    kind: Literal["table"]


class CodeForm(Strict):
    """x(t) = scale * lift(code(t))."""

    kind: Literal["code"]
    width: int = Field(ge=1)  # K
    is_binary: bool
    trained: bool  # the codes are a parameter
    lift: Literal["tile", "hadamard", "orthogonal"]
    scale: float = Field(gt=0)


Form = Annotated[TableForm | CodeForm, Field(discriminator="kind")]
