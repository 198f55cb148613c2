"""All kinds of code book: every module of this folder with one subclass of `Codebook` is one kind."""

import importlib
import pkgutil
from typing import Annotated, Union

from pydantic import Field

from tokencodes.interfaces.codebook import Codebook


def _kinds() -> dict[str, type[Codebook]]:
    kinds: dict[str, type[Codebook]] = {}
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda found: found.name):
        module = importlib.import_module(f"{__name__}.{found.name}")
        classes = [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Codebook) and value.__module__ == module.__name__
        ]
        for each in classes:
            (kind,) = each.model_fields["kind"].annotation.__args__  # Literal["..."]
            if kind in kinds:
                raise TypeError(f"{each.__module__}: the kind {kind!r} is already defined in {kinds[kind].__module__}")
            kinds[kind] = each
    return kinds


KINDS = _kinds()
AnyCodebook = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007  made at run time
