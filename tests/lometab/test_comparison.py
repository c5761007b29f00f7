"""Cells side by side, against slow loops; ranks as the paper has them."""

from dataclasses import asdict, replace
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lometab.config import TrainConfig
from lometab.ensemble import answer, measure, prepare
from lometab.errors import ConfigError
from lometab.evaluation import (
    Outcome,
    compare_cells,
    delta_percent,
    difference_error,
    draw_scores,
    rank_methods,
)
from lometab.evaluation.metrics import (
    accuracy,
    ece,
    mean_over_pairs,
    pairwise_disagreement,
    pairwise_kl,
    rmse,
)
from lometab.space import (
    PAPER_GRID,
    PAPER_SPACE,
    Choice,
    Range,
    check_space,
    contains,
    count_cells,
    expand_grid,
)
from lometab.table import Split, features, infer_schema, split_rows, target
from tests.support.outcomes import outcome

BASE = TrainConfig()


# Comparison


def test_means_deviations_and_the_reference() -> None:
    runs = [[outcome(0.8), outcome(0.9)], [outcome(0.5)], []]
    compared = compare_cells([{"rank": r} for r in (1, 2, 4)], runs, reference=1)
    first, second, third = compared.cells
    assert first.test.score is not None and second.test.score is not None
    assert first.test.score.mean == pytest.approx(mean([0.8, 0.9]))
    assert first.test.score.std == pytest.approx(stdev([0.8, 0.9]))
    assert second.test.score.std is None
    assert first.delta_percent == pytest.approx(70)
    assert second.delta_percent == 0 and third.delta_percent is None
    assert (third.n_seeds, third.regime, third.test.score) == (0, None, None)
    assert compared.best_score == 0
    assert compare_cells([{}], [[]]).metric is None


def test_regression_wants_less() -> None:
    runs = [[outcome(s, None, 0.01, "rmse")] for s in (2.0, 1.0)]
    compared = compare_cells([{"k": 2}, {"k": 4}], runs, reference=0)
    assert (compared.best_score, compared.best_calibration) == (1, None)
    assert compared.cells[1].delta_percent == 50
    assert delta_percent(1.0, None, is_regression=True) is None


NUMBERS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8))
def test_pareto_is_what_nobody_beats(points: list[tuple[float, float, float]]) -> None:
    runs = [[with_measures(outcome(s, e), nll=n)] for s, e, n in points]
    compared = compare_cells([{} for _ in points], runs)
    expected = []
    for i, (score, error, loss) in enumerate(points):
        is_beaten = False
        for s, e, n in points:
            if s >= score and e <= error and n <= loss:
                is_beaten |= s > score or e < error or n < loss
        if not is_beaten:
            expected.append(i)
    assert compared.pareto == expected
    assert compared.best_score == max(range(len(points)), key=lambda i: points[i][0])


def with_measures(run: Outcome, **measures: float) -> Outcome:
    return replace(run, val=replace(run.val, **measures))


def test_diversity_is_no_good_by_itself() -> None:
    runs = [[outcome(0.8, 0.1, 0.01)], [outcome(0.7, 0.2, 5.0)]]
    assert compare_cells([{}, {}], runs).pareto == [0]
    # Of regression, what counts beside the score is whether the spread tells errors.
    good = with_measures(outcome(2.0, None, 0.1, "rmse"), error_auroc=0.8)
    poor = with_measures(outcome(1.0, None, 0.9, "rmse"), error_auroc=0.6)
    assert compare_cells([{}, {}], [[good], [poor]]).pareto == [0, 1]
    same = with_measures(outcome(2.0, None, 0.9, "rmse"), error_auroc=0.6)
    assert compare_cells([{}, {}], [[same], [poor]]).pareto == [1]


# Noise


def answers(rng: np.random.Generator, share: float, n: int = 400) -> np.ndarray:
    """Answers of which about this share is right, if every label is 0."""
    p = np.where(rng.random(n) < share, 0.9, 0.1)
    return np.stack([p, 1 - p], axis=1)


def test_draws_are_scores_of_the_same_rows() -> None:
    rng = np.random.default_rng(0)
    y, p = np.zeros(400, int), answers(rng, 0.8)
    draws = draw_scores(y, p)
    assert draws == draw_scores(y, p) and len(draws) == 100
    score = accuracy(y, p)
    assert np.mean(draws) == pytest.approx(score, abs=0.01)
    assert np.std(draws) == pytest.approx((score * (1 - score) / 400) ** 0.5, rel=0.3)
    # A run that is right wherever the other is, and on three more rows: surely better.
    better = p.copy()
    better[np.flatnonzero(p[:, 0] < 0.5)[:3]] = [0.9, 0.1]
    error = difference_error({0: draw_scores(y, better)}, {0: draws})
    assert error is not None and error == pytest.approx(3**0.5 / 400, rel=0.3)
    assert error < np.std(draws) / 4
    y = rng.normal(size=300)
    draws = draw_scores(y, np.zeros(300))
    assert np.mean(draws) == pytest.approx(rmse(y, np.zeros(300)), rel=0.02)


def test_seeds_that_differ_are_noise_too() -> None:
    rows = {0: [0.5] * 100, 1: [0.7] * 100}
    other = dict.fromkeys((0, 1), [0.4] * 100)
    assert difference_error({0: rows[0]}, other) == pytest.approx(0, abs=1e-9)
    # The sample deviation of 0.1 and 0.3, over the root of two.
    assert difference_error(rows, other) == pytest.approx(0.1)
    assert difference_error({0: []}, other) is None  # of an older version
    assert difference_error({}, other) is None


def test_runs_of_the_same_seed_are_pairs() -> None:
    """Whichever other runs have failed."""
    rng = np.random.default_rng(0)
    luck = {seed: rng.normal(size=100).tolist() for seed in range(3)}
    better = {seed: [x + 0.1 for x in luck[seed]] for seed in (1, 2)}
    assert difference_error(better, luck) == pytest.approx(0, abs=1e-9)
    assert difference_error(luck, better) == pytest.approx(0, abs=1e-9)
    # Without a seed in common, there are still the same rows.
    assert difference_error({0: luck[0]}, {1: luck[0]}) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
@pytest.mark.parametrize(
    ("by_seeds", "by_rows", "by_both"),
    [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)],
    ids=["seeds", "rows", "both", "all"],
)
def test_a_standard_error_is_as_large_as_the_error(
    n_seeds: int, by_seeds: float, by_rows: float, by_both: float
) -> None:
    rng = np.random.default_rng(0)
    n_runs, n_draws, squares = 400, 100, []

    def draw(n: int) -> np.ndarray:
        """What resampling makes of the luck with the rows: each seed's center with
        it, and around it the draws."""
        return rng.normal(size=(n, 1)) + rng.normal(size=(n, n_draws))

    for _ in range(n_runs):
        values = by_seeds * rng.normal(size=(n_seeds, 1)) + np.zeros(n_draws)
        values = values + by_rows * draw(1) + by_both * draw(n_seeds)
        runs = dict(enumerate(values.tolist()))
        none = dict.fromkeys(runs, [0.0] * n_draws)
        error = difference_error(runs, none)
        assert error is not None
        squares.append(error**2)
    true = (by_seeds**2 / n_seeds + by_rows**2 + by_both**2 / n_seeds) ** 0.5
    # Too large rather than too small: what is taken off may not make it negative.
    assert 0.93 < np.mean(squares) ** 0.5 / true < 1.3


def test_a_baseline_ahead_is_told_and_not_recommended() -> None:
    rng = np.random.default_rng(0)
    y = np.zeros(400, int)
    one, strong = answers(rng, 0.7), answers(rng, 0.95)
    other = one.copy()
    flipped = rng.permutation(400)[:40]
    other[flipped] = other[flipped][:, ::-1]
    cells = [one, other, strong]
    runs = [[outcome(accuracy(y, p))] for p in cells]
    draws = [{0: draw_scores(y, p)} for p in cells]
    settings = [{"rank": 1}, {"rank": 2}, {"variant": "catboost"}]
    compared = compare_cells(settings, runs, None, draws, baselines=[2])
    alone = compare_cells(settings[:2], runs[:2], None, draws[:2])
    assert (compared.best_score, compared.best_model) == (2, alone.best_score)
    assert (compared.tied, compared.recommended) == (alone.tied, alone.recommended)
    assert alone.tied
    behind = compared.cells[2].behind
    assert behind is not None and behind.score < -5 * behind.standard_error < 0
    # Nor does anything else become the best because nothing is known of its noise.
    unknown = compare_cells(settings, runs, None, [*draws[:2], {0: []}], [2])
    assert (unknown.tied, unknown.recommended) == (alone.tied, alone.recommended)
    # While nothing else has ended, nothing is recommended.
    first = compare_cells(settings, [[], [], runs[2]], None, [{}, {}, draws[2]], [2])
    assert (first.best_score, first.best_model, first.recommended) == (2, None, None)


def test_a_simple_cell_as_good_as_the_best_is_recommended() -> None:
    rng = np.random.default_rng(0)
    y = np.zeros(400, int)
    base = answers(rng, 0.8)
    lucky = base.copy()
    flipped = rng.permutation(400)[:40]
    lucky[flipped] = lucky[flipped][:, ::-1]  # better here, worse there
    poor = answers(rng, 0.6)
    cells = [base, lucky, poor]
    if accuracy(y, lucky) < accuracy(y, base):
        cells = [lucky, base, poor]
    runs = [[outcome(accuracy(y, p))] for p in cells]
    runs[1] = [replace(runs[1][0], n_parameters=1000)]
    draws = [{0: draw_scores(y, p)} for p in cells]
    compared = compare_cells([{}, {}, {}], runs, draws=draws)
    assert compared.best_score == 1
    behind = [cell.behind for cell in compared.cells]
    assert behind[1] is not None and (behind[1].score, behind[1].standard_error) == (
        0,
        0,
    )
    assert 2 not in compared.tied and 1 in compared.tied
    assert behind[0] is not None
    is_tied = behind[0].score <= behind[0].standard_error
    assert (0 in compared.tied) == is_tied
    assert compared.recommended == (0 if is_tied else 1)
    plain = compare_cells([{}, {}, {}], runs)  # runs of a version without draws
    assert (plain.tied, plain.recommended, plain.cells[0].behind) == ([], 1, None)


def test_where_members_collapse_is_named() -> None:
    settings = [{"rank": r, "sigma_init": s} for r in (1, 4) for s in (0.1, 0.3, 1.0)]
    diversities = [0.001, 0.001, 0.001, 0.001, 0.05, 0.05]
    runs = [[outcome(0.5, 0.1, each)] for each in diversities]
    (by_rank, by_sigma) = compare_cells(settings, runs).collapsed
    assert asdict(by_rank) == {"setting": "rank", "values": [1], "cells": [0, 1, 2]}
    assert (by_sigma.setting, by_sigma.values) == ("sigma_init", [0.1])
    assert by_sigma.cells == [0, 3]


def test_ranks_with_ties_by_name() -> None:
    scores = {
        "adult": {"tabm": 0.87, "lometab": 0.87, "mlp": 0.85, "only-here": 0.9},
        "california": {"tabm": 0.44, "lometab": 0.45, "mlp": 0.49},
    }
    ranked = rank_methods(scores, {"adult": False, "california": True})
    assert [(each.method, each.mean_rank) for each in ranked] == [
        ("lometab", 1.5),
        ("tabm", 1.5),
        ("mlp", 3),
    ]
    assert ranked[0].ranks == {"adult": 1, "california": 2}


# Outcomes


def test_an_outcome_is_what_its_answers_say() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    texts = {
        "x": [f"{v:.6f}" for v in x],
        "z": [f"{v:.6f}" for v in rng.normal(size=200)],
        "y": ["yes" if v > 0 else "no" for v in x + rng.normal(size=200)],
    }
    table = {name: np.array(cells, dtype=object) for name, cells in texts.items()}
    schema = infer_schema(table, target="y")
    parts = split_rows(table, schema, Split())
    config = TrainConfig(k=3, d_block=8, n_bins=4, d_embedding=4, max_epochs=2)
    prepared = prepare(table, schema, parts, ("train", "val", "test"))
    ensemble = prepared.train_ensemble([config])
    found = measure(prepared, ensemble)
    x_num, x_cat = features(table, schema)
    y, rows = target(table, schema), parts["test"]
    mean_, members = answer(ensemble, x_num[rows], x_cat[rows])
    assert found.test.score == (mean_.argmax(1) == y[rows]).mean()
    assert found.test.ece == pytest.approx(ece(y[rows], mean_))
    kl = mean_over_pairs(pairwise_kl(members))
    assert found.test.diversity == pytest.approx(kl)
    share = mean_over_pairs(pairwise_disagreement(members))
    assert found.test.disagreement == pytest.approx(share)
    assert found.val.score == pytest.approx(ensemble.fit.best_score)
    assert Outcome.from_dict(asdict(found)) == found


# Grids and spaces


def test_the_papers_grid_and_space_are_allowed() -> None:
    cells = expand_grid([PAPER_GRID], BASE)
    assert len(cells) == count_cells([PAPER_GRID]) == 30
    assert cells[0] == {"rank": 1, "sigma_init": 0.1}
    check_space(PAPER_SPACE, BASE)


def test_what_a_distribution_can_give() -> None:
    assert contains(Choice([1, 2]), 2) and not contains(Choice([1, 2]), 3)
    steps = Range(64, 128, step=16)
    assert [contains(steps, v) for v in (64, 72, 80, 128, 144)] == [1, 0, 1, 1, 0]
    maybe = Range(1e-4, 1e-1, log=True, or_zero=True)
    assert [contains(maybe, v) for v in (0, 1e-5, 1e-4, 0.1)] == [1, 0, 1, 1]


def test_cells_are_there_once_and_as_many_as_wanted() -> None:
    grids = [{"rank": [1, 2]}, {"rank": [2, 1.0 * 4]}, {"variant": ["tabm"]}]
    with pytest.raises(ConfigError, match="rank must be a whole number"):
        expand_grid(grids, BASE)
    grids[1] = {"rank": [2, 4]}
    cells = expand_grid(grids, BASE)
    assert cells == [{"rank": 1}, {"rank": 2}, {"rank": 4}, {"variant": "tabm"}]
    few = expand_grid(grids, BASE, max_cells=2)
    assert len(few) == 2 and few == expand_grid(grids, BASE, max_cells=2)
    assert all(cell in cells for cell in few)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({"rnak": [1]}, "did you mean rank"),
        ({"seed": [1, 2]}, "set `seeds`"),
        ({"rank": []}, "no value for rank"),
        ({"rank": [0]}, "rank must be at least 1"),
        ({"variant": ["catboost"]}, "variant must be one of"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(grid: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        expand_grid([grid], BASE)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"lr": Range(0.0, 1e-3, log=True)}, "low end above 0"),
        ({"lr": Range(1e-2, 1e-3)}, "above its high end"),
        ({"d_block": Range(64, 128, step=0.5)}, "whole number"),
        ({"d_block": Range(64, 128, step=-16)}, "step of d_block"),
        ({"dropout": Range(0.0, 1.5)}, "dropout must be"),
        ({"k": Choice([])}, "no value for k"),
        ({"depth": Choice([1])}, "no setting that can be varied"),
    ],
)
def test_a_space_that_cannot_be_is_refused(space: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_space(space, replace(BASE))
