"""What a difference between two interfaces is worth when each was trained with several seeds.

Seeds and documents are crossed: each seed's pair of models sees all documents. A difference over another set of seeds
and another set of documents would be another one, so both count.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from tokencodes.analysis.paired import CONFIDENCE, POWER, SIGNIFICANCE, Difference, difference

TWO_LEVEL = "t, seeds and documents"
SEEDS_ALONE = "t, seeds"
LEAST_P = 1e-100  # where the search for p begins
MOST_SEEDS = 1000  # that are asked for; what needs more is out of reach


class Variances(NamedTuple):
    """Parts of the variance of a mean over seeds and documents.

    seeds: falls with more seeds; documents: with more documents; both: what a seed does to a document, and chance at
    each, which falls with either.
    """

    seeds: float
    documents: float
    both: float

    def with_seeds(self, now: int, then: int) -> "Variances":
        """What they would be with another number of seeds."""
        return Variances(self.seeds * now / then, self.documents, self.both * now / then)


def over_seeds(a: np.ndarray, b: np.ndarray, counts: np.ndarray | None = None, **draws: int) -> Difference:
    """Compare two models that were trained with the same seeds: scores float64 (seeds, n documents) each.

    With one seed this is paired.difference. With several, the documents' differences (of a ratio: linearised) are
    split by an analysis of variance of the two-way layout without replicates into what comes from seeds, from
    documents, and from both together. The interval takes each source by its own Student t (Howe, JASA 69, 1974):
    half^2 = t(seeds - 1)^2 V_seeds + t(n - 1)^2 (V_documents + V_both), for the documents' mean square holds the
    last; p is where it would touch zero. `draws` goes to paired.difference.
    """
    a, b = np.atleast_2d(np.asarray(a, np.float64)), np.atleast_2d(np.asarray(b, np.float64))
    seeds, n = a.shape
    if seeds == 1:
        return difference(a[0], b[0], counts, **draws)
    weights = np.ones(n) if counts is None else np.asarray(counts, np.float64)
    total = seeds * weights.sum()
    undefined = int(np.count_nonzero(~np.isfinite(a).all(axis=0) | ~np.isfinite(b).all(axis=0)))
    score_a, score_b = (float(each.sum() / total) if n and np.isfinite(each).all() else math.nan for each in (a, b))
    value = low = high = p = math.nan
    parts = Variances(math.nan, math.nan, math.nan)
    if n and not undefined:
        gap = a - b
        value = float(gap.sum() / total)
        parts = variances((gap - value * weights) / weights.mean() + value)
        half = half_width(SIGNIFICANCE, parts, seeds, n)
        if sum(parts) > 0:
            low, high, p = value - half, value + half, p_value(value, parts, seeds, n)
        elif value == 0:
            p = 1.0  # the models agree everywhere
    return Difference(
        a=score_a,
        b=score_b,
        difference=value,
        low=low,
        high=high,
        p=p,
        test=TWO_LEVEL,
        n=n,
        discordant=None,
        only_a=None,
        only_b=None,
        undefined=undefined,
        seeds=seeds,
        from_seeds=parts.seeds,
        from_documents=parts.documents,
        from_both=parts.both,
    )


def means_over_seeds(a: np.ndarray, b: np.ndarray) -> Difference:
    """Compare one figure of two models that were trained with the same seeds, float64 (seeds) each; n is 0.

    Student's interval and two-sided test of the mean of a - b. One seed, or equal differences, show no spread: then
    the interval is NaN. One seed has no test at all; without spread p is 1 if the figures are the same, else NaN.
    """
    gap = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    seeds, mean = len(gap), float(np.mean(gap))
    low, high = mean_interval(gap)
    p = 1.0 if seeds > 1 and not gap.any() else math.nan
    if not math.isnan(low):
        p = float(2 * special.stdtr(seeds - 1, -abs(mean) / (gap.std(ddof=1) / math.sqrt(seeds))))
    return Difference(
        a=float(np.mean(a)),
        b=float(np.mean(b)),
        difference=mean,
        low=low,
        high=high,
        p=p,
        test=SEEDS_ALONE if seeds > 1 else "",
        n=0,
        discordant=None,
        only_a=None,
        only_b=None,
        undefined=0,
        seeds=seeds,
    )


def variances(z: np.ndarray) -> Variances:
    """Parts of the variance of the mean of z (seeds, n documents), >= 2 seeds; NaN for one document.

    Mean squares of a two-way layout: the seeds' and the documents' parts are what their mean squares have beyond the
    rest's, at least 0; the rest's own is the part of both, at most what the documents' mean square is.
    """
    seeds, n = z.shape
    if n < 2:
        return Variances(math.nan, math.nan, math.nan)
    by_seed, by_document, mean = z.mean(axis=1), z.mean(axis=0), z.mean()
    rest = ((z - by_seed[:, None] - by_document + mean) ** 2).sum() / ((seeds - 1) * (n - 1))
    between_seeds, between_documents = n * by_seed.var(ddof=1), seeds * by_document.var(ddof=1)
    both = min(rest, between_documents)
    parts = (max(between_seeds - rest, 0), between_documents - both, both)
    return Variances(*(float(part / (seeds * n)) for part in parts))


def half_width(p: float, parts: Variances, seeds: int, n: int) -> float:
    """Half the width of the interval at level p, for that many seeds and documents."""
    from_documents = parts.documents + parts.both
    ends = -special.stdtrit([seeds - 1, n - 1], p / 2)
    return math.hypot(float(ends[0]) * math.sqrt(parts.seeds), float(ends[1]) * math.sqrt(from_documents))


def p_value(value: float, parts: Variances, seeds: int, n: int) -> float:
    """Two-sided p: the level at which the interval just touches zero."""
    if value == 0:
        return 1.0

    def beyond(log_p: float) -> float:
        return half_width(math.exp(log_p), parts, seeds, n) - abs(value)

    least = math.log(LEAST_P)
    return math.exp(optimize.brentq(beyond, least, 0.0)) if beyond(least) > 0 else LEAST_P


def equivalence(measured: Difference, margin: float) -> float:
    """p of two one-sided tests (Schuirmann 1987) that a difference lies within +-margin; NaN if it has no spread.

    Not the absence of significance: few documents give a large p here. With one seed, documents alone are counted.
    """
    parts = Variances(measured.from_seeds, measured.from_documents, measured.from_both)
    if measured.seeds == 1:
        parts = parts._replace(seeds=0.0, both=0.0)
    if not sum(parts) > 0:
        return math.nan
    p = []
    for inside in (margin - measured.difference, margin + measured.difference):  # to either border
        two_sided = p_value(inside, parts, max(measured.seeds, 2), measured.n)
        p.append(two_sided / 2 if inside > 0 else 1 - two_sided / 2)
    return max(p)


def seeds_needed(measured: Difference, difference: float, *, power: float = POWER) -> int | None:
    """Seeds, at least 2, to find a `difference` at 5 % with this power on the same number of documents.

    Of a Difference over several seeds, with its variances as they were seen: more seeds divide the parts of seeds and
    of both, and leave the documents'. By the noncentral t, with Satterthwaite's degrees of freedom. None if no number
    of seeds up to MOST_SEEDS will do, for the documents alone hide it, or if the variances are zero or not known.
    """
    seen = Variances(measured.from_seeds, measured.from_documents, measured.from_both)
    if not sum(seen) > 0 or difference == 0:
        return None
    for seeds in range(2, MOST_SEEDS + 1):
        parts = seen.with_seeds(measured.seeds, seeds)
        spread = math.sqrt(sum(parts))
        squares = parts.seeds**2 / (seeds - 1) + (parts.documents + parts.both) ** 2 / (measured.n - 1)
        freedom = sum(parts) ** 2 / squares
        half = half_width(SIGNIFICANCE, parts, seeds, measured.n)
        if 1 - special.nctdtr(freedom, abs(difference) / spread, half / spread) >= power:
            return seeds
    return None


def student(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Half the width of Student's interval, in standard errors."""
    return float(-special.stdtrit(freedom, (1 - confidence) / 2))


def mean_interval(values: np.ndarray, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Student's interval of the mean of values (seeds); NaN for fewer than two, or none that is finite."""
    values = np.asarray(values, np.float64)
    if len(values) < 2 or not np.isfinite(values).all() or np.ptp(values) == 0:
        return math.nan, math.nan
    reach = student(len(values) - 1, confidence) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - reach), float(values.mean() + reach)
