"""Rules of the house that no linter knows: sizes, imports, and names that are spelled in one place."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src/tokencodes").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MODULE_LIMIT, FUNCTION_LIMIT = 500, 60  # lines
# Short names that the field uses.
KNOWN = {"numpy": "np", "pandas": "pd", "pyarrow": "pa", "pyarrow.parquet": "pq", "matplotlib": "mpl"}
KNOWN |= {"torch.nn.functional": "F", "torch.distributed": "dist", "matplotlib.pyplot": "plt"}
# Data flows one way: a package imports only from those before it.
ORDER = (
    *("errors", "files", "records", "layout", "spec", "yamlfile", "codeversion"),
    *("interfaces", "model", "data", "train", "validate", "evaluate", "analysis", "report", "planning"),
    *("config", "triggers", "attempts", "slurm", "guards", "commandline", "cli"),
)
# `Config` gathers the specs; these take it whole, since they show or plan all of it.
TAKE_CONFIG = ("report", "planning", "triggers", "attempts", "slurm", "guards", "cli")
# An imported model is compared with a config, not with a run: these take it whole too.
OF_IMPORTS = ("train/importing.py", "validate/checks.py", "evaluate/references.py")

# Modules whose tests are not in tests/<package>/test_<module>.py.
TESTED_IN = {
    "commandline.py": "test_cli.py",
    "errors.py": "test_cli.py",
    "spec.py": "test_config.py",
    "data/spec.py": "test_config.py",
    "evaluate/manifest.py": "evaluate/test_benchmarks.py",
    "evaluate/spec.py": "test_config.py",
    "interfaces/codebook.py": "interfaces/test_codebooks.py",
    "interfaces/form.py": "interfaces/test_module.py",
    "interfaces/spec.py": "interfaces/test_codebooks.py",
    "model/hf_config.py": "model/test_hf.py",
    "model/origin.py": "test_records.py",
    "model/spec.py": "test_config.py",
    "model/weights.py": "evaluate/test_run.py",
    "planning/spec.py": "planning/test_resources.py",
    "train/final.py": "test_records.py",
    "train/spec.py": "test_config.py",
    "validate/validation.py": "test_records.py",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "src/tokencodes").as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """What a file imports, with the name that it gives it if that is another."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, alias.asname) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((f"{node.module}.{alias.name}", alias.asname) for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_modules_and_functions_are_short(path):
    assert len(path.read_text().splitlines()) <= MODULE_LIMIT
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < FUNCTION_LIMIT, node.name


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_renamed_to_dodge_a_clash(path):
    renamed = {name: alias for name, alias in imports(path) if alias and KNOWN.get(name) != alias}
    assert not renamed


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_data_flows_one_way(path):
    """A package imports from those before it, and from itself."""
    own = Path(name_of(path)).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for name, _ in imports(path):
        parts = name.split(".")
        if parts[0] != "tokencodes" or len(parts) < 2 or parts[1] not in ORDER or parts[1] == own:
            continue
        if parts[1] == "config":
            assert own in TAKE_CONFIG or name_of(path) in OF_IMPORTS, f"{own} takes the specs that it needs, not {name}"
        elif not name.endswith(".spec") and ".spec." not in name and ".planning.spec" not in name:
            assert ORDER.index(parts[1]) < ORDER.index(own), f"{own} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_names_of_models_and_tasks_are_spelled_in_layout_alone(path):
    if name_of(path) == "layout.py":
        return
    code = "\n".join(ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.JoinedStr))
    assert not re.search(r"-s\{|\}-\{?shots|shot\.(json|parquet)", code)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_tests_use_no_private_names_of_ours(path):
    """A test that reaches inside breaks with the inside. Names of other libraries may be private."""
    bound = {alias or name.rpartition(".")[2] for name, alias in imports(path) if name.split(".")[0] == "tokencodes"}
    for name, _ in imports(path):
        assert not (name.startswith("tokencodes.") and re.search(r"\._[a-z]", name)), name
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            assert not re.match(r"_[a-z]", node.attr), f"{node.value.id}.{node.attr}"


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name != "__init__.py"], ids=name_of)
def test_tests_mirror_the_source(path):
    name = name_of(path)
    own = f"{name.rpartition('/')[0]}/test_{path.name}".lstrip("/")
    if name.startswith("interfaces/codebooks/"):
        own = "interfaces/test_codebooks.py"
    if name in TESTED_IN:
        assert not (ROOT / "tests" / own).exists(), f"{name} has tests of its own: take it out of TESTED_IN"
    assert (ROOT / "tests" / TESTED_IN.get(name, own)).is_file()
