"""The decoder in a config."""

from pydantic import Field, model_validator

from tokencodes.spec import MAX_REAL, Strict

# Far above the largest published models; a stage that counts parameters makes each layer.
MAX_VOCABULARY = 10**7
MAX_WIDTH = 10**6
MAX_LAYERS = 1_000
MAX_CONTEXT = 10**7


class Model(Strict):
    """The decoder that all interfaces share (paper: 24 layers, width 2,048, 32 heads, FFN 8,192, context 2,048)."""

    vocab_size: int = Field(
        ge=2,
        le=MAX_VOCABULARY,
        description="V, the number of tokens. *Paper:* 49,152. A smaller value keeps the tokenizer's first V ids",
    )
    d_model: int = Field(ge=2, le=MAX_WIDTH, description="width of the model. *Paper:* 2,048")
    n_layers: int = Field(ge=1, le=MAX_LAYERS, description="number of decoder blocks. *Paper:* 24")
    n_heads: int = Field(
        ge=1, le=MAX_WIDTH, description="number of attention heads; must divide `d_model`. *Paper:* 32"
    )
    d_ff: int = Field(ge=1, le=MAX_WIDTH, description="width of the SwiGLU feed-forward layer. *Paper:* 8,192")
    context_length: int = Field(ge=1, le=MAX_CONTEXT, description="tokens per window. *Paper:* 2,048")
    rope_theta: float = Field(10000.0, ge=1, le=MAX_REAL, description="base of the rotary frequencies")
    norm_eps: float = Field(1e-5, gt=0, le=1, description="epsilon of RMSNorm")
    init_std: float = Field(0.02, gt=0, le=MAX_REAL, description="standard deviation of all matrices at initialisation")
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
