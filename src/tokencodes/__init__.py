"""Token Codes: language models with a learned input table or fixed minimal token codes, side by side."""

import importlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

# What of ours Transformers' Auto classes have to know, by the module of theirs that has to be there first.
REGISTERED_BY = {
    "transformers.models.auto.configuration_auto": "tokencodes.model.hf_config",
    "transformers.models.auto.modeling_auto": "tokencodes.model.hf",
}


def __getattr__(name: str) -> str:
    """`__version__`, read from the installed package when it is first asked for: most stages never do."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tokencodes")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0.0.0"


class _RegisterWithTransformers(importlib.abc.MetaPathFinder):
    """Registers our model type as soon as Transformers' Auto classes are imported, and imports nothing before that.

    So `import tokencodes` is enough for AutoModelForCausalLM to know our models, and costs no import of torch.
    """

    def __init__(self) -> None:
        self.waiting = {name for name in REGISTERED_BY if name not in sys.modules}

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self.waiting:
            return None
        self.waiting.remove(name)  # the search below does not come back here
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            importlib.import_module(REGISTERED_BY[name])

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _RegisterWithTransformers())
for theirs, ours in REGISTERED_BY.items():
    if theirs in sys.modules:
        importlib.import_module(ours)
