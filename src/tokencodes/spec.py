"""What all specs of a config share: strict keys, and one line for each mistake.

A spec is a pydantic class beside what it describes. `tokencodes.config` gathers them.
"""

import difflib
import functools
import reprlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tokencodes.errors import UserError, shortened
from tokencodes.files import digest

SHA256 = r"^[0-9a-f]{64}$"

# Bounds of what a config may say. They are far above what anyone trains, and keep a stage from allocating, listing or
# computing without end. Products of them stay below 2^63.
MAX_COUNT = 10**9  # steps, windows, tokens at one time, and whatever else is counted in a loop
MAX_TOTAL = 10**18  # documents, tokens and bytes of a whole corpus
MAX_REAL = 1e12  # of a positive factor
MAX_NAME = 100  # characters of a name; file names join up to three of them
MAX_LABEL = 200  # characters of what tables and figures show
MAX_ENTRIES = 1_000  # of a list or mapping
SEEDS_END = 2**63  # generators take 63 bits

PROBLEMS_SHOWN = 20
PROBLEM_LENGTH = 300  # characters of a problem behind the name of the file
KEY_LENGTH = 100

# Names become folder names: no separators, no hidden files.
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=MAX_NAME)]
# Names of interfaces and references. "-" joins them with a seed.
Identifier = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=MAX_NAME)]
Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]
# A file or folder of the user. Braces are Snakemake's wildcards.
PathText = Annotated[str, Field(pattern=r"^[^{}]*[^{}/\s][^{}]*$")]
Seed = Annotated[int, Field(ge=0, lt=SEEDS_END)]


class Strict(BaseModel):
    """Immutable; a key that is not declared is an error, and so is a value of another type ("1" for 1, true for 1)."""

    # defer_build: a validator is made when it is first needed, so that a stage makes only that of the whole config.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    renamed: ClassVar[dict[str, str]] = {}  # keys of earlier versions, and what they are called now

    @model_validator(mode="before")
    @classmethod
    def _new_names(cls, value: Any) -> Any:
        for key in value if isinstance(value, dict) else ():
            if key in cls.renamed:
                raise ValueError(f"the key {key!r} is now called {cls.renamed[key]!r}; rename it")
        return value


def nearest(word: str, known: list[str]) -> str:
    """The end of a message about an unknown word: the most similar known one, or else all of them."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"


def first_problems(problems: Iterable[str]) -> list[str]:
    """As many problems as a message shows, and one more: finding them all takes long if there are thousands."""
    return list(islice(problems, PROBLEMS_SHOWN + 1))


@functools.cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _keys_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Names of the keys allowed at `location`, from the JSON schema (unions included)."""
    schema = _schema(model)
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
    """`location` as the user wrote it: without the tags of unions, which are in no file."""
    parts = []
    for part in location:
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            value = value[part]
        elif part != location[-1]:
            continue
        elif isinstance(value, dict) and value.get("kind") == part:
            continue
        parts.append(shortened(str(part), KEY_LENGTH))
    return ".".join(parts)


def _problems(model: type[BaseModel], error: ValidationError, value: Any) -> Iterator[str]:
    """One line for each problem, with its key."""
    for problem in error.errors(include_url=False):
        location = problem["loc"]
        key = _key(value, location)
        if problem["type"] == "extra_forbidden":
            known = _keys_at(model, location[:-1])
            yield f"{key}: unknown key{nearest(shortened(str(location[-1]), KEY_LENGTH), known)}"
        elif problem["type"] == "missing":
            yield f"{key}: this key is missing; add it"
        elif problem["type"] == "value_error":
            for message in str(problem["ctx"]["error"]).splitlines():
                yield f"{key + ': ' if key else ''}{message}"
        else:
            given = problem["input"]
            quotes = "; put quotes around it" if problem["type"] == "string_type" and _is_scalar(given) else ""
            yield f"{key}: {problem['msg'][:1].lower()}{problem['msg'][1:]} (it is {_shown(given)}){quotes}"


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _shown(value: Any) -> str:
    """A value as a message quotes it. Only its beginning is written out, whatever its size."""
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = brief.maxlong = 60
    return shortened(brief.repr(value), 60)


def parse(model: type[Strict], value: Any, where: str) -> Any:
    """Validate `value` as `model`; raise UserError with one line for each problem, each naming `where` and the key."""
    if not isinstance(value, dict):
        raise UserError(f"{where}: a mapping of keys is expected, not {type(value).__name__}")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = first_problems(_problems(model, error, value))
        lines = [f"{where}: {shortened(problem, PROBLEM_LENGTH)}" for problem in problems[:PROBLEMS_SHOWN]]
        if len(problems) > PROBLEMS_SHOWN:
            lines.append(f"{where}: and more problems; correct these first")
        raise UserError("\n".join(lines)) from None


def section_digest(*sections: Any) -> str:
    """Hex SHA-256 of parts of a config, for headers and for Snakemake's rerun triggers."""
    return digest([part.model_dump(mode="json") if isinstance(part, BaseModel) else part for part in sections])
