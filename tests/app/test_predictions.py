"""Prediction jobs: every row once, in order, whatever happens to their chunks."""

import csv
import hashlib
import io
import json
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import doctor, jobs, retention
from app.settings import get_settings
from app.storage import db
from app.storage.tables import Blob, Dataset, Job, utc_now
from tests.support.http import check_problem
from tests.support.jobs import expire
from tests.support.models import succeed
from tests.support.predictions import check_links, read_row, work_off
from tests.support.tables import make_csv

N_ROWS = 250


def make_rows(n_rows: int = N_ROWS, faults: dict[int, str] | None = None) -> str:
    """Rows to predict, with an id that is not their place."""
    lines = make_csv(n_rows, seed=3).splitlines()
    found = ["id,size,colour,weight"]
    for i, line in enumerate(lines[1:]):
        size, colour, weight, *_ = line.split(",")
        size = (faults or {}).get(i, size)
        found.append(f"r{7 * i},{size},{colour},{weight}")
    return "\n".join(found) + "\n"


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch, client: TestClient) -> None:
    monkeypatch.setattr(get_settings(), "prediction_chunk_rows", 60)


def ask(client: TestClient, model_id: str, table: str | bytes, **config: Any) -> Any:
    return client.post(
        f"/models/{model_id}/predictions",
        files={"file": ("t.csv", table)},
        data={"config": json.dumps(config)},
    )


def create(client: TestClient, model_id: str, table: str, **config: Any) -> Any:
    answer = ask(client, model_id, table, **config)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/jobs/{answer.json()['id']}"
    return answer.json()


def fetch(client: TestClient, job: dict[str, Any]) -> bytes:
    answer = client.get(f"/jobs/{job['id']}/result")
    assert answer.status_code == 200, client.get(f"/jobs/{job['id']}").json()["error"]
    assert int(answer.headers["content-length"]) == len(answer.content)
    digest = hashlib.sha256(answer.content).hexdigest()
    assert answer.headers["etag"] == f'"{digest}"'
    return bytes(answer.content)


def predict(client: TestClient, model_id: str, table: str, query: str = "") -> str:
    headers = {"Content-Type": "text/csv", "Accept": "text/csv"}
    answer = client.post(
        f"/models/{model_id}/predict{query}", content=table, headers=headers
    )
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def check_same(found: bytes, expected: str) -> None:
    """But for the last digits, which depend on how many rows are in a run."""
    tables = [pa.csv.read_csv(io.BytesIO(each)) for each in (found, expected.encode())]
    first, second = tables
    assert first.schema == second.schema and first.num_rows == second.num_rows
    for name in first.column_names:
        values = [table.column(name).to_pylist() for table in tables]
        if pa.types.is_floating(first.schema.field(name).type):
            np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-5)
        else:
            assert values[0] == values[1]


def check_doctor() -> None:
    for finding in doctor.examine(deep=True, min_age=0):
        if "no stored bytes" not in finding.name:  # of other tests' folders
            assert not finding.faults, str(finding)


@pytest.mark.both_databases
@pytest.mark.usefixtures("small_chunks")
def test_it_answers_as_predict_does(client: TestClient) -> None:
    model_id = succeed(client, "label")["model_id"]
    table = make_rows()
    job = create(client, model_id, table, tags=["nightly"])
    check_links(job)
    assert (job["kind"], job["role"], job["estimate"]) == ("predict", "predict", None)
    assert job["model_id"] == model_id and job["tags"] == ["nightly"]
    check_problem(client.get(job["links"]["result"]), 409, "not ready")

    done = work_off()
    assert [each.role for each in done] == ["chunk"] * 4 + ["assemble"]
    ended = client.get(job["links"]["self"]).json()
    assert (ended["status"], ended["error"]) == ("succeeded", None)
    progress = ended["progress"]
    assert (progress["rows_done"], progress["n_rows"]) == (N_ROWS, N_ROWS)
    assert ended["result"]["n_rows"] == N_ROWS and ended["result"]["n_faults"] == 0
    assert ended["result"]["expires_at"] > ended["finished_at"]
    content = fetch(client, job).decode()
    check_same(content.encode(), predict(client, model_id, table))
    ids = [row["id"] for row in csv.DictReader(io.StringIO(content))]
    assert ids == [f"r{7 * i}" for i in range(N_ROWS)]

    # Progress is told by rows, and nothing is left but the table and the result.
    events = client.get(f"/jobs/{job['id']}/events").json()["data"]
    told = [e["data"]["rows_done"] for e in events if e["type"] == "child"]
    assert told == sorted(told) and told[-1] == N_ROWS
    jobs.drop_answers(kept_seconds=1e9)
    with db.reading() as session:
        stored = {*session.scalars(sa.select(Blob.sha256))}
        tables = {*session.scalars(sa.select(Dataset.table_sha256))}
    model_sha256 = client.get(f"/models/{model_id}/onnx").headers["etag"].strip('"')
    assert stored == {*tables, model_sha256, ended["result"]["sha256"]}
    check_doctor()


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
def test_formats_say_the_same(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    first = create(client, model_id, make_rows(), exclude=["members"])
    on_dataset = {"dataset_id": first["dataset_id"], "exclude": ["members"]}
    found = [first]
    for output in ("parquet", "arrow"):
        path = f"/models/{model_id}/predictions"
        answer = client.post(path, json={**on_dataset, "output": output})
        assert answer.status_code == 202, answer.text
        found.append(answer.json())
    work_off()
    as_csv, as_parquet, as_arrow = (fetch(client, job) for job in found)
    expected = pa.csv.read_csv(io.BytesIO(as_csv))
    parquet = pq.read_table(io.BytesIO(as_parquet))
    arrow = pa.ipc.open_stream(as_arrow).read_all()
    assert parquet.column_names == expected.column_names
    assert parquet.num_rows == arrow.num_rows == N_ROWS
    for name in ("mean", "member_std", "interval_lower", "trust"):
        both = (parquet.column(name), expected.column(name))
        np.testing.assert_allclose(*(each.to_numpy() for each in both), rtol=1e-6)
    for name in ("id", "mean", "novelty"):
        assert arrow.column(name).to_pylist() == parquet.column(name).to_pylist()
    assert "members" not in arrow.column_names
    assert json.loads(arrow.schema.metadata[b"lometab"])["model_id"] == model_id


@pytest.mark.usefixtures("small_chunks")
def test_faults_are_skipped_and_told(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    faults = {0: "big", 61: "huge", 62: "1e999", 249: "?!"}
    table = make_rows(faults=faults)
    failing = create(client, model_id, table)
    skipping = create(client, model_id, table, on_error="skip", output="parquet")
    work_off()

    failed = client.get(failing["links"]["self"]).json()
    assert (failed["status"], failed["error"]["code"]) == ("failed", "bad_data")
    assert "'big'" in failed["error"]["detail"], failed["error"]
    check_problem(client.get(failing["links"]["result"]), 409, "failed")
    children = client.get(f"/jobs?parent_id={failing['id']}").json()["data"]
    assert {each["status"] for each in children} >= {"failed", "cancelled"}

    ended = client.get(skipping["links"]["self"]).json()
    assert ended["status"] == "succeeded", ended["error"]
    assert ended["result"]["n_faults"] == ended["progress"]["n_faults"] == 4
    assert any("4 of 250 rows" in warning for warning in ended["warnings"])
    found = pq.read_table(io.BytesIO(fetch(client, skipping)))
    assert found.column("id").to_pylist() == [f"r{7 * i}" for i in range(N_ROWS)]
    means = found.column("mean").to_pylist()
    assert [i for i, mean in enumerate(means) if mean is None] == [*faults]
    first = client.get(f"/jobs/{skipping['id']}/faults?limit=3").json()
    assert [each["row"] for each in first["data"]] == [1, 62, 63]
    assert {each["column"] for each in first["data"]} == {"size"}
    assert "'huge'" in first["data"][1]["detail"]
    after = first["next_after"]
    rest = client.get(f"/jobs/{skipping['id']}/faults?after={after}").json()
    assert [each["row"] for each in rest["data"]] == [250]
    assert rest["next_after"] is None
    check_doctor()


@pytest.mark.usefixtures("small_chunks")
def test_a_lost_chunk_is_done_again_and_a_zombie_writes_nothing(
    client: TestClient,
) -> None:
    model_id = succeed(client, "y")["model_id"]
    job = create(client, model_id, make_rows())
    with db.transaction() as session:
        held = jobs.claim(session, queue="cpu", owner="other", lease_seconds=60)
        assert held is not None
        session.expunge(held)
        expire(session, held)
    with db.transaction() as session:
        assert jobs.requeue_stalled(session, max_attempts=3) == 1
    done = work_off()
    assert [each.attempt for each in done] == [2, 1, 1, 1, 1]
    with db.transaction() as session:
        is_written = jobs.finish_part(
            session, held, outcome={}, progress={}, sha256="0" * 64, faults=[]
        )
    assert not is_written
    check_same(fetch(client, job), predict(client, model_id, make_rows()))


@pytest.mark.usefixtures("small_chunks")
def test_cancel_and_retry_keep_what_was_done(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    job = create(client, model_id, make_rows())
    path = f"/jobs/{job['id']}"
    check_problem(client.post(f"{path}/stop"), 409, "cancelled")

    def cancel_after_two(part: Job) -> None:
        if part.position == 1 and part.attempt == 1:
            assert client.post(f"{path}/cancel").status_code == 202

    assert len(work_off(cancel_after_two)) == 2
    assert client.get(path).json()["status"] == "cancelled"
    # One of the two is not kept any more: it is done again.
    with db.transaction() as session:
        kept = session.scalars(
            sa.select(Job).where(Job.parent_id == job["id"], Job.position == 0)
        ).one()
        kept.checkpoint_sha256 = None
    assert client.post(f"{path}/retry").status_code == 202
    done = work_off()
    assert sorted(each.position or 0 for each in done) == [0, 2, 3, 4]
    ended = client.get(path).json()
    assert ended["status"] == "succeeded"
    assert ended["progress"]["rows_done"] == N_ROWS
    check_same(fetch(client, job), predict(client, model_id, make_rows()))
    assert client.post(f"{path}/retry").status_code == 409
    check_doctor()


@pytest.mark.usefixtures("small_chunks")
def test_ranges_and_the_end_of_a_result(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    job = create(client, model_id, make_rows(40))
    work_off()
    path, whole = f"/jobs/{job['id']}/result", fetch(client, job)
    etag = client.get(path).headers["etag"]
    for text, expected in (
        ("bytes=0-9", whole[:10]),
        ("bytes=100-", whole[100:]),
        ("bytes=-7", whole[-7:]),
        (f"bytes=5-{10 * len(whole)}", whole[5:]),
    ):
        answer = client.get(path, headers={"Range": text, "If-Range": etag})
        assert (answer.status_code, answer.content) == (206, expected), text
        assert answer.headers["content-range"].endswith(f"/{len(whole)}")
        assert int(answer.headers["content-length"]) == len(expected)
    for headers in (
        {"Range": "bytes=0-1,5-6"},
        {"Range": "lines=0-1"},
        {"Range": "bytes=9-3"},
        {"Range": "bytes=0-9", "If-Range": '"other"'},
        {"Accept-Encoding": "gzip"},
    ):
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.content) == (200, whole), headers
        assert "content-encoding" not in answer.headers
    beyond = client.get(path, headers={"Range": f"bytes={len(whole)}-"})
    check_problem(beyond, 416, str(len(whole)))
    assert beyond.headers["content-range"] == f"bytes */{len(whole)}"
    assert client.get(path, headers={"If-None-Match": etag}).status_code == 304
    head = client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == len(whole)

    assert retention.sweep(get_settings()) == 0  # it is kept for as long as was told
    with db.transaction() as session:
        due = sa.update(Job).where(Job.id == job["id"])
        session.execute(due.values(expires_at=utc_now() - timedelta(seconds=1)))
    assert retention.sweep(get_settings()) == 1
    with db.transaction() as session:
        assert not jobs.delete_result(session, read_row(job["id"]))
    check_problem(client.get(path), 410, "gone")
    ended = client.get(f"/jobs/{job['id']}").json()
    assert ended["status"] == "succeeded" and ended["result"]["expires_at"] is None
    assert client.delete(f"/jobs/{job['id']}").status_code == 204
    assert client.get(path).status_code == 404
    check_doctor()


def test_what_can_be_checked_is_checked_before(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    table = make_rows(20)

    def refuse(status: int, *words: str, content: str = table, **config: Any) -> None:
        check_problem(ask(client, model_id, content, **config), status, *words)

    refuse(422, "'colour'", content=table.replace("colour", "color"))
    refuse(422, "explain", explain=True)
    refuse(422, "calibrated", calibrated=True)
    refuse(422, "'key'", id_column="key")
    refuse(422, "on_error", on_error="ignore")
    refuse(422, "empty", content="")
    path = f"/models/{model_id}/predictions"
    check_problem(client.post(path, json={"dataset_id": "ds_no"}), 404)
    dataset_id = create(client, model_id, table)["dataset_id"]
    told = client.post(path, json={"dataset_id": dataset_id, "delimiter": ";"})
    check_problem(told, 422, "delimiter")
    check_problem(client.post("/models/mdl_no/predictions", json={}), 422)
    check_problem(client.post(path, content=b"x"), 415)
    kind = client.post("/jobs", json={"dataset_id": dataset_id, "kind": "predict"})
    check_problem(kind, 422)
    trained = client.get(f"/models/{model_id}").json()["links"]["job"]
    check_problem(client.get(f"{trained}/result"), 409, "train")
    check_problem(client.get(f"{trained}/faults"), 409, "train")


def test_a_request_is_repeated_without_a_second_job(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    client.headers["Idempotency-Key"] = "once"
    first = create(client, model_id, make_rows(20))
    again = ask(client, model_id, make_rows(20))
    assert again.json()["id"] == first["id"]
    assert again.headers["idempotent-replayed"] == "true"
    other = ask(client, model_id, make_rows(21))
    check_problem(other, 422)


def test_a_model_that_is_deleted_fails_it(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    job = create(client, model_id, make_rows(20))
    assert client.delete(f"/models/{model_id}").status_code == 204
    work_off()
    ended = client.get(f"/jobs/{job['id']}").json()
    assert (ended["status"], ended["error"]["code"]) == ("failed", "model_deleted")


def test_a_file_is_read_as_the_models_own(client: TestClient) -> None:
    """Another delimiter has other decimal marks: decided once, for all chunks."""
    model_id = succeed(client, "y")["model_id"]
    german = "\n".join(
        ";".join(part.replace(".", ",") for part in line.split(","))
        for line in make_rows(30).splitlines()
    )
    job = create(client, model_id, german)
    work_off()
    check_same(fetch(client, job), predict(client, model_id, make_rows(30)))
    assert any("1.234,5" in warning for warning in job["warnings"])
