"""The Transformers config of our models: the model type `tokencodes` behind AutoConfig."""

from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from tokencodes.interfaces.spec import CodeInterface, Interface, TableInterface
from tokencodes.model.spec import Model
from tokencodes.spec import parse

# Transformers' name of each of our model keys.
NAMES = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "d_ff",
    "max_position_embeddings": "context_length",
    "rope_theta": "rope_theta",
    "rms_norm_eps": "norm_eps",
    "initializer_range": "init_std",
    "scale_residual_init": "scale_residual_init",
}


class TokenCodesConfig(PreTrainedConfig):
    """config.json: the backbone under Transformers' names, and `interface`, that section of a run's config."""

    model_type = "tokencodes"
    keys_to_ignore_at_inference = ("cache",)

    def __init__(self, interface: dict[str, Any] | None = None, **kwargs: Any):
        self.interface = dict(interface or {"kind": "table"})
        for name in NAMES:
            if name in kwargs:
                setattr(self, name, kwargs.pop(name))
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)

    def spec(self) -> tuple[Interface, Model]:
        """The typed description. Raises UserError if a key is missing, unknown or out of range."""
        where = "config.json"
        model = {ours: getattr(self, theirs) for theirs, ours in NAMES.items() if hasattr(self, theirs)}
        kind = TableInterface if self.interface.get("kind") == "table" else CodeInterface
        return parse(kind, self.interface, f"{where}: interface"), parse(Model, model, where)


def to_config(interface: Interface, model: Model, **kwargs: Any) -> TokenCodesConfig:
    """The Transformers config of a run."""
    return TokenCodesConfig(
        interface=interface.model_dump(mode="json"),
        **{theirs: getattr(model, ours) for theirs, ours in NAMES.items()},
        **kwargs,
    )


AutoConfig.register("tokencodes", TokenCodesConfig, exist_ok=True)
