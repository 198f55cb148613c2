"""YAML files of a config or of a run: read strictly, written with every key."""

import re
from pathlib import Path
from typing import Any

import yaml

from tokencodes.errors import UserError
from tokencodes.spec import Strict


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # in C where PyYAML was built so: eight times the pace
    """YAML as config files need it: a key that stands twice is an error, and 1e-5 is a number."""


def _mapping_without_repeats(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | bool):
            raise yaml.MarkedYAMLError(problem="a key is a list or a mapping", problem_mark=key_node.start_mark)
        if key in seen:
            raise yaml.MarkedYAMLError(problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(path: Path | str) -> Any:
    """Parse a YAML file; a missing or malformed one is the user's error, with line and column."""
    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  a SafeLoader
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; the shipped ones are in config/") from None
    except (IsADirectoryError, NotADirectoryError, PermissionError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text ({error})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}:{place}: {error.problem}; mend the YAML there") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{path}: not valid YAML ({error})") from None


def dump(value: Strict) -> str:
    """YAML text with every key, defaults included."""
    return yaml.safe_dump(value.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
