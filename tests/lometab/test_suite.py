"""The benchmark suite's own arithmetic: who is better, by how much, on which rows."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def suite() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import suite

        return suite
    finally:
        sys.path.remove(str(BENCHMARKS))


def runs_of(*runs: tuple[str, str, int, dict[str, float]]) -> Any:
    """Stored runs of the small stage, as `Runs` gives them."""
    return [
        (
            {"stage": "small", "dataset": d, "contender": c, "seed": s},
            {"decision": scores, "val": scores, "cpu_seconds": 1.0, "epochs": 2},
        )
        for d, c, s, scores in runs
    ]


def test_less_rmse_and_more_accuracy_are_better(suite: Any) -> None:
    gain = suite._gain
    assert gain({"rmse": 0.9}, {"rmse": 1.0}, soft=False) == pytest.approx(10)
    one, other = {"accuracy": 0.88, "nll": 0.5}, {"accuracy": 0.8, "nll": 0.4}
    assert gain(one, other, soft=False) == pytest.approx(10)
    assert gain(one, other, soft=True) == pytest.approx(-25)


def test_only_the_same_set_and_seed_are_compared(suite: Any) -> None:
    runs = runs_of(
        ("wine_quality", "default", 0, {"rmse": 1.0}),
        ("wine_quality", "default", 1, {"rmse": 2.0}),
        ("wine_quality", "deep", 1, {"rmse": 1.0}),
        ("wine_quality", "deep", 2, {"rmse": 0.1}),  # no base with this seed
        ("california", "deep", 0, {"rmse": 0.1}),  # nor on this set
    )
    gains = suite.improvements(
        runs, "small", "deep", "decision", soft=False, base="default"
    )
    assert gains == {"wine_quality": [50.0]}


def test_the_interval_draws_sets_and_seeds(suite: Any) -> None:
    same = {name: [1.0, 1.0] for name in "abcd"}
    assert suite.interval(same) == (1.0, 1.0)
    # Two sets that disagree: seeds cannot make up for that.
    low, high = suite.interval({"a": [-1.0] * 50, "b": [1.0] * 50})
    assert (low, high) == (-1.0, 1.0)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 3))
    low, high = suite.interval({str(i): [*row] for i, row in enumerate(values)})
    # The variance between sets, and that of the mean over drawn seeds.
    variance = values.mean(1).var() + (values.var(1) / 3).mean()
    expected = 2 * 1.96 * (variance / 40) ** 0.5
    assert high - low == pytest.approx(expected, rel=0.05)
    assert low < values.mean() < high


def test_a_report_never_looks_at_test_scores(suite: Any, monkeypatch: Any) -> None:
    opened: list[str] = []

    class Watched(suite.Runs):  # type: ignore[name-defined, misc]
        def __init__(self, benchmark: str) -> None:
            opened.append(benchmark)
            super().__init__(benchmark)

    monkeypatch.setattr(suite, "Runs", Watched)
    for option in ("--plan", "--report"):
        monkeypatch.setattr(sys, "argv", ["suite.py", option])
        suite.main()
    assert opened == ["suite", "suite"]


def test_left_out_rows_share_no_features_with_training_rows(suite: Any) -> None:
    sets = sys.modules["suite_sets"]
    rng = np.random.default_rng(0)
    values = rng.integers(0, 40, size=300)  # rows that are copies of others
    table = {"x": np.array([str(v) for v in values], object)}
    table["y"] = np.array([str(v) for v in rng.normal(size=300)], object)
    schema = sets.infer_schema(table, target="y", task="regression")
    order = sets._shuffle_groups(table, schema, np.arange(300), rng)
    assert sorted(order) == [*range(300)]
    rest = sets._apart(table, schema, order, 150)
    assert 100 < len(rest) <= 150
    assert not {*values[rest]} & {*values[order[:150]]}


def test_a_run_is_that_of_its_twin_only_where_their_bins_are_the_same(
    suite: Any, monkeypatch: Any
) -> None:
    x = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    part = SimpleNamespace(x_num=x)
    rows = SimpleNamespace(prepared=SimpleNamespace(parts={"train": part}))
    monkeypatch.setattr(suite, "load_rows", lambda *_: rows)
    key = {"stage": "full", "dataset": "wine_quality", "seed": 0}
    made = {**key, "contender": "calm-feature"}
    stored = {**made}
    runs = SimpleNamespace(
        find=lambda wanted: {"settings": {"n_bins": 48}} if wanted == stored else None
    )

    def twin(contender: str) -> Any:
        return suite._find_twin(runs, {**key, "contender": contender}, None)

    assert twin("refined") == made
    assert twin("tabm-refined") is None  # its own twin has not been run
    assert twin("catboost") is None
    x[:450, 1] = 0  # most rows share a value: other bins
    assert twin("refined") is None


def test_rounds_of_catboost_are_those_that_ran_not_those_that_were_kept(
    suite: Any, monkeypatch: Any
) -> None:
    """Without the count of rounds, a cut-off looks like an early stop."""
    contenders = sys.modules["contenders"]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2)).astype(np.float32)
    y = x[:, 0] + rng.normal(size=300)
    monkeypatch.setattr(
        contenders, "features", lambda *_: (x, np.empty((300, 0), object))
    )
    monkeypatch.setattr(contenders, "target", lambda *_: y)
    rows = SimpleNamespace(
        table=None,
        prepared=SimpleNamespace(schema=SimpleNamespace(classes=None)),
        parts={"train": np.arange(200), "val": np.arange(200, 300)},
    )
    stopped = suite.CONTENDERS["catboost"].train(rows, 0, None)
    assert stopped.best_epoch < 500
    assert stopped.epochs == stopped.best_epoch + 50
    assert stopped.settings["iterations"] == 2000
    longer = suite.CONTENDERS["catboost-10000"].train(rows, 0, None)
    assert longer.settings["iterations"] == 10_000
    assert longer.settings["learning_rate"] < stopped.settings["learning_rate"]


def test_the_table_says_what_it_shows(suite: Any, monkeypatch: Any) -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import suite_table
    finally:
        sys.path.remove(str(BENCHMARKS))
    scores = {"catboost": 1.0, "default": 1.1, "refined": 0.99, "tabm-refined": 1.0}
    tests, runs = [], []
    for i, dataset in enumerate(("wine_quality", "california", "diamonds")):
        for seed in (0, 1):
            for name, rmse in scores.items():
                key = {"stage": "full", "dataset": dataset, "contender": name}
                key |= {"seed": seed}
                worse = 0.1 if name == "refined" and i == 2 else 0.0
                tests.append((key, {"all": {"rmse": rmse + worse + seed / 1000}}))
                cost = 1.4 if name == "refined" else 1.0
                runs.append((key, {"cpu_seconds": cost, "epochs": 5}))
    found = suite_table.collect(tests)
    gains = suite_table.pair(found["refined"], found["default"])
    assert {*gains} == {"wine_quality", "california", "diamonds"}
    assert gains["california"][0] == pytest.approx(10.0)
    assert suite_table.count_not_worse(gains) == "3 of 3 (n 6)"
    ranks = suite_table.rank(found)
    assert ranks["default"] == pytest.approx((4 + 4 + 4) / 3)
    assert ranks["catboost"] == pytest.approx((2.5 + 2.5 + 1.5) / 3)
    text = suite_table.section(tests, runs)
    assert "the recipe is better than the former default: shown" in text
    assert "at most 1.5 times its time (here x 1.40): shown" in text
    assert "on 6 sets (here 2): **not shown**" in text
    assert "1.1005 ± 0.0007 (n 2)" in text
    for dataset, rmse in (("wine_quality", 1.0), ("california", 1.0004)):
        key = {"stage": "full", "dataset": dataset, "contender": "budget", "seed": 0}
        tests.append((key, {"all": {"rmse": rmse}}))
    text = suite_table.section(tests, runs)  # CatBoost's mean over seeds is 1.0005
    assert "not worse than CatBoost on 7 sets (here 2): **not shown**" in text
    assert "ranks before CatBoost (here 1.33 of two): shown" in text
