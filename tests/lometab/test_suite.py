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
    # As a t interval of 40 sets, whose variance is that of 39 freedoms.
    expected = 2 * 2.0227 * (variance / 39) ** 0.5
    assert high - low == pytest.approx(expected, rel=0.05)
    assert low < values.mean() < high


def test_of_twenty_intervals_of_few_sets_nineteen_hold_the_truth(suite: Any) -> None:
    """Plain percentiles of ten drawn sets hold it in 91 %."""
    rng = np.random.default_rng(7)
    n_held = 0
    for _ in range(500):
        values = rng.normal(size=(10, 1)) + 0.7 * rng.normal(size=(10, 5))
        paired = {str(i): [*row] for i, row in enumerate(values)}
        low, high = suite.interval(paired, 2000)
        n_held += low <= 0 <= high
    assert 0.94 <= n_held / 500 <= 0.98


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


@pytest.fixture
def suite_table(suite: Any, monkeypatch: Any) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import suite_table

    return suite_table


class Table:
    """Made-up runs of a whole table: the RMSE or accuracy of each contender."""

    def __init__(self, suite_table: Any, **merits: float) -> None:
        self.tests, self.runs, self.searches, self.times = [], [], [], []
        for dataset in suite_table.TARGETS:
            for name in (*suite_table.TABLE, "budget"):
                for seed in range(1 if name == "budget" else 5):
                    key = {"stage": "full", "dataset": dataset}
                    key |= {"contender": name, "seed": seed}
                    scores = self.score(suite_table, dataset, merits, name, seed)
                    self.tests.append((key, {"all": scores}))
                    if name != "budget":
                        cost = {"cpu_seconds": 2.0, "epochs": 6, "val": scores}
                        self.runs.append((key, cost))
            key = {"dataset": dataset, "seconds": 600}
            self.searches.append((key, {"seconds": 590.0}))
            for turn in range(3):
                cost = {"start": 1.0, "epoch": 1.0}
                times = {"default": cost, "tabm-refined": {**cost, "epoch": 3.0}}
                times["refined"] = {"start": 2.0, "epoch": 1.0 + turn / 2}
                self.times.append(({"dataset": dataset, "turn": turn}, times))

    @staticmethod
    def score(
        suite_table: Any, dataset: str, merits: Any, name: str, seed: int
    ) -> dict[str, float]:
        merit = merits.get(name.replace("-", "_"), 1.0) - seed / 1000
        if dataset in suite_table.REGRESSION:
            return {"rmse": 1 / merit}
        return {"accuracy": 0.8 * merit, "nll": 0.4 / merit**2}

    def __iter__(self) -> Any:
        return iter((self.tests, self.runs, self.searches, self.times))


def test_the_table_says_what_it_shows(suite_table: Any) -> None:
    table = Table(suite_table, refined=1.02, networks_4_refined=1.01, budget=0.9)
    assert suite_table.find_missing(*table) == []
    scores = suite_table.collect(table.tests)
    gains = suite_table.pair(scores["refined"], scores["default"])
    assert len(gains) == 10 and gains["adult"][0] == pytest.approx(2)
    ranks = suite_table.rank_contenders(scores, "catboost")
    # Near-twins have no rank, and three that are equal share one.
    assert ranks == {
        "default": 4.0,
        "refined": 1.0,
        "tabm-refined": 4.0,
        "networks-4-refined": 2.0,
        "catboost": 4.0,
    }
    text = suite_table.section(*table)
    assert "better than the former one by RMSE and accuracy: +1.99" in text
    assert "better than the former one by RMSE and NLL: +3.1" in text
    # (2 + 6 x 1.5) / (1 + 6): the middle one of three turns.
    assert "at most 1.5 times as long: x 1.57" in text
    assert "`best` x 6.29: **not shown**" in text
    assert "say x 1.00; in turns, TabM with its recipe takes x 2.71" in text
    assert "than tabm-refined on at least 6 of 10 sets: on 10; worse on none" in text
    assert "1.00, is before CatBoost's, 4.00, among default, refined," in text
    assert "alone (1.00); ahead on titanic," in text
    assert "not ahead on none;" in text
    assert "`best` is not worse than catboost on at least 7 of 10 sets: on 10;" in text
    assert "ten minutes is not worse than catboost on at least 7 of 10 sets: on 0" in (
        text
    )
    assert text.count(": shown") == 5 and text.count(": **not shown**") == 2
    assert "0.7984 ± 0.0013 (n 5)" in text
    row = next(line for line in text.splitlines() if line.startswith("| budget | - "))
    assert row.endswith("0 of 10 (n 10) | at most x 590.0 |")


def test_not_worse_allows_nothing_for_noise(suite_table: Any) -> None:
    own = {("adult", s): {"accuracy": 0.8 + s / 100} for s in range(3)}
    base = {("adult", s): {"accuracy": 0.8101 + 0 * s} for s in range(3)}
    (claim,) = {suite_table._count("It", "a", "b", 1, {"a": own, "b": base})}
    words, holds = claim
    assert not holds
    assert "on 0; worse on adult (within one standard error)" in words
    base["adult", 0] = {"accuracy": 0.7}
    assert suite_table._count("It", "a", "b", 1, {"a": own, "b": base})[1]


def test_catboost_is_the_better_one_on_validation(suite_table: Any) -> None:
    table = Table(suite_table, catboost=1.0, catboost_10000=1.01)
    assert suite_table.choose_booster(table.runs) == "catboost-10000"
    assert "CatBoost is `catboost-10000`" in suite_table.section(*table)
    # Test scores have no say.
    for key, result in table.tests:
        if key["contender"] == "catboost-10000":
            result["all"] = Table.score(suite_table, key["dataset"], {"x": 0.1}, "x", 0)
    assert suite_table.choose_booster(table.runs) == "catboost-10000"


def test_what_a_table_lacks_is_listed(suite_table: Any) -> None:
    def lack(part: str, keep: Any) -> list[str]:
        table = Table(suite_table)
        kept = [run for run in getattr(table, part) if keep(run[0])]
        setattr(table, part, kept)
        missing: list[str] = suite_table.find_missing(*table)
        return missing

    def is_other(name: str, *datasets: str) -> Any:
        return lambda key: key["contender"] != name or key["dataset"] not in datasets

    assert lack("tests", is_other("catboost", "diamonds")) == [
        "test scores of catboost: diamonds (seed 0, 1, 2, 3, 4)"
    ]
    assert lack("tests", is_other("budget", "titanic", "adult")) == [
        "test scores of budget: titanic (seed 0); adult (seed 0)"
    ]
    (line,) = lack(
        "tests",
        lambda key: key["contender"] != "networks-4-refined" or key["seed"] == 0,
    )
    assert line.startswith("test scores of networks-4-refined: titanic (seed 1, 2, 3,")
    assert lack("runs", is_other("refined", "churn")) == [
        "costs of refined: churn (seed 0, 1, 2, 3, 4)"
    ]
    assert lack("searches", lambda key: key["dataset"] != "churn") == [
        "searches of 600 seconds: churn"
    ]
    assert lack("times", lambda key: key != {"dataset": "churn", "turn": 2}) == [
        "times in turns (suite_times.py): churn"
    ]


def test_no_score_of_a_partial_table_is_looked_at(
    suite: Any, suite_table: Any, monkeypatch: Any
) -> None:
    """A table of two sets would print claims, and test scores are read once."""

    class Unread(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise AssertionError("a test score was read")

    table = Table(suite_table)
    tests = [
        (k, Unread(r)) for k, r in table.tests if k["dataset"] in ("adult", "churn")
    ]
    stored = {"suite_test": tests, "suite": table.runs, "suite_times": table.times}
    stored["budget"] = table.searches
    monkeypatch.setattr(suite_table, "Runs", stored.__getitem__)
    written: list[str] = []
    monkeypatch.setattr(suite, "write_section", lambda *_: written.append("page"))
    monkeypatch.setattr(sys, "argv", ["suite.py", "--read-test"])
    with pytest.raises(SystemExit) as refused:
        suite.main()
    assert "none was looked at. There is still missing:" in str(refused.value)
    assert "test scores of tabm-refined: titanic (seed 0, 1, 2, 3, 4);" in str(
        refused.value
    )
    assert not written


def test_what_decided_has_no_rows_that_chose_epochs(
    suite: Any, suite_table: Any, monkeypatch: Any
) -> None:
    small = runs_of(
        ("wine_quality", "default", 0, {"rmse": 1.0}),
        ("wine_quality", "refined", 0, {"rmse": 0.9}),
    )
    full = [({**key, "stage": "full"}, {**r}) for key, r in small]
    for _, result in full:
        del result["decision"]
    monkeypatch.setattr(suite, "Runs", lambda _: [*small, *full])
    pages: dict[str, str] = {}
    monkeypatch.setattr(suite, "write_section", pages.__setitem__)
    monkeypatch.setattr(sys, "argv", ["suite.py", "--write"])
    suite.main()
    assert "### Stage `small`" in pages["suite-decisions"]
    assert "### Stage `full`" not in pages["suite-decisions"]
    assert "| refined | - | - | 0.9000 (n 1) |" in pages["suite-parts"]
    assert "scores of decision rows" in pages["suite-parts"]
    report = suite.report([*small, *full], "default", ["full"])
    assert "Validation rows, which chose the epochs: too good." in report


def test_recipes_are_timed_in_turns(suite_table: Any, monkeypatch: Any) -> None:
    times = sys.modules["suite_times"]
    monkeypatch.setattr(times, "_find_commit", lambda: None)
    order: list[str] = []

    def fit(config: Any, on_epoch: Any) -> None:
        assert (config.max_epochs, config.patience) == (2, None)
        order.append(f"{config.variant} {config.mask_init}")
        on_epoch(None)
        on_epoch(None)

    rows = SimpleNamespace(prepared=SimpleNamespace(fit=fit))
    there, back = times.run(rows, 0), times.run(rows, 1)
    assert {*times.TIMED} < {*there} and {*times.TIMED} < {*back}
    assert order == [*order[:3], *order[2::-1]]
    assert order[:2] == ["lometab column", "lometab feature"]
    assert there["refined"]["start"] >= 0


def test_the_queue_has_what_the_table_needs(
    suite: Any, suite_table: Any, monkeypatch: Any
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import suite_queue

    queued = {
        (stage, name) for script, stage, _, names in suite_queue.QUEUE for name in names
    }
    assert ("small", "refined-lr2") in queued
    assert ("small", "calm-feature-lr") not in queued
    assert "no effect" in suite.DROPPED["calm-feature-lr"]
    # What claims need comes before candidates, those before the paper's grids.
    steps = [
        stage if script == "suite" else script
        for script, stage, *_ in (suite_queue.QUEUE)
    ]
    assert steps == sorted(steps, key=["full", "large", "small", "paper"].index)
    assert {("full", name) for name in suite_table.TABLE} <= queued
    assert {("small", name) for name in suite_table.PARTS} <= queued
