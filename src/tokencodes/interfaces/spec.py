"""The input interface in a config: code book x lift x scale (x permutation), or the learned table."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tokencodes.interfaces.vocabulary import bits_needed
from tokencodes.spec import Strict


class BinaryCodebook(Strict):
    """Little-endian bits of the token id; `width` null means K = ceil(log2 V)."""

    kind: Literal["binary"]
    width: int | None = Field(None, ge=1, le=62)


class GF2Codebook(Strict):
    """Binary code mapped by an invertible A over GF(2), plus b. Paper: seed 12345, weight >= 4, b = 0."""

    kind: Literal["gf2"]
    width: int | None = Field(None, ge=1, le=62)
    seed: int = Field(12345, ge=0)
    min_weight: int = Field(4, ge=1)
    random_bias: bool = False


class LinearCodebook(Strict):
    """Redundant binary code of `width` > K bits: G c over GF(2), the first K rows of G the identity."""

    kind: Literal["linear"]
    width: int = Field(ge=2, le=512)
    seed: int = Field(12345, ge=0)


class GaussianCodebook(Strict):
    """Fixed continuous code: `width` independent standard normal coordinates a token."""

    kind: Literal["gaussian"]
    width: int = Field(ge=1)
    seed: int = Field(12345, ge=0)


class LearnedCodebook(Strict):
    """A trainable V x `width` code under a fixed lift: separates fixedness from dimension."""

    kind: Literal["learned"]
    width: int = Field(ge=1)


Codebook = Annotated[
    BinaryCodebook | GF2Codebook | LinearCodebook | GaussianCodebook | LearnedCodebook, Field(discriminator="kind")
]


PaperModel = Literal["Learned", "Binary16", "GF2"] | None  # whose published scores stand beside this one in the tables


class TableInterface(Strict):
    """x(t) = E_in[t], a trainable V x d table (paper: Learned)."""

    kind: Literal["table"]
    paper_model: PaperModel = None
    renamed: ClassVar[dict[str, str]] = {"reference": "paper_model"}


class CodeInterface(Strict):
    """x(t) = scale * lift(code(t)) (paper: Binary16, GF2; ours: the controls)."""

    kind: Literal["code"]
    codebook: Codebook
    lift: Literal["tile", "hadamard", "orthogonal"] = "tile"
    lift_seed: int = Field(0, ge=0)
    scale: Literal["unit", "matched"] = "unit"
    permutation_seed: int | None = Field(None, ge=0)
    paper_model: PaperModel = None
    renamed: ClassVar[dict[str, str]] = {"reference": "paper_model"}


Interface = Annotated[TableInterface | CodeInterface, Field(discriminator="kind")]


def interface_problems(where: str, name: str, interface: Interface, vocab_size: int, d_model: int) -> list[str]:
    if isinstance(interface, TableInterface):
        return []
    codebook, needed, problems = interface.codebook, bits_needed(vocab_size), []
    width = codebook.width if codebook.width is not None else needed
    if codebook.kind in ("binary", "gf2", "linear") and width < needed:
        problems.append(
            f"{where}.codebook.width: {width} bits cannot tell vocab_size {vocab_size} tokens apart; "
            f"use at least {needed}"
        )
    if width > d_model:
        problems.append(f"{where}.codebook.width: {width} is above d_model {d_model}; the lift would cut the code")
    if interface.lift == "hadamard" and codebook.kind not in ("binary", "gf2", "linear"):
        problems.append(f"{where}.lift: hadamard needs a binary code, not {codebook.kind}")
    if match := re.fullmatch(r"binary(\d+)", name):
        if codebook.kind != "binary" or width != int(match[1]):
            problems.append(
                f"{where}: the number in the name is the code's width; this one is {codebook.kind} with "
                f"{width}: call it {codebook.kind}{width if codebook.kind == 'binary' else ''}"
            )
    return problems
