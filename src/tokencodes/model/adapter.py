"""Between the trainer's model and the Transformers adapter: the weights are shared, not copied."""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from tokencodes.interfaces.inputs import Inputs
from tokencodes.interfaces.module import sha256
from tokencodes.interfaces.spec import Interface
from tokencodes.model.hf import HALF, TokenCodesForCausalLM
from tokencodes.model.hf_config import NAMES, TokenCodesConfig
from tokencodes.model.spec import Model
from tokencodes.model.transformer import Transformer


def to_config(interface: Interface, inputs: Inputs, model: Model, **kwargs: Any) -> TokenCodesConfig:
    """The Transformers config of a model."""
    return TokenCodesConfig(
        interface=interface.model_dump(mode="json"),
        input_form=inputs.form.model_dump(mode="json"),
        input_sha256={name: hashes(torch.from_numpy(array)) for name, array in inputs.arrays.items()},
        **{theirs: getattr(model, ours) for theirs, ours in NAMES.items()},
        **kwargs,
    )


def hashes(values: torch.Tensor) -> dict[str, str]:
    """The hash of an array by the type in which it may be stored: its own, and for continuous values half precision."""
    kinds = [values.dtype, *(getattr(torch, kind) for kind in HALF if values.is_floating_point())]
    return {str(kind).removeprefix("torch."): sha256(values.to(kind)) for kind in kinds}


def from_transformer(model: Transformer, settings: TokenCodesConfig) -> TokenCodesForCausalLM:
    """The adapter around the trainer's weights."""
    with torch.device("meta"):
        adapter = TokenCodesForCausalLM(settings)
    adapter.model.decoder, adapter.lm_head = model.decoder, model.lm_head
    return adapter.eval()


def to_transformer(adapter: TokenCodesForCausalLM) -> Transformer:
    """The trainer's form of a loaded model."""
    with torch.device("meta"):
        model = Transformer(*adapter.config.spec())
    model.decoder, model.lm_head = adapter.model.decoder, adapter.lm_head
    return model.eval()


def load(path: Path, *, verify: bool = True) -> TokenCodesForCausalLM:
    """Load a model directory in float32 on the CPU, strictly (see `hf.TokenCodesPreTrainedModel.from_pretrained`)."""
    transformers.utils.logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, verify=verify).eval()
