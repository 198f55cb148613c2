"""The optimisation recipe (paper, optimisation): AdamW, linear warm-up, cosine decay, weight decay on matrices only."""

import math

import torch
from torch import Tensor, nn

from tokencodes.train.distributed import like
from tokencodes.train.spec import Train


def learning_rate(step: int, train: Train) -> float:
    """The learning rate of update `step`, counted from 1 to max_steps.

    Warm-up is linear, peak * step / warmup, and ends at the peak. The cosine then decays to min_lr, the rate of the
    last update (paper: 1.5e-4, 2,000 warm-up steps, cosine to 1e-5; counting from 1 is ours).
    """
    if step <= train.warmup_steps:
        return train.peak_lr * step / train.warmup_steps
    progress = (step - train.warmup_steps) / (train.max_steps - train.warmup_steps)
    return train.min_lr + 0.5 * (train.peak_lr - train.min_lr) * (1 + math.cos(math.pi * progress))


def decays(parameter: Tensor) -> bool:
    """Whether weight decay acts on a tensor: on matrices only (paper). These are tables, heads and projections."""
    return parameter.dim() >= 2


def build(model: nn.Module, train: Train) -> torch.optim.AdamW:
    """AdamW over all parameters, in two groups by `decays`. A fixed interface has no parameters."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if decays(p)], "weight_decay": train.weight_decay},
        {"params": [p for p in parameters if not decays(p)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=train.peak_lr, betas=(train.beta1, train.beta2), eps=train.adam_eps, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate


STATE = ("step", "exp_avg", "exp_avg_sq")


def state_tensors(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """The optimizer's state as named tensors, `{parameter}.{exp_avg | exp_avg_sq | step}`."""
    return {
        f"{name}.{key}": optimizer.state[parameter][key]
        for name, parameter in model.named_parameters()
        for key in STATE
        if parameter in optimizer.state
    }


def load_state(model: nn.Module, optimizer: torch.optim.AdamW, tensors: dict[str, Tensor]) -> None:
    """The reverse of `state_tensors`, from whole tensors. Raises KeyError if one is missing."""
    for name, parameter in model.named_parameters():
        moments = {key: like(parameter, tensors[f"{name}.{key}"]) for key in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": tensors[f"{name}.step"].to(parameter.device), **moments}
