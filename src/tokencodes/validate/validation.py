"""`validation/<model>.json`: the record of a model's checks."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tokencodes.records import Record


class Check(BaseModel):
    """One check of a model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="what is compared")
    passed: bool = Field(description="whether the model passed")
    detail: str = Field(description="what the check found, in one line")


class Validation(Record):
    """All checks of one model. It is valid if all have passed."""

    kind: ClassVar[str] = "the validation of a model"
    made_by: ClassVar[str] = "tokencodes validate"

    model: str = Field(description="name of the model")
    passed: bool = Field(description="whether all checks passed")
    checks: list[Check] = Field(description="in the order in which they ran")
