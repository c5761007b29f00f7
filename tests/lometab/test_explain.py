"""What drives answers, on models whose truth is known."""

import math
from itertools import combinations
from time import sleep
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lometab.errors import DataError
from lometab.evaluation import Answer
from lometab.explain import (
    MODEL_ROWS,
    Naive,
    Plan,
    Rows,
    explain_row,
    find_slices,
    fit_naive,
    measure_effects,
    measure_importance,
    pack_background,
    plan_importance,
    unpack_background,
)
from lometab.explain.effects import make_grids
from lometab.explain.groups import find_groups
from lometab.explain.naive import MAX_ROWS
from lometab.explain.shapley import plan_orders

N = 300


def make_rows(n: int = N, seed: int = 0) -> Rows:
    """Two numbers that are used, two that are equal, one that is not used, and a
    category."""
    rng = np.random.default_rng(seed)
    x_num = rng.normal(size=(n, 5))
    x_num[:, 3] = x_num[:, 2]
    x_cat = rng.choice(["red", "blue", ""], size=(n, 1)).astype(object)
    return Rows(["a", "b", "twin", "other_twin", "noise"], ["colour"], x_num, x_cat)


def answer(x_num: NDArray[Any], x_cat: NDArray[Any]) -> Answer:
    """Three members that differ in how they use `b`."""
    a, b, twin, other = x_num[:, 0], x_num[:, 1], x_num[:, 2], x_num[:, 3]
    shared = 2 * a + a * b + (twin + other) + (x_cat[:, 0] == "red")
    members = np.stack([shared + k * b for k in range(3)], axis=1)
    return members.mean(axis=1), members


def classify(x_num: NDArray[Any], x_cat: NDArray[Any]) -> Answer:
    _, members = answer(x_num, x_cat)
    logits = np.stack([np.zeros_like(members), members, 0.5 * members], axis=2)
    p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return p.mean(axis=1), p


def make_target(rows: Rows, noise: float = 0.1) -> NDArray[Any]:
    rng = np.random.default_rng(1)
    mean, _ = answer(rows.x_num, rows.x_cat)
    return mean + noise * rng.normal(size=len(rows))


# Importance


def test_importance_knows_what_is_used() -> None:
    rows = make_rows()
    y = make_target(rows)
    steps: list[tuple[int, int]] = []
    found = measure_importance(
        answer,
        rows,
        y,
        answer(rows.x_num, rows.x_cat),
        on_step=lambda done, total: steps.append((done, total)),
    )
    by_name = {each.column: each for each in found.columns}
    assert next(each.column for each in found.columns) == "a"
    assert by_name["noise"].mean == by_name["noise"].std == 0
    # Each twin alone is worth less than half of both in squared error.
    (group,) = found.groups
    assert group.columns == ["twin", "other_twin"]
    assert group.association == pytest.approx(1)
    assert group.mean > 1.3 * max(by_name["twin"].mean, by_name["other_twin"].mean)
    assert any("'twin', 'other_twin' go together" in each for each in found.warnings)
    # Members differ on b, and on nothing else as much.
    spread = {name: each.member_std or 0.0 for name, each in by_name.items()}
    assert max(spread, key=lambda name: spread[name]) == "b"
    assert by_name["b"].members[0] == min(by_name["b"].members)
    assert found.agreement is not None and 0.5 < found.agreement <= 1
    assert steps == [(i + 1, 7) for i in range(7)]
    assert found.n_model_rows == 7 * 5 * N


def test_groups_that_are_asked_for() -> None:
    rows = make_rows()
    y, known = make_target(rows), answer(rows.x_num, rows.x_cat)
    found = measure_importance(
        answer, rows, y, known, columns=["a"], groups=[["noise", "b"]]
    )
    assert [each.column for each in found.columns] == ["a"]
    (group,) = found.groups
    assert group.association is None and group.mean > 0
    assert found.n_skipped == 5
    with pytest.raises(DataError, match=r"no column 'nois'.*'noise'"):
        measure_importance(answer, rows, y, known, groups=[["nois"]])


def test_log_loss_of_classes_by_hand() -> None:
    rows = make_rows(120)
    mean, members = classify(rows.x_num, rows.x_cat)
    y = mean.argmax(axis=1)
    plan = Plan(n_rows=120, n_repeats=2)
    found = measure_importance(
        classify, rows, y, (mean, members), plan=plan, columns=["a"], groups=[]
    )
    legacy = np.random.RandomState(np.random.RandomState(0).randint(2**31))
    index, order = np.arange(120), np.arange(120)
    expected = []
    for _ in range(2):
        legacy.shuffle(index)
        order = order[index]
        x_num = rows.x_num.copy()
        x_num[:, 0] = x_num[order, 0]
        after = classify(x_num, rows.x_cat)[0]
        at = np.arange(120), y
        expected.append(np.log(mean[at]).mean() - np.log(after[at]).mean())
    assert found.metric == "nll"
    assert found.columns[0].mean == pytest.approx(np.mean(expected))
    assert found.columns[0].std == pytest.approx(np.std(expected))


@pytest.mark.parametrize(
    ("n_columns", "n_test", "budget", "expected"),
    [
        (4, 100, 10_000, Plan(100, 5)),
        (14, 16_000, 8000, Plan(190, 3)),
        (10, 100_000, 100_000, Plan(2000, 5)),
        (200, 5000, 10_000, Plan(50, 3)),
        (5, 20, 100, Plan(20, 3)),
    ],
)
def test_plans_keep_to_their_budget(
    n_columns: int, n_test: int, budget: int, expected: Plan
) -> None:
    plan = plan_importance(n_columns, n_test, budget)
    assert plan == expected
    if plan.n_rows > 50:
        assert n_columns * plan.n_rows * plan.n_repeats <= budget


def test_a_sample_of_rows_comes_near_all_of_them() -> None:
    rows = make_rows(3000)
    y, known = make_target(rows), answer(rows.x_num, rows.x_cat)
    whole, part = (
        measure_importance(answer, rows, y, known, plan=plan, columns=["a"], groups=[])
        for plan in (Plan(3000, 5), Plan(300, 5))
    )
    assert part.columns[0].mean == pytest.approx(whole.columns[0].mean, rel=0.15)


def test_groups_of_every_kind() -> None:
    rng = np.random.default_rng(0)
    n = 500
    u, v = rng.normal(size=(2, n))
    level = np.digitize(u, [-0.5, 0.5])
    x_num = np.stack([u, np.exp(u), v], axis=1)
    x_num[::10, 1] = np.nan
    texts = np.array(["x", "y", "z"])
    x_cat = np.stack(
        [texts[level], np.char.upper(texts)[level], rng.choice(texts, n)], axis=1
    ).astype(object)
    rows = Rows(["u", "exp", "v"], ["level", "LEVEL", "other"], x_num, x_cat)
    ((group, association),) = find_groups(rows, rows.columns)
    assert group == ["u", "exp", "level", "LEVEL"]
    assert association > 0.99
    many = Rows([], ["one", "two"], np.empty((n, 0)), np.empty((n, 2), dtype=object))
    many.x_cat[:, 0] = [f"id{i}" for i in range(n)]  # by chance alone
    many.x_cat[:, 1] = rng.choice(texts, n)
    assert find_groups(many, many.columns) == []


# Effects


def test_effects_are_means_over_changed_rows() -> None:
    rows = make_rows(40)
    effects = measure_effects(answer, rows, ["a", "colour"], None)
    numeric, levels = effects.columns
    assert effects.n_model_rows == 40 * (len(numeric.grid) + len(levels.grid))
    for i, point in enumerate(numeric.grid):
        mean, members = answer(*_with(rows, "a", point))
        assert numeric.outputs[0].mean[i] == pytest.approx(mean.mean(), rel=1e-5)
        for k in range(3):
            curve = numeric.outputs[0].members[k]
            assert curve[i] == pytest.approx(members[:, k].mean(), rel=1e-5)
        assert numeric.outputs[0].ice[3][i] == pytest.approx(mean[3], rel=1e-5)
    assert {*levels.grid} == {"red", "blue", "(missing)"}
    of = dict(zip(levels.grid, levels.outputs[0].mean, strict=True))
    assert of["red"] - of["blue"] == pytest.approx(1, rel=1e-4)
    assert of["blue"] == of["(missing)"]
    with pytest.raises(DataError, match=r"no column 'color'.*'colour'"):
        measure_effects(answer, rows, ["color"], None)
    hidden = measure_effects(answer, rows, ["a"], None, shows_rows=False)
    assert hidden.columns[0].outputs[0].ice == []


def _with(rows: Rows, column: str, value: Any) -> tuple[Any, Any]:
    changed = rows.put(column, value)
    return changed.x_num, changed.x_cat


def test_classes_of_effects() -> None:
    rows = make_rows(30)
    (effect,) = measure_effects(classify, rows, ["b"], ["x", "y", "z"]).columns
    assert [curve.label for curve in effect.outputs] == ["x", "y", "z"]
    total = np.sum([curve.mean for curve in effect.outputs], axis=0)
    assert total == pytest.approx(np.ones(len(effect.grid)), rel=1e-4)


def test_parts_of_a_moment() -> None:
    rng = np.random.default_rng(0)
    days = rng.integers(0, 800, size=100) * 86400.0 + 1.6e9 // 86400 * 86400
    hours = days + rng.integers(0, 24, size=100) * 3600
    days[5] = np.nan
    rows = Rows(
        ["day", "time"],
        [],
        np.stack([days, hours], axis=1),
        np.empty((100, 0), dtype=object),
        ["day", "time"],
    )
    parts = {name: make_grids(rows, name) for name in ("day", "time")}
    assert [grid.part for grid in parts["day"]] == ["moment", "weekday", "month"]
    assert [grid.part for grid in parts["time"]][1] == "hour"
    assert "T" not in parts["day"][0].points[0]  # type: ignore[operator]
    weekday = parts["day"][1]
    for i, moved in enumerate(weekday.values):
        assert np.isnan(moved[5])
        known = np.delete(moved, 5).astype("datetime64[s]").astype("datetime64[D]")
        numbers = (known.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
        assert (numbers == i).all()
    hour = parts["time"][1]
    assert (np.mod(hour.values[4], 86400) // 7200 == 4).all()


# One row


def shapley_by_enumeration(
    model: Any, row: Rows, background: Rows, output: int | None
) -> dict[str, float]:
    """Every coalition, with the background rows for all other columns."""
    columns = row.columns
    worth: dict[frozenset[str], float] = {}
    for size in range(len(columns) + 1):
        for chosen in combinations(columns, size):
            mixed = background
            for column in chosen:
                mixed = mixed.put(column, row.get(column)[0])
            mean, _ = model(mixed.x_num, mixed.x_cat)
            worth[frozenset(chosen)] = float(
                (mean if output is None else mean[:, output]).mean()
            )
    n = len(columns)
    values = dict.fromkeys(columns, 0.0)
    for column in columns:
        for chosen, value in worth.items():
            if column not in chosen:
                weight = math.factorial(len(chosen)) * math.factorial(
                    n - 1 - len(chosen)
                )
                gain = worth[chosen | {column}] - value
                values[column] += weight / math.factorial(n) * gain
    return values


@pytest.mark.parametrize("output", [None, 1])
def test_shapley_values_come_near_all_coalitions(output: int | None) -> None:
    model = answer if output is None else classify
    background, row = make_rows(20), make_rows(1, seed=5)
    mean, members = model(row.x_num, row.x_cat)
    own = (mean[0], members[0])
    if output is not None:
        own = (mean[0, output], members[0, :, output])
    exact = shapley_by_enumeration(model, row, background, output)
    found = explain_row(
        model, row, background, float(own[0]), own[1], output=output, model_rows=60_000
    )
    assert found.n_background == 20
    for name, value in exact.items():
        tolerance = 4 * found.standard_error[name] + 1e-9
        assert found.values[name] == pytest.approx(value, abs=tolerance)
        assert tolerance < 0.1 * max(abs(each) for each in exact.values())
    assert found.values["noise"] == pytest.approx(0, abs=1e-12)
    assert sum(found.values.values()) == pytest.approx(own[0] - found.base, abs=1e-9)


def test_few_model_rows_add_up_all_the_same() -> None:
    background, row = make_rows(50), make_rows(1, seed=6)
    calls: list[int] = []

    def single(x_num: NDArray[Any], x_cat: NDArray[Any]) -> Answer:
        calls.append(len(x_num))
        mean, members = answer(x_num, x_cat)
        return mean.astype(np.float32), members.astype(np.float32)

    mean, members = single(row.x_num, row.x_cat)
    calls.clear()
    found = explain_row(
        single, row, background, float(mean[0]), members[0], model_rows=300
    )
    assert sum(calls) == found.n_model_rows <= 350
    gap = sum(found.values.values()) - (float(mean[0]) - found.base)
    assert abs(gap) < 1e-6
    assert found.member_std is not None and found.member_std["b"] > 0.1
    assert found.member_std["a"] == pytest.approx(0, abs=1e-5)
    many = {"mean": float(mean[0]), "members": members[0], "model_rows": 5000}
    short, long = (
        explain_row(single, row, background, **many, seconds=seconds)
        for seconds in (0.0, 60.0)
    )
    assert short.n_orders == 4 and long.n_orders == 1000


@pytest.mark.parametrize(
    ("n_columns", "expected"),
    [(1, (50, 500)), (8, (35, 35)), (50, (20, 20)), (500, (4, 4)), (3000, (2, 2))],
)
def test_wide_rows_take_fewer_orders(n_columns: int, expected: tuple[int, int]) -> None:
    used, pairs, rounds = plan_orders(n_columns, 50, MODEL_ROWS)
    assert (used, pairs) == expected and used * rounds == pairs
    assert 2 * pairs * (n_columns - 1) <= max(4000, 4 * n_columns)


def test_one_column_gets_all() -> None:
    background = Rows(["x"], [], np.arange(5.0)[:, None], np.empty((5, 0), object))
    row = background.take([4])

    def model(x_num: NDArray[Any], x_cat: NDArray[Any]) -> Answer:
        return x_num[:, 0], x_num

    found = explain_row(model, row, background, 4.0, np.array([4.0]))
    assert found.base == 2 and found.values == {"x": 2.0}
    assert found.member_std is None


@pytest.mark.slow
def test_background_rows_travel_as_json() -> None:
    rows = make_rows(80)
    rows.x_num[:, 1] = np.nan
    packed = pack_background(rows)
    assert packed is not None and len(packed["numeric"]) == 50
    names = ([*rows.numeric], [*rows.categorical], [])
    found = unpack_background(packed, *names)
    assert found is not None and np.isnan(found.get("b")).all()
    assert {*found.get("colour")} <= {"red", "blue", ""}
    assert unpack_background(None, *names) is None
    large = Rows([], ["t"], np.empty((60, 0)), np.empty((60, 1), dtype=object))
    large.x_cat[:] = "x" * 100_000
    few = pack_background(large)
    assert few is not None and 0 < len(few["categorical"]) < 10
    large.x_cat[:] = "x" * 2_000_000
    assert pack_background(large) is None


# Naive guesses


def test_naive_guesses() -> None:
    rng = np.random.default_rng(0)
    n = 600
    x = rng.normal(size=n)
    x_num = np.stack([rng.normal(size=n), x], axis=1)
    x_cat = np.array([f"id{i}" for i in range(n)], dtype=object)[:, None]
    rows = Rows(["noise", "x"], ["id"], x_num, x_cat)
    y = (x > 0.3).astype(np.int64)
    naive = fit_naive(rows.take(slice(0, 400)), y[:400], "binary", ["no", "yes"])
    assert naive.ranking[0] == "x" and naive.stump is not None
    assert naive.stump.cut == pytest.approx(0.3, abs=0.15)
    test = rows.take(slice(400, n))
    always, stump = naive.measure(test, y[400:])
    assert always.scores["accuracy"] == pytest.approx(1 - y[400:].mean())
    assert always.scores["auroc"] == 0.5
    assert stump.column == "x" and (stump.scores["accuracy"] or 0) > 0.93
    again = Naive.from_dict(naive.to_dict())
    assert again.measure(test, y[400:]) == naive.measure(test, y[400:])


def test_the_mean_of_numbers_and_missing_values() -> None:
    rng = np.random.default_rng(0)
    n = 2 * MAX_ROWS
    x = np.where(rng.random(n) < 0.5, np.nan, rng.normal(size=n))
    rows = Rows(["x"], [], x[:, None], np.empty((n, 0), dtype=object))
    y = np.where(np.isnan(x), 5.0, 1.0)
    naive = fit_naive(rows, y, "regression", None)
    mean, stump = naive.measure(rows, y)
    assert mean.scores["r2"] == pytest.approx(0, abs=1e-9)
    assert (stump.scores["r2"] or 0) > 0.99


# Slices


def make_sliced(seed: int, error: float) -> tuple[Rows, NDArray[Any], Answer]:
    rng = np.random.default_rng(seed)
    n = 1500
    x_num = rng.normal(size=(n, 6))
    x_num[rng.random(n) < 0.1, 0] = np.nan
    x_cat = rng.choice(["de", "fr", "it", "rare"], p=[0.5, 0.3, 0.19, 0.01], size=n)
    rows = Rows([*"abcdef"], ["country"], x_num, x_cat.astype(object)[:, None])
    wrong = rng.random(n) < np.where(x_cat == "fr", error, 0.1)
    y = rng.integers(2, size=n)
    mean = np.where(wrong[:, None], np.eye(2)[1 - y], np.eye(2)[y]) * 0.8 + 0.1
    return rows, y, (mean, mean[:, None])


def test_a_slice_that_is_worse_is_found() -> None:
    rows, y, known = make_sliced(0, 0.3)
    found = find_slices(rows, y, known)
    worst = found.worst[0]
    assert (worst.column, worst.rows, worst.is_worse) == ("country", "= fr", True)
    assert worst.lower < 0.3 < worst.upper and worst.lower > found.overall
    assert worst.confidence_gap == pytest.approx(0.9 - (1 - worst.loss))
    assert [each.is_worse for each in found.worst[1:]] == [False] * 9
    assert found.n_tested == 6 * 4 + 1 + 3  # quartiles, missing, all levels but `rare`


def test_chance_is_not_called_worse() -> None:
    """Of 28 slices at 5 % each, one or two would be by chance alone."""
    n_called = sum(
        any(each.is_worse for each in find_slices(*make_sliced(seed, 0.1)).worst)
        for seed in range(1, 21)
    )
    assert n_called <= 3


def test_slices_of_a_regression() -> None:
    rows, _, _ = make_sliced(0, 0.1)
    rng = np.random.default_rng(3)
    mean = rng.normal(size=len(rows))
    scale = np.where(np.isnan(rows.get("a")), 3.0, 1.0)
    y = mean + scale * rng.normal(size=len(rows))
    found = find_slices(rows, y, (mean, mean[:, None]), (mean - 1.645, mean + 1.645))
    worst = found.worst[0]
    assert (worst.column, worst.rows, worst.is_worse) == ("a", "missing", True)
    assert worst.loss == pytest.approx(3 * found.overall, rel=0.35)
    assert worst.covered is not None and worst.covered < 0.6
    assert worst.confidence_gap is None


def test_a_slow_model_is_asked_for_fewer_orders() -> None:
    rows = make_rows()
    n_asked: list[int] = []

    def slow(x_num: NDArray[Any], x_cat: NDArray[Any]) -> Answer:
        n_asked.append(len(x_num))
        sleep(0.002 * len(x_num))
        return answer(x_num, x_cat)

    row, background = rows.take(slice(0, 1)), rows.take(slice(100, 150))
    mean, members = answer(row.x_num, row.x_cat)
    found = explain_row(
        slow, row, background, float(mean[0]), members[0], model_rows=1000, seconds=0.5
    )
    assert sum(n_asked) == found.n_model_rows
    # 50 background rows take 0.1 s, and one round of orders over them ten times that.
    assert found.seconds < 1.0
    assert 4 <= found.n_orders < 60
    total = found.base + sum(found.values.values())
    assert total == pytest.approx(float(mean[0]))
