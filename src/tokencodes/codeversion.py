"""Which version of the code made a result: a digest that a cosmetic edit does not move.

Snakemake sees neither an edit of an imported package nor what such an edit means. So each rule carries the digest of
the modules that its stage runs: the entry module and, transitively, every module of this package that it imports, each
by its syntax tree without comments, docstrings and layout, and the data files that those modules read.
"""

import ast
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokencodes import files
from tokencodes.errors import UserError

PACKAGE = "tokencodes"
ROOT = Path(__file__).resolve().parent

# Modules that no digest holds, and why: a new config key or a better error message is no reason to train again.
KEYS = "the keys of a config reach a stage by its settings, which have a digest of their own"
RECORDS = "a record has a schema version of its own, and its reader refuses any other"
FRAME = {
    PACKAGE: "names our model to Transformers; a stage that loads a model imports what it needs",
    **{f"{PACKAGE}.{name}": KEYS for name in ("config", "spec", "yamlfile")},
    **{
        f"{PACKAGE}.{name}.spec": KEYS
        for name in ("interfaces", "model", "data", "train", "evaluate", "report", "planning")
    },
    f"{PACKAGE}.interfaces.codebooks": "gathers the kinds; the rule `codes` has the digest of its own kind",
    f"{PACKAGE}.interfaces.codebook": "what all kinds share: declarations alone",
    f"{PACKAGE}.records": RECORDS,
    **{
        f"{PACKAGE}.{name}": RECORDS
        for name in (
            "data.manifest",
            "model.origin",
            "train.final",
            "validate.validation",
            "evaluate.scores",
            "evaluate.manifest",
        )
    },
    f"{PACKAGE}.evaluate.packaged": "which tasks are refused before any job",
    f"{PACKAGE}.errors": "messages and exit codes",
    f"{PACKAGE}.files": "how files are written and locked; what is in them decides",
    f"{PACKAGE}.layout": "names of files",
    f"{PACKAGE}.train.metrics": "what a run prints and how fast it was",
    f"{PACKAGE}.train.energy": "what a run used",
    f"{PACKAGE}.data.hub": "bytes that are checked against a hash are the same by whatever way they come",
    f"{PACKAGE}.data.listing": "the same",
    f"{PACKAGE}.data.wheel": "the same",
    **{
        f"{PACKAGE}.{name}": "not run by a stage"
        for name in ("cli", "commandline", "codeversion", "guards", "triggers", "attempts")
    },
}

DOCSTRING_OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def digest(*entries: str) -> str:
    """Digest (hex SHA-256) of the code that the entry modules run, FRAME aside.

    Raises UserError if an entry is not a module of this package.
    """
    modules = closure(*entries)
    code = [[name, _tree_digest(_source(name))] for name in modules]
    data = [[path.relative_to(ROOT).as_posix(), _data_digest(path)] for path in data_files(modules)]
    return files.digest([code, data])


def closure(*entries: str) -> list[str]:
    """The entry modules and every module of this package that they import, also inside functions; sorted."""
    found: set[str] = set()
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if name in found or name in FRAME:
            continue
        path = _source(name)
        if path is None:
            raise UserError(f"{name}: no such module; the rule that names it is out of date")
        found.add(name)
        waiting.extend(_imported(name, path))
    return sorted(found)


def data_files(modules: Sequence[str]) -> list[Path]:
    """Files of the package that are no modules and belong to one of `modules`; sorted.

    A module that holds a file's name, or that of a folder above it, in a string reads it. A file that no module of its
    package names belongs to all of them.
    """
    chosen = set(modules)
    paths = set()
    for package in sorted({_package(name) for name in modules}):
        siblings = [name for name in _modules_of(package) if name not in FRAME]
        for path in _data_of(package):
            parts = set(path.relative_to(_folder(package)).parts)
            readers = {name for name in siblings if parts & _words(_source(name))}
            if chosen & (readers or set(siblings)):
                paths.add(path)
    return sorted(paths)


# -------------------------------------------------------------------- modules


@functools.cache
def _source(name: str) -> Path | None:
    """The file of a module or package of ours; None if there is none."""
    parts = name.split(".")
    if parts[0] != PACKAGE:
        return None
    base = ROOT.joinpath(*parts[1:])
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _is_package(name: str) -> bool:
    path = _source(name)
    return path is not None and path.name == "__init__.py"


def _package(name: str) -> str:
    return name if _is_package(name) else name.rpartition(".")[0]


def _folder(package: str) -> Path:
    return ROOT.joinpath(*package.split(".")[1:])


def _modules_of(package: str) -> list[str]:
    return [package, *sorted(f"{package}.{path.stem}" for path in _folder(package).glob("[!_]*.py"))]


def _data_of(package: str) -> Iterator[Path]:
    """Files below a package that are neither its modules nor in a package below it."""
    for folder, below, names in os.walk(_folder(package)):
        here = Path(folder)
        below[:] = sorted(
            name for name in below if name != "__pycache__" and not (here / name / "__init__.py").exists()
        )
        for name in sorted(names):
            if not name.startswith(".") and not (here == _folder(package) and name.endswith(".py")):
                yield here / name


@functools.cache
def _imported(name: str, path: Path) -> list[str]:
    """Modules of ours that a module names: in an import anywhere in it, or by full name in a string (`python -m`)."""
    names: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                parts = _package(name).split(".")
                start = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
            names.update([start, *(f"{start}.{alias.name}" for alias in node.names)])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.update(re.findall(rf"\b{PACKAGE}(?:\.\w+)+", node.value))
    parents = {".".join(name.split(".")[:n]) for name in names for n in range(1, name.count(".") + 2)}
    return [name for name in sorted(names | parents) if _source(name) is not None]


# --------------------------------------------------------------------- trees


@functools.cache
def _tree(path: Path) -> ast.Module:
    """The syntax tree without docstrings and other bare strings."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    for node in ast.walk(tree):
        if isinstance(node, DOCSTRING_OWNERS):
            node.body = [statement for statement in node.body if not _is_bare_string(statement)]
    return tree


def _is_bare_string(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


@functools.cache
def _tree_digest(path: Path) -> str:
    hasher = hashlib.sha256()
    _feed(_tree(path), lambda text: hasher.update(text.encode("utf-8", "surrogatepass")))
    return hasher.hexdigest()


def _feed(node: Any, put: Callable[[str], None]) -> None:
    """Spell a syntax tree out; fields that are empty are left out, so that newer Pythons' new fields change nothing."""
    if isinstance(node, ast.AST):
        put(f"{type(node).__name__}(")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is not None and value != []:
                put(f"{name}=")
                _feed(value, put)
        put(")")
    elif isinstance(node, list):
        put("[")
        for item in node:
            _feed(item, put)
        put("]")
    else:
        put(f"{node!r},")


def _data_digest(path: Path) -> str:
    return _tree_digest(path) if path.suffix == ".py" else files.sha256_file(path)


@functools.cache
def _words(path: Path) -> frozenset[str]:
    """The strings of a module, split at slashes: names of files and folders that it may read."""
    strings = (node.value for node in ast.walk(_tree(path)) if isinstance(node, ast.Constant))
    return frozenset(part for text in strings if isinstance(text, str) for part in text.split("/"))
