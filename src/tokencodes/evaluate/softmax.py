"""The softmax of logits that arrive by parts of the vocabulary, so that the whole of them never exists.

The greatest logit so far, and the sum of exponentials relative to it, are updated with each part (Milakov and
Gimelshein, arXiv:1805.02867).
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor


def log_probabilities(
    parts: Iterable[tuple[int, Tensor]], rows: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability (nats, float64) of targets[i] under the logits of row rows[i], and whether it is the row's first
    maximum (bool).

    `parts`: the logits by parts of the vocabulary, (first token, (n, tokens) float32); they are overwritten.
    """
    top = None
    for number, (start, logits) in enumerate(parts):
        if top is None:
            device = logits.device
            rows, targets = (torch.from_numpy(array).to(device) for array in (rows, targets))
            top = torch.full((len(logits),), torch.finfo(torch.float32).min, device=device)
            total, part_of_top = torch.zeros_like(top), torch.zeros_like(top, dtype=torch.int64)
            chosen = torch.zeros(len(rows), device=device)
            leads = torch.zeros(len(rows), dtype=torch.bool, device=device)
            part_of_target = torch.zeros(len(rows), dtype=torch.int64, device=device)
        most = logits.amax(dim=-1)
        (inside,) = torch.nonzero((targets >= start) & (targets < start + logits.shape[1]), as_tuple=True)
        chosen[inside] = logits[rows[inside], targets[inside] - start]
        part_of_target[inside] = number
        equal = inside[chosen[inside] == most[rows[inside]]]
        if len(equal):  # where several are the greatest, the first counts
            leads[equal] = logits[rows[equal]].argmax(dim=-1) == targets[equal] - start
        part_of_top = torch.where(most > top, number, part_of_top)
        greatest = torch.maximum(top, most)
        total = total * (top - greatest).exp_() + logits.sub_(greatest[:, None]).exp_().sum(dim=-1)
        top = greatest
    leads &= (chosen == top[rows]) & (part_of_target == part_of_top[rows])
    values = chosen - top[rows] - total.log_()[rows]
    return values.double().cpu().numpy(), leads.cpu().numpy()
