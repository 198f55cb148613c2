"""How often 95 % intervals cover the truth, and how often tests raise a false alarm, on simulated scores.

    python benchmarks/coverage.py [--runs 2000] [--resamples 999]

The truth of the simulated scores is known. There are scores of 0 and 1, given by the shares of documents that only one
model gets right; nats of documents of log-normal length; and several seeds, whose spread is given in standard errors of
the mean over documents. The last column is the standard error of the share: a share within two of them of 95 % (5 %) is
as expected.
"""

import argparse
import math
from collections.abc import Callable

import numpy as np

from tokencodes.analysis import paired, seeds

ACCURACIES = [(40, 0.15, 0.15), (100, 0.25, 0.10), (100, 0.03, 0.03), (250, 0.12, 0.07), (250, 0.05, 0.02)]
ACCURACIES += [(500, 0.10, 0.10), (1000, 0.12, 0.07)]
NATS = [14, 40, 100, 250]
FLIPS = [14, 20, 40, 100]
SEEDS = [(2, 60, 0), (2, 60, 5), (3, 60, 0), (3, 60, 1), (3, 60, 5), (5, 60, 0), (5, 60, 1), (5, 60, 5)]
EQUAL = 0.15  # share of documents that only one model gets right, for each of two equal models


def answers(random: np.random.Generator, n: int, only_a: float, only_b: float) -> np.ndarray:
    """Differences of 0/1 scores."""
    return random.choice([1.0, -1.0, 0.0], n, p=[only_a, only_b, 1 - only_a - only_b])


def nats(random: np.random.Generator, n: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Differences of summed nats, and tokens."""
    tokens = np.ceil(random.lognormal(6, 0.7, n))
    return tokens * (shift + 0.1 * random.standard_normal(n)), tokens


def seeded(random: np.random.Generator, n_seeds: int, n: int, spread: float) -> np.ndarray:
    """Differences around 0, by seed and document."""
    z = random.standard_normal(n) + random.standard_normal((n_seeds, n))
    return z + spread / math.sqrt(n) * random.standard_normal((n_seeds, 1))


def show(what: str, hits: Callable[[int], bool], runs: int) -> None:
    """A line: the share of runs that hit."""
    share = sum(hits(run) for run in range(runs)) / runs
    print(f"{what:68}{100 * share:8.2f} %{100 * math.sqrt(max(share * (1 - share), 1e-9) / runs):8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=999)
    args = parser.parse_args()
    draws = {"resamples": args.resamples}
    random = np.random.Generator(np.random.Philox(key=1))
    print(f"{args.runs} simulations per line, {args.resamples} resamples")
    print(f"{'the interval covers the truth':68}{'share':>10}")
    for n, a, b in ACCURACIES:

        def covers(run: int, n: int = n, a: float = a, b: float = b) -> bool:
            low, high = paired.interval(answers(random, n, a, b), np.ones(n), seed=run, **draws)
            return low <= a - b <= high

        show(f"accuracies, {n} documents, only one right {a:.0%} and {b:.0%}", covers, args.runs)
    for n in NATS:

        def covers(run: int, n: int = n) -> bool:
            low, high = paired.interval(*nats(random, n, 0.05), seed=run, **draws)
            return low <= 0.05 <= high

        show(f"nats, {n} documents", covers, args.runs)
    for n_seeds, n, spread in SEEDS:

        def covers(run: int, n_seeds: int = n_seeds, n: int = n, spread: float = spread) -> bool:
            z = seeded(random, n_seeds, n, spread)
            interval = seeds.over_seeds(z, np.zeros_like(z))
            return interval.low <= 0 <= interval.high

        show(f"{n_seeds} seeds, {n} documents, seeds {spread} x documents", covers, args.runs)
    print("the test raises a false alarm")
    for n in (100, 1000):

        def alarm(run: int, n: int = n) -> bool:
            gap = answers(random, n, EQUAL, EQUAL)
            return paired.mcnemar(int((gap > 0).sum()), int((gap < 0).sum())) <= paired.SIGNIFICANCE

        show(f"McNemar, {n} documents, only one right {EQUAL:.0%} each", alarm, args.runs)
    for n in FLIPS:

        def alarm(run: int, n: int = n) -> bool:
            return paired.sign_flips(nats(random, n, 0.0)[0], seed=run, **draws) <= paired.SIGNIFICANCE

        show(f"sign flips, {n} documents", alarm, args.runs)


if __name__ == "__main__":
    main()
