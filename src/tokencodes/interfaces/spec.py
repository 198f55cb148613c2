"""The input interface in a config: code book x lift x scale (x permutation), or the learned table."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tokencodes.interfaces.codebooks import AnyCodebook
from tokencodes.spec import Seed, Strict

FLOAT32 = 4  # bytes
MAX_CODE_BOOK_BYTES = 2**36  # it is made and read whole, in memory
PaperModel = Literal["Learned", "Binary16", "GF2"] | None
PAPER_MODEL = "the paper's model whose published scores stand beside this one in the tables"


class TableInterface(Strict):
    """x(t) = E_in[t], a trainable V x d table (paper: Learned)."""

    kind: Literal["table"]
    paper_model: PaperModel = Field(None, description=PAPER_MODEL)
    renamed: ClassVar[dict[str, str]] = {"reference": "paper_model"}


class CodeInterface(Strict):
    """x(t) = scale * lift(code(t)) (paper: Binary16, GF2; ours: the controls)."""

    kind: Literal["code"]
    codebook: AnyCodebook
    lift: Literal["tile", "hadamard", "orthogonal"] = Field(
        "tile",
        description="from K to d: `tile` repeats the code (paper); `orthogonal` turns it, rank K; `hadamard` takes "
        "parities of its bits as -1 and 1, rank up to d",
    )
    lift_seed: Seed = Field(0, description="of `orthogonal` and `hadamard`")
    scale: Literal["unit", "matched"] = Field(
        "unit",
        description="`unit` (paper), or `matched`: inputs get the root mean square norm of a learned row at "
        "initialisation",
    )
    permutation_seed: Seed | None = Field(None, description="shuffle the ids before coding; null: keep their order")
    shared: bool = Field(False, description="whether several tokens may have one code; otherwise that is refused")
    paper_model: PaperModel = Field(None, description=PAPER_MODEL)
    renamed: ClassVar[dict[str, str]] = {"reference": "paper_model"}

    @property
    def trained(self) -> bool:
        """Whether the codes are parameters; otherwise there is a code book."""
        return self.codebook.trained


Interface = Annotated[TableInterface | CodeInterface, Field(discriminator="kind")]


def is_fixed(interface: TableInterface | CodeInterface) -> bool:
    """Whether the interface has a fixed code book."""
    return isinstance(interface, CodeInterface) and not interface.trained


def interface_problems(where: str, name: str, interface: Interface, vocab_size: int, d_model: int) -> list[str]:
    """What no single key shows: one line per problem, each with the place of the key."""
    if isinstance(interface, TableInterface):
        return []
    codebook, width = interface.codebook, interface.codebook.coordinates(vocab_size)
    problems = [
        f"{where}.codebook.{key}: {problem}" for key, problem in codebook.problems(vocab_size, shared=interface.shared)
    ]
    if width > d_model:
        problems.append(f"{where}.codebook.width: {width} is above d_model {d_model}; the lift would cut the code")
    size = vocab_size * width * (1 if codebook.is_binary else FLOAT32)
    if not codebook.trained and size > MAX_CODE_BOOK_BYTES:
        problems.append(
            f"{where}.codebook.width: a code book of {vocab_size} x {width} takes {size:,} bytes; "
            f"at most {MAX_CODE_BOOK_BYTES:,} are made: use a narrower code or fewer tokens"
        )
    if interface.lift == "hadamard" and not codebook.is_binary:
        problems.append(f"{where}.lift: hadamard needs a binary code, not {codebook.kind}")
    if match := re.fullmatch(r"binary(\d+)", name):
        if codebook.kind != "binary" or width != int(match[1]):
            problems.append(
                f"{where}: the number in the name is the code's width; this one is {codebook.kind} with "
                f"{width}: call it {codebook.kind}{width if codebook.kind == 'binary' else ''}"
            )
    return problems
