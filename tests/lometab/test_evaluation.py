"""Reports: the JSON fits its types, and its numbers follow their definitions."""

import json
import math
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import TypeAdapter

from lometab import evaluation, report
from lometab.config import TrainConfig

Array = NDArray[Any]
CONFIG = TrainConfig(k=3)
HISTORY = [{"epoch": 1, "diversity": 0.1}, {"epoch": 2, "diversity": None}]
SIZES = {"train": 200, "val": 150, "test": 120}
TASKS = {"regression": 0, "binary": 2, "multiclass": 3}


def make_answers(task: str, k: int = 3) -> tuple[dict[str, Array], evaluation.Answers]:
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


def slow_conformity(y: Array, mean: Array) -> list[float]:
    if mean.ndim == 1:
        return [abs(t - float(m)) for t, m in zip(y, mean, strict=True)]
    return [1 - float(p[t]) for t, p in zip(y, mean, strict=True)]


@cache
def make_reports(
    task: str, k: int = 3, temperature: float | None = None
) -> dict[str, Any]:
    targets, answers = make_answers(task, k)
    return evaluation.describe(
        task,
        targets,
        answers,
        train_variance=float(np.var(targets["train"])),
        conformity=slow_conformity(targets["val"], answers["val"][0]),
        config=CONFIG,
        history=HISTORY,
        temperature=temperature,
    )


def adapter(kind: str, task: str) -> TypeAdapter[Any]:
    is_regression = task == "regression"
    types = {
        "diversity": get_args(report.Diversity)[is_regression],
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
    types = [each for each in vars(report).values() if is_dataclass(each)]
    assert len(types) > 15
    for each in types:
        assert each.__dataclass_params__.frozen  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(value: float) -> None:
    pairs = report.Pairs(mean=value, matrix=[[0.0, value]])
    assert evaluation._plain({"a": (pairs, value)}) == {
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
    found, advice = evaluation.advise(measure, CONFIG)
    assert found == regime
    assert "sigma_init" in advice


# Calibration


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_calibration_of_classes(task: str) -> None:
    targets, answers = make_answers(task)
    temperature = evaluation.metrics.fit_temperature(targets["val"], answers["val"][0])
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


def test_sharpness_is_the_width_at_nine_tenths() -> None:
    calibration = make_reports("regression")["calibration"]
    assert (
        calibration["sharpness"] == calibration["conformal_intervals"][2]["mean_width"]
    )
    assert len(calibration["member_intervals"]) == 4
    assert make_reports("regression", 1)["calibration"]["member_intervals"] == []


def test_too_few_validation_rows_have_no_width() -> None:
    targets, answers = make_answers("regression")
    reports = evaluation.describe(
        "regression",
        {"test": targets["test"]},
        {"test": answers["test"]},
        train_variance=0.0,
        conformity=[1.0, 2.0, 3.0],
        config=CONFIG,
    )
    half, *others = reports["calibration"]["conformal_intervals"]
    assert half["mean_width"] == pytest.approx(4.0)
    assert half["relative_width"] is None
    for each in others:
        assert (each["measured"], each["mean_width"]) == (1.0, None)
    assert reports["calibration"]["sharpness"] is None
    json.dumps(reports, allow_nan=False)


# Scores


def test_scores_of_every_part() -> None:
    for task in TASKS:
        scores = make_reports(task)["report"]["scores"]
        assert {part: each["n_rows"] for part, each in scores.items()} == SIZES
        for each in scores.values():
            assert each["members"].keys() == each["ensemble"].keys()
            assert all(len(values) == 3 for values in each["members"].values())
    assert {*make_reports("binary")["report"]["scores"]["val"]["ensemble"]} == {
        "accuracy",
        "nll",
        "brier",
        "auroc",
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
    assert curve["uncertainty"] == ("std" if task == "regression" else "entropy")
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
    assert by_name.keys() - {"std", "entropy"} == (
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
    reports = evaluation.describe(
        "binary",
        {"test": targets["test"]},
        {"test": answers["test"]},
        train_variance=1.0,
        conformity=[0.5],
        config=CONFIG,
        classes=["no", "yes"],
    )
    assert reports["report"]["confusion"]["classes"] == ["no", "yes"]


def test_versions() -> None:
    versions = make_reports("binary")["report"]["versions"]
    assert {"python", "lometab", "numpy", "torch", "onnxruntime"} <= versions.keys()
    assert versions["numpy"] == np.__version__
