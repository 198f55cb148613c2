"""Print facts about the source: lines by package, the longest modules and functions, and the modules of each digest.

    python benchmarks/facts.py [--before REVISION] [--show N]

Lines are those of Python files (and of rules, for the workflow), blank ones and comments included. With --before, each
row also has the lines at that git revision. A digest is that of a rule's `code`: an edit of one of its modules makes
the rule's jobs run again. Those of `codes` and `validate` are shown with all kinds of code books; a job has its own
kind only.
"""

import argparse
import ast
import inspect
import pkgutil
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from tokencodes import codeversion, triggers
from tokencodes.interfaces import codebooks

ROOT = Path(__file__).resolve().parent.parent
SOURCE = PurePosixPath("src/tokencodes")
COUNTED = ("src/tokencodes", "workflow", "tests", "benchmarks", "docs")  # folders whose code is counted
SUFFIXES = (".py", ".smk", ".html", ".css")
MODULE_LIMIT, FUNCTION_LIMIT = 500, 60  # lines


def group(path: str) -> str:
    """The row that a file counts for: its package in src/tokencodes, else its top folder."""
    parts = PurePosixPath(path)
    if not parts.is_relative_to(SOURCE):
        return parts.parts[0]
    below = parts.relative_to(SOURCE).parts
    return f"tokencodes.{below[0]}" if len(below) > 1 else "tokencodes"


def lines_by_group(texts: dict[str, str]) -> Counter[str]:
    """Lines of each group of files, from the text of each file by its path."""
    counts: Counter[str] = Counter()
    for path, text in texts.items():
        counts[group(path)] += len(text.splitlines())
    return counts


def texts_now(root: Path = ROOT) -> dict[str, str]:
    """The counted files that git knows or would know, as they are in the working tree."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "--", *COUNTED)
    files = [path for path in listed.splitlines() if path.endswith(SUFFIXES) and (root / path).is_file()]
    return {path: (root / path).read_text() for path in files}


def texts_at(revision: str, root: Path = ROOT) -> dict[str, str]:
    """The counted files at a git revision."""
    listed = _git(root, "ls-tree", "-r", "--name-only", revision, "--", *COUNTED)
    files = [path for path in listed.splitlines() if path.endswith(SUFFIXES)]
    return {path: _git(root, "show", f"{revision}:{path}") for path in files}


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def functions(texts: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Length in lines and place of each function in Python files, decorators and nested functions included."""
    for path, text in texts.items():
        if path.endswith(".py"):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    yield node.end_lineno - first + 1, f"{path}:{first} {node.name}"


def entries(rules: dict[str, str]) -> dict[str, list[str]]:
    """The entry modules of the digest in each rule's `code`, from the text of the rule files."""
    modules = {}
    for text in rules.values():
        for name, body in re.findall(r"^rule (\w+):\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL):
            if call := re.search(r"\bdigest\(([^)]*)\)", body):
                modules[name] = re.findall(r'"(tokencodes[\w.]*)"', call[1])
            elif call := re.search(r"\btriggers\.(\w+_code)\(", body):
                modules[name] = _entries_of(getattr(triggers, call[1]))
    return modules


def _entries_of(trigger: Callable[..., str]) -> list[str]:
    """The entry modules that a function of triggers.py names, by its source."""
    source = inspect.getsource(trigger)
    names = re.findall(r'"(tokencodes[\w.]*)"', source)
    if "TRAINING" in source:
        names.append(triggers.TRAINING)
    if "kind_modules" in source:
        names += sorted(f"{codebooks.__name__}.{module.name}" for module in pkgutil.iter_modules(codebooks.__path__))
    return names


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """Rows in columns; numbers to the right."""
    cells = [head, *(tuple(f"{value:,}" if isinstance(value, int) else str(value) for value in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    right = [all(isinstance(row[column], int) for row in rows) for column in range(len(head))]
    aligned = [
        "  ".join(f"{cell:>{w}}" if r else f"{cell:<{w}}" for cell, w, r in zip(row, widths, right, strict=True))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in aligned)


def lines_table(now: Counter[str], before: Counter[str], revision: str | None) -> str:
    """Lines of each group, with those at `revision` if one is given; the package's groups first, then their sum."""
    names = sorted(now.keys() | before.keys(), key=lambda name: (not name.startswith("tokencodes"), name))
    package = [name for name in names if name.startswith("tokencodes")]
    rows = [(name, before[name], now[name]) for name in names]
    rows.append(("the whole package", sum(before[name] for name in package), sum(now[name] for name in package)))
    if revision:
        return table(("lines of", f"at {revision}", "now"), rows)
    return table(("lines of", "now"), [(name, lines) for name, _, lines in rows])


def longest_table(title: str, limit: int, lengths: list[tuple[int, str]], show: int) -> str:
    """The longest modules or functions."""
    heading = f"longest {title}s (limit {limit}, {sum(lines > limit for lines, _ in lengths)} above)"
    return table(("lines", heading), sorted(lengths, reverse=True)[:show])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--before", metavar="REVISION", help="a git revision to compare with")
    arguments.add_argument("--show", type=int, default=10, metavar="N", help="modules and functions to show")
    args = arguments.parse_args()

    texts = texts_now()
    before = lines_by_group(texts_at(args.before)) if args.before else Counter()
    print(lines_table(lines_by_group(texts), before, args.before))

    source = {path: text for path, text in texts.items() if PurePosixPath(path).is_relative_to(SOURCE)}
    modules = [(len(text.splitlines()), path) for path, text in source.items() if path.endswith(".py")]
    print(f"\n{longest_table('module', MODULE_LIMIT, modules, args.show)}")
    print(f"\n{longest_table('function', FUNCTION_LIMIT, list(functions(source)), args.show)}")

    print("\nmodules in the digest of each rule")
    rules = {path: text for path, text in texts.items() if path.endswith(".smk")}
    for rule, entry in sorted(entries(rules).items()):
        names = [name.removeprefix("tokencodes.") for name in codeversion.closure(*entry)]
        print(f"{rule} ({len(names)}): {' '.join(names)}")


if __name__ == "__main__":
    main()
