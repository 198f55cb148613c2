"""Write what the docs say about config keys, records and command lines, from the classes that define them.

    python docs/generate.py            (or `make schema`)

It replaces config/schema.json, docs/commands.md, and in config/README.md and results/README.md what stands between
`<!-- keys of SECTION -->` or `<!-- records -->` and `<!-- end -->`.
"""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command

from tokencodes import cli, config
from tokencodes.data.listing import Listing
from tokencodes.data.manifest import ShardManifest, ShardTiming, StoreManifest, TokenizerManifest
from tokencodes.evaluate.manifest import BenchmarksManifest
from tokencodes.evaluate.scores import Scores
from tokencodes.interfaces.codes import CodesRecord
from tokencodes.model.origin import Origin
from tokencodes.model.shape import Params
from tokencodes.records import DIGEST, VERSION, Record
from tokencodes.spec import Strict
from tokencodes.train.final import Final
from tokencodes.validate.validation import Validation

ROOT = Path(__file__).resolve().parent.parent

# Each record, by the file that holds it in results/<name>/.
RECORDS: dict[str, type[Record]] = {
    "params.json": Params,
    "data/listing-<digest>.json": Listing,
    "data/tokenizer/manifest.json": TokenizerManifest,
    "data/store/<shard>/manifest.json": ShardManifest,
    "data/store/<shard>/timing.json": ShardTiming,
    "data/store/manifest.json": StoreManifest,
    "data/benchmarks/<task>/manifest.json": BenchmarksManifest,
    "codes/<interface>.json": CodesRecord,
    "runs/<interface>-s<seed>/final.json": Final,
    "models/<model>/tokencodes.json": Origin,
    "validation/<model>.json": Validation,
    "eval/<model>/<task>-<shots>shot.json": Scores,
}


def generated() -> dict[Path, str]:
    """The text of each file that this script writes."""
    keys = (ROOT / "config/README.md").read_text()
    for name in SECTIONS:
        keys = _replaced(keys, f"keys of {name}", _table(("key", "default", "meaning"), key_rows(name)))
    records = _replaced((ROOT / "results/README.md").read_text(), "records", "\n\n".join(record_tables()))
    return {
        ROOT / "config/schema.json": config.schema_text() + "\n",
        ROOT / "config/README.md": keys,
        ROOT / "results/README.md": records,
        ROOT / "docs/commands.md": commands(),
    }


def _replaced(text: str, name: str, content: str) -> str:
    start, end = f"<!-- {name} -->", "<!-- end -->"
    if text.count(start) != 1:
        raise ValueError(f"no place for {name}: a line {start} and a line {end} are needed")
    before, _, rest = text.partition(start)
    return f"{before}{start}\n\n{content}\n\n{end}{rest.partition(end)[2]}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


# ---------------------------------------------------------------- config keys

Row = tuple[str, str, str]


def _specs(annotation: Any) -> list[type[Strict]]:
    """The specs that a key may hold, by itself, by name or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return [annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _specs(arguments[0])
    if origin in (Union, UnionType, list, dict):
        return [spec for argument in arguments for spec in _specs(argument)]
    return []


TOP = "the top level"
SECTIONS = [TOP, *(name for name, field in config.Config.model_fields.items() if _specs(field.annotation))]


def key_rows(section: str) -> list[Row]:
    """Rows of key, default and meaning for a section of a config, or for the keys of the top level."""
    fields = config.Config.model_fields
    if section != TOP:
        return list(_rows(_specs(fields[section].annotation), ""))
    return [
        (f"`{name}`", _default(field), _meaning(f"Config.{name}", field))
        for name, field in fields.items()
        if name not in SECTIONS
    ]


def _rows(specs: list[type[Strict]], prefix: str) -> Iterator[Row]:
    """One row per key of these alternatives. `kind`, which tells them apart, explains each."""
    if any("kind" in spec.model_fields for spec in specs):
        kinds = " ".join(f"`{_kind(spec)}`: {_first_paragraph(spec)}" for spec in specs)
        yield f"`{prefix}kind`", "", kinds
    if len(specs) == 1 and (same := _one_spec_by_name(specs[0])):
        yield from _rows([same], f"{prefix}<name>.")
        return
    for name in dict.fromkeys(name for spec in specs for name in spec.model_fields if name != "kind"):
        having = [spec for spec in specs if name in spec.model_fields]
        fields = [spec.model_fields[name] for spec in having]
        below = _specs(fields[0].annotation)
        if below and fields[0].description is None:
            yield from _rows(below, f"{prefix}{name}.")
            continue
        meanings: dict[str, list[str]] = {}
        for spec, field in zip(having, fields, strict=True):
            meanings.setdefault(_meaning(f"{spec.__name__}.{name}", field), []).append(_kind(spec))
        parts = [
            text if len(kinds) == len(specs) else f"{', '.join(f'`{kind}`' for kind in kinds)}: {text}"
            for text, kinds in meanings.items()
        ]
        yield f"`{prefix}{name}`", _defaults(having, fields), ". ".join(parts)
        if get_origin(fields[0].annotation) is list:
            yield from _rows(below, f"{prefix}{name}[].")


def _one_spec_by_name(spec: type[Strict]) -> type[Strict] | None:
    """The spec that all keys of this one hold, as `resources` does by stage."""
    specs = {each for field in spec.model_fields.values() for each in _specs(field.annotation)[:1] or [None]}
    return specs.pop() if len(spec.model_fields) > 1 and len(specs) == 1 else None


def _kind(spec: type[Strict]) -> str:
    return get_args(spec.model_fields["kind"].annotation)[0] if "kind" in spec.model_fields else spec.__name__


def _first_paragraph(described: type) -> str:
    return " ".join((inspect.getdoc(described) or "").partition("\n\n")[0].split())


def _defaults(specs: list[type[Strict]], fields: list[FieldInfo]) -> str:
    """The default of a key; if that of some kinds is another one, each with its kinds."""
    kinds: dict[str, list[str]] = {}
    for spec, field in zip(specs, fields, strict=True):
        kinds.setdefault(_default(field), []).append(f"`{_kind(spec)}`")
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{', '.join(names)}: {default}" for default, names in kinds.items() if default)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    text = re.sub(r"e-0(\d)$", r"e-\1", repr(value)) if isinstance(value, float) else json.dumps(value)
    return f"`{text.strip(chr(34))}`"


def _meaning(where: str, field: FieldInfo) -> str:
    if not field.description:
        raise ValueError(f"{where} has no description; write Field(..., description=...)")
    return field.description


# -------------------------------------------------------------------- records


def record_tables() -> Iterator[str]:
    """A heading, what the record is, and a table of its keys, for each record."""
    return (record_table(path, record) for path, record in RECORDS.items())


def record_table(path: str, record: type[Record]) -> str:
    rows = [
        *dict.fromkeys(_record_rows(record, "")),
        (f"`{VERSION}`", f"{record.version}; goes up when a key changes its meaning"),
    ]
    rows.append((f"`{DIGEST}`", "SHA-256 of all other keys; the reader compares it"))
    summary = _first_paragraph(record)
    made_by = "" if record.made_by in summary else f" Written by `{record.made_by}`."
    return f"### `{path}`\n\n{summary}{made_by}\n\n{_table(('key', 'meaning'), rows)}"


def _record_rows(record: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in record.model_fields.items():
        yield f"`{prefix}{name}`", _meaning(f"{record.__name__}.{name}", field)
        for part, mark in _parts(field.annotation):
            yield from _record_rows(part, f"{prefix}{name}{mark}.")


def _parts(annotation: Any) -> list[tuple[type[BaseModel], str]]:
    """Classes of ours that a key of a record holds, each with what stands for its place in a list or by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [] if issubclass(annotation, Strict) else [(annotation, "")]  # a spec stands in config/README.md
    mark = {list: "[]", dict: ".<name>"}.get(get_origin(annotation), "")
    return [(part, mark + below) for argument in get_args(annotation) for part, below in _parts(argument)]


# -------------------------------------------------------------- command lines

COMMANDS = """# Command lines

Each rule of the workflow is one command line. This page is made from the program's own help by `make schema`.

| exit code | meaning |
|---|---|
| 0 | done |
| 2 | the input is wrong: one line on stderr says what, where, and what to do |
| 75 | stopped early, with everything saved: start the same command again |
| 1 | a fault of this project: a traceback |

On several GPUs, train with `torchrun --standalone --nproc-per-node N -m -- tokencodes.cli train ...`. torchrun exits
with 1 for every code of its processes but 0; the last line of `tokencodes` says which of these it was.
"""


def commands() -> str:
    """docs/commands.md: what each stage takes."""
    stages = get_command(cli.app).commands
    index = [(f"[`{name}`](#{name})", stage.help.partition("\n")[0]) for name, stage in stages.items()]
    return "\n".join([COMMANDS, _table(("stage", "what it does"), index), *map(_command, stages, stages.values()), ""])


def _command(name: str, stage: Any) -> str:
    words, rows = [f"tokencodes {name}"], []
    for param in stage.params:
        option = param.opts[0] if param.opts[0].startswith("-") else ""
        text = " ".join(filter(None, [option, param.metavar]))
        words.append(text if param.required else f"[{text}]")
        default = f" (default {param.default})" if param.default not in (None, False) else ""
        rows.append((f"`{text}`", param.help + default))
    summary = " ".join(stage.help.split())
    return f"\n## {name}\n\n{summary}\n\n```\n{' '.join(words)}\n```\n\n{_table(('option', 'meaning'), rows)}"


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text)
        print(path.relative_to(ROOT))
