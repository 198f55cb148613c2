"""The decoder in a config."""

from pydantic import Field, model_validator

from tokencodes.spec import Strict


class Model(Strict):
    """The decoder that all interfaces share (paper: 24 layers, width 2,048, 32 heads, FFN 8,192, context 2,048)."""

    vocab_size: int = Field(
        ge=2, description="V, the number of tokens. *Paper:* 49,152. A smaller value keeps the tokenizer's first V ids"
    )
    d_model: int = Field(ge=2, description="width of the model. *Paper:* 2,048")
    n_layers: int = Field(ge=1, description="number of decoder blocks. *Paper:* 24")
    n_heads: int = Field(ge=1, description="number of attention heads; must divide `d_model`. *Paper:* 32")
    d_ff: int = Field(ge=1, description="width of the SwiGLU feed-forward layer. *Paper:* 8,192")
    context_length: int = Field(ge=1, description="tokens per window. *Paper:* 2,048")
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary frequencies")
    norm_eps: float = Field(1e-5, gt=0, description="epsilon of RMSNorm")
    init_std: float = Field(0.02, gt=0, description="standard deviation of all matrices at initialisation")
    scale_residual_init: bool = Field(
        True, description="divide `init_std` by sqrt(2 `n_layers`) in the matrices that write to the residual stream"
    )

    @model_validator(mode="after")
    def _heads(self) -> "Model":
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} is not divisible by n_heads {self.n_heads}")
        if (self.d_model // self.n_heads) % 2:
            raise ValueError(f"head width {self.d_model // self.n_heads} (d_model / n_heads) is odd; RoPE needs pairs")
        return self
