"""Cross entropy of the output head, without holding the logits of more than a few rows at a time.

At V = 49,152 the float32 logits of one micro-batch of 8 x 2,048 are 3.2 GB and their gradient as much again. Here each
chunk's logits are made, turned into loss and gradients, and dropped.
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
            for start in range(0, hidden.shape[0], chunk):
                rows = hidden[start : start + chunk].to(low)
                wanted = targets[start : start + chunk, None]
                logits = (rows @ head.T).float()
                log_norm = torch.logsumexp(logits, dim=-1, keepdim=True)
                total += (log_norm - logits.gather(1, wanted)).sum()
                if not (need_hidden or need_weight):
                    continue
                grad = logits.sub_(log_norm).exp_()  # the probabilities, in the logits' own memory
                grad.scatter_add_(1, wanted, torch.full_like(wanted, -1, dtype=grad.dtype))
                grad = grad.to(low)
                if grad_hidden is not None:
                    grad_hidden[start : start + chunk] = (grad @ head).to(hidden.dtype)
                if grad_weight is not None:
                    grad_weight += grad.T @ rows
        context.save_for_backward(grad_hidden, grad_weight)
        context.weight_dtype = weight.dtype
        return total

    @staticmethod
    def backward(context, upstream: Tensor):
        grad_hidden, grad_weight = context.saved_tensors
        if grad_hidden is not None:
            grad_hidden.mul_(upstream)  # in place: they are as large as what they are the gradients of
        if grad_weight is not None:
            grad_weight = grad_weight.mul_(upstream).to(context.weight_dtype)
        return grad_hidden, grad_weight, None, None


def summed_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> Tensor:
    """Sum over rows of -log softmax(hidden W^T)[target], float32 scalar in nats.

    hidden (N, d), weight (V, d), targets int64 (N,); `chunk` rows of logits exist at one time. Products follow
    autocast, the softmax is float32. Gradients are computed with the loss; the result may be scaled, but not
    differentiated twice.
    """
    return _ChunkedCrossEntropy.apply(hidden, weight, targets, chunk)
