"""Held-out loss by tokens: how far one interface is behind another, in nats and in tokens."""

from dataclasses import dataclass

import numpy as np

from tokencodes.analysis.seeds import mean_interval


@dataclass(frozen=True)
class Behind:
    """A behind B at the end of training. Losses in nats per token; NaN is what is not known.

    gap: A - B, mean over the seeds that both have; low, high: its Student interval over seeds (two seeds at least).
    tokens_ratio: tokens that A took to reach its last loss, by those that B took to reach the same; NaN if B never did.
    """

    seeds: int
    gap: float
    low: float
    high: float
    tokens_ratio: float


def behind(tokens: np.ndarray, a: np.ndarray, b: np.ndarray) -> Behind:
    """Compare held-out losses a and b, float64 (seeds, measurements) each, at `tokens` (measurements), rising."""
    a, b = np.atleast_2d(np.asarray(a, np.float64)), np.atleast_2d(np.asarray(b, np.float64))
    gaps = a[:, -1] - b[:, -1]
    low, high = mean_interval(gaps)
    mine, other = a.mean(axis=0), b.mean(axis=0)
    ratio = tokens_to_reach(tokens, mine, mine[-1]) / tokens_to_reach(tokens, other, mine[-1])
    return Behind(len(gaps), float(gaps.mean()), low, high, float(ratio))


def tokens_to_reach(tokens: np.ndarray, losses: np.ndarray, target: float) -> float:
    """Tokens at which a curve first comes down to `target`: linear between measurements. NaN if it never does.

    A target that was met at the first measurement was met earlier, it is not known when: NaN too.
    """
    below = np.flatnonzero(losses <= target)
    if not len(below) or (below[0] == 0 and losses[0] < target):
        return float("nan")
    at = int(below[0])
    if at == 0:
        return float(tokens[0])
    share = (losses[at - 1] - target) / (losses[at - 1] - losses[at])
    return float(tokens[at - 1] + share * (tokens[at] - tokens[at - 1]))
