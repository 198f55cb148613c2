"""The Transformers config of our models: the model type `tokencodes` behind AutoConfig."""

from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from tokencodes.errors import UserError
from tokencodes.interfaces.form import CodeForm, TableForm
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
    """config.json: the backbone under Transformers' names, and the input interface.

    `input_form` is what the model must know of its input (`interfaces.form`). `input_sha256` contains, for each
    stored array (`codebook`, `lift`), its hash by the type in which it may be loaded. `interface` is that section of
    the run's config: it tells how the codes were made, and is not needed to run the model.
    """

    model_type = "tokencodes"
    keys_to_ignore_at_inference = ("cache",)

    def __init__(
        self,
        interface: dict[str, Any] | None = None,
        input_form: dict[str, Any] | None = None,
        input_sha256: dict[str, dict[str, str]] | None = None,
        **kwargs: Any,
    ):
        self.interface = dict(interface or {"kind": "table"})
        self.input_form = dict(input_form or {"kind": "table"})
        self.input_sha256 = dict(input_sha256 or {})
        for name in NAMES:
            if name in kwargs:
                setattr(self, name, kwargs.pop(name))
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)

    def spec(self) -> tuple[TableForm | CodeForm, Model]:
        """The typed description. Raises UserError if a key is missing, unknown or out of range."""
        where = "config.json"
        if self.interface.get("kind") != self.input_form.get("kind"):
            raise UserError(f"{where}: input_form does not fit interface; export the model again with this version")
        model = {ours: getattr(self, theirs) for theirs, ours in NAMES.items() if hasattr(self, theirs)}
        form = TableForm if self.input_form.get("kind") == "table" else CodeForm
        return parse(form, self.input_form, f"{where}: input_form"), parse(Model, model, where)


AutoConfig.register("tokencodes", TokenCodesConfig, exist_ok=True)
