"""What a difference between two models is worth, when both were scored on the same documents.

Everything here takes arrays of one score a document, in the same order for both models, and gives A - B. The
mathematics is scipy's; why each method was chosen is in docs/statistics.md.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

CONFIDENCE = 0.95
SIGNIFICANCE = 1 - CONFIDENCE
POWER = 0.80  # the usual chance of finding a difference that is there
RESAMPLES = 9_999  # of the bootstrap and of the sign flips: a p of 0.05 is then known to +- 0.002
LEAST_RESAMPLES = 999  # and to +- 0.007; the average over many documents is nearly normal, and its ends are steady
DRAWS = 10**7  # numbers drawn for one comparison: more documents have fewer resamples, so its time is bounded
FEW_KINDS = 32  # different documents of which to count draws; scores of 0 and 1 make three
AT_ONCE = 2**22  # numbers drawn at once: 32 MiB, whatever the number of documents

MCNEMAR = "McNemar, exact"
SIGN_FLIPS = "sign flips"


@dataclass(frozen=True)
class Difference:
    """A - B on the same documents. Accuracies are fractions, likelihoods nats; NaN is what could not be computed.

    a, b: the two scores; low, high: the 95 % interval of `difference`; p: two-sided, by `test`. n: documents;
    discordant: those on which exactly one of the two is right, only_a and only_b who (None if scores are not 0 or 1, or
    there are several seeds). undefined: documents for which a model has no finite score; then every figure that would
    need them is NaN. seeds: pairs of models. from_seeds, from_documents, from_both: the parts of the difference's
    variance (analysis/seeds.py). With one seed they cannot be told apart: from_documents is what documents show, the
    others are NaN.
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    p: float
    test: str
    n: int
    discordant: int | None
    only_a: int | None
    only_b: int | None
    undefined: int
    seeds: int = 1
    from_seeds: float = math.nan
    from_documents: float = math.nan
    from_both: float = math.nan


def difference(
    a: np.ndarray,
    b: np.ndarray,
    counts: np.ndarray | None = None,
    *,
    resamples: int | None = None,
    seed: int = 0,
) -> Difference:
    """Compare the scores of two models, each float64 (n documents); of none, all figures are NaN.

    Without `counts` the score is the mean over documents. With `counts` (tokens of each document, the same for both
    models) a and b are sums over a document's tokens, and the score is the mean over all tokens: sum(a) / sum(counts).
    `resamples`: None means RESAMPLES, fewer for many documents.
    The test is McNemar's for scores of 0 and 1, else sign flips of the documents' differences.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    n = len(a)
    counts = np.ones(n) if counts is None else np.asarray(counts, np.float64)
    undefined = int(np.count_nonzero(~(np.isfinite(a) & np.isfinite(b))))
    binary = bool(np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all())
    total = counts.sum()
    score_a, score_b = (_finite(scores.sum() / total) if n else math.nan for scores in (a, b))
    only_a, only_b = (int(np.count_nonzero(a > b)), int(np.count_nonzero(b > a))) if binary else (None, None)
    if undefined or not n:
        value, low, high, p, variance = (math.nan,) * 5
    else:
        gap = a - b
        value = float(gap.sum() / total)
        variance = float((gap - value * counts).var(ddof=1) / counts.mean() ** 2 / n) if n > 1 else math.nan
        low, high = interval(gap, counts, resamples=resamples, seed=seed)
        p = mcnemar(only_a, only_b) if binary else sign_flips(gap, resamples=resamples, seed=seed)
    return Difference(
        a=score_a,
        b=score_b,
        difference=value,
        low=low,
        high=high,
        p=p,
        test=MCNEMAR if binary else SIGN_FLIPS,
        n=n,
        discordant=only_a + only_b if binary else None,
        only_a=only_a,
        only_b=only_b,
        undefined=undefined,
        from_documents=variance,
    )


def interval(
    gap: np.ndarray, counts: np.ndarray, *, resamples: int | None = None, seed: int = 0, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Bootstrap interval, over documents, of sum(gap) / sum(counts); gap and counts are (n documents).

    Percentiles, taken as far out as Student's t of n - 1 degrees would need them (Hesterberg, The American Statistician
    69, 2015): plain percentiles are too narrow for few documents. NaN if the documents show no spread at
    all: then they say nothing about it, and an interval of no width would be a lie.
    """
    n = len(gap)
    if n < 2 or np.ptp(gap / counts) == 0:
        return math.nan, math.nan
    reach = float(special.ndtr(math.sqrt(n / (n - 1)) * special.stdtrit(n - 1, (1 - confidence) / 2)))
    kinds, seen = np.unique(np.stack([gap, counts]), axis=1, return_counts=True)
    if len(seen) <= FEW_KINDS:  # how often each kind of document is drawn is all that matters of a resample
        drawn = _stream(seed).multinomial(n, seen / n, size=resamples or RESAMPLES)
        low, high = np.quantile(_ratio(*(drawn * kind for kind in kinds), axis=1), [reach, 1 - reach])
        return float(low), float(high)
    from scipy import stats  # takes longer to import than all that a comparison of accuracies does

    interval = stats.bootstrap(
        (gap, counts),
        _ratio,
        paired=True,
        vectorized=True,
        n_resamples=resamples or affordable(n),
        batch=max(1, AT_ONCE // n),
        confidence_level=1 - 2 * reach,
        method="percentile",
        rng=_stream(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def affordable(n: int) -> int:
    """Resamples of n documents whose values are all different."""
    return min(RESAMPLES, max(LEAST_RESAMPLES, DRAWS // n))


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p of McNemar's test (Psychometrika 12, 1947); 1 if there is no discordant document.

    Equal models would each be right alone on half of the discordant documents.
    """
    discordant = only_a + only_b
    return min(2 * float(special.bdtr(min(only_a, only_b), discordant, 0.5)), 1.0)


def sign_flips(gap: np.ndarray, *, resamples: int | None = None, seed: int = 0) -> float:
    """Two-sided p of the sum of the documents' differences when each could as well have the other sign.

    Exact for few documents (2^n <= resamples), else by that many random flips. 1 if the models agree everywhere, and of
    one document, whose difference is as large with either sign.
    """
    if len(gap) < 2 or not gap.any():
        return 1.0
    from scipy import stats

    return float(
        stats.permutation_test(
            (gap,),
            np.sum,
            permutation_type="samples",
            vectorized=True,
            n_resamples=resamples or affordable(len(gap)),
            batch=max(1, AT_ONCE // len(gap)),
            rng=_stream(seed),
        ).pvalue
    )


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's correction of the p-values of one family, (tests) to (tests). Scandinavian Journal of Statistics 6 (1979).

    A NaN stays NaN and counts as a test of the family: that it has no result makes the others no surer.
    """
    p = np.asarray(p, np.float64)
    order = np.argsort(p)  # NaN last
    factors = np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1)
    return corrected


def documents_needed(discordant_rate: float, difference: float, *, power: float = POWER) -> int:
    """Documents for McNemar's test to find a `difference` of accuracies at 5 % with this power.

    Closed form of Connor, Biometrics 43 (1987). `discordant_rate`: share of documents on which exactly one model is
    right. It cannot be below the difference: where fewer were seen, the least possible rate is taken, and the number is
    a lower bound.
    """
    difference = abs(difference)
    rate = max(discordant_rate, difference)
    certain, powerful = -special.ndtri(SIGNIFICANCE / 2), special.ndtri(power)
    root = certain * math.sqrt(rate) + powerful * math.sqrt(rate - difference**2)
    return math.ceil((root / difference) ** 2)


def _ratio(gap: np.ndarray, counts: np.ndarray, axis: int) -> np.ndarray:
    return gap.sum(axis=axis) / counts.sum(axis=axis)


def _stream(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def _finite(value: np.floating) -> float:
    return float(value) if np.isfinite(value) else math.nan
