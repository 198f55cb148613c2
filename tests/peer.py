"""The peer that nobody here wrote: Transformers' Llama in the shape of one of our models."""

from transformers import LlamaConfig, LlamaForCausalLM

from tokencodes.model.spec import Model


def llama_of(model: Model) -> LlamaForCausalLM:
    """Llama with fresh weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=model.vocab_size,
            hidden_size=model.d_model,
            intermediate_size=model.d_ff,
            num_hidden_layers=model.n_layers,
            num_attention_heads=model.n_heads,
            max_position_embeddings=model.context_length,
            rms_norm_eps=model.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta},
            tie_word_embeddings=False,
            attention_bias=False,
            mlp_bias=False,
        )
    )
