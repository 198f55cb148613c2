"""The model's code beside its weights, so that a user without this package can load an exported model.

Transformers loads code that lies in a model's folder when its user says trust_remote_code=True. That code is
this package's own, not a second version of it: the modules that the adapter needs, flattened into one folder, with
 `from tokencodes.x import y` turned into imports from that folder.
"""

import ast
from pathlib import Path

from tokencodes.files import write_text

SOURCE = Path(__file__).resolve().parent.parent
ENTRY = "modeling_tokencodes"  # the file that config.json points to; Transformers expects a name like this
# In the order of their imports. Keys are modules of this package, values the files that they become.
MODULES = {
    "errors": "tokencodes_errors",
    "files": "tokencodes_files",
    "spec": "tokencodes_spec",
    "interfaces.form": "tokencodes_form",
    "interfaces.module": "tokencodes_module",
    "model.spec": "tokencodes_model_spec",
    "model.transformer": "tokencodes_transformer",
    "model.hf_config": "configuration_tokencodes",
    "model.hf": ENTRY,
}
AUTO_MAP = {
    "AutoConfig": "configuration_tokencodes.TokenCodesConfig",
    "AutoModel": f"{ENTRY}.TokenCodesModel",
    "AutoModelForCausalLM": f"{ENTRY}.TokenCodesForCausalLM",
}

# For the card of a model. The versions are the package's own lower bounds: older ones were not tried.
NEEDS = """Without the package, `trust_remote_code=True` loads it: that runs the code in this folder. It needs
transformers>=5.24, pydantic>=2.10 and torch>=2.8; older versions of Transformers do not load it."""


def write(folder: Path) -> None:
    """Write the modules into a model's folder."""
    for module, name in MODULES.items():
        text = (SOURCE.joinpath(*module.split(".")).with_suffix(".py")).read_text(encoding="utf-8")
        write_text(folder / f"{name}.py", flattened(text))


def flattened(text: str) -> str:
    """Source text with its imports from this package turned into imports from one folder.

    Raises KeyError if it imports a module of this package that is not in MODULES.
    """
    lines = text.splitlines(keepends=True)
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tokencodes":
            lines[node.lineno - 1 : node.end_lineno] = [line + "\n" for line in _imports(node)]
    return "".join(lines)


def _imports(node: ast.ImportFrom) -> list[str]:
    package = (node.module or "").partition(".")[2]
    lines = []
    for alias in node.names:
        inner = f"{package}.{alias.name}".lstrip(".")
        bound = alias.asname or alias.name
        if inner in MODULES:  # a module as a name
            # Transformers copies the files that `from .file import` names; it does not recognise the second form
            lines.append(f"from .{MODULES[inner]} import __name__ as _")
            lines.append(f"from . import {MODULES[inner]} as {bound}")
        else:  # a name in a module
            lines.append(f"from .{MODULES[package]} import {alias.name} as {bound}")
    return lines
