"""Reports: the JSON fits its types, and its numbers follow their definitions."""

import json
import math
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import TypeAdapter

from lometab.config import TrainConfig
from lometab.evaluation import (
    Answer,
    Calibrator,
    Run,
    diversity_report,
    find_regime,
    head,
    metrics,
    report,
)
from lometab.evaluation import make_reports as make_typed_reports
from lometab.export import calibrate_on, export
from lometab.predictor import Predictor
from tests.support.networks import make_ensemble

Array = NDArray[Any]
CONFIG = TrainConfig(k=3)
HISTORY = [
    SimpleNamespace(
        epoch=epoch,
        train_loss=0.5,
        val_score=0.8,
        member_score=0.7,
        diversity=diversity,
    )
    for epoch, diversity in ((1, 0.1), (2, None))
]
SIZES = {"train": 200, "val": 150, "test": 120}
TASKS = {"regression": 0, "binary": 2, "multiclass": 3}


def make_answers(task: str, k: int = 3) -> tuple[dict[str, Array], dict[str, Answer]]:
    """Targets and answers of members that know something and are too sure of it."""
    rng = np.random.default_rng(7)
    targets: dict[str, Array] = {}
    answers: dict[str, tuple[Array, Array]] = {}
    for part, n in SIZES.items():
        if task == "regression":
            y: Array = rng.normal(50, 4, size=n)
            members = y[:, None] + rng.normal(size=(n, 1)) + rng.normal(size=(n, k))
        else:
            n_classes = TASKS[task]
            y = rng.integers(n_classes, size=n)
            logits = 2 * np.eye(n_classes)[y][:, None] + rng.normal(
                size=(n, k, n_classes)
            )
            logits += 2 * rng.normal(size=(n, 1, n_classes))
            members = np.exp(2 * logits)
            members /= members.sum(axis=2, keepdims=True)
        members = members.astype(np.float32)
        targets[part], answers[part] = y, (members.mean(axis=1), members)
    return targets, answers


def slow_conformity(y: Array, mean: Array) -> Array:
    if mean.ndim == 1:
        return np.array([abs(t - float(m)) for t, m in zip(y, mean, strict=True)])
    return np.array([1 - float(p[t]) for t, p in zip(y, mean, strict=True)])


@cache
def make_reports(
    task: str, k: int = 3, temperature: float | None = None
) -> dict[str, Any]:
    targets, answers = make_answers(task, k)
    conformity = slow_conformity(targets["val"], answers["val"][0])
    run = Run(
        task=task,
        targets=targets,
        answers=answers,
        train_variance=float(np.var(targets["train"])),
        calibrator=Calibrator(conformity=conformity, temperature=temperature),
        config=CONFIG,
        history=HISTORY,
    )
    return make_typed_reports(run).to_json()


def adapter(kind: str, task: str) -> TypeAdapter[Any]:
    is_regression = task == "regression"
    types = {
        "diversity": get_args(diversity_report.Diversity)[is_regression],
        "calibration": get_args(report.Calibration)[is_regression],
        "report": report.RunReport,
    }
    return TypeAdapter(types[kind])


def names_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(names_in, value.values()))
    return set().union(*map(names_in, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("k", [1, 3])
def test_json_has_the_fields_of_the_types(task: str, k: int) -> None:
    temperature = None if task == "regression" else 1.5
    for kind, body in make_reports(task, k, temperature).items():
        text = json.dumps(body, allow_nan=False)
        assert json.loads(text) == body
        typed = adapter(kind, task).validate_json(text, strict=True)
        assert [*body] == [each.name for each in fields(typed)]
        assert (body["version"], body["split"], body["n_rows"]) == (1, "test", 120)
        assert body["job_id"] is None
        defined = body["definitions"].keys()
        assert defined <= names_in({**body, "definitions": None})


def test_every_type_of_a_report_is_frozen() -> None:
    modules = (report, diversity_report, head)
    types = [e for module in modules for e in vars(module).values() if is_dataclass(e)]
    assert len(types) > 15
    for each in types:
        assert each.__dataclass_params__.frozen  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(value: float) -> None:
    pairs = diversity_report.Pairs(mean=value, matrix=[[0.0, value]])
    assert report._to_json({"a": (pairs, value)}) == {
        "a": [{"mean": None, "matrix": [[0.0, None]]}, None]
    }


# Diversity


def test_diversity_of_numbers() -> None:
    diversity = make_reports("regression")["diversity"]
    members = make_answers("regression")[1]["test"][1].astype(np.float64)
    matrix = diversity["squared_difference"]["matrix"]
    for i in range(3):
        for j in range(3):
            slow = np.mean([(row[i] - row[j]) ** 2 for row in members])
            assert matrix[i][j] == pytest.approx(slow)
    # The ambiguity is (k - 1) / 2k of the mean over pairs.
    ambiguity = diversity["ambiguity"]["mean"]
    assert diversity["squared_difference"]["mean"] / 3 == pytest.approx(ambiguity)
    variance = np.var(make_answers("regression")[0]["train"])
    assert diversity["ambiguity"]["normalized"] == pytest.approx(ambiguity / variance)
    assert diversity["trajectory"] == [
        {"epoch": 1, "ambiguity": 0.1},
        {"epoch": 2, "ambiguity": None},
    ]


def test_diversity_of_classes() -> None:
    diversity = make_reports("multiclass")["diversity"]
    members = make_answers("multiclass")[1]["test"][1].astype(np.float64)
    first, second = members[:, 0], members[:, 1]
    kl = np.mean(np.sum((first - second) * np.log(first / second), axis=1)) / 2
    assert diversity["pairwise_kl"]["matrix"][0][1] == pytest.approx(kl)
    differ = np.mean(first.argmax(axis=1) != second.argmax(axis=1))
    assert diversity["disagreement"]["matrix"][1][0] == pytest.approx(differ)
    assert diversity["trajectory"][0] == {"epoch": 1, "pairwise_kl": 0.1}
    assert diversity["trajectory_split"] == "val"


def test_one_member_has_no_diversity() -> None:
    for task in TASKS:
        diversity = make_reports(task, 1)["diversity"]
        assert diversity["regime"] is None
        name = "squared_difference" if task == "regression" else "pairwise_kl"
        assert diversity[name] == {"mean": None, "matrix": None}


@pytest.mark.parametrize(
    ("measure", "regime"),
    [(0.0, "collapsed"), (0.004, "low"), (0.05, "active"), (5.0, "excessive")],
)
def test_regimes(measure: float, regime: str) -> None:
    assert find_regime(measure) == regime
    assert find_regime(None) is None


# Calibration


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_calibration_of_classes(task: str) -> None:
    targets, answers = make_answers(task)
    temperature = metrics.fit_temperature(targets["val"], answers["val"][0])
    assert temperature > 1.2  # they were made too sure
    calibration = make_reports(task, 3, temperature)["calibration"]
    assert calibration["n_bins"] == len(calibration["bins"]) == 15
    assert sum(each["count"] for each in calibration["bins"]) == SIZES["test"]
    y, mean = targets["test"], answers["test"][0].astype(np.float64)
    powers = mean ** (1 / temperature)
    tempered = powers / powers.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    for place, p in ((calibration, mean), (calibration["calibrated"], tempered)):
        assert place["nll"] == pytest.approx(-np.log(p[rows, y]).mean())
        truth = np.eye(p.shape[1])[y]
        assert place["brier"] == pytest.approx(((p - truth) ** 2).sum(axis=1).mean())
        gaps = [
            each["count"] * abs(each["accuracy"] - each["confidence"])
            for each in place["bins"]
            if each["count"]
        ]
        assert place["ece"] == pytest.approx(sum(gaps) / len(y))
    fit = calibration["temperature_fit"]
    assert (fit["split"], fit["n_rows"]) == ("val", SIZES["val"])
    assert fit["nll_after"] < fit["nll_before"]
    assert calibration["temperature"] == temperature


def test_calibration_without_a_temperature() -> None:
    calibration = make_reports("binary")["calibration"]
    for name in ("temperature", "temperature_fit", "calibrated"):
        assert calibration[name] is None


def test_conformal_sets_and_intervals() -> None:
    for task, name in (
        ("multiclass", "conformal_sets"),
        ("regression", "conformal_intervals"),
    ):
        targets, answers = make_answers(task)
        scores = sorted(slow_conformity(targets["val"], answers["val"][0]))
        new = slow_conformity(targets["test"], answers["test"][0])
        found = make_reports(task)["calibration"][name]
        assert [each["coverage"] for each in found] == [0.5, 0.8, 0.9, 0.95]
        for each in found:
            coverage = each["coverage"]
            quantile = scores[math.ceil(round(151 * coverage, 6)) - 1]
            measured = sum(score <= quantile for score in new) / SIZES["test"]
            assert each["measured"] == pytest.approx(measured)
            error = math.sqrt(coverage * (1 - coverage) * (1 / 150 + 1 / 120))
            assert each["standard_error"] == pytest.approx(error)
            if task == "regression":
                assert each["mean_width"] == pytest.approx(2 * quantile)
                deviation = np.std(targets["train"])
                relative = each["mean_width"] / deviation
                assert each["relative_width"] == pytest.approx(relative)


def make_run(task: str, **more: Any) -> Run:
    """Calibrated as a model is."""
    targets, answers = make_answers(task, 3)
    return Run(
        task=task,
        targets=targets,
        answers=answers,
        train_variance=float(np.var(targets["train"])),
        calibrator=Calibrator.fit(targets["val"], *answers["val"]),
        config=CONFIG,
        **more,
    )


def test_both_kinds_of_intervals_are_reported() -> None:
    body = make_typed_reports(make_run("regression")).to_json()["calibration"]
    choice = body["interval_choice"]
    own, other = body["conformal_intervals"], body["other_intervals"]
    assert {own[0]["method"], other[0]["method"]} == {"constant", "scaled"}
    assert choice["method"] == own[0]["method"]
    assert body["calibrated_on"] == {"part": "val", "n_rows": 150}
    # The members' spread is noise here: nothing is gained by following it.
    assert choice["relative_width_val"] > 0.95
    assert "one width" in choice["sentence"]
    for each in (*own, *other):
        assert each["measured"] == pytest.approx(
            each["coverage"], abs=3.5 * each["standard_error"]
        )


def test_both_kinds_of_sets_are_reported_by_class() -> None:
    body = make_typed_reports(make_run("multiclass")).to_json()["calibration"]
    y = make_answers("multiclass")[0]["test"]
    for each in (*body["conformal_sets"], *body["other_sets"]):
        shares = [np.mean(y == c) for c in range(3)]
        assert each["measured"] == pytest.approx(np.dot(each["by_class"], shares))
    assert {each["method"] for each in body["conformal_sets"]} == {"aps"}
    assert {each["empty_share"] for each in body["conformal_sets"]} == {0.0}
    least = body["other_sets"][0]
    assert (least["method"], least["coverage"]) == ("lac", 0.5)
    assert least["empty_share"] > 0


def test_groups_are_reported() -> None:
    targets, answers = make_answers("binary")
    groups = {part: y.astype(str) for part, y in targets.items()}
    calibrator = Calibrator.fit(
        targets["val"], *answers["val"], groups=groups["val"], by="y"
    )
    run = Run(
        task="binary",
        targets=targets,
        answers=answers,
        train_variance=1.0,
        calibrator=calibrator,
        config=CONFIG,
        groups=groups,
        is_by_class=True,
        classes=["no", "yes"],
    )
    found = make_typed_reports(run).to_json()["calibration"]["groups"]
    assert [each["group"] for each in found] == ["no", "yes"]
    assert sum(each["n_rows"] for each in found) == SIZES["test"]
    for each in found:
        assert each["measured"] == pytest.approx(0.9, abs=0.15)


def test_sharpness_is_the_width_at_nine_tenths() -> None:
    calibration = make_reports("regression")["calibration"]
    assert (
        calibration["sharpness"] == calibration["conformal_intervals"][2]["mean_width"]
    )
    assert len(calibration["member_intervals"]) == 4
    assert make_reports("regression", 1)["calibration"]["member_intervals"] == []


def test_too_few_validation_rows_have_no_width() -> None:
    targets, answers = make_answers("regression")
    run = Run(
        task="regression",
        targets={"test": targets["test"]},
        answers={"test": answers["test"]},
        train_variance=0.0,
        calibrator=Calibrator(conformity=np.array([1.0, 2.0, 3.0])),
        config=CONFIG,
    )
    reports = make_typed_reports(run).to_json()
    half, *others = reports["calibration"]["conformal_intervals"]
    assert half["mean_width"] == pytest.approx(4.0)
    assert half["relative_width"] is None
    for each in others:
        assert (each["measured"], each["mean_width"]) == (1.0, None)
    assert reports["calibration"]["sharpness"] is None
    json.dumps(reports, allow_nan=False)


# What averaging is worth


@pytest.mark.parametrize("task", TASKS)
def test_averaging_is_the_ambiguity_over_the_members_error(task: str) -> None:
    reports = make_typed_reports(make_run(task)).to_json()
    averaging, parts = reports["diversity"]["averaging"], reports["report"]
    terms = parts["decomposition"]
    removed = averaging["removed"]
    expected = terms["ambiguity"] / terms["member_error"]
    assert removed["value"] == pytest.approx(expected, rel=1e-5)
    assert removed["lower"] < removed["value"] < removed["upper"]
    assert averaging["mean_member_error"] == pytest.approx(terms["member_error"])
    best = averaging["best_member"]
    name = "rmse" if task == "regression" else "brier"
    on_val = parts["scores"]["val"]["members"][name]
    assert best == int(np.argmin(on_val))
    value = parts["scores"]["test"]["members"][name][best]
    value = value**2 if task == "regression" else value
    assert averaging["best_member_error"] == pytest.approx(value, rel=1e-5)
    gain = 1 - terms["ensemble_error"] / value
    assert averaging["against_best"]["value"] == pytest.approx(gain, rel=1e-4)
    assert "averaging removes" in reports["diversity"]["advice"]


@pytest.mark.slow
def test_the_bootstrap_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Errors of members with a known share of them that averaging removes."""
    rng = np.random.default_rng(0)
    n_inside = 0
    for _ in range(60):
        y = rng.normal(size=200)
        common, own = rng.normal(size=(200, 1)), rng.normal(size=(200, 4))
        errors = metrics.row_errors(y, y[:, None] + common + own)
        found = metrics.share_removed(errors.ensemble, errors.members.mean(axis=1))
        assert found is not None
        n_inside += found.lower <= (3 / 4) / 2 <= found.upper
    assert 51 <= n_inside  # 57 expected; fewer than 51 is a chance of 1 %


def test_members_that_are_nearly_the_same_are_named() -> None:
    run = make_run("regression")
    answers = {}
    for part, (_, members) in run.answers.items():
        twin = members[:, :1] + 1e-3 * members[:, 1:2]
        together = np.concatenate([members, twin], axis=1)
        answers[part] = together.mean(axis=1), together
    body = make_typed_reports(replace(run, answers=answers)).to_json()["diversity"]
    (pair,) = body["averaging"]["close_pairs"]
    assert (pair["first"], pair["second"]) == (0, 3)
    assert pair["difference"] < 0.1
    assert "members 0 and 3 are nearly the same" in body["advice"]


@pytest.mark.parametrize("task", TASKS)
def test_quality_against_the_number_of_members(task: str) -> None:
    body = make_typed_reports(make_run(task)).to_json()
    curve, scores = body["diversity"]["member_curve"], body["report"]["scores"]
    name = "rmse" if task == "regression" else "nll"
    assert sorted(curve["order"]) == [0, 1, 2]
    assert [point["n"] for point in curve["points"]] == [1, 2, 3]
    best = min(scores["val"]["members"][name])
    assert curve["points"][0]["val"] == pytest.approx(best, rel=1e-5)
    for part in ("val", "test"):
        all_ = scores[part]["ensemble"][name]
        assert curve["points"][2][part] == pytest.approx(all_, rel=1e-4)
    losses = [point["val"] for point in curve["points"]]
    assert curve["best"] == int(np.argmin(losses)) + 1
    assert losses[curve["enough"] - 1] <= losses[-1] * (1 + 1e-9)


# Rows not to trust


@pytest.mark.parametrize("task", TASKS)
def test_what_abstaining_does(task: str) -> None:
    run = make_run(task)
    found = make_typed_reports(run).to_json()["report"]["selective"]
    y, (mean, _) = run.targets["test"], run.answers["test"]
    first = found["points"][0]
    name = "rmse" if task == "regression" else "accuracy"
    score = make_typed_reports(run).to_json()["report"]["scores"]["test"]["ensemble"]
    whole = score[name] if task == "regression" else 1 - score[name]
    assert first["remaining_error"] == pytest.approx(whole)
    assert (first["abstained"], first["caught"]) == (0.0, 0.0)
    for point in found["points"]:
        assert point["abstained"] == pytest.approx(point["abstain"], abs=0.16)
    if task == "multiclass":
        half = found["points"][-1]
        doubts = metrics.predictive_entropy(run.answers["val"][0])
        kept = metrics.predictive_entropy(mean) <= np.quantile(doubts, 0.5)
        wrong = metrics.is_wrong(y, mean)
        assert half["remaining_error"] == pytest.approx(wrong[kept].mean())
        assert half["caught"] == pytest.approx(wrong[~kept].sum() / wrong.sum())
        assert half["caught"] > 0.5


@pytest.mark.parametrize("n_rows", [5, 9])
def test_too_few_calibration_rows_are_told(n_rows: int) -> None:
    run = make_run("regression")
    some = [each[:n_rows] for each in (run.targets["val"], *run.answers["val"])]
    reports = make_typed_reports(replace(run, calibrator=Calibrator.fit(*some)))
    (trust,) = (each for each in reports.report.summary if each.about == "trust")
    warnings = reports.calibration.warnings
    if n_rows == 9:
        assert trust.text.startswith("Its intervals of 90 % hold") and not warnings
        return
    assert trust.text.startswith(
        "Its intervals of 90 % have no ends: 5 calibration rows are too few, and 9 are "
        "needed;"
    )
    assert warnings == [
        "the 5 calibration rows are too few for a coverage of 0.9, which needs 9: "
        "intervals have no ends"
    ]


@pytest.mark.parametrize("task", TASKS)
def test_groups_tell_whether_they_are_apart(task: str) -> None:
    run = make_run(task)
    rng = np.random.default_rng(0)
    groups = {
        part: rng.choice(["a", "b"], n, p=[0.9, 0.1]) for part, n in SIZES.items()
    }
    for n_rows in (150, 12):
        some = [each[:n_rows] for each in (run.targets["val"], *run.answers["val"])]
        calibrator = Calibrator.fit(*some, groups=groups["val"][:n_rows], by="zone")
        reports = make_typed_reports(replace(run, calibrator=calibrator, groups=groups))
        told = {each.group: each for each in reports.calibration.groups}
        assert sum(each.n_calibration or 0 for each in told.values()) == n_rows
        assert not told["b"].is_apart
        assert told["a"].is_apart == (n_rows == 150)
        warnings = [w for w in reports.report.warnings if "calibrate_by" in w]
        assert warnings == [w for w in reports.calibration.warnings if "zone" in w]
        assert len(warnings) == (n_rows == 12)


def test_the_curve_of_abstaining_is_what_predict_does() -> None:
    """Where many rows are equally uncertain too: three texts are three answers."""
    texts = np.random.default_rng(0).choice([*"abc"], size=(600, 1), p=[0.2, 0.3, 0.5])
    x_cat = texts.astype(object)
    x_num = np.empty((600, 0))
    ensemble = make_ensemble(x_num, x_cat, n_classes=2)
    parts = dict(zip(SIZES, np.split(np.arange(600), [200, 400]), strict=True))
    y = np.arange(600) % 2
    val = [each[parts["val"]] for each in (x_num, x_cat, y)]
    predictor = Predictor(export(ensemble, *val[:2], calibrate=calibrate_on(*val)))
    run = Run.of_file(predictor, x_num, x_cat, y, parts, config=CONFIG)
    selective = make_typed_reports(run).report.selective
    assert selective is not None
    trust = predictor.predict({"c0": x_cat[parts["test"], 0]}).trust
    assert trust is not None
    for point in selective.points:
        assert point.abstained == np.mean(trust < point.abstain)
    assert 0 < np.mean(trust < 0.5) < 1


# Scores


def test_scores_of_every_part() -> None:
    for task in TASKS:
        scores = make_reports(task)["report"]["scores"]
        assert {part: each["n_rows"] for part, each in scores.items()} == SIZES
        for each in scores.values():
            more = {"balanced_accuracy", "f1", "lift"}
            more |= {"auroc"} if task == "multiclass" else set()
            assert each["members"].keys() == each["ensemble"].keys() - more
            assert all(len(values) == 3 for values in each["members"].values())
    assert {*make_reports("binary")["report"]["scores"]["val"]["ensemble"]} == {
        "accuracy",
        "nll",
        "brier",
        "auroc",
        "balanced_accuracy",
        "f1",
        "lift",
    }


@pytest.mark.parametrize("task", TASKS)
def test_decomposition(task: str) -> None:
    body = make_reports(task)["report"]
    parts = body["decomposition"]
    scores = body["scores"]["test"]
    if task == "regression":
        assert parts["ensemble_error"] == pytest.approx(scores["ensemble"]["rmse"] ** 2)
        own = np.mean(np.square(scores["members"]["rmse"]))
    else:
        assert parts["ensemble_error"] == pytest.approx(scores["ensemble"]["brier"])
        own = np.mean(scores["members"]["brier"])
    assert parts["member_error"] == pytest.approx(own)
    assert parts["holds"] is True
    assert parts["ensemble_error"] == pytest.approx(
        parts["member_error"] - parts["ambiguity"]
    )
    alone = make_reports(task, 1)["report"]["decomposition"]
    assert alone["holds"] is alone["residual"] is alone["ambiguity"] is None


@pytest.mark.parametrize("task", TASKS)
def test_risk_coverage_and_error_detection(task: str) -> None:
    targets, answers = make_answers(task)
    y, (mean, members) = targets["test"], answers["test"]
    mean = mean.astype(np.float64)
    if task == "regression":
        uncertainty = members.astype(np.float64).std(axis=1)
        losses = (y - mean) ** 2
        errors = np.abs(y - mean)
        wrong = errors > sorted(errors)[round(0.9 * 119)]
    else:
        uncertainty = -(mean * np.log(mean)).sum(axis=1)
        wrong = mean.argmax(axis=1) != y
        losses = wrong.astype(np.float64)
    order = np.argsort(uncertainty, kind="stable")
    risks = np.cumsum(losses[order]) / np.arange(1, 121)
    body = make_reports(task)["report"]
    curve = body["risk_coverage"]
    assert curve["uncertainty"] == ("member_std" if task == "regression" else "entropy")
    assert curve["area"] == pytest.approx(risks.mean())
    assert len(curve["coverage"]) == len(curve["risk"]) == 101
    assert (curve["coverage"][0], curve["coverage"][-1]) == (1 / 120, 1.0)
    for coverage, risk in zip(curve["coverage"], curve["risk"], strict=True):
        assert risk == pytest.approx(risks[round(coverage * 120) - 1])

    by_name = {each["uncertainty"]: each for each in body["error_detection"]}
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a in uncertainty[wrong]
        for b in uncertainty[~wrong]
    ]
    main = by_name[curve["uncertainty"]]
    assert main["auroc"] == pytest.approx(np.mean(pairs))
    assert main["aurc"] == pytest.approx(curve["area"])
    others = {"confidence", "mutual_information", "disagreement"}
    assert by_name.keys() - {"member_std", "entropy"} == (
        set() if task == "regression" else others
    )


def test_one_member_has_no_uncertainty_between_members() -> None:
    body = make_reports("regression", 1)["report"]
    assert body["risk_coverage"] is None
    assert body["error_detection"] == []
    named = [
        each["uncertainty"]
        for each in make_reports("binary", 1)["report"]["error_detection"]
    ]
    assert named == ["entropy", "confidence"]


def test_confusion() -> None:
    targets, answers = make_answers("multiclass")
    confusion = make_reports("multiclass")["report"]["confusion"]
    counts = [[0] * 3 for _ in range(3)]
    for y, p in zip(targets["test"], answers["test"][0], strict=True):
        counts[y][int(p.argmax())] += 1
    assert confusion == {"classes": [0, 1, 2], "matrix": counts}
    assert make_reports("regression")["report"]["confusion"] is None


def test_classes_bear_their_labels() -> None:
    targets, answers = make_answers("binary")
    run = Run(
        task="binary",
        targets={"test": targets["test"]},
        answers={"test": answers["test"]},
        train_variance=1.0,
        calibrator=Calibrator(conformity=np.array([0.5])),
        config=CONFIG,
        classes=["no", "yes"],
    )
    reports = make_typed_reports(run).to_json()
    assert reports["report"]["confusion"]["classes"] == ["no", "yes"]


def test_reports_are_complete_when_they_are_made() -> None:
    targets, answers = make_answers("binary")
    moments: list[str] = []
    run = Run(
        task="binary",
        targets={"test": targets["test"]},
        answers={"test": answers["test"]},
        train_variance=1.0,
        calibrator=Calibrator(conformity=np.array([0.5])),
        config=CONFIG,
        n_parameters=7,
        training=report.Training(
            best_epoch=1, best_score=0.5, epochs=2, seconds=3.0, stopped_early=False
        ),
        seeds={"split": 1, "training": 2},
        timings=lambda: moments.append("asked") or {"evaluating": 0.5},
        job_id="job_1",
    )
    reports = make_typed_reports(run)
    assert isinstance(reports.report, report.RunReport)
    for body in (reports.diversity, reports.calibration, reports.report):
        assert isinstance(body, head.Head)
        assert body.job_id == "job_1"
    assert moments == ["asked"]
    assert reports.report.timings == {"evaluating": 0.5}
    assert reports.report.seeds == {"split": 1, "training": 2}
    state = reports.to_json()["report"]
    assert (state["n_parameters"], state["training"]["epochs"]) == (7, 2)


def test_versions() -> None:
    versions = make_reports("binary")["report"]["versions"]
    assert {"python", "lometab", "numpy", "torch", "onnxruntime"} <= versions.keys()
    assert versions["numpy"] == np.__version__
