"""Small models of every kind of input, behind the Transformers adapter."""

import torch
from safetensors.torch import load_file, save_file

from making import create, inputs_of
from tokencodes.interfaces.spec import CodeInterface, TableInterface
from tokencodes.model import adapter, hf, transformer
from tokencodes.model.spec import Model

MODEL = Model(vocab_size=200, d_model=32, n_layers=2, n_heads=4, d_ff=48, context_length=32)
INTERFACES = {
    "learned": {"kind": "table"},
    "binary8": {"kind": "code", "codebook": {"kind": "binary"}},
    "gf2": {"kind": "code", "codebook": {"kind": "gf2"}},
    "hadamard": {"kind": "code", "codebook": {"kind": "binary"}, "lift": "hadamard", "scale": "matched"},
    "orthogonal": {"kind": "code", "codebook": {"kind": "linear", "width": 12}, "lift": "orthogonal"},
    "gaussian": {"kind": "code", "codebook": {"kind": "gaussian", "width": 16}, "scale": "matched"},
    "gaussian_orthogonal": {"kind": "code", "codebook": {"kind": "gaussian", "width": 16}, "lift": "orthogonal"},
    "learned_code": {"kind": "code", "codebook": {"kind": "learned", "width": 8}},
}


def make(kind: str) -> tuple[transformer.Transformer, hf.TokenCodesConfig]:
    """The trainer's model of a kind, and its Transformers config."""
    section = INTERFACES[kind]
    spec = (TableInterface if section["kind"] == "table" else CodeInterface).model_validate(section)
    net = create(spec, MODEL)
    with torch.no_grad():
        net.lm_head.weight *= 20  # far apart logits: greedy choices are not ties
    return net.eval(), adapter.to_config(
        spec, inputs_of(spec, MODEL), MODEL, bos_token_id=0, eos_token_id=0, pad_token_id=0
    )


IDS = torch.randint(1, 200, (2, 20), generator=torch.Generator().manual_seed(0))


def edit_tensors(path, change):
    """Apply `change` to the stored tensors of the model directory `path`."""
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
