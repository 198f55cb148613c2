"""The decoder that every interface shares (paper, backbone): pre-norm blocks of RoPE attention and SwiGLU, RMSNorm,
no bias, no dropout, an untied head.

Shapes: B sequences, T positions, d = d_model, h heads of width w = d / h. Weights are float32; under autocast the
matrix products are bfloat16 while norms and the angles of the rotations stay float32.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tokencodes.interfaces import module
from tokencodes.interfaces.form import Form
from tokencodes.model.spec import Model


class RMSNorm(nn.Module):
    """y = weight * x / sqrt(mean(x^2) + eps), in float32 (Zhang & Sennrich, 2019)."""

    def __init__(self, d_model: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps).to(x.dtype)


def rotation(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of RoPE (Su et al., 2021), for positions int64 (..., T): each (..., 1, T, head_dim).

    Frequency i is theta^(-2i / head_dim); coordinates i and i + head_dim / 2 turn together. Angles are float32 whatever
    the autocast dtype: bfloat16 could not tell neighbouring positions apart.
    """
    with torch.autocast(positions.device.type, enabled=False):
        pair = torch.arange(0, head_dim, 2, dtype=torch.int64, device=positions.device).float()
        angles = positions[..., None].float() * (1.0 / theta ** (pair / head_dim))
        angles = torch.cat((angles, angles), dim=-1).unsqueeze(-3)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn queries or keys (B, h, T, w) by their positions' angles."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Attention(nn.Module):
    """Causal multi-head attention; query, key and value come from one product, split in that order."""

    def __init__(self, model: Model, layer: int):
        super().__init__()
        self.n_heads, self.layer = model.n_heads, layer
        self.qkv = nn.Linear(model.d_model, 3 * model.d_model, bias=False)
        self.out = nn.Linear(model.d_model, model.d_model, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.n_heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, dim=-1)
        )
        q, k = rotate(q, cos.to(q.dtype), sin.to(q.dtype)), rotate(k, cos.to(k.dtype), sin.to(k.dtype))
        if cache is not None:
            k, v = cache.update(k, v, self.layer)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class SwiGLU(nn.Module):
    """down(silu(gate x) * up x) (Shazeer, 2020); gate and up come from one product, split in that order."""

    def __init__(self, model: Model):
        super().__init__()
        self.gate_up = nn.Linear(model.d_model, 2 * model.d_ff, bias=False)
        self.down = nn.Linear(model.d_ff, model.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """x + attention(norm x), then x + mlp(norm x)."""

    def __init__(self, model: Model, layer: int):
        super().__init__()
        self.attention_norm = RMSNorm(model.d_model, model.norm_eps)
        self.attention = Attention(model, layer)
        self.mlp_norm = RMSNorm(model.d_model, model.norm_eps)
        self.mlp = SwiGLU(model)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin, mask, cache)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """Input interface, blocks and final norm: ids int64 (B, T) -> hidden states (B, T, d)."""

    def __init__(self, form: Form, model: Model):
        super().__init__()
        self.config = model
        self.input = module.build(form, model.vocab_size, model.d_model)
        self.layers = nn.ModuleList(Block(model, layer) for layer in range(model.n_layers))
        self.norm = RMSNorm(model.d_model, model.norm_eps)
        self.checkpointing = False  # the trainer's choice; it changes memory and time, and no number

    def forward(
        self,
        ids: Tensor | None,
        *,
        inputs: Tensor | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        """`inputs` (B, T, d) stand in for the interface's output; `positions` int64 (T,) or (B, T) default to 0..T-1;
        `mask` bool (B, 1, T, keys), true where attention is allowed, defaults to causal; `cache` has the `update`
        method of a Transformers cache."""
        x = self.input(ids) if inputs is None else inputs
        x = x.to(self.norm.weight.dtype)  # codes are exact in float32; a model in bfloat16 continues in that
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)
        head_dim = self.config.d_model // self.config.n_heads
        cos, sin = rotation(positions, head_dim, self.config.rope_theta, torch.float32)
        for layer in self.layers:
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(layer, x, cos, sin, mask, cache, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer(x, cos, sin, mask, cache)
        return self.norm(x)


class Transformer(nn.Module):
    """Decoder and untied output head, as the trainer holds it: ids int64 (B, T) -> logits (B, T, V).

    A fixed code book has no values until `fill` or loading weights supplies them.
    """

    def __init__(self, form: Form, model: Model):
        super().__init__()
        self.decoder = Decoder(form, model)
        self.lm_head = nn.Linear(model.d_model, model.vocab_size, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.lm_head(self.decoder(ids))

    def fill(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give the input interface its code book and lift (`interfaces.inputs`); a table takes none."""
        if isinstance(self.decoder.input, module.CodeInput):
            self.decoder.input.fill(arrays)


def create(form: Form, arrays: Mapping[str, np.ndarray], settings: Model, seed: int) -> Transformer:
    """A new model: its input filled with `arrays` (`interfaces.inputs`), its weights drawn from `seed`."""
    model = Transformer(form, settings)
    model.fill(arrays)
    initialise(model, settings, seed)
    return model


def initialise(model: Transformer, settings: Model, seed: int) -> None:
    """Draw all weights (ours; the paper does not state its scheme): matrices from N(0, init_std^2), those that write to
    the residual stream from N(0, init_std^2 / (2 n_layers)) if `scale_residual_init`, norms one.

    Each tensor has its own random stream, named by the seed and its place in the backbone. So with one seed all
    interfaces start from the same backbone and head, bit for bit, and differ in the input alone.
    """
    residual = (
        settings.init_std / math.sqrt(2 * settings.n_layers) if settings.scale_residual_init else settings.init_std
    )
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            torch.nn.init.ones_(parameter)
            continue
        stream = torch.Generator().manual_seed(stream_seed(seed, name))
        std = residual if name.endswith(("attention.out.weight", "mlp.down.weight")) else settings.init_std
        with torch.no_grad():
            parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=stream))


def stream_seed(seed: int, name: str) -> int:
    """A 63-bit seed of the stream for one tensor."""
    return int.from_bytes(hashlib.blake2b(f"init seed={seed} {name}".encode(), digest_size=8).digest(), "little") >> 1
