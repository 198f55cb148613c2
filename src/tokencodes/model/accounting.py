"""Parameter accounting of each interface (paper, Table 1), from the meta device: no weight is allocated."""

import json
from pathlib import Path

import torch

from tokencodes.interfaces import inputs
from tokencodes.interfaces.spec import Interface
from tokencodes.model.shape import Counts, Params
from tokencodes.model.spec import Model
from tokencodes.model.transformer import Transformer


def count(interface: Interface, model: Model) -> Counts:
    """Trainable parameters by part, and the number of stored values that are not trained."""
    with torch.device("meta"):
        net = Transformer(inputs.form(interface, model.vocab_size), model)
    input_ = sum(p.numel() for p in net.decoder.input.parameters())
    head = sum(p.numel() for p in net.lm_head.parameters())
    trainable = sum(p.numel() for p in net.parameters() if p.requires_grad)
    return Counts(
        trainable=trainable,
        input=input_,
        head=head,
        backbone=trainable - input_ - head,
        buffers=sum(b.numel() for b in net.buffers()),
    )


def command(interfaces: dict[str, Interface], model: Model, *, as_json: bool, out: Path | None) -> None:
    """`tokencodes params`: print the accounting as a table or as JSON; with `out` also write the JSON there."""
    params = Params(interfaces={name: count(interface, model) for name, interface in interfaces.items()})
    if out is not None:
        params.write(out)
    if as_json:
        print(json.dumps(params.model_dump(mode="json"), indent=2))
        return
    print(f"{'interface':<24}{'trainable':>16}{'input':>14}{'head':>14}{'backbone':>16}{'buffers':>12}")
    for name, row in params.interfaces.items():
        print(f"{name:<24}{row.trainable:>16,}{row.input:>14,}{row.head:>14,}{row.backbone:>16,}{row.buffers:>12,}")
