"""All kinds of code book: every module of this folder with one subclass of `Codebook` is one kind."""

import importlib
import pkgutil
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import Field

from tokencodes.interfaces.codebook import Codebook


def _kinds() -> dict[str, type[Codebook]]:
    kinds: dict[str, type[Codebook]] = {}
    for name in sorted(file.name for file in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        classes = [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Codebook) and value.__module__ == module.__name__
        ]
        for each in classes:
            annotation = each.model_fields["kind"].annotation
            if get_origin(annotation) is not Literal or len(get_args(annotation)) != 1:
                raise TypeError(f'{each.__module__}: {each.__name__} needs its name as `kind: Literal["..."]`')
            (kind,) = get_args(annotation)
            if kind in kinds:
                raise TypeError(f"{each.__module__}: the kind {kind!r} is already defined in {kinds[kind].__module__}")
            kinds[kind] = each
    return kinds


KINDS = _kinds()
AnyCodebook = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007  made at run time
