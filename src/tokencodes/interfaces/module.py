"""The input interface as a torch module: code book x lift x scale, or the learned table.

The code book is a persistent buffer: it is stored with the model and never trained. `build` is the one place where a
config becomes a module.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from tokencodes.interfaces import codebook, lift
from tokencodes.interfaces.spec import CodeInterface, Interface, TableInterface

NORM_CHUNK = 4096  # rows of lifted codes that exist at one time while their norm is measured


class CodeInput(nn.Module):
    """x(t) = scale * lift(code(t)). Input ids int64 (..., T) -> float32 (..., T, d).

    State: `codebook` (V, K), a persistent buffer, uint8 for binary codes and float32 for continuous ones; under a
    learned code book the parameter `codebook` float32 (V, K) instead.
    """

    def __init__(self, spec: CodeInterface, vocab_size: int, d_model: int, init_std: float):
        super().__init__()
        self.kind, self.scale = spec.lift, scale(spec, vocab_size, d_model, init_std)
        codes = codebook.build(spec, vocab_size)
        width = codebook.width(spec.codebook, vocab_size)
        if codes is None:
            self.codebook = nn.Parameter(torch.empty(vocab_size, width))
        else:
            self.register_buffer("codebook", torch.from_numpy(codes))
        match self.kind:
            case "tile":
                self.repeats, self.d_model = math.ceil(d_model / width), d_model
            case "orthogonal":
                matrix = lift.orthogonal_matrix(width, d_model, spec.lift_seed)
                self.register_buffer("lift", torch.from_numpy(matrix))
            case "hadamard":
                masks = lift.walsh_masks(width, d_model, spec.lift_seed)
                self.register_buffer("lift", torch.from_numpy(masks))

    def forward(self, ids: Tensor) -> Tensor:
        codes = self.codebook[ids].float()
        match self.kind:
            case "tile":
                x = codes.repeat(*(1,) * (codes.dim() - 1), self.repeats)[..., : self.d_model]
            case "orthogonal":
                with torch.autocast(codes.device.type, enabled=False):  # R is exact: bf16 would round it
                    x = codes @ self.lift.float().T
            case "hadamard":
                with torch.autocast(codes.device.type, enabled=False):  # sums of up to K ones, exact in float32
                    x = 1 - 2 * torch.remainder(codes @ self.lift.float().T, 2)
        return x if self.scale == 1 else x * self.scale


def scale(spec: CodeInterface, vocab_size: int, d_model: int, init_std: float) -> float:
    """The one factor on all inputs: 1 for `unit`; for `matched`, what gives the inputs the root mean square norm of
    freshly initialised learned rows, init_std * sqrt(d) (ours; in the paper the norms of 0/1 inputs and learned
    rows differ).
    """
    if spec.scale == "unit" or spec.codebook.kind == "learned":  # a learned code starts with the rows' own spread
        return 1.0
    codes = codebook.build(spec, vocab_size)
    assert codes is not None
    if spec.lift == "hadamard":
        return init_std  # every coordinate is +1 or -1
    square = 0.0
    for start in range(0, vocab_size, NORM_CHUNK):
        part = lift.lift(codes[start : start + NORM_CHUNK], spec.lift, d_model, spec.lift_seed)
        square += float(np.square(part, dtype=np.float64).sum())
    return init_std * math.sqrt(d_model) / math.sqrt(square / vocab_size)


def build(spec: Interface, vocab_size: int, d_model: int, init_std: float) -> nn.Module:
    """The input module of an interface: `nn.Embedding` for the learned table, `CodeInput` for all others."""
    if isinstance(spec, TableInterface):
        return nn.Embedding(vocab_size, d_model)
    return CodeInput(spec, vocab_size, d_model, init_std)
