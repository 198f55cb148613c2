"""What all stored records share: a schema version, a digest of their own content, one writer and one reader.

A record is the JSON file in which a stage states what it made: `final.json`, manifests, scores, validations. Each kind
is a pydantic class beside the stage that writes it. The digest is over all keys but itself, so that a reader finds a
changed digit; it does not protect against somebody who recomputes it.
"""

from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tokencodes.errors import UserError
from tokencodes.files import digest, read_json, write_json

DIGEST = "record_sha256"  # the last key of a record
VERSION = "schema_version"
MESSAGE_LENGTH = 200  # of what pydantic says, in an error


class Record(BaseModel):
    """One JSON file that a stage writes and others read. Immutable; unknown keys are refused.

    `kind` names the record in messages; `made_by` is the command that writes it; `version` goes up when a key changes
    its name or meaning.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    kind: ClassVar[str]
    made_by: ClassVar[str]
    version: ClassVar[int] = 1

    def content(self) -> dict[str, Any]:
        """The plain values that are stored, with version and digest."""
        value = {VERSION: self.version, **self.model_dump(mode="json")}
        return {**value, DIGEST: digest(value)}

    def write(self, path: Path | str) -> None:
        """Write the record atomically."""
        write_json(path, self.content())

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a record and check its digest.

        Raises UserError, one line with the file and the remedy, if it is missing, damaged, of another version, or not
        what its stage wrote.
        """
        value = read_json(path)
        remedy = f"delete it and run `{cls.made_by}` again"
        if not isinstance(value, dict):
            raise UserError(f"{path}: not {cls.kind}; {remedy}")
        if value.get(VERSION) != cls.version:
            raise UserError(
                f"{path}: {cls.kind} of schema version {_shown(value.get(VERSION))}, this version of tokencodes reads "
                f"{cls.version}; {remedy}"
            )
        stated = value.pop(DIGEST, None)
        if stated != digest(value):
            raise UserError(f"{path}: its content does not match its {DIGEST}; {remedy}")
        del value[VERSION]
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:MESSAGE_LENGTH]
            raise UserError(f"{path}: not {cls.kind} ({problem}); {remedy}") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MESSAGE_LENGTH else text[:MESSAGE_LENGTH] + "..."
