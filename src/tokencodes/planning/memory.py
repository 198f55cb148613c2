"""Bytes of one training rank and of what it writes, from the shape of the model: no torch, nothing is allocated.

A rank holds float32 weights, gradients and AdamW's two moments: 16 bytes per parameter. Under ddp on several GPUs it
holds 4 more, for the buckets in which gradients meet; under fsdp it holds its share, and one whole block while that
block works. Stored buffers and the activations that the backward pass needs come on top.
"""

from tokencodes.model.shape import Counts, block_parameters
from tokencodes.model.spec import Model
from tokencodes.train.spec import Train

FLOAT32, BFLOAT16 = 4, 2
TRAINING_COPIES = 4  # weights, gradients, AdamW's two moments
CHECKPOINT_COPIES = 3  # weights and the two moments


def activation_bytes(model: Model, train: Train) -> int:
    """Bytes of tensors that one micro-batch adds to the state of training at its peak: in the loss, or, if that is
    more, in a block's backward pass.

    Per token, a block keeps in float32 the input and the normalised input of its two norms (a fused norm keeps half of
    that). In the precision of the products it keeps the inputs of the two products behind the norms, q, k, v, the
    rotated q and k, the attention's output, and of the MLP gate, up, silu(gate) and their product. Its backward pass
    adds the gradients of gate and up. With activation checkpointing a block keeps its input alone, and one block at a
    time has everything. Under autocast each matrix has a bfloat16 copy. Attention is assumed not to store T x T. What
    the allocator keeps back is not included.
    """
    low = BFLOAT16 if train.precision == "bf16" else FLOAT32
    d, f = model.d_model, model.d_ff
    tokens = train.micro_batch_size * model.context_length
    block = tokens * (4 * FLOAT32 * d + low * 8 * d + low * 4 * f)
    residual = tokens * FLOAT32 * d
    backward = tokens * low * 2 * f
    copies = low * model.n_layers * (4 * d * d + 3 * d * f) if low < FLOAT32 else 0
    loss = loss_bytes(model.vocab_size, d, tokens, train.loss_chunk_tokens, low)
    if train.activation_checkpointing:
        blocks = model.n_layers * residual + max(loss, block + backward)
    else:
        blocks = model.n_layers * block + max(loss, backward)
    return blocks + copies + 3 * residual


def loss_bytes(vocab_size: int, d_model: int, tokens: int, chunk: int, low: int) -> int:
    """Bytes that the loss holds at its peak: a chunk's float32 logits and the head's float32 gradient.

    Under autocast, in `low` bytes each, also: the chunk's logits, the head's weights and one chunk's share of their
    gradient.
    """
    logits, head = min(chunk, tokens) * vocab_size, vocab_size * d_model
    copies = low * (logits + 2 * head) if low < FLOAT32 else 0
    return FLOAT32 * (logits + head) + copies


def state_bytes(counts: Counts, model: Model, n_gpus: int, parallel: str) -> int:
    """Bytes of weights, gradients, moments and buffers on one rank."""
    whole = counts.trainable * FLOAT32 * TRAINING_COPIES
    if n_gpus == 1:
        return whole + counts.buffers
    if parallel == "ddp":
        buckets = counts.trainable * FLOAT32  # accumulation keeps gradients beside them
        return whole + buckets + counts.buffers
    block = block_parameters(model) * FLOAT32
    outside = (counts.input + counts.head) * FLOAT32  # whole from the forward to the backward pass
    return whole // n_gpus + 2 * (block + outside) + counts.buffers


def rank_bytes(counts: Counts, model: Model, train: Train, parallel: str) -> int:
    """Bytes of one rank at its peak."""
    return state_bytes(counts, model, train.n_gpus, parallel) + activation_bytes(model, train)


def checkpoint_bytes(counts: Counts) -> int:
    """Bytes of a checkpoint: weights, moments and buffers."""
    return counts.trainable * FLOAT32 * CHECKPOINT_COPIES + counts.buffers


def export_bytes(counts: Counts) -> int:
    """Bytes of an exported model: weights and buffers."""
    return counts.trainable * FLOAT32 + counts.buffers
