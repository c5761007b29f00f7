"""Each metric against a slow loop written from its formula, and the corner cases."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from itertools import combinations, pairwise, permutations
from math import ceil, inf, log, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from sklearn.metrics import (
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from lometab.evaluation import metrics
from lometab.evaluation.metrics.scores import roc_auc

Array = NDArray[Any]
Classified = tuple[Array, Array]

some_examples = settings(max_examples=40, deadline=None, derandomize=True)

# Zeros, ones, ties, and what the clip is for: less than 1e-12, more than nothing.
weights = st.sampled_from([0.0, 1e-15, 1e-9, 1e-3, 0.5, 1.0, 1.0, 2.0, 3.0])
numbers = st.floats(-100, 100, width=32)
few_numbers = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 2.0])  # with ties


@st.composite
def classified(draw: st.DrawFn, n_classes: int | None = None) -> Classified:
    """Class indices (N,) and probabilities of members (N, K, C)."""
    n, k = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    c = n_classes or draw(st.integers(2, 4))
    p = draw(arrays(np.float64, (n, k, c), elements=weights))
    p[..., 0] += p.sum(axis=2) == 0
    p /= p.sum(axis=2, keepdims=True)
    y = draw(arrays(np.int64, n, elements=st.integers(0, c - 1)))
    return y, p.astype(draw(st.sampled_from([np.float32, np.float64])))


@st.composite
def regressed(draw: st.DrawFn) -> tuple[Array, Array]:
    """Targets (N,) and outputs of members (N, K)."""
    n, k = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    members = draw(arrays(np.float64, (n, k), elements=numbers))
    y = draw(arrays(np.float64, n, elements=numbers))
    return y, members.astype(draw(st.sampled_from([np.float32, np.float64])))


def random_members(n: int, k: int, c: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).dirichlet(np.ones(c), size=(n, k))


def close(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)


def clipped_log(p: float) -> float:
    return log(min(max(p, 1e-12), 1.0))


def argmax(p: Array) -> int:
    return max(range(len(p)), key=lambda c: (p[c], -c))


# Diversity


def slow_kl(p: Array, q: Array) -> float:
    pairs = zip(p.tolist(), q.tolist(), strict=True)
    return sum(a * (clipped_log(a) - clipped_log(b)) for a, b in pairs)


@some_examples
@given(classified())
def test_pairwise_kl(example: Classified) -> None:
    _, members = example
    n, k, _ = members.shape
    expected = np.zeros((k, k))
    for i, j in permutations(range(k), 2):
        for row in members.astype(np.float64):
            expected[i, j] += (
                (slow_kl(row[i], row[j]) + slow_kl(row[j], row[i])) / 2 / n
            )
    matrix = metrics.pairwise_kl(members)
    np.testing.assert_allclose(matrix, expected, rtol=1e-9, atol=1e-12)
    assert (matrix == matrix.T).all() and (np.diag(matrix) == 0).all()
    assert (matrix >= 0).all()
    pairs = [expected[i, j] for i, j in combinations(range(k), 2)]
    mean = sum(pairs) / len(pairs) if pairs else None
    assert metrics.mean_over_pairs(matrix) == close(mean)


@some_examples
@given(classified())
def test_pairwise_disagreement(example: Classified) -> None:
    _, members = example
    n, k, _ = members.shape
    expected = np.zeros((k, k))
    for i, j in permutations(range(k), 2):
        expected[i, j] = sum(argmax(row[i]) != argmax(row[j]) for row in members) / n
    np.testing.assert_allclose(metrics.pairwise_disagreement(members), expected)


def test_pairs_of_identical_members_are_at_zero() -> None:
    members = np.repeat(random_members(100, 1, 4).astype(np.float32), 3, axis=1)
    assert (metrics.pairwise_kl(members) == 0).all()
    assert (metrics.pairwise_disagreement(members) == 0).all()


def test_pairwise_kl_of_nearly_identical_members_is_not_rounding_error() -> None:
    p = np.array([0.3, 0.7])
    step = np.array([1e-9, -1e-9])
    expected = 0.5 * sum(2e-9 * 2e-9 / p)  # second order; the third cancels
    members = np.tile([p - step, p + step], (1000, 1, 1))
    value = metrics.pairwise_kl(members)[0, 1]
    assert value == pytest.approx(expected, rel=1e-6, abs=0)


def test_opposite_certain_members_differ_by_the_log_of_the_clip() -> None:
    members = [[[1.0, 0.0], [0.0, 1.0]]]
    assert metrics.pairwise_kl(members)[0, 1] == close(-log(1e-12))
    assert metrics.pairwise_disagreement(members)[0, 1] == 1


def test_no_array_of_pairs_rows_and_classes() -> None:
    members = random_members(20_000, 32, 10).astype(np.float32)
    for metric in (
        metrics.pairwise_kl,
        metrics.pairwise_disagreement,
        metrics.mutual_information,
        metrics.disagreement,
    ):
        tracemalloc.start()
        metric(members)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 64 * 2**20  # K x K x N x C of float64: 1.6 GB


@some_examples
@given(regressed())
def test_ambiguity(example: tuple[Array, Array]) -> None:
    _, members = example
    n, k = members.shape
    total = 0.0
    for row in members.tolist():
        mean = sum(row) / k
        total += sum((f - mean) ** 2 for f in row)
    expected = total / (n * k) if k > 1 else None
    assert metrics.ambiguity(members) == close(expected)
    normalized = None if expected is None else expected / 2.5
    assert metrics.normalized_ambiguity(members, 2.5) == close(normalized)


@some_examples
@given(regressed())
def test_pairwise_difference(example: tuple[Array, Array]) -> None:
    _, members = example
    n, k = members.shape
    expected = np.zeros((k, k))
    for i, j in permutations(range(k), 2):
        expected[i, j] = sum((row[i] - row[j]) ** 2 for row in members.tolist()) / n
    matrix = metrics.pairwise_difference(members)
    np.testing.assert_allclose(matrix, expected, rtol=1e-9, atol=1e-10)
    assert (matrix == matrix.T).all() and (np.diag(matrix) == 0).all()
    if k > 1:
        mean = metrics.mean_over_pairs(matrix)
        assert mean is not None
        expected_spread = pytest.approx(mean * (k - 1) / (2 * k), rel=1e-9, abs=1e-10)
        assert metrics.ambiguity(members) == expected_spread


def test_pairwise_difference_far_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    members = np.array([[1e9, 1e9 + 2.0], [-1e9, 2.0 - 1e9], [0.0, 2.0]])
    assert metrics.pairwise_difference(members)[0, 1] == 4
    monkeypatch.setattr(metrics.diversity, "_PRODUCT_SIZE", 4)  # a row at a time
    assert metrics.pairwise_difference(members)[0, 1] == 4


def test_normalized_ambiguity_of_a_constant_training_target_is_undefined() -> None:
    assert metrics.normalized_ambiguity([[1.0, 2.0]], 0.0) is None


@some_examples
@given(regressed())
def test_decompose_error(example: tuple[Array, Array]) -> None:
    y, members = example
    n, k = members.shape
    ensemble = member = 0.0
    for target, row in zip(y.tolist(), members.tolist(), strict=True):
        ensemble += (sum(row) / k - target) ** 2 / n
        member += sum((f - target) ** 2 for f in row) / k / n
    result = metrics.decompose_error(y, members)
    assert result["ensemble_error"] == close(ensemble)
    assert result["member_error"] == close(member)
    assert result["ambiguity"] == metrics.ambiguity(members)
    if k > 1:
        assert result["residual"] == pytest.approx(0, abs=1e-12 * (1 + member))
    else:
        assert result["residual"] is None


@some_examples
@given(classified())
def test_decompose_brier(example: Classified) -> None:
    y, members = example
    exact = members.astype(np.float64)
    result = metrics.decompose_brier(y, members)
    assert result["ensemble_error"] == close(metrics.brier(y, exact.mean(axis=1)))
    own = metrics.member_scores(metrics.brier, y, exact)
    assert result["member_error"] == close(sum(own) / len(own))
    if members.shape[1] > 1:
        assert result["ambiguity"] == close(exact.var(axis=1).sum(axis=1).mean())
        assert result["residual"] == pytest.approx(0, abs=1e-12)
    else:
        assert result["ambiguity"] is result["residual"] is None


# Scores


@some_examples
@given(classified())
def test_scores_of_classes(example: Classified) -> None:
    y, members = example
    for k in range(members.shape[1]):
        mean = members[:, k]
        right = brier = nll = 0.0
        for c, row in zip(y.tolist(), mean.tolist(), strict=True):
            right += argmax(row) == c
            brier += sum((p - (i == c)) ** 2 for i, p in enumerate(row))
            nll -= clipped_log(row[c])
        assert metrics.accuracy(y, mean) == close(right / len(y))
        assert metrics.brier(y, mean) == close(brier / len(y))
        assert metrics.nll(y, mean) == close(nll / len(y))
        assert metrics.member_scores(metrics.brier, y, members)[k] == metrics.brier(
            y, mean
        )


def test_brier_and_nll_are_scikit_learns() -> None:
    pytest.importorskip("sklearn", "1.7", reason="it has no Brier score of classes yet")
    mean = random_members(200, 1, 3)[:, 0]
    y = np.arange(200) % 3
    expected = brier_score_loss(y, mean, scale_by_half=False)
    assert metrics.brier(y, mean) == close(expected)
    assert metrics.nll(y, mean) == close(log_loss(y, mean))
    binary = mean[:, :2] / mean[:, :2].sum(axis=1, keepdims=True)
    halved = brier_score_loss(y % 2, binary[:, 1])
    assert metrics.brier(y % 2, binary) == close(2 * halved)


def slow_auroc(positive: list[bool], score: list[float]) -> float | None:
    """The share of (positive, negative) pairs in the right order; ties count half."""
    ups = [s for s, is_positive in zip(score, positive, strict=True) if is_positive]
    downs = [
        s for s, is_positive in zip(score, positive, strict=True) if not is_positive
    ]
    if not ups or not downs:
        return None
    wins = sum((up > down) + (up == down) / 2 for up in ups for down in downs)
    return wins / (len(ups) * len(downs))


@some_examples
@given(classified())
def test_confusion_matrix(example: Classified) -> None:
    y, members = example
    mean = members[:, 0]
    expected = [[0] * mean.shape[1] for _ in range(mean.shape[1])]
    for true, p in zip(y, mean, strict=True):
        expected[true][argmax(p)] += 1
    assert metrics.confusion_matrix(y, mean).tolist() == expected


@some_examples
@given(classified(n_classes=2))
def test_auroc(example: Classified) -> None:
    y, members = example
    mean = members[:, 0]
    expected = slow_auroc((y == 1).tolist(), mean[:, 1].tolist())
    assert metrics.auroc(y, mean) == close(expected)


@some_examples
@given(regressed())
def test_scores_of_numbers(example: tuple[Array, Array]) -> None:
    y, members = example
    mean = members[:, 0]
    errors = [f - t for f, t in zip(mean.tolist(), y.tolist(), strict=True)]
    square = sum(e * e for e in errors)
    assert metrics.rmse(y, mean) == close(sqrt(square / len(y)))
    assert metrics.mae(y, mean) == close(sum(map(abs, errors)) / len(y))
    center = sum(y.tolist()) / len(y)
    total = sum((t - center) ** 2 for t in y.tolist())
    if len(set(y.tolist())) == 1:
        assert metrics.r2(y, mean) is None
    elif total > 1e-9:
        assert metrics.r2(y, mean) == pytest.approx(1 - square / total, rel=1e-6)
    k = members.shape[1] - 1
    assert metrics.member_scores(metrics.mae, y, members)[k] == metrics.mae(
        y, members[:, k]
    )


# Calibration


def slow_bins(y: Array, mean: Array, n_bins: int) -> list[dict[str, Any]]:
    bins = []
    for m in range(n_bins):
        lower, upper = m / n_bins, (m + 1) / n_bins
        rows = [
            (min(max(row), 1.0), argmax(row) == c)
            for c, row in zip(y.tolist(), mean.tolist(), strict=True)
            if lower < min(max(row), 1.0) <= upper
        ]
        n = len(rows)
        bins.append(
            {
                "lower": lower,
                "upper": upper,
                "count": n,
                "confidence": close(sum(r[0] for r in rows) / n) if n else None,
                "accuracy": close(sum(r[1] for r in rows) / n) if n else None,
                "gap": abs(sum(r[0] - r[1] for r in rows)),
            }
        )
    return bins


@some_examples
@given(classified(), st.sampled_from([1, 2, 10, 15]))
def test_reliability_bins_and_ece(example: Classified, n_bins: int) -> None:
    y, members = example
    mean = members[:, 0]
    expected = slow_bins(y, mean, n_bins)
    ece = sum(each.pop("gap") for each in expected) / len(y)
    assert metrics.reliability_bins(y, mean, n_bins) == expected
    assert metrics.ece(y, mean, n_bins) == close(ece)


def test_a_confidence_on_an_edge_belongs_to_the_bin_below() -> None:
    for edge in range(8, 16):
        for shift, m in ((0.0, edge - 1), (-1.0, edge - 1), (1.0, edge)):
            confidence = float(np.nextafter(edge / 15, edge / 15 + shift))
            m = min(m, 14)  # a little above 1 counts as 1
            bins = metrics.reliability_bins([0], [[confidence, 1 - confidence]])
            assert [b["count"] for b in bins].index(1) == m


@pytest.mark.parametrize(
    ("n_bins", "confidence", "m"),
    [(15, 0.6, 8), (15, 0.8, 11), (10, 0.6, 5), (2, 1, 1)],
)
def test_a_confidence_written_in_decimals_is_on_its_edge(
    n_bins: int, confidence: float, m: int
) -> None:
    # Multiples of a rounded width would miss some: 6 * 0.1 > 0.6.
    bins = metrics.reliability_bins([1], [[1 - confidence, confidence]], n_bins)
    assert bins[m]["upper"] == confidence
    assert bins[m]["count"] == 1


def test_a_probability_that_float32_rounds_above_one_counts_as_one() -> None:
    mean = np.array([[np.nextafter(np.float32(1), np.float32(2)), 0]], dtype=np.float32)
    last = metrics.reliability_bins([0], mean)[-1]
    assert (last["count"], last["confidence"]) == (1, 1.0)
    assert metrics.nll([0], mean) == 0
    assert metrics.predictive_entropy(mean) == 0


def test_bins_cover_zero_to_one() -> None:
    bins = metrics.reliability_bins([0, 1], [[0.5, 0.5], [0.1, 0.9]])
    assert len(bins) == metrics.N_BINS == 15
    assert (bins[0]["lower"], bins[-1]["upper"]) == (0, 1)
    assert all(a["upper"] == b["lower"] for a, b in pairwise(bins))
    assert sum(b["count"] for b in bins) == 2
    assert metrics.ece([0, 1], [[0.5, 0.5], [0.1, 0.9]]) == close((0.5 + 0.1) / 2)


# Temperature


@some_examples
@given(classified(), st.sampled_from([0.1, 0.5, 1.0, 3.0]))
def test_temper(example: Classified, temperature: float) -> None:
    mean = example[1][:, 0].astype(np.float64)
    tempered = metrics.temper(mean, temperature)
    for p, answer in zip(mean.tolist(), tempered.tolist(), strict=True):
        powers = [min(max(each, 1e-12), 1.0) ** (1 / temperature) for each in p]
        expected = p if temperature == 1 else [each / sum(powers) for each in powers]
        assert answer == pytest.approx(expected, rel=1e-9, abs=1e-15)


@some_examples
@given(classified())
def test_fitted_temperature_is_never_worse(example: Classified) -> None:
    y, members = example
    mean = members[:, 0]
    fitted = metrics.fit_temperature(y, mean)
    assert metrics.TEMPERATURES[0] <= fitted <= metrics.TEMPERATURES[1]
    after = metrics.nll(y, metrics.temper(mean, fitted))
    assert after <= metrics.nll(y, mean)


@pytest.mark.parametrize("truth", [0.4, 1.0, 2.5])
def test_fitted_temperature_is_the_best_of_a_grid(truth: float) -> None:
    rng = np.random.default_rng(3)
    honest = rng.dirichlet(np.ones(3), size=4000)
    y = (rng.random(4000)[:, None] > honest.cumsum(axis=1)).sum(axis=1)
    mean = metrics.temper(honest, 1 / truth)  # what the temperature has to undo
    fitted = metrics.fit_temperature(y, mean)
    assert fitted == pytest.approx(truth, rel=0.05)
    best = metrics.nll(y, metrics.temper(mean, fitted))
    for other in fitted * np.linspace(0.8, 1.25, 19):
        assert metrics.nll(y, metrics.temper(mean, other)) >= best - 1e-12


def test_temperature_has_bounds() -> None:
    mean = np.array([[0.6, 0.4]] * 10)
    assert metrics.fit_temperature([0] * 10, mean) == pytest.approx(0.1)
    assert metrics.fit_temperature([1] * 10, mean) == pytest.approx(10)


# Uncertainty of each row


@some_examples
@given(regressed())
def test_member_std(example: tuple[Array, Array]) -> None:
    _, members = example
    std = metrics.member_std(members)
    if members.shape[1] == 1:
        assert std is None
        return
    for value, row in zip(std, members.tolist(), strict=True):
        mean = sum(row) / len(row)
        variance = sum((f - mean) ** 2 for f in row) / len(row)
        assert value == close(sqrt(variance))
    assert metrics.ambiguity(members) == close(float((std**2).mean()))


def slow_entropy(p: list[float]) -> float:
    return -sum(value * clipped_log(value) for value in p)


@some_examples
@given(classified())
def test_entropy_and_information(example: Classified) -> None:
    _, members = example
    _, k, c = members.shape
    information = metrics.mutual_information(members)
    assert (information is None) == (k == 1)
    for i, row in enumerate(members.astype(np.float64)):
        mean = [sum(row[:, j].tolist()) / k for j in range(c)]
        whole = slow_entropy(mean)
        assert metrics.predictive_entropy([mean])[0] == close(whole)
        if information is not None:
            parts = sum(slow_entropy(p) for p in row.tolist()) / k
            assert information[i] == close(max(whole - parts, 0.0))


def test_entropy_between_certain_and_uniform() -> None:
    entropy = metrics.predictive_entropy([[0.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    assert entropy[0] == 0 and not np.signbit(entropy[0])
    assert entropy[1] == close(log(3))
    opposite = [[[1.0, 0.0], [0.0, 1.0]]]
    assert metrics.mutual_information(opposite) == close(log(2))
    same = metrics.mutual_information(np.repeat(random_members(99, 1, 4), 3, axis=1))
    assert (same >= 0).all() and same.max() < 1e-15


@some_examples
@given(classified())
def test_disagreement(example: Classified) -> None:
    _, members = example
    k = members.shape[1]
    share = metrics.disagreement(members)
    if k == 1:
        assert share is None
        return
    for value, row in zip(share, members, strict=True):
        pairs = [argmax(row[i]) != argmax(row[j]) for i, j in combinations(range(k), 2)]
        assert value == close(sum(pairs) / len(pairs))
    matrix = metrics.pairwise_disagreement(members)
    assert metrics.mean_over_pairs(matrix) == close(float(share.mean()))


@st.composite
def ranked(draw: st.DrawFn) -> tuple[Array, Array]:
    """Losses (N,) and uncertainties (N,), with ties."""
    n = draw(st.integers(1, 5))
    losses = draw(arrays(np.float64, n, elements=few_numbers))
    return losses, draw(arrays(np.float64, n, elements=few_numbers))


def test_trust_is_the_place_among_distinct_rows() -> None:
    doubts = np.random.default_rng(0).exponential(size=3000)
    ranks = metrics.trust_ranks(metrics.quantile_levels(doubts, 201))
    asked = np.array([0.01, 0.3, 1.0, 2.5])
    shares = [np.mean(doubts > each) for each in asked]
    assert metrics.trust(asked, ranks) == pytest.approx(shares, abs=0.005)
    assert metrics.trust([-1.0, 100.0], ranks).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("rounding", [0.0, 1e-7, -1e-7])
def test_calibration_rows_as_certain_count_half(rounding: float) -> None:
    doubts = np.repeat([0.2, 0.5, 0.7], [500, 300, 200])
    ranks = metrics.trust_ranks(metrics.quantile_levels(doubts, 201))
    asked = np.array([0.1, 0.2, 0.5, 0.7, 0.9]) * (1 + rounding)
    expected = [1.0, 0.75, 0.35, 0.1, 0.0]
    assert metrics.trust(asked, ranks) == pytest.approx(expected, abs=0.005)
    between = metrics.trust([0.21, 0.49, 0.51, 0.69], ranks)
    assert between == pytest.approx([0.5, 0.5, 0.2, 0.2], abs=0.005)
    same = metrics.trust_ranks([0.0, 0.0, 0.0])
    assert metrics.trust([0.0, 1.0], same).tolist() == [0.5, 0.0]


@some_examples
@given(ranked())
def test_risk_coverage_curve(example: tuple[Array, Array]) -> None:
    losses, uncertainty = example
    n = len(losses)
    # Every order of rows that goes from certain to uncertain, ties in any order.
    orders = [
        order
        for order in permutations(range(n))
        if all(uncertainty[a] <= uncertainty[b] for a, b in pairwise(order))
    ]
    expected = [
        sum(sum(losses[list(order[: i + 1])]) / (i + 1) for order in orders)
        / len(orders)
        for i in range(n)
    ]
    coverage, risk = metrics.risk_coverage_curve(losses, uncertainty)
    assert coverage.tolist() == [(i + 1) / n for i in range(n)]
    np.testing.assert_allclose(risk, expected, atol=1e-12)
    assert metrics.aurc(losses, uncertainty) == close(sum(expected) / n)


@some_examples
@given(classified(), st.data())
def test_error_auroc(example: Classified, data: st.DataObject) -> None:
    y, members = example
    mean = members[:, 0]
    uncertainty = data.draw(arrays(np.float64, len(y), elements=few_numbers))
    wrong = [argmax(row) != c for c, row in zip(y, mean, strict=True)]
    assert metrics.is_wrong(y, mean).tolist() == wrong
    expected = slow_auroc(wrong, uncertainty.tolist())
    assert metrics.error_auroc(y, mean, uncertainty) == close(expected)


@some_examples
@given(ranked())
def test_large_error_auroc(example: tuple[Array, Array]) -> None:
    errors, uncertainty = example
    y = np.zeros(len(errors))
    bound = np.quantile(np.abs(errors), 0.5)
    is_large = [abs(error) > bound for error in errors.tolist()]
    expected = slow_auroc(is_large, uncertainty.tolist())
    value = metrics.large_error_auroc(y, errors, uncertainty, share=0.5)
    assert value == close(expected)


# Intervals and sets


@some_examples
@given(regressed(), st.sampled_from([0.05, 0.1, 0.5]))
def test_member_interval(example: tuple[Array, Array], alpha: float) -> None:
    y, members = example
    n, k = members.shape
    interval = metrics.member_interval(members, alpha)
    if k == 1:
        assert interval is None
        return
    lower, upper = interval
    for i, row in enumerate(members.tolist()):
        row.sort()
        for q, value in ((alpha / 2, lower[i]), (1 - alpha / 2, upper[i])):
            below = min(int(q * (k - 1)), k - 2)
            part = q * (k - 1) - below
            expected = row[below] + part * (row[below + 1] - row[below])
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)
    covered = [lower[i] <= y[i] <= upper[i] for i in range(n)]
    assert metrics.interval_coverage(y, lower, upper) == close(sum(covered) / n)
    width = sum(upper[i] - lower[i] for i in range(n)) / n
    assert metrics.interval_width(lower, upper) == close(width)


@some_examples
@given(
    st.lists(numbers, min_size=1, max_size=40), st.sampled_from([0.1, 0.2, 0.25, 0.5])
)
def test_conformal_quantile(scores: list[float], alpha: float) -> None:
    quantile = metrics.conformal_quantile(scores, alpha)
    n = len(scores)
    enough = [s for s in scores if sum(t <= s for t in scores) / (n + 1) >= 1 - alpha]
    assert quantile == (min(enough) if enough else inf)


def test_conformal_rank_is_exact() -> None:
    scores = np.arange(1.0, 100.0)
    assert ceil(100 * (1 - 0.43)) == 58  # what floats say
    assert metrics.conformal_quantile(scores, 0.43) == 57
    assert metrics.conformal_quantile(scores, 0.01) == 99
    assert metrics.conformal_quantile(scores, 0.009) == inf
    assert metrics.conformal_quantile([0.5], 0.5) == 0.5


@some_examples
@given(classified(), st.sampled_from([0.1, 0.3, 0.6]))
def test_conformal_sets(example: Classified, alpha: float) -> None:
    y, members = example
    mean = members[:, 0].astype(np.float64)
    scores = metrics.conformal_scores(y, mean)
    assert scores.tolist() == [1 - row[c] for c, row in zip(y, mean, strict=True)]
    quantile = metrics.conformal_quantile(scores, alpha)
    sets = metrics.conformal_set(mean, quantile)
    assert sets.tolist() == [[bool(1 - p <= quantile) for p in row] for row in mean]
    inside = [bool(s[c]) for c, s in zip(y, sets, strict=True)]
    assert metrics.set_coverage(y, sets) == close(sum(inside) / len(y))
    assert metrics.set_coverage(y, sets) >= 1 - alpha - 1e-12  # these very rows
    assert metrics.set_size(sets) == close(sets.sum() / len(y))


def test_conformal_intervals_cover_as_promised() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 20_000))
    y += x
    scores = metrics.conformal_scores(y[:10_000], x[:10_000])
    np.testing.assert_allclose(scores, abs(y - x)[:10_000])
    quantile = metrics.conformal_quantile(scores, 0.1)
    lower, upper = metrics.conformal_interval(x[10_000:], quantile)
    coverage = metrics.interval_coverage(y[10_000:], lower, upper)
    assert coverage == pytest.approx(0.9, abs=0.01)
    assert metrics.interval_width(lower, upper) == close(2 * quantile)


def test_too_few_validation_rows_give_everything() -> None:
    quantile = metrics.conformal_quantile([0.1, 0.2], 0.1)
    lower, upper = metrics.conformal_interval([1.0, 2.0], quantile)
    assert metrics.interval_coverage([1e9, -1e9], lower, upper) == 1
    assert metrics.interval_width(lower, upper) == inf
    assert metrics.conformal_set([[0.0, 1.0]], quantile).all()


# What holds of all


CLASS_SCORES = (metrics.accuracy, metrics.brier, metrics.nll, metrics.ece)
ROW_UNCERTAINTIES = (metrics.mutual_information, metrics.disagreement)


@some_examples
@given(classified(), st.randoms(use_true_random=False))
def test_members_have_no_order(example: Classified, random: Any) -> None:
    _, members = example
    order = list(range(members.shape[1]))
    random.shuffle(order)
    shuffled = members[:, order]
    for metric in (metrics.pairwise_kl, metrics.pairwise_disagreement):
        expected = metric(members)[order][:, order]
        np.testing.assert_allclose(metric(shuffled), expected, atol=1e-12)
    for uncertainty in ROW_UNCERTAINTIES:
        if len(order) > 1:
            np.testing.assert_allclose(
                uncertainty(shuffled), uncertainty(members), atol=1e-12
            )
    outputs = members[:, :, 0]
    assert metrics.ambiguity(outputs[:, order]) == close(metrics.ambiguity(outputs))


@pytest.mark.parametrize(
    "metric",
    [metrics.pairwise_kl, metrics.pairwise_disagreement, *ROW_UNCERTAINTIES],
)
def test_chunks_do_not_show(
    metric: Callable[[Array], Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    members = random_members(101, 3, 4)
    whole = metric(members)
    for size in (1, 50):
        monkeypatch.setattr(metrics.arrays, "_CHUNK_SIZE", size)
        monkeypatch.setattr(metrics.diversity, "_PRODUCT_SIZE", size)
        np.testing.assert_allclose(metric(members), whole, rtol=1e-12)


def test_one_member_has_no_diversity() -> None:
    members = random_members(5, 1, 3)
    for metric in (metrics.pairwise_kl, metrics.pairwise_disagreement):
        assert metrics.mean_over_pairs(metric(members)) is None
    for uncertainty in ROW_UNCERTAINTIES:
        assert uncertainty(members) is None
    outputs = members[:, :, 0]
    assert metrics.ambiguity(outputs) is None
    assert metrics.normalized_ambiguity(outputs, 1.0) is None
    assert metrics.member_std(outputs) is None
    assert metrics.member_interval(outputs) is None


def test_one_row_and_absent_classes() -> None:
    y, mean = [2], [[0.0, 0.0, 1.0, 0.0]]
    assert [score(y, mean) for score in CLASS_SCORES] == [1, 0, 0, 0]
    y = [0]
    assert [score(y, mean) for score in CLASS_SCORES] == [0, 2, close(-log(1e-12)), 1]
    assert metrics.error_auroc(y, mean, [0.3]) is None
    assert metrics.aurc(metrics.is_wrong(y, mean), [0.3]) == 1
    assert metrics.auroc([1], [[0.4, 0.6]]) is None
    assert metrics.r2([1.0], [1.0]) is None
    assert (metrics.rmse([1.0], [3.0]), metrics.mae([1.0], [3.0])) == (2, 2)


def test_many_classes() -> None:
    members = np.eye(300)[[[0, 256], [299, 299], [44, 299]]]  # (3, 2, 300)
    assert metrics.pairwise_disagreement(members)[0, 1] == close(2 / 3)
    assert metrics.disagreement(members).tolist() == [1, 0, 1]
    assert metrics.accuracy([256, 299, 299], members[:, 1]) == 1
    assert metrics.brier([0, 299, 299], members[:, 1]) == close(2 / 3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_results_are_float64_whatever_comes_in(dtype: type) -> None:
    members = random_members(50, 3, 4).astype(dtype)
    y = np.arange(50) % 4
    for metric in (metrics.pairwise_kl, *ROW_UNCERTAINTIES):
        assert metric(members).dtype == np.float64
        np.testing.assert_array_equal(metric(members), metric(members.astype(float)))
    mean = members[:, 0]
    for score in CLASS_SCORES:
        assert type(score(y, mean)) is float
        assert score(y, mean) == score(y, mean.astype(float))
    large = np.array([[60000, 60001, 59999]], dtype=np.float32)
    assert metrics.ambiguity(large) == close(2 / 3)


def test_arguments_are_left_alone() -> None:
    members = random_members(9, 3, 2)
    y = np.arange(9) % 2
    before = members.copy()
    for metric in (metrics.pairwise_kl, metrics.pairwise_disagreement):
        metric(members)
    for score in CLASS_SCORES:
        score(y, members[:, 0])
    np.testing.assert_array_equal(members, before)


MEMBERS = random_members(4, 3, 2)
MEAN = MEMBERS.mean(axis=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.pairwise_kl(MEAN), r"shape \(N, K, C\).*\(4, 2\)"),
        (lambda: metrics.pairwise_kl(MEMBERS[:0]), r"not be empty.*\(0, 3, 2\)"),
        (lambda: metrics.pairwise_kl(MEMBERS[..., :1]), "two or more classes"),
        (lambda: metrics.pairwise_kl(MEMBERS.swapaxes(1, 2)), "sum 1 over the last"),
        (lambda: metrics.pairwise_kl(MEMBERS * 3 - 1), "probabilities.*min=-"),
        (lambda: metrics.pairwise_kl(MEMBERS / 2), "from 0.[45].* to 0.5"),
        (lambda: metrics.pairwise_kl(MEMBERS * 2), "from [12].* to 2.0"),
        (lambda: metrics.disagreement(np.full((1, 2, 2), np.nan)), "min=nan"),
        (lambda: metrics.mean_over_pairs(MEAN), r"shape \(K, K\).*\(4, 2\)"),
        (lambda: metrics.ambiguity(MEMBERS), r"shape \(N, K\).*\(4, 3, 2\)"),
        (lambda: metrics.ambiguity([[1.0, np.inf]]), "finite.*1 of 2"),
        (lambda: metrics.normalized_ambiguity(MEAN, -1.0), "train_variance=-1.0"),
        (lambda: metrics.normalized_ambiguity(MEAN, np.nan), "train_variance=nan"),
        (lambda: metrics.decompose_error([1.0], MEAN), r"per row, 4.*len\(y\)=1"),
        (lambda: metrics.accuracy([0, 1], MEAN), r"per row, 4.*len\(y\)=2"),
        (lambda: metrics.accuracy([0, 1, 2, 0], MEAN), "from 0 to 1.*from 0 to 2"),
        (lambda: metrics.accuracy([0, -1, 1, 0], MEAN), "from 0 to 1.*from -1 to 1"),
        (lambda: metrics.accuracy([0.0] * 4, MEAN), "integer.*float64"),
        (lambda: metrics.auroc([0], [[0.2, 0.3, 0.5]]), r"\(N, 2\).*\(1, 3\)"),
        (lambda: metrics.rmse([1.0], MEAN), r"mean must have shape \(N,\)"),
        (lambda: metrics.member_scores(metrics.rmse, [1.0], [1.0]), r"\(1,\)"),
        (lambda: metrics.ece([0] * 4, MEAN, 0), "n_bins=0"),
        (lambda: metrics.aurc([1.0, 0.0], [0.5]), r"per row, 2.*len\(uncertainty\)=1"),
        (lambda: metrics.conformal_quantile([1.0], 1.0), "alpha=1.0"),
        (lambda: metrics.temper(MEAN, 0.0), "temperature=0.0"),
        (lambda: metrics.temper(MEAN, np.nan), "temperature=nan"),
        (lambda: metrics.interval_width([1.0], [1.0, 2.0]), "same shape"),
        (lambda: metrics.set_size([[0, 1]]), "boolean.*int64"),
    ],
)
def test_errors_say_what_was_needed_and_what_came(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@some_examples
@given(regressed())
def test_errors_are_those_of_scikit_learn(values: tuple[Array, Array]) -> None:
    y, members = values
    mean = members[:, 0].astype(np.float64)
    assert metrics.rmse(y, mean) == close(root_mean_squared_error(y, mean))
    assert metrics.mae(y, mean) == close(mean_absolute_error(y, mean))
    expected = r2_score(y, mean) if np.ptp(y) > 0 else None
    assert metrics.r2(y, mean) == close(expected)


@some_examples
@given(st.lists(st.tuples(st.booleans(), few_numbers), min_size=2, max_size=30))
def test_area_under_the_curve_is_that_of_scikit_learn(
    rows: list[tuple[bool, float]],
) -> None:
    positive, score = (np.array(each) for each in zip(*rows, strict=True))
    both = positive.any() and not positive.all()
    expected = roc_auc_score(positive, score) if both else None
    assert roc_auc(positive, score) == close(expected)


@pytest.mark.processes
def test_importing_is_cheap() -> None:
    heavy = "{'torch', 'sklearn', 'scipy'}"
    code = (
        "import lometab.evaluation.metrics, sys; "
        f"sys.exit(bool({heavy} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
