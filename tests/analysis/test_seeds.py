"""Several seeds: intervals and alarms on simulated truth, and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from tokencodes.analysis import paired, seeds


def rng(seed):
    return np.random.Generator(np.random.Philox(key=seed))


@pytest.mark.parametrize("n_seeds", [3, 5])
@pytest.mark.parametrize("seed_sd", [0.0, 1.0, 5.0], ids=lambda sd: f"seeds {sd:g} x documents")
def test_the_interval_covers_the_truth_and_alarms_are_five_percent(n_seeds, seed_sd):
    """seed_sd: the seeds' spread in standard errors of the mean over documents."""
    random, runs, n, truth = rng(1), 1000, 60, 0.3
    covered = alarms = 0
    for _ in range(runs):
        noise = random.standard_normal(n) + random.standard_normal((n_seeds, n))
        noise += seed_sd / math.sqrt(n) * random.standard_normal((n_seeds, 1))
        variances = seeds.variances(noise)
        half = seeds.half_width(0.05, variances, n_seeds, n)
        covered += abs(noise.mean()) <= half
        alarms += seeds.p_value(noise.mean(), variances, n_seeds, n) <= 0.05
        found = seeds.over_seeds(noise + truth, np.zeros_like(noise)) if not alarms % 100 else None
        assert found is None or (found.low <= truth <= found.high) == (abs(noise.mean()) <= half)
    assert 0.93 <= covered / runs <= 0.975
    assert alarms == runs - covered, "interval and test are one"


def test_the_variances_are_those_that_were_put_in():
    random, n_seeds, n = rng(2), 4, 200
    from_seeds, from_documents, from_both = np.mean(
        [
            seeds.variances(
                3 * random.standard_normal(n)
                + 2 * random.standard_normal((n_seeds, n))
                + 0.5 * random.standard_normal((n_seeds, 1))
            )
            for _ in range(400)
        ],
        axis=0,
    )
    assert from_seeds == pytest.approx(0.25 / n_seeds, rel=0.1)
    assert from_documents == pytest.approx(9 / n, rel=0.05)
    assert from_both == pytest.approx(4 / (n_seeds * n), rel=0.05)


def test_variances_by_hand():
    """Two seeds, three documents: means by seed 2 and 4, by document 1.5, 3 and 4.5; no rest but the halves below."""
    z = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    rest = ((z - np.array([[2.0], [4.0]]) - np.array([1.5, 3.0, 4.5]) + 3) ** 2).sum() / 2
    assert rest == pytest.approx(0.5)
    assert seeds.variances(z) == pytest.approx(((3 * 2 - 0.5) / 6, (2 * 2.25 - 0.5) / 6, 0.5 / 6))


def test_one_seed_is_the_paired_comparison():
    random = rng(3)
    a, b = (random.random(50) < 0.5).astype(float), (random.random(50) < 0.5).astype(float)
    assert seeds.over_seeds(a[None], b[None]) == paired.difference(a, b)


def test_seeds_that_agree_leave_the_documents_t_interval():
    gap = rng(4).normal(0.2, 1, 40)
    found = seeds.over_seeds(np.stack([gap] * 3), np.zeros((3, 40)))
    low, high = stats.t.interval(0.95, 39, gap.mean(), stats.sem(gap))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.p == pytest.approx(stats.ttest_1samp(gap, 0).pvalue)
    assert found.from_seeds == 0


def test_documents_that_agree_leave_the_seeds_t_interval():
    by_seed = np.array([0.1, 0.4, 0.3])
    found = seeds.over_seeds(np.repeat(by_seed[:, None], 10, axis=1), np.zeros((3, 10)))
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 2, by_seed.mean(), stats.sem(by_seed)))
    assert found.p == pytest.approx(stats.ttest_1samp(by_seed, 0).pvalue)
    assert seeds.mean_interval(by_seed) == pytest.approx((found.low, found.high))


def test_tokens_weigh_the_same_and_gaps_are_kept():
    random = rng(5)
    tokens = np.ceil(random.lognormal(5, 1, 30))
    a, b = (tokens * (3 + 0.1 * random.standard_normal((3, 30))) for _ in range(2))
    found = seeds.over_seeds(a, b, tokens)
    assert found.difference == pytest.approx((a.sum() - b.sum()) / (3 * tokens.sum()))
    assert found.low < found.difference < found.high
    a[1, 4] = math.nan
    gone = seeds.over_seeds(a, b, tokens)
    assert gone.undefined == 1 and math.isnan(gone.difference) and math.isnan(gone.p) and math.isfinite(gone.b)
    same = seeds.over_seeds(b, b, tokens)
    assert same.p == 1 and math.isnan(same.low)


def test_the_number_of_seeds_gives_about_the_promised_power():
    random, n, seed_sd, difference = rng(6), 400, 0.12, 0.2
    z = random.standard_normal((3, n))
    z += -z.mean(axis=1, keepdims=True) + math.hypot(seed_sd, 1 / math.sqrt(n)) * np.array([[-1.0], [0.0], [1.0]])
    found = seeds.over_seeds(z, np.zeros_like(z))
    assert 3 * found.from_seeds == pytest.approx(seed_sd**2, rel=0.05), "the seeds are seen as they are"
    needed = seeds.seeds_needed(found, difference)
    found, runs = 0, 600
    for _ in range(runs):
        again = random.standard_normal((needed, n)) + seed_sd * random.standard_normal((needed, 1)) + difference
        found += seeds.p_value(again.mean(), seeds.variances(again), needed, n) <= 0.05
    assert needed > 2 and 0.7 <= found / runs <= 0.95


def test_models_that_guess_differ_by_what_another_seed_would_change():
    """Each answers at random, anew for each seed: nothing comes from documents, and enough seeds find a difference."""
    random, n, truth = rng(10), 100, 0.04

    def draw(n_seeds, gap):
        return (random.random((2, n_seeds, n)) < np.array([0.25 + gap, 0.25])[:, None, None]).astype(float)

    shares, needed = [], []
    for _ in range(60):
        found = seeds.over_seeds(*draw(5, 0.0))
        shares.append(
            (found.from_seeds + found.from_both) / (found.from_seeds + found.from_documents + found.from_both)
        )
        needed.append(seeds.seeds_needed(found, truth) or seeds.MOST_SEEDS)
    assert np.mean(shares) > 0.85
    enough = round(2.8**2 * 2 * 0.25 * 0.75 / n / truth**2)  # by the normal approximation
    assert 0.6 * enough < np.median(needed) < 2 * enough


def test_no_number_of_seeds_helps_where_documents_hide_the_difference():
    z = rng(7).standard_normal((3, 20)) + rng(8).standard_normal(20)
    assert seeds.seeds_needed(seeds.over_seeds(z, np.zeros_like(z)), 0.01) is None


def test_equivalence_by_the_t_test():
    gap = rng(9).normal(0.1, 1, 300)
    for margin in (0.05, 0.2, 0.4):
        found = seeds.over_seeds(gap[None], np.zeros((1, 300)))
        sides = (stats.ttest_1samp(gap, side * margin, alternative=way) for side, way in ((-1, "greater"), (1, "less")))
        assert seeds.equivalence(found, margin) == pytest.approx(max(side.pvalue for side in sides))


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_a_difference_of_the_margin_is_called_equivalent_in_five_percent(n_seeds):
    random, runs, n, margin = rng(10), 1000, 300, 0.3
    called = 0
    for _ in range(runs):
        z = random.standard_normal(n) + 0.5 * random.standard_normal((n_seeds, n)) + margin
        z += (0.03 * random.standard_normal((n_seeds, 1))) if n_seeds > 1 else 0
        called += seeds.equivalence(seeds.over_seeds(z, np.zeros_like(z), resamples=9), margin) <= 0.05
    assert 0.025 <= called / runs <= 0.065


def test_few_documents_show_no_equivalence():
    random = rng(11)
    few = seeds.over_seeds(random.standard_normal((1, 20)), np.zeros((1, 20)))
    assert few.p > 0.05 and seeds.equivalence(few, 0.1) > 0.05
    assert math.isnan(seeds.equivalence(seeds.over_seeds(np.zeros((1, 9)), np.zeros((1, 9))), 0.1))


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("n_seeds", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["equal", "equal gaps", "right or wrong", "all different"])
@pytest.mark.filterwarnings("error")
def test_few_documents_and_equal_values_give_a_number_or_nan(n, n_seeds, weighted, kind):
    """No crash, no warning of numpy, no interval without spread, and no p outside 0 to 1."""
    random = np.random.default_rng(0)
    a, other = random.normal(size=(2, n_seeds, n))
    b = {"equal": a, "equal gaps": a + 1, "right or wrong": (a > 0) * 1.0, "all different": other}[kind]
    a = (other > 0) * 1.0 if kind == "right or wrong" else a
    found = seeds.over_seeds(a, b, np.full(n, 3.0) if weighted else None)
    assert math.isnan(found.difference) == (n == 0)
    assert math.isnan(found.p) or 0 <= found.p <= 1
    assert n > 1 or math.isnan(found.low)
    assert kind != "equal" or n == 0 or found.p == 1
    for value in (seeds.equivalence(found, 0.02), seeds.seeds_needed(found, 0.1)):
        assert value is None or math.isnan(value) or value >= 0


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("gap", ["none", "the same", "any"])
@pytest.mark.filterwarnings("error")
def test_losses_of_few_seeds(n, gap):
    b = np.random.default_rng(1).normal(size=n)
    a = b + {"none": np.zeros(n), "the same": np.ones(n), "any": np.arange(n) ** 2.0}[gap]
    found = seeds.means_over_seeds(a, b)
    assert found.difference == pytest.approx((a - b).mean())
    assert (found.test == "") == (n == 1)
    if n > 1 and gap == "any":
        assert found.p == pytest.approx(stats.ttest_rel(a, b).pvalue)
        assert found.low < found.difference < found.high
    elif gap == "none":
        assert math.isnan(found.low) and (math.isnan(found.p) if n == 1 else found.p == 1)
