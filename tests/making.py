"""Small models for tests."""

from typing import Any

from tokencodes.interfaces.inputs import Inputs, assemble
from tokencodes.interfaces.spec import CodeInterface, Interface
from tokencodes.model import transformer
from tokencodes.model.spec import Model


def code(kind: str, *, lift: str = "tile", **keys: Any) -> CodeInterface:
    """A code interface; keys of the interface and of its code book together."""
    own = {key: keys.pop(key) for key in ("scale", "permutation_seed", "lift_seed", "shared") if key in keys}
    return CodeInterface.model_validate({"kind": "code", "codebook": {"kind": kind, **keys}, "lift": lift, **own})


def inputs_of(interface: Interface, model: Model) -> Inputs:
    """The input of a model, its code book built from the spec."""
    return assemble(interface, None, model.vocab_size, model.d_model, model.init_std)


def create(interface: Interface, model: Model, seed: int = 0) -> transformer.Transformer:
    """A new model."""
    held = inputs_of(interface, model)
    return transformer.create(held.form, held.arrays, model, seed)
