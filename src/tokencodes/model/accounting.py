"""Parameter accounting of each interface (paper, Table 1), from the meta device: no weight is allocated."""

import json
from pathlib import Path
from typing import Any

import torch

from tokencodes import config
from tokencodes.files import write_json
from tokencodes.interfaces.spec import Interface
from tokencodes.model.spec import Model
from tokencodes.model.transformer import Transformer


def count(interface: Interface, model: Model) -> dict[str, int]:
    """Trainable parameters by part, and the number of stored values that are not trained."""
    with torch.device("meta"):
        net = Transformer(interface, model)
    input_ = sum(p.numel() for p in net.decoder.input.parameters())
    head = sum(p.numel() for p in net.lm_head.parameters())
    trainable = sum(p.numel() for p in net.parameters() if p.requires_grad)
    return {
        "trainable": trainable,
        "input": input_,
        "head": head,
        "backbone": trainable - input_ - head,
        "buffers": sum(b.numel() for b in net.buffers()),
    }


def closed_form(model: Model) -> dict[str, int]:
    """The same by the paper's formula: a layer is 4 d^2 + 3 d f + 2 d, plus the final norm; the head is V d."""
    d, f = model.d_model, model.d_ff
    return {"backbone": model.n_layers * (4 * d * d + 3 * d * f + 2 * d) + d, "head": model.vocab_size * d}


def flops_per_token(model: Model) -> int:
    """Training FLOPs a predicted token, forward and backward, two for a multiply-add.

    6 for each backbone matrix and head parameter, and causal attention, 6 * n_layers * d_model * context_length. The
    input is a look-up for every interface and counts nothing, so the figure is the same for all.
    """
    d, f = model.d_model, model.d_ff
    matrices = model.n_layers * (4 * d * d + 3 * d * f) + model.vocab_size * d
    return 6 * matrices + 6 * model.n_layers * d * model.context_length


def command(settings: config.Config, *, as_json: bool, out: Path | None) -> None:
    """`tokencodes params`: print the accounting as a table or as JSON; with `out` also write the JSON there."""
    counts: dict[str, Any] = {
        "interfaces": {name: count(interface, settings.model) for name, interface in settings.interfaces.items()}
    }
    if out is not None:
        write_json(out, counts)
    if as_json:
        print(json.dumps(counts, indent=2))
        return
    print(f"{'interface':<24}{'trainable':>16}{'input':>14}{'head':>14}{'backbone':>16}{'buffers':>12}")
    for name, row in counts["interfaces"].items():
        print(
            f"{name:<24}{row['trainable']:>16,}{row['input']:>14,}{row['head']:>14,}{row['backbone']:>16,}"
            f"{row['buffers']:>12,}"
        )
