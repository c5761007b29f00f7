"""Watching a served model: counts, drift, outcomes; aggregates only."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.api.model_facts import read_facts
from app.monitor import collector as collector_module
from app.monitor import get_collector
from app.storage import db
from app.storage.tables import ModelAnswers, ModelCounts, TrainedModel
from lometab.drift import FALSE_ALARM_RATE
from tests.support.http import check_problem
from tests.support.models import TABLE, succeed

ARROW = "application/vnd.apache.arrow.stream"
ALL = [*csv.DictReader(io.StringIO(TABLE))]


@pytest.fixture
def model(client: TestClient) -> str:
    return str(succeed(client, "y")["model_id"])


@pytest.fixture
def label(client: TestClient) -> str:
    return str(succeed(client, "label")["model_id"])


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    get_collector().flush()


def ask(client: TestClient, model: str, rows: Any, **options: Any) -> Any:
    body = {"rows": rows, **options}
    answer = client.post(f"/models/{model}/predict", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def watch(client: TestClient, model: str) -> Any:
    answer = client.get(f"/models/{model}/monitor")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_rows_like_the_training_rows_are_counted(
    client: TestClient, model: str
) -> None:
    before = watch(client, model)
    assert before["days"] == [] and before["total"]["n_rows"] == 0
    ask(client, model, ALL[:1])
    ask(client, model, ALL)
    table = client.post(
        f"/models/{model}/predict",
        content=TABLE,
        headers={"content-type": "text/csv", "accept": "text/csv"},
    )
    assert table.status_code == 200
    found = watch(client, model)
    assert found["is_on"] and found["has_reference"]
    assert found["false_alarm_rate"] == FALSE_ALARM_RATE
    (day,) = found["days"]
    assert day["n_rows"] == found["total"]["n_rows"] == 1 + 2 * len(ALL)
    assert {*day["columns"]} == {"size", "colour", "weight"}
    missing = sum(row["weight"] == "" for row in ALL) / len(ALL)
    assert day["columns"]["weight"]["missing"] == pytest.approx(missing, abs=0.01)
    assert day["columns"]["colour"]["unseen"] == 0
    assert not day["is_alarm"] and day["drifted"] == []
    uncertainty = day["uncertainty"]
    assert uncertainty["mean_trust"] == pytest.approx(0.5, abs=0.1)
    assert uncertainty["least_certain_share"] == pytest.approx(0.05, abs=0.05)
    assert day["novel_share"] < 0.05
    assert day["labels"] is None and day["outcomes"] is None


def test_drift_is_an_alarm(client: TestClient, model: str) -> None:
    rng = np.random.default_rng(0)
    shifted = [
        {**row, "size": float(row["size"]) + 5, "colour": rng.choice(["red", "mauve"])}
        for row in ALL
    ]
    ask(client, model, shifted)
    day = watch(client, model)["days"][0]
    assert day["is_alarm"]
    assert {*day["drifted"]} == {"size", "colour"}
    assert day["columns"]["size"]["psi"] > day["columns"]["size"]["bound"]
    assert day["columns"]["size"]["out_of_range"] > 0.3
    assert day["columns"]["colour"]["unseen"] == pytest.approx(0.5, abs=0.1)
    assert day["novel_share"] > 0.2


def test_labels_are_counted(client: TestClient, label: str) -> None:
    answers = ask(client, label, ALL)["predictions"]
    found = {each["label"]: each for each in watch(client, label)["total"]["labels"]}
    share = sum(each["label"] == "high" for each in answers) / len(answers)
    assert found["high"]["share"] == pytest.approx(share)
    assert found["high"]["expected"] == pytest.approx(share, abs=0.15)


def test_outcomes_of_numbers(client: TestClient, model: str) -> None:
    rows = [{**row, "id": f"row {i}"} for i, row in enumerate(ALL[:100])]
    answers = ask(client, model, rows)["predictions"]
    outcomes = [{"id": row["id"], "value": float(row["y"])} for row in rows[:60]]
    unknown = {"id": "never asked", "value": 1.0}
    taken = client.post(
        f"/models/{model}/outcomes", json={"outcomes": [*outcomes, unknown]}
    )
    assert taken.json() == {"matched": 60, "unknown": 1}
    found = watch(client, model)["total"]["outcomes"]
    errors = [
        float(row["y"]) - each["mean"]
        for row, each in zip(rows[:60], answers, strict=False)
    ]
    assert found["n"] == 60
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-4)
    assert found["bias"] == pytest.approx(np.mean(errors), rel=1e-3, abs=1e-4)
    inside = [
        each["interval"][0] <= float(row["y"]) <= each["interval"][1]
        for row, each in zip(rows[:60], answers, strict=False)
    ]
    assert found["measured_coverage"] == pytest.approx(np.mean(inside))
    # Each answer is held against the truth once.
    again = client.post(f"/models/{model}/outcomes", json={"outcomes": outcomes})
    assert again.json() == {"matched": 0, "unknown": 60}
    wrong = client.post(
        f"/models/{model}/outcomes", json={"outcomes": [{"id": "a", "value": "high"}]}
    )
    check_problem(wrong, 422, "is a number")


def test_outcomes_of_classes(client: TestClient, label: str) -> None:
    rows = [{**row, "key": i} for i, row in enumerate(ALL[:80])]
    answers = ask(client, label, rows, id_column="key")["predictions"]
    outcomes = [{"id": row["key"], "value": row["label"]} for row in rows]
    taken = client.post(f"/models/{label}/outcomes", json={"outcomes": outcomes})
    assert taken.json() == {"matched": 80, "unknown": 0}
    found = watch(client, label)["total"]["outcomes"]
    pairs = [*zip(rows, answers, strict=True)]
    right = [row["label"] == each["label"] for row, each in pairs]
    assert found["accuracy"] == pytest.approx(np.mean(right))
    inside = [row["label"] in each["set"] for row, each in pairs]
    assert found["measured_coverage"] == pytest.approx(np.mean(inside))
    assert 0 <= found["ece"] <= 1 and found["brier"] >= 0
    wrong = client.post(
        f"/models/{label}/outcomes", json={"outcomes": [{"id": 1, "value": "huge"}]}
    )
    check_problem(wrong, 422, "one of")


def post_outcomes(client: TestClient, model: str, *pairs: Any) -> Any:
    outcomes = [{"id": id_, "value": value} for id_, value in pairs]
    return client.post(f"/models/{model}/outcomes", json={"outcomes": outcomes})


@pytest.mark.both_databases
def test_an_id_is_held_against_its_latest_answer_once(
    client: TestClient, model: str
) -> None:
    twice = [{**ALL[0], "id": "a"}, {**ALL[1], "id": "a"}, {**ALL[2], "id": "b"}]
    answers = ask(client, model, twice)["predictions"]
    taken = post_outcomes(client, model, ("a", 1.0))
    assert taken.json() == {"matched": 1, "unknown": 0}
    found = watch(client, model)["total"]["outcomes"]
    assert found["bias"] == pytest.approx(1.0 - answers[1]["mean"], rel=1e-5)
    for row in ALL[:2]:  # in two requests
        (latest,) = ask(client, model, [{**row, "id": "q"}])["predictions"]
    before = found["bias"]
    taken = post_outcomes(client, model, ("q", 2.0))
    assert taken.json() == {"matched": 1, "unknown": 0}
    found = watch(client, model)["total"]["outcomes"]
    assert found["n"] == 2
    error = 2.0 - latest["mean"]
    assert found["bias"] == pytest.approx((before + error) / 2, rel=1e-5)
    again = post_outcomes(client, model, ("q", 2.0), ("a", 1.0))
    assert again.json() == {"matched": 0, "unknown": 2}


@pytest.mark.parametrize(
    ("predicted", "posted"),
    [(1.0, 1), (1, "1.0"), (True, "TRUE"), (" a ", "a"), (-0.0, 0), ("7", 7)],
)
def test_an_id_has_one_text(
    client: TestClient, model: str, predicted: Any, posted: Any
) -> None:
    ask(client, model, [{**ALL[0], "id": predicted}])
    taken = post_outcomes(client, model, (posted, 1.0))
    assert taken.json() == {"matched": 1, "unknown": 0}


def test_other_ids_stay_other_ids(client: TestClient, model: str) -> None:
    ids = ["007", "7", "NA"]
    ask(client, model, [{**ALL[0], "id": each} for each in ids])
    taken = post_outcomes(client, model, *((each, 1.0) for each in ids))
    assert taken.json() == {"matched": 3, "unknown": 0}


def test_no_id_is_none(client: TestClient, model: str) -> None:
    ask(client, model, [{**ALL[0], "id": None}, {**ALL[1], "id": ""}])
    get_collector().flush()
    with db.reading() as session:
        statement = sa.select(sa.func.count()).select_from(ModelAnswers)
        assert session.scalar(statement.where(ModelAnswers.model_id == model)) == 0
    check_problem(post_outcomes(client, model, (None, 1.0)), 422, "outcomes.0.id: an")
    refused = post_outcomes(client, model, ("a", 1.0), (" ", 1.0))
    problem = check_problem(refused, 422, "must not be empty")
    assert problem["errors"][0]["pointer"] == "/outcomes/1/id"


def test_ids_that_nobody_can_name_lose_no_counts(
    client: TestClient, model: str, label: str
) -> None:
    """Arrow has values that Python has not: a moment in an unknown zone."""
    row = {name: [ALL[0][name]] for name in ("size", "colour", "weight")}
    row |= {name: [float(ALL[0][name])] for name in ("size", "weight")}
    ids = pa.array([1], pa.timestamp("us", tz="Mars/X"))
    sink = io.BytesIO()
    table = pa.table({**row, "id": ids})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = client.post(
        f"/models/{model}/predict?id_column=id",
        content=sink.getvalue(),
        headers={"content-type": ARROW, "accept": ARROW},
    )
    assert answer.status_code == 200, answer.text
    ask(client, model, [{**ALL[0], "id": "a"}])
    ask(client, label, ALL)
    assert post_outcomes(client, model, ("a", 1.0)).json()["matched"] == 1
    assert watch(client, model)["total"]["n_rows"] == 2
    assert watch(client, label)["total"]["n_rows"] == len(ALL)


def test_an_id_has_one_truth(client: TestClient, model: str) -> None:
    ask(client, model, [{**ALL[0], "id": 1}])
    refused = post_outcomes(client, model, (1, 1.0), ("b", 1.0), ("1", 9.0))
    problem = check_problem(refused, 422, "another value")
    assert problem["errors"][0]["pointer"] == "/outcomes/2/id"
    taken = post_outcomes(client, model, (1, 1.0), ("1", 1))
    assert taken.json() == {"matched": 1, "unknown": 0}


@pytest.mark.parametrize("value", [1e200, -1e200, 10**400])
def test_a_number_that_cannot_be_summed_is_refused(
    client: TestClient, model: str, value: Any
) -> None:
    ask(client, model, [{**ALL[0], "id": "a"}])
    problem = check_problem(post_outcomes(client, model, ("a", value)), 422, "squar")
    assert problem["errors"][0]["pointer"] == "/outcomes/0/value"
    taken = post_outcomes(client, model, ("a", 1e100))
    assert taken.json() == {"matched": 1, "unknown": 0}
    assert watch(client, model)["total"]["outcomes"]["n"] == 1


def test_moments_after_those_of_training_are_no_alarm(
    client: TestClient, model: str
) -> None:
    """Nor where a model of before has a histogram of them."""
    rows = [{**row, "weight": 1e6 + i} for i, row in enumerate(ALL)]
    ask(client, model, rows)
    assert "weight" in watch(client, model)["total"]["drifted"]
    with db.transaction() as session:
        row = session.get_one(TrainedModel, model)
        row.facts = {**read_facts(row), "datetime": ["weight"]}
    total = watch(client, model)["total"]
    n_missing = sum(row["weight"] == "" for row in ALL)
    assert n_missing > 0  # all of them are there now, which is told
    assert total["columns"]["weight"]["missing"] == 0
    rows = [{**row, "weight": row["weight"] and 1e6} for row in ALL]
    with db.transaction() as session:
        session.execute(sa.delete(ModelCounts).where(ModelCounts.model_id == model))
    ask(client, model, rows)
    total = watch(client, model)["total"]
    assert total["drifted"] == [] and not total["is_alarm"]


def test_nothing_of_a_row_is_kept(client: TestClient, model: str) -> None:
    marked = [{**row, "size": 7.77123, "id": "secret-id"} for row in ALL[:30]]
    ask(client, model, marked)
    watch(client, model)
    with db.reading() as session:
        counts = session.scalars(
            sa.select(ModelCounts).where(ModelCounts.model_id == model)
        ).all()
        answers = session.scalars(
            sa.select(ModelAnswers).where(ModelAnswers.model_id == model)
        ).all()
        assert counts and answers
        text = str([each.counts for each in counts])
        content = b"".join(each.content for each in answers)
    assert "7.77123" not in text and "secret" not in text
    assert b"secret" not in content


def test_counts_go_with_their_model(client: TestClient, model: str) -> None:
    ask(client, model, [{**ALL[0], "id": 1}])
    watch(client, model)
    assert client.delete(f"/models/{model}").status_code == 204
    with db.reading() as session:
        for table in (ModelCounts, ModelAnswers):
            statement = sa.select(sa.func.count()).where(table.model_id == model)
            assert session.scalar(statement) == 0
    check_problem(client.get(f"/models/{model}/monitor"), 404)


def test_it_is_off_by_a_setting(
    client: TestClient, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_collector(), "is_on", False)
    ask(client, model, ALL)
    found = watch(client, model)
    assert found["is_on"] is False
    assert found["total"]["n_rows"] == 0


def test_what_comes_too_fast_is_left_out_and_counted(
    client: TestClient, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_collector().flush()
    monkeypatch.setattr(collector_module, "MAX_WAITING", -1)
    ask(client, model, ALL[:50])
    found = watch(client, model)["total"]
    assert (found["n_rows"], found["n_left_out"]) == (0, 50)


def test_a_model_of_before_has_no_reference(client: TestClient, model: str) -> None:
    with db.transaction() as session:
        row = session.get_one(TrainedModel, model)
        facts = read_facts(row)
        row.facts = {k: v for k, v in facts.items() if k != "reference"}
    ask(client, model, ALL[:20])
    found = watch(client, model)
    assert not found["has_reference"] and found["n_training_rows"] is None
    assert found["total"]["n_rows"] == 20
    assert found["total"]["columns"] == {}


@pytest.mark.both_databases
@pytest.mark.parametrize(
    "outcome",
    [
        '{"id": "a", "value": NaN}',
        '{"id": "a", "value": -Infinity}',
        '{"id": "a", "value": 1e999}',
        '{"id": "a", "value": 1%s}' % ("0" * 5000),
        '{"id": 1%s, "value": 1.0}' % ("0" * 400),
        '{"id": "\\ud800", "value": 1.0}',
        '{"id": 1e999, "value": 1.0}',
        '{"id": NaN, "value": 1.0}',
        '{"id": %s, "value": 1.0}' % ("[" * 3000 + "]" * 3000),
    ],
    ids=lambda each: each[:24],
)
def test_odd_outcomes_are_told_to_their_client(
    client: TestClient, model: str, outcome: str
) -> None:
    answer = client.post(
        f"/models/{model}/outcomes",
        content=f'{{"outcomes": [{outcome}]}}'.encode(),
        headers={"Content-Type": "application/json"},
    )
    assert len(answer.content) < 10_000
    if '"value": 1.0' in outcome and answer.status_code == 200:
        assert answer.json() == {"matched": 0, "unknown": 1}  # an id, if an odd one
    else:
        assert answer.status_code in (400, 422), answer.text
