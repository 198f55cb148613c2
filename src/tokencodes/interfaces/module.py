"""The input interface as a torch module: a code book under a lift, or the learned table.

The code book is a persistent buffer: it is stored with the model and never trained. A new module has no codes yet: its
buffers lie on the meta device, so that a model that was never filled or loaded cannot run. `fill` gives it the arrays
of `interfaces.inputs`; loading weights does the same.
"""

import hashlib
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tokencodes.interfaces.form import CodeForm, TableForm


class CodeInput(nn.Module):
    """x(t) = scale * lift(code(t)). Input ids int64 (..., T) -> float32 (..., T, d).

    State: `codebook` (V, K), a persistent buffer, uint8 for binary codes and float32 for continuous ones; for trained
    codes the parameter `codebook` float32 (V, K) instead. `lift` (d, K): float32 R of `orthogonal`, uint8 masks of
    `hadamard`.
    """

    def __init__(self, form: CodeForm, vocab_size: int, d_model: int):
        super().__init__()
        self.kind, self.scale, self.d_model = form.lift, form.scale, d_model
        if form.trained:
            self.codebook = nn.Parameter(torch.empty(vocab_size, form.width))
        else:
            values = torch.uint8 if form.is_binary else torch.float32
            self.register_buffer("codebook", torch.empty(vocab_size, form.width, dtype=values, device="meta"))
        if self.kind == "tile":
            self.repeats = math.ceil(d_model / form.width)
        else:
            values = torch.uint8 if self.kind == "hadamard" else torch.float32
            self.register_buffer("lift", torch.empty(d_model, form.width, dtype=values, device="meta"))

    def fill(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give each buffer its values. Raises ValueError if one is missing or of another shape or type."""
        buffers = dict(self.named_buffers())
        if arrays.keys() != buffers.keys():
            raise ValueError(f"arrays {sorted(arrays)} do not fit the buffers {sorted(buffers)}")
        for name, array in arrays.items():
            values = torch.from_numpy(array.copy())
            if values.shape != buffers[name].shape or values.dtype != buffers[name].dtype:
                raise ValueError(f"{name}: {values.dtype} {tuple(values.shape)}, expected {tuple(buffers[name].shape)}")
            setattr(self, name, values)

    def forward(self, ids: Tensor) -> Tensor:
        # Refuses an id below 0, which indexing would count from the end
        codes = F.embedding(ids, self.codebook).float()
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


def build(form: TableForm | CodeForm, vocab_size: int, d_model: int) -> nn.Module:
    """The input module of a form: `nn.Embedding` for the learned table, `CodeInput` for all others."""
    if isinstance(form, TableForm):
        return nn.Embedding(vocab_size, d_model)
    return CodeInput(form, vocab_size, d_model)


def sha256(values: Tensor) -> str:
    """Hex SHA-256 of type, shape and little-endian bytes, as `interfaces.codes.sha256` gives it for an array."""
    name = str(values.dtype).removeprefix("torch.")
    hasher = hashlib.sha256(f"{name} {'x'.join(map(str, values.shape))}\n".encode())
    hasher.update(values.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()
