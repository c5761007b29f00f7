"""Every field of an answer by torch, ONNX Runtime, `Predictor` and HTTP: one answer.

What torch gives is calibrated and described here by the definitions of the fields, not
by the code that serves.
"""

import csv
import io
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from app import jobs
from app.api.openapi import ENUMS
from app.serving import get_predict
from app.storage import blobs, db
from lometab.config import TrainConfig
from lometab.ensemble import Ensemble, answer, train_ensemble
from lometab.evaluation import metrics
from lometab.export import calibrate_on, export
from lometab.predictor import Predictor
from lometab.table import Parts, features, infer_schema, read_csv, target
from tests.support.http import post
from tests.support.jobs import CLAIM, REPORTS
from tests.support.models import TINY
from tests.support.tables import make_csv

Array = NDArray[Any]
TABLE = make_csv(600)
TRAIN, VAL, ASKED = np.arange(350), np.arange(350, 550), np.arange(550, 600)
ARROW = "application/vnd.apache.arrow.stream"
CASES = [
    ("y", "constant", None),
    ("y", "scaled", None),
    ("y", "constant", "colour"),
    ("label", "aps", None),
    ("label", "lac", None),
    ("label", "lac", "label"),
]
COVERAGE, ABSTAIN = 0.8, 0.3
FIELDS = ENUMS["PredictField"]
NOVEL = ("novelty", "out_of_range", "unseen")


@cache
def trained(name: str) -> tuple[Ensemble, Array, Array, Array]:
    rows = read_csv(TABLE.encode())
    other = {"y": "label", "label": "y"}[name]
    schema = infer_schema(rows, target=name, columns={other: "ignore"})
    parts: Parts = {"train": TRAIN, "val": VAL}
    config = replace(TrainConfig(**TINY), k=4)
    ensemble = train_ensemble(rows, schema, parts, config)
    return ensemble, *features(rows, schema), target(rows, schema)


@cache
def exported(name: str, by: str | None) -> bytes:
    ensemble, x_num, x_cat, y = trained(name)
    calibrate = calibrate_on(x_num[VAL], x_cat[VAL], y[VAL], by=by)
    return export(ensemble, x_num[TRAIN], x_cat[TRAIN], calibrate=calibrate)


# By torch and the definitions


def by_torch(name: str, method: str, by: str | None) -> dict[str, Any]:
    ensemble, x_num, x_cat, y = trained(name)
    val = answer(ensemble, x_num[VAL], x_cat[VAL])
    mean, members = answer(ensemble, x_num[ASKED], x_cat[ASKED])
    groups = None if by is None else (y if by == name else x_cat[:, 0]).astype(str)
    found: dict[str, Any] = {"mean": mean, "members": members}
    found |= dict(zip(NOVEL, novelty_of(name).T, strict=True))
    if name == "y":
        doubts = [each[1].std(axis=1) for each in (val, (mean, members))]
        found["member_std"] = found["std"] = doubts[1]
        offset, _ = metrics.fit_offset(y[VAL], val[0], doubts[0])
        scale = [
            np.ones(len(d)) if method == "constant" else d + offset for d in doubts
        ]
        scores = abs(y[VAL] - val[0]) / scale[0]
        half = scale[1] * quantiles_of(scores, groups)
        found["interval"] = mean[:, None] + half[:, None] * np.array([-1, 1])
    else:
        doubts = [-(p * np.log(p)).sum(axis=1) for p in (val[0], mean)]
        found["entropy"] = doubts[1]
        own = -(members * np.log(members)).sum(axis=2).mean(axis=1)
        found["mutual_information"] = doubts[1] - own
        votes = members.argmax(axis=2)
        k = votes.shape[1]
        differ = (votes[:, :, None] != votes[:, None]).sum(axis=(1, 2))
        found["disagreement"] = differ / (k * (k - 1))
        labels = ensemble.schema.classes
        assert labels is not None
        found["label"] = [labels[c] for c in mean.argmax(axis=1)]
        score = before if method == "aps" else lambda p: 1 - p
        own_scores = score(val[0])[np.arange(len(VAL)), y[VAL]]
        if by is None:
            bound = quantiles_of(own_scores, None)[:, None]
        else:
            bound = np.array(
                [quantile_of(own_scores[y[VAL] == c]) for c in range(len(labels))]
            )
        inside = score(mean) <= bound
        found["set"] = [[labels[c] for c in np.flatnonzero(row)] for row in inside]
    levels = np.quantile(doubts[0], np.linspace(0, 1, 201))
    found["trust"] = 1 - np.interp(doubts[1], levels, np.linspace(0, 1, 201))
    found["abstain"] = found["trust"] < ABSTAIN
    return found


def novelty_of(name: str) -> Array:
    ensemble, x_num, x_cat, _ = trained(name)
    fitted = ensemble.preprocessor
    assert fitted.novelty_ is not None
    rows = x_num[ASKED], x_cat[ASKED]
    return fitted.novelty_.measure(rows[0], *fitted.transform(*rows))


def before(p: Array) -> Array:
    """The probability of the classes that are more probable."""
    return np.array([[row[row > each].sum() for each in row] for row in p])


def quantile_of(scores: Array) -> float:
    place = int(np.ceil((len(scores) + 1) * COVERAGE))
    return float(np.sort(scores)[place - 1]) if place <= len(scores) else np.inf


def quantiles_of(scores: Array, groups: Array | None) -> Array:
    if groups is None:
        return np.full(len(ASKED), quantile_of(scores))
    own = groups[VAL]
    assert min(np.unique(own, return_counts=True)[1]) >= 20
    return np.array([quantile_of(scores[own == each]) for each in groups[ASKED]])


# By everything else


def by_runtime(name: str, by: str | None) -> dict[str, Any]:
    _, x_num, x_cat, _ = trained(name)
    session = onnxruntime.InferenceSession(exported(name, by))
    inputs = {"numeric": x_num[ASKED], "categorical": x_cat[ASKED]}
    mean, members, novelty = session.run(["mean", "members", "novelty"], inputs)
    return {
        "mean": mean,
        "members": members,
        **dict(zip(NOVEL, novelty.T, strict=True)),
    }


def by_predictor(name: str, method: Any, by: str | None) -> dict[str, Any]:
    found = Predictor(exported(name, by)).predict(
        rows_asked(), coverage=COVERAGE, conformal=method
    )
    return {
        field: value
        for field in FIELDS
        if (value := getattr(found, field, None)) is not None
    }


def rows_asked() -> list[dict[str, Any]]:
    return [*csv.DictReader(io.StringIO(TABLE))][ASKED[0] :]


def publish(client: TestClient, name: str, by: str | None) -> str:
    get_predict.cache_clear()
    other = {"y": "label", "label": "y"}[name]
    config = {"target": name, "columns": {other: "ignore"}, "calibrate_by": by}
    assert post(client, TABLE, config).status_code == 202
    with db.transaction() as session:
        job = jobs.claim(session, **CLAIM)
        assert job is not None
        content = exported(name, by)
        assert jobs.finish(
            session,
            job,
            onnx_sha256=blobs.store_bytes(job.workspace_id, content),
            metadata=jobs.read_facts(content),
            reports=REPORTS,
            progress={"epoch": 1, "max_epochs": 1},
        )
    model_id = client.get(f"/jobs/{job.id}").json()["model_id"]
    return f"/models/{model_id}/predict"


def ask(client: TestClient, path: str, method: str, accept: str) -> Any:
    body = {
        "rows": rows_asked(),
        "include": [*FIELDS],
        "coverage": COVERAGE,
        "conformal": method,
        "abstain": ABSTAIN,
    }
    answer = client.post(path, json=body, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    return answer


def by_json(answer: Any) -> dict[str, Any]:
    rows = answer.json()["predictions"]
    return {field: [row[field] for row in rows] for field in rows[0]}


def by_arrow(answer: Any) -> dict[str, Any]:
    return pa.ipc.open_stream(answer.content).read_all().to_pydict()


def by_csv(answer: Any, classes: list[Any] | None) -> dict[str, Any]:
    """The columns of a field joined again."""
    rows = [*csv.DictReader(io.StringIO(answer.text))]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    found: dict[str, Any] = {}
    take = lambda *names: np.array([columns.pop(n) for n in names], float).T  # noqa: E731
    k = 4
    if classes is None:
        found["mean"] = take("mean")[:, 0]
        found["members"] = take(*(f"member_{i}" for i in range(k)))
        found["interval"] = take("interval_lower", "interval_upper")
    else:
        found["mean"] = take(*(f"mean_{c}" for c in classes))
        flat = take(*(f"member_{i}_{c}" for i in range(k) for c in classes))
        found["members"] = flat.reshape(len(rows), k, len(classes))
        found["set"] = [json.loads(text) for text in columns.pop("set")]
        found["label"] = columns.pop("label")
    found["abstain"] = [text == "true" for text in columns.pop("abstain")]
    return found | {name: np.array(c, float) for name, c in columns.items()}


def check(found: dict[str, Any], expected: dict[str, Any], names: Any) -> None:
    assert {*found} == {*names}
    for name in names:
        if name in ("label", "set", "abstain"):
            assert [*found[name]] == [*expected[name]], name
        else:
            np.testing.assert_allclose(
                np.array(found[name], float),
                expected[name],
                rtol=2e-4,
                # A rank among rows that lie close together is steep.
                atol=2e-3 if name == "trust" else 2e-5,
                err_msg=name,
            )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method", "by"), CASES)
def test_one_answer(client: TestClient, name: str, method: str, by: str | None) -> None:
    expected = by_torch(name, method, by)
    if name == "y":
        assert {*expected} == {*FIELDS, "abstain"} - {
            *("label", "set", "entropy", "mutual_information", "disagreement")
        }
    else:
        absent = {"member_std", "std", "interval"}
        assert {*expected} == {*FIELDS, "abstain"} - absent
    assert 0 < np.mean(expected["abstain"]) < 1
    raw = ("mean", "members", "novelty", "out_of_range", "unseen")
    check(by_runtime(name, by), expected, raw)
    fields = [*expected.keys() - {"abstain"}]
    check(by_predictor(name, method, by), expected, fields)
    path = publish(client, name, by)
    classes = trained(name)[0].schema.classes
    check(by_json(ask(client, path, method, "application/json")), expected, expected)
    check(by_arrow(ask(client, path, method, ARROW)), expected, expected)
    check(by_csv(ask(client, path, method, "text/csv"), classes), expected, expected)
