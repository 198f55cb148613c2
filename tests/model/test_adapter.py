"""From the trainer's model to the Transformers adapter and back, bit for bit."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from adapted import IDS, INTERFACES, edit_tensors, make
from tokencodes.model import adapter


@pytest.mark.parametrize("kind", INTERFACES)
def test_round_trip_keeps_every_bit(saved, kind):
    net, path = saved(kind)
    model = AutoModelForCausalLM.from_pretrained(path)
    assert model.config.tie_word_embeddings is False
    assert json.loads((path / "config.json").read_text())["tie_word_embeddings"] is False
    assert torch.equal(model(IDS).logits, net(IDS))
    for name, tensor in net.state_dict().items():
        theirs = model.state_dict()[name if name.startswith("lm_head") else f"model.{name}"]
        assert theirs.dtype == tensor.dtype and torch.equal(theirs, tensor), name
    assert not [key for key in load_file(path / "model.safetensors") if "_orig_mod" in key]


@pytest.mark.parametrize("kind", ["gaussian", "orthogonal", "gaussian_orthogonal", "gf2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_what_was_saved_in_half_precision_loads_again(tmp_path, recwarn, kind, dtype):
    model = adapter.from_transformer(*make(kind)).to(dtype)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    said = [str(warning.message) for warning in recwarn if "was saved in" in str(warning.message)]
    assert len(said) == sum(b.is_floating_point() for b in model.get_input_embeddings().buffers())
    assert all(str(dtype).removeprefix("torch.") in line for line in said)
    torch.testing.assert_close(again(IDS).logits, model(IDS).logits)

    def nudge(tensors):
        book = tensors["model.decoder.input.codebook"]
        book[3, 1] = 1 - book[3, 1] if book.dtype == torch.uint8 else book[3, 1] * 1.01

    edit_tensors(tmp_path, nudge)
    with pytest.raises(ValueError, match="codebook is not the one"):
        AutoModelForCausalLM.from_pretrained(tmp_path)
