"""Cross entropy of the output head, without holding the logits of more than a few rows at a time.

At V = 49,152 the float32 logits of one micro-batch of 8 x 2,048 are 3.2 GB and their gradient as much again. Here the
logits of a chunk are computed, turned into loss and gradients, and discarded.
"""

import torch
from torch import Tensor


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(context, hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> Tensor:
        device = hidden.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        need_hidden, need_weight = context.needs_input_grad[:2]
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if need_weight else None
        with torch.autocast(device, enabled=False):
            head = weight.to(low)
            # One buffer for all chunks: on a CPU, an allocation per chunk costs more than some of the products
            room = hidden.new_empty(min(chunk, hidden.shape[0]), weight.shape[0], dtype=torch.float32)
            low_room = room if low == torch.float32 else torch.empty_like(room, dtype=low)
            product = torch.empty_like(head) if need_weight and low != torch.float32 else None
            for start in range(0, hidden.shape[0], chunk):
                rows = hidden[start : start + chunk].to(low)
                own_target = targets[start : start + chunk, None]
                logits, low_logits = room[: rows.shape[0]], low_room[: rows.shape[0]]
                torch.mm(rows, head.T, out=low_logits)
                if low_logits.dtype != logits.dtype:
                    logits.copy_(low_logits)
                top = logits.amax(dim=-1, keepdim=True)
                own = logits.gather(1, own_target)
                # One exponential per logit serves both the norm and the gradient, in the logits' memory
                grad = logits.sub_(top).exp_()
                norm = grad.sum(dim=-1, keepdim=True)
                total += (norm.log() + top - own).sum()
                if not (need_hidden or need_weight):
                    continue
                grad.div_(norm).scatter_add_(1, own_target, torch.full_like(norm, -1))
                if low_logits.dtype != grad.dtype:
                    grad = low_logits.copy_(grad)
                if grad_hidden is not None:
                    grad_hidden[start : start + chunk] = (grad @ head).to(hidden.dtype)
                if not need_weight:
                    continue
                if low == torch.float32:
                    torch.addmm(grad_weight, grad.T, rows, out=grad_weight)
                else:  # summed in float32: in bfloat16 small terms would be lost
                    grad_weight += torch.mm(grad.T, rows, out=product)
        context.save_for_backward(grad_hidden, grad_weight)
        context.weight_dtype = weight.dtype
        return total

    @staticmethod
    def backward(context, upstream: Tensor):
        grad_hidden, grad_weight = context.saved_tensors
        if grad_hidden is not None:
            grad_hidden.mul_(upstream)  # in place: they are as large as hidden and weight
        if grad_weight is not None:
            grad_weight = grad_weight.mul_(upstream).to(context.weight_dtype)
        return grad_hidden, grad_weight, None, None


def summed_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> Tensor:
    """Sum over rows of -log softmax(hidden W^T)[target], float32 scalar in nats.

    hidden (N, d), weight (V, d), targets int64 (N,); `chunk` rows of logits exist at one time. Products follow
    autocast, the softmax is float32. Gradients are computed with the loss; the result may be scaled, but not
    differentiated twice.
    """
    if not torch.is_grad_enabled():
        hidden, weight = hidden.detach(), weight.detach()  # otherwise their gradients would be computed for nothing
    return _ChunkedCrossEntropy.apply(hidden, weight, targets, chunk)
