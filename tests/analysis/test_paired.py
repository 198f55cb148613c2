"""Paired statistics: against hand-computed and published cases, and on simulated documents whose truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tokencodes.analysis import paired

QUICK = 999  # resamples, where many data sets are drawn


def rng(seed):
    return np.random.Generator(np.random.Philox(key=seed))


def answers(random, n, both, only_a, only_b):
    """0/1 scores of two models, right together or alone with these probabilities."""
    kind = random.choice(4, n, p=[both, only_a, only_b, 1 - both - only_a - only_b])
    return np.isin(kind, (0, 1)).astype(float), np.isin(kind, (0, 2)).astype(float)


def likelihoods(random, n, shift):
    """Nats and tokens of n documents of uneven length; A needs about `shift` nats per token more than B."""
    tokens = np.ceil(random.lognormal(6, 0.7, n))
    b = tokens * (3 + 0.3 * random.standard_normal(n))
    return b + tokens * (shift + 0.1 * random.standard_normal(n)), b, tokens


# ---------------------------------------------------------------- known truth


@pytest.mark.parametrize(("n", "only_a", "only_b"), [(60, 0.15, 0.15), (100, 0.25, 0.10), (250, 0.12, 0.07)])
def test_the_interval_of_accuracies_covers_the_truth(n, only_a, only_b):
    random, runs = rng(1), 1500
    covered = 0
    for run in range(runs):
        a, b = answers(random, n, 0.3, only_a, only_b)
        low, high = paired.interval(a - b, np.ones(n), resamples=QUICK, seed=run)
        covered += low <= only_a - only_b <= high
    assert 0.93 <= covered / runs <= 0.97


@pytest.mark.parametrize("n", [14, 100])
def test_the_interval_of_nats_covers_the_truth(n):
    random, runs, shift = rng(2), 1500, 0.05
    covered = 0
    for run in range(runs):
        a, b, tokens = likelihoods(random, n, shift)
        low, high = paired.interval(a - b, tokens, resamples=QUICK, seed=run)
        covered += low <= shift <= high
    assert 0.93 <= covered / runs <= 0.97


def test_false_alarms_of_mcnemar_stay_at_five_percent():
    """An exact test of a count is conservative: its rate comes near 5 % from below as documents grow."""
    random, runs = rng(3), 2000
    alarms = 0
    for _ in range(runs):
        a, b = answers(random, 2000, 0.3, 0.15, 0.15)
        alarms += paired.mcnemar(int((a > b).sum()), int((b > a).sum())) <= 0.05
    assert 0.03 <= alarms / runs <= 0.055


def test_false_alarms_of_sign_flips_are_five_percent():
    random, runs = rng(4), 3000
    alarms = 0
    for run in range(runs):
        a, b, _ = likelihoods(random, 20, 0.0)
        alarms += paired.sign_flips(a - b, resamples=QUICK, seed=run) <= 0.05
    assert 0.04 <= alarms / runs <= 0.06


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_mcnemar_is_the_exact_binomial_test(only_a, only_b):
    n = only_a + only_b
    expected = stats.binomtest(only_a, n, 0.5).pvalue if n else 1.0
    assert paired.mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-9)


def test_the_number_of_documents_gives_the_promised_power():
    """By simulation of McNemar's test itself; it is conservative, so a little below 80 % is right."""
    only_a, only_b = 0.14, 0.09
    n = paired.documents_needed(only_a + only_b, only_a - only_b)
    random, runs = rng(5), 2000
    found = 0
    for alone_a, alone_b, _ in random.multinomial(n, [only_a, only_b, 1 - only_a - only_b], runs):
        found += paired.mcnemar(int(alone_a), int(alone_b)) <= 0.05
    assert 0.76 <= found / runs <= 0.82


# ------------------------------------------------------------ known answers


def test_mcnemar_by_hand():
    """Of 8 discordant documents 1 for A: 2 (1 + 8) / 2^8."""
    assert paired.mcnemar(1, 7) == pytest.approx(18 / 256)
    assert paired.mcnemar(0, 0) == 1
    a = np.array([1] + [0] * 7 + [1] * 5 + [0] * 3, float)
    b = np.array([0] + [1] * 7 + [1] * 5 + [0] * 3, float)
    found = paired.difference(a, b)
    assert (found.only_a, found.only_b, found.discordant, found.n) == (1, 7, 8, 16)
    assert (found.a, found.b, found.difference) == (6 / 16, 12 / 16, -6 / 16)
    assert found.p == pytest.approx(18 / 256)
    assert found.low < -6 / 16 < found.high


def test_sign_flips_by_hand():
    """Of the 8 signings of 1, 2, 4 only the one that was seen, and its mirror image, are as far out."""
    assert paired.sign_flips(np.array([1.0, 2.0, 4.0])) == pytest.approx(2 / 8)
    assert paired.sign_flips(np.zeros(5)) == 1


def test_sign_flips_of_many_documents_are_near_the_t_test():
    gap = rng(6).normal(0.1, 1, 400)
    assert paired.sign_flips(gap) == pytest.approx(stats.ttest_1samp(gap, 0).pvalue, abs=0.01)


def test_the_interval_of_many_documents_is_the_normal_one():
    gap = rng(7).normal(0.1, 1, 2000)
    low, high = paired.interval(gap, np.ones(2000))
    half = 1.959964 * gap.std(ddof=1) / math.sqrt(2000)
    assert (low, high) == pytest.approx((gap.mean() - half, gap.mean() + half), abs=0.05 * half)


def test_a_token_weighs_the_same_in_each_document():
    a, b, tokens = np.array([30.0, 400.0, 20.0]), np.array([20.0, 500.0, 25.0]), np.array([10.0, 100.0, 10.0])
    found = paired.difference(a, b, tokens)
    assert (found.a, found.b, found.difference) == pytest.approx((450 / 120, 545 / 120, -95 / 120))
    assert found.discordant is None and found.test == paired.SIGN_FLIPS


# The example that statsmodels tests its multipletests with; the corrected values are those of R's multtest.
RAW = [
    5.23656777208e-05,
    0.00028140506198,
    0.0149877310796,
    0.0202732688798,
    0.177096952723,
    0.642193923795,
    0.680845947633,
    0.71626938238,
    0.838541367553,
    0.967833824309,
]
HOLM = [5.23656777208e-04, 2.53264555782e-03, 0.119901848636800, 0.14191288215860, *[1.0] * 6]


@settings(deadline=None)
@given(st.permutations(range(10)))
def test_holm_is_the_published_example_in_any_order(order):
    assert paired.holm(np.array(RAW)[order]) == pytest.approx(np.array(HOLM)[order], rel=1e-12)


def test_holm_keeps_nan_and_counts_it():
    found = paired.holm(np.array([0.01, math.nan, 0.02]))
    assert found[[0, 2]] == pytest.approx([0.03, 0.04])
    assert math.isnan(found[1])
    assert len(paired.holm(np.array([]))) == 0


def test_documents_needed_by_hand():
    """z of 1.959964 and 0.841621; a rate of 0.3 and a difference of 0.1: ((1.0735 + 0.4533) / 0.1)^2 = 233.1."""
    assert paired.documents_needed(0.3, 0.1) == 234
    assert paired.documents_needed(0.3, -0.1) == 234
    assert paired.documents_needed(0.0, 0.1) == paired.documents_needed(0.1, 0.1)


# ---------------------------------------------------------------- properties


def test_swapping_the_models_changes_the_sign_alone():
    random = rng(8)
    a, b = answers(random, 80, 0.3, 0.2, 0.1)
    x, y, tokens = likelihoods(random, 80, 0.01)
    for one, other, counts in ((a, b, None), (x, y, tokens)):
        forth, back = paired.difference(one, other, counts), paired.difference(other, one, counts)
        assert back.difference == -forth.difference
        assert (back.a, back.b, back.p) == (forth.b, forth.a, forth.p)
        assert (back.low, back.high) == pytest.approx((-forth.high, -forth.low), rel=1e-12)
        assert (back.only_a, back.only_b) == (forth.only_b, forth.only_a)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not():
    a, b, tokens = likelihoods(rng(9), 50, 0.01)
    assert paired.difference(a, b, tokens) == paired.difference(a, b, tokens)
    assert paired.difference(a, b, tokens).low != paired.difference(a, b, tokens, seed=1).low


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_a_number_is_shown_and_not_dropped(value):
    a, b = np.array([1.0, 0.0, value, 1.0]), np.array([1.0, 1.0, 0.0, 0.0])
    found = paired.difference(a, b)
    assert found.undefined == 1 and found.n == 4 and found.b == 0.5
    assert all(math.isnan(each) for each in (found.a, found.difference, found.low, found.high, found.p))


def test_documents_without_spread_give_no_interval():
    found = paired.difference(np.zeros(100), np.zeros(100))
    assert (found.difference, found.p, found.discordant) == (0, 1, 0)
    assert math.isnan(found.low) and math.isnan(found.high)
    assert math.isnan(paired.difference(np.ones(1), np.zeros(1)).low)
