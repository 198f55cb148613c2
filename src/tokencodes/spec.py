"""What all specs of a config share: strict keys, and one line for each mistake.

A spec is a pydantic class beside what it describes. `tokencodes.config` gathers them.
"""

import difflib
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tokencodes.errors import UserError
from tokencodes.files import digest

NAME = r"^[a-z0-9][a-z0-9._-]*$"  # names become folder names: no separators, no hidden files
SHA256 = r"^[0-9a-f]{64}$"


class Strict(BaseModel):
    """Immutable; a key that is not declared is an error."""

    # defer_build: a validator is made when it is first needed, so that a stage makes only that of the whole config.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    renamed: ClassVar[dict[str, str]] = {}  # keys of earlier versions, and what they are called now

    @model_validator(mode="before")
    @classmethod
    def _no_number_is_a_truth(cls, value: Any) -> Any:
        """YAML's true would pass for the number 1; and an old key gets its new name."""
        if isinstance(value, dict):
            for key, given in value.items():
                if key in cls.renamed:
                    raise ValueError(f"the key {key!r} is now called {cls.renamed[key]!r}; rename it")
                if isinstance(given, bool) and key in cls.model_fields and cls.model_fields[key].annotation is not bool:
                    raise ValueError(f"{key} is {str(given).lower()}, which is not what it takes")
        return value


def nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"


def _fields_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Names of the keys allowed at `location`, found by walking the JSON schema (unions included)."""
    schema = model.model_json_schema()
    nodes = [schema]

    def expand(node: dict[str, Any]) -> list[dict[str, Any]]:
        if "$ref" in node:
            return expand(schema["$defs"][node["$ref"].rsplit("/", 1)[1]])
        options = node.get("oneOf", []) + node.get("anyOf", [])
        return [inner for option in options for inner in expand(option)] if options else [node]

    for part in location:
        following = []
        for node in (inner for outer in nodes for inner in expand(outer)):
            tag = node.get("properties", {}).get("kind", {}).get("const")
            if tag == part:  # pydantic puts a union's tag into the location
                following.append(node)
            elif part in node.get("properties", {}):
                following.append(node["properties"][part])
            elif isinstance(part, int) and "items" in node:
                following.append(node["items"])
            elif isinstance(node.get("additionalProperties"), dict):
                following.append(node["additionalProperties"])
            elif "patternProperties" in node:
                following.extend(node["patternProperties"].values())
        nodes = following
    return sorted({key for node in nodes for inner in expand(node) for key in inner.get("properties", {})})


def _key(value: Any, location: tuple[str | int, ...]) -> str:
    """`location` as the user wrote it: without the tags of unions, which stand in no file."""
    parts = []
    for part in location:
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            value = value[part]
        elif part != location[-1]:
            continue
        elif isinstance(value, dict) and value.get("kind") == part:
            continue
        parts.append(str(part))
    return ".".join(parts)


def _lines(model: type[BaseModel], error: ValidationError, value: Any, where: str) -> list[str]:
    lines = []
    for problem in error.errors():
        location = problem["loc"]
        key = _key(value, location)
        if problem["type"] == "extra_forbidden":
            known = _fields_at(model, location[:-1])
            lines.append(f"{where}: {key}: unknown key{nearest(str(location[-1]), known)}")
        elif problem["type"] == "missing":
            lines.append(f"{where}: {key}: this key is missing; add it")
        elif problem["type"] == "value_error":
            for message in str(problem["ctx"]["error"]).splitlines():
                lines.append(f"{where}: {key + ': ' if key else ''}{message}")
        else:
            given = repr(problem["input"])
            given = given if len(given) <= 60 else given[:57] + "..."
            lines.append(f"{where}: {key}: {problem['msg'][:1].lower()}{problem['msg'][1:]} (it is {given})")
    return lines


def parse(model: type[Strict], value: Any, where: str) -> Any:
    """Validate `value` as `model`; raise UserError with one line for each problem, each naming `where` and the key."""
    if not isinstance(value, dict):
        raise UserError(f"{where}: a mapping of keys is expected, not {type(value).__name__}")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise UserError("\n".join(_lines(model, error, value, where))) from None


def section_digest(*sections: Any) -> str:
    """Hex SHA-256 of parts of a config, for headers and for Snakemake's rerun triggers."""
    return digest([part.model_dump(mode="json") if isinstance(part, BaseModel) else part for part in sections])
