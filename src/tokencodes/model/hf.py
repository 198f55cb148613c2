"""The Transformers adapter: our decoder behind AutoModel and AutoModelForCausalLM.

Importing this module registers the model type `tokencodes`; `import tokencodes` does so when it is needed. Labels
follow the Transformers convention (they are shifted inside the loss), while the trainer's targets are already shifted;
logits are the same. A model that is loaded from disk is refused unless every tensor was there and the fixed code book
has the hash that its config states (or that of its rounded values, if the model was saved in half precision).
"""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM, DynamicCache, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from tokencodes.interfaces import module
from tokencodes.model.hf_config import TokenCodesConfig
from tokencodes.model.transformer import Block, Decoder

HALF = ("bfloat16", "float16")  # types in which a model may have been saved
LOSS_OPTIONS = frozenset({"num_items_in_batch", "ignore_index", "shift_labels"})  # of Transformers' causal loss


class TokenCodesPreTrainedModel(PreTrainedModel):
    """What both model classes share."""

    config_class = TokenCodesConfig
    base_model_prefix = "model"
    _no_split_modules = ("Block",)
    _supports_sdpa = True
    _can_record_outputs = {"hidden_states": Block}  # noqa: RUF012  output_hidden_states=True, as Transformers' own models

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Any:
        """As in Transformers, but a missing, unknown or mis-shaped tensor and a changed code book are errors.

        Raises ValueError with the names of what is wrong.
        """
        model, info = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        problems = [
            f"{what}: {', '.join(sorted(map(str, info[key])))}"
            for key, what in (
                ("missing_keys", "missing tensors"),
                ("unexpected_keys", "unknown tensors"),
                ("mismatched_keys", "tensors of another shape"),
            )
            if info.get(key)
        ]
        if not problems:
            problems = buffer_differences(model)
        if problems:
            raise ValueError(f"{args[0] if args else cls.__name__}: {'; '.join(problems)}")
        return (model, info) if output_loading_info else model

    def _init_weights(self, part: nn.Module) -> None:
        super()._init_weights(part)
        if isinstance(part, module.CodeInput) and isinstance(part.codebook, nn.Parameter):
            nn.init.normal_(part.codebook, std=self.config.initializer_range)


class TokenCodesModel(TokenCodesPreTrainedModel):
    """Input interface, blocks and final norm."""

    _keys_to_ignore_on_load_unexpected = (r"^lm_head\.",)  # a stored language model has a head, this model none

    def __init__(self, config: TokenCodesConfig):
        super().__init__(config)
        self.decoder = Decoder(*config.spec())
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.input

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.decoder.input = value

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """`attention_mask` (B, keys), 0 at padding, on either side; or (B, 1, T, keys), as attention takes it; `cache`
        (or by its older name `past_key_values`) a Transformers cache. Also `return_dict` and `output_hidden_states`, as
        in Transformers. Raises TypeError for any other argument that is neither None nor False."""
        cache = settled(kwargs, cache, {"output_hidden_states"})
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        source = input_ids if inputs_embeds is None else inputs_embeds
        length, past = source.shape[1], cache.get_seq_length() if cache is not None else 0
        if position_ids is None:
            position_ids = torch.arange(past, past + length, device=source.device)
            if attention_mask is not None and attention_mask.dim() == 2:
                position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]
        hidden = self.decoder(
            input_ids,
            inputs=inputs_embeds,
            positions=position_ids,
            mask=allowed(attention_mask, length, past, source.device),
            cache=cache,
        )
        return BaseModelOutputWithPast(last_hidden_state=hidden, cache=cache)


class TokenCodesForCausalLM(TokenCodesPreTrainedModel, GenerationMixin):
    """The language model with its untied head."""

    def __init__(self, config: TokenCodesConfig):
        super().__init__(config)
        self.model = TokenCodesModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """`labels` (B, T) are the input ids themselves, -100 where a token does not count; the loss shifts them.
        Options of Transformers' loss are taken too; for the rest see TokenCodesModel."""
        options = {name: kwargs.pop(name) for name in LOSS_OPTIONS & kwargs.keys()}
        outputs = self.model(input_ids, attention_mask, position_ids, cache, inputs_embeds, use_cache, **kwargs)
        hidden = outputs.last_hidden_state
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(hidden[:, keep])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **options)
        return CausalLMOutputWithPast(
            loss=loss, logits=logits, cache=outputs.cache, hidden_states=outputs.hidden_states
        )


def settled(options: dict[str, Any], cache: Any, known: set[str]) -> Any:
    """The cache, by whichever of its two names it was given.

    Raises TypeError for an option outside `known`, unless it is None or False: if it were ignored, the numbers would
    not be those that the caller expects.
    """
    old = options.get("past_key_values")
    if old is not None and cache is not None:
        raise TypeError("give the cache once: `cache` and `past_key_values` are the same argument")
    set_options = {name for name, value in options.items() if value is not None and value is not False}
    if refused := sorted(set_options - known - {"past_key_values"}):
        raise TypeError(f"this model does not take {', '.join(refused)}; leave it out")
    return cache if old is None else old


def allowed(attention_mask: Tensor | None, length: int, past: int, device: torch.device) -> Tensor | None:
    """Where attention may look: bool (B or 1, 1, T, past + T), or None for the plain causal case.

    A query at a padded position sees itself, so that its softmax is defined; nothing reads the result. A mask of four
    dimensions is returned as it is.
    """
    if attention_mask is not None and attention_mask.dim() == 4:
        return attention_mask
    padded = attention_mask is not None and not bool(attention_mask.all())
    if not padded and (past == 0 or length == 1):
        return None
    keys = torch.arange(past + length, device=device)
    queries = torch.arange(past, past + length, device=device)[:, None]
    mask = (keys <= queries)[None, None]
    if padded:
        mask = mask & attention_mask[:, None, None, :].bool() | (keys == queries)
    return mask


def buffer_differences(model: nn.Module) -> list[str]:
    """Names of the buffers of the input interface that are not the ones whose hashes the model's config states.

    If the model was saved in half precision, a continuous buffer may also be the stated one, rounded to that as a
    whole; this gives a warning. A buffer on the meta device (`device_map="meta"`, offloading) has no values to compare.
    """
    problems = []
    for name, stored in model.get_input_embeddings().named_buffers():
        if stored.is_meta:
            continue
        hashes = model.config.input_sha256.get(name, {})
        values = stored.detach().cpu()
        kind = next((kind for kind in hashes if _is_in(values, kind, hashes[kind])), None)
        if kind is None:
            problems.append(f"{name} is not the one whose hash config.json states")
        elif kind in HALF and str(values.dtype) != f"torch.{kind}":
            warnings.warn(f"{name} was saved in {kind}: it is the stated one, rounded to that", stacklevel=3)
    return problems


def _is_in(values: Tensor, kind: str, sha256: str) -> bool:
    """Whether values are exactly those of that hash, stored in the type `kind` or a wider one."""
    dtype = getattr(torch, kind, None)
    if not isinstance(dtype, torch.dtype) or (values.dtype != dtype and not values.is_floating_point()):
        return False
    stored = values.to(dtype)
    return torch.equal(stored.to(values.dtype), values) and module.sha256(stored) == sha256


AutoModel.register(TokenCodesConfig, TokenCodesModel, exist_ok=True)
AutoModelForCausalLM.register(TokenCodesConfig, TokenCodesForCausalLM, exist_ok=True)
