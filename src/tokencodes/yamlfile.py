"""YAML files of a config or of a run: YAML 1.2, read strictly and within bounds; written with every key.

PyYAML follows YAML 1.1, in which 010 is 8, 24:00:00 is 86,400 and `no` is false. Only its parser is used here, which
splits a text into events. A value without quotes follows the core schema of YAML 1.2 (section 10.3 of its standard).
A value that the two versions read differently is refused, because Snakemake, editors and other tools read YAML 1.1.
One kind of value is accepted: 1e-5 is a number, although PyYAML takes it for text.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml.resolver import Resolver

from tokencodes.errors import CONTROL, UserError, one_line, shortened
from tokencodes.spec import Strict

# Bounds of a file. config/controls.yaml, the largest shipped config, has 9 kB in 6 levels.
MAX_BYTES = 2**20
MAX_SIZE = 2**20  # characters of all keys and values, where an alias counts as what it stands for
VALUE_SIZE = 16  # what each key, value, list and mapping adds to that
MAX_DEPTH = 20  # lists and mappings inside one another
MAX_TEXT = 4_096  # characters of a text: Linux takes no longer path
MAX_NUMBER = 100  # characters of a number
SHOWN = 40  # characters of a value that a message quotes

# The core schema, in its order: what a plain value is, and how it becomes a Python value.
CORE: tuple[tuple[str, re.Pattern[str], Callable[[str], Any]], ...] = (
    ("null", re.compile(r"~|null|Null|NULL|"), lambda text: None),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    ("int", re.compile(r"[-+]?[0-9]+"), int),
    ("int", re.compile(r"0o[0-7]+"), lambda text: int(text, 8)),
    ("int", re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    ("float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    ("float", re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    ("float", re.compile(r"\.(nan|NaN|NAN)"), lambda text: float("nan")),
)
TAGS = "tag:yaml.org,2002:"  # written as !!
LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")  # octal in YAML 1.1, decimal in YAML 1.2


class _Parser(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # in C where PyYAML was built so: eight times the pace
    """Splits a YAML text into events."""


class _Dumper(yaml.SafeDumper):
    """Puts quotes around each text that YAML 1.1 or YAML 1.2 would read as another value."""


for _tag, _pattern, _ in CORE:
    _Dumper.add_implicit_resolver(TAGS + _tag, re.compile(f"(?:{_pattern.pattern})$"), None)


def read_yaml(path: Path | str) -> Any:
    """The value of a YAML file. Raises UserError, with the place, if it is missing, malformed or out of bounds."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UserError(f"{path}: has more than {MAX_BYTES:,} bytes; no config is so large: name another file")
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; the shipped ones are in config/") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text ({error}); name a file in UTF-8") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text, JSON included. `where` names the text in a UserError."""
    try:
        return _Reader(text).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise UserError(f"{where}:{place} {error.problem}; correct the YAML there") from None
    except (yaml.YAMLError, ValueError) as error:  # a character that YAML excludes
        raise UserError(f"{where}: not valid YAML ({one_line(error)}); correct it there") from None


def typed(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The values of Snakemake's `--config KEY=VALUE`, with a type for what their lists and mappings hold as text.

    Raises ValueError for a value that `read_yaml` would refuse.
    """
    return {key: _text(value) if isinstance(value, str) else _typed(value) for key, value in overrides.items()}


def _typed(value: Any) -> Any:
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, dict):
        return {_text(key): _typed(each) for key, each in value.items()}
    return [_typed(each) for each in value] if isinstance(value, list) else value


def dump(value: Strict) -> str:
    """YAML text with every key, defaults included. `read_yaml` and YAML 1.1 readers get the same values from it."""
    return yaml.dump(value.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Reader:
    """Makes a value from the events of one text."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=_Parser)
        self._anchors: dict[str, tuple[Any, int]] = {}  # by name: the value, and its size
        self._size = 0

    def document(self) -> Any:
        """The value of the only document; None if there is none."""
        events = itertools.dropwhile(lambda event: isinstance(event, yaml.StreamStartEvent), self._events)
        if isinstance(next(events), yaml.StreamEndEvent):
            return None
        value = self._value(next(events), 0)
        next(events)
        if not isinstance(after := next(events), yaml.StreamEndEvent):
            raise _error("a second document starts here; a file holds one", after)
        return value

    def _value(self, event: yaml.Event, depth: int) -> Any:
        before = self._size
        self._grow(VALUE_SIZE, event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag is not None:
            raise _error(
                f"the tag {shortened(event.tag.replace(TAGS, '!!'), SHOWN)} is not taken; write the value without it",
                event,
            )
        if depth == MAX_DEPTH and not isinstance(event, yaml.ScalarEvent):
            raise _error(f"more than {MAX_DEPTH} lists and mappings lie inside one another", event)
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = [self._value(each, depth + 1) for each in self._until(yaml.SequenceEndEvent)]
        else:
            value = self._mapping(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._size - before)
        return value

    def _alias(self, event: yaml.AliasEvent) -> Any:
        if event.anchor not in self._anchors:
            raise _error(f"no value before the alias *{shortened(event.anchor, SHOWN)} has that anchor", event)
        value, size = self._anchors[event.anchor]
        self._grow(size, event)
        return value

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        self._grow(len(event.value), event)
        try:
            return _plain(event.value) if event.implicit[0] else _text(event.value)
        except ValueError as error:
            raise _error(str(error), event) from None

    def _mapping(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                raise _error("the merge key << is no part of YAML 1.2; write the keys out", event)
            key = self._value(event, depth + 1)
            if isinstance(key, list | dict):
                raise _error("a key is a list or a mapping", event)
            if not isinstance(key, str):
                raise _error(f"the key {shortened(str(key), SHOWN)} is not text; put quotes around it", event)
            if key in values:
                raise _error(f"the key {shortened(key, SHOWN)!r} appears twice", event)
            values[key] = self._value(next(self._events), depth + 1)
        return values

    def _until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        return iter(functools.partial(_next_unless, self._events, end), None)

    def _grow(self, size: int, event: yaml.Event) -> None:
        self._size += size
        if self._size > MAX_SIZE:
            raise _error(f"more than {MAX_SIZE:,} characters of keys and values, aliases written out", event)


def _next_unless(events: Iterator[yaml.Event], end: type[yaml.Event]) -> yaml.Event | None:
    event = next(events)
    return None if isinstance(event, end) else event


def _error(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _plain(text: str) -> Any:
    """The value of a text without quotes. Raises ValueError if YAML 1.1 reads another one."""
    tag, convert = next(((tag, convert) for tag, pattern, convert in CORE if pattern.fullmatch(text)), ("str", _text))
    older = _tag_in_1_1(text)
    if (tag, older) != ("float", "str") and (tag != older or LEADING_ZERO.fullmatch(text)):
        raise ValueError(
            f"{shortened(text, SHOWN)} has one meaning in YAML 1.1 ({older}) and another in YAML 1.2 ({tag}); write a "
            "decimal number, true or false, or put quotes around it"
        )
    if tag != "str" and len(text) > MAX_NUMBER:
        raise ValueError(f"a number of {len(text):,} characters; the longest that is taken has {MAX_NUMBER}")
    return convert(text)


def _tag_in_1_1(text: str) -> str:
    """The type of a plain value for PyYAML."""
    for tag, pattern in Resolver.yaml_implicit_resolvers.get(text[:1], []):
        if pattern.match(text):
            return tag.rpartition(":")[2]
    return "str"


def _text(text: str) -> str:
    """`text` itself. Raises ValueError if it is too long, or if a terminal, a table or a file name cannot show it."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"a text of {len(text):,} characters; the longest that is taken has {MAX_TEXT:,}")
    if found := CONTROL.search(text):
        raise ValueError(f"a text with the control character U+{ord(found[0]):04X}; leave it out")
    return text
