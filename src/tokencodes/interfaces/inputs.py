"""From an interface's spec and its code book to what the model holds: the form, and the arrays that are stored."""

import math
from dataclasses import dataclass, field

import numpy as np

from tokencodes.interfaces import codes, lift
from tokencodes.interfaces.form import CodeForm, TableForm
from tokencodes.interfaces.spec import CodeInterface, Interface, is_fixed
from tokencodes.interfaces.vocabulary import Vocabulary

NORM_CHUNK = 4096  # rows of lifted codes that exist at one time while their norm is computed


@dataclass(frozen=True)
class Inputs:
    """The input of one model. `arrays`: `codebook` (V, K) and, but for `tile`, `lift` (d, K); none for a table."""

    form: TableForm | CodeForm
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def codes_sha256(self) -> str | None:
        """The hash of the code book's values; None if the input is trained."""
        return codes.sha256(self.arrays["codebook"]) if "codebook" in self.arrays else None


def form(interface: Interface, vocab_size: int, scale: float = 1.0) -> TableForm | CodeForm:
    """The form alone: enough to count parameters, or to load a model whose scale is known."""
    if not isinstance(interface, CodeInterface):
        return TableForm(kind="table")
    return CodeForm(
        kind="code",
        width=interface.codebook.coordinates(vocab_size),
        is_binary=interface.codebook.is_binary,
        trained=interface.trained,
        lift=interface.lift,
        scale=scale,
    )


def assemble(
    interface: Interface, codebook: np.ndarray | None, vocab_size: int, d_model: int, init_std: float
) -> Inputs:
    """The input of a model: `codebook` (V, K) lifted to width d. Without a code book, a fixed one is built here.

    Raises UserError if the codes are not distinct (`codes.build`), or if building them needs a tokenizer.
    """
    if not isinstance(interface, CodeInterface):
        return Inputs(form(interface, vocab_size))
    arrays = {}
    if is_fixed(interface):
        arrays["codebook"] = codes.build(interface, Vocabulary(vocab_size)) if codebook is None else codebook
    matrix = lift.matrix(interface.lift, interface.codebook.coordinates(vocab_size), d_model, interface.lift_seed)
    if matrix is not None:
        arrays["lift"] = matrix
    return Inputs(form(interface, vocab_size, scale(interface, arrays, d_model, init_std)), arrays)


def scale(interface: CodeInterface, arrays: dict[str, np.ndarray], d_model: int, init_std: float) -> float:
    """The one factor on all inputs: 1 for `unit`; for `matched`, what gives the inputs the root mean square norm of
    freshly initialised learned rows, init_std * sqrt(d) (ours; in the paper the norms of 0/1 inputs and learned rows
    differ).
    """
    if interface.scale == "unit" or interface.trained:  # a learned code starts with the rows' own spread
        return 1.0
    if interface.lift == "hadamard":
        return init_std  # every coordinate is +1 or -1
    codebook = arrays["codebook"]
    square = 0.0
    for start in range(0, len(codebook), NORM_CHUNK):
        part = lift.lift(codebook[start : start + NORM_CHUNK], interface.lift, d_model, interface.lift_seed)
        square += float(np.square(part, dtype=np.float64).sum())
    return init_std * math.sqrt(d_model) / math.sqrt(square / len(codebook))
