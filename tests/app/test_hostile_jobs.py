"""What is read of people's files trains, and the same file is predicted whole."""

import io
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app import jobs
from app.serving import get_predict
from app.settings import get_settings
from app.storage import blobs, db
from app.storage.tables import Dataset
from lometab.config import TrainConfig
from lometab.ensemble import train_ensemble
from lometab.export import to_onnx
from lometab.predictor import Predictor
from lometab.table import Dialect, ParquetTable, Schema, Split, split_rows
from tests.support.hostile_files import Case
from tests.support.http import check_problem, upload
from tests.support.jobs import CLAIM, REPORTS
from tests.support.sheet_files import SHEETS
from tests.support.written_files import EXTRA
from worker.messages import Spec
from worker.record import make_spec

SMALL = {"k": 2, "rank": 1, "n_blocks": 1, "d_block": 8, "n_bins": 4, "d_embedding": 2}
CASES = {
    case.name: case
    for case in (*EXTRA, *SHEETS)
    if case.status == 201 and not case.is_slow
}
KINDS = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "json": "application/json",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
TOLD = {
    **dict.fromkeys(("skipped lines, told", "a footer, told"), "numeric"),
    **dict.fromkeys(("several units", "shares among plain numbers"), "categorical"),
    **dict.fromkeys(("one letter among 400 numbers", "bounds"), "numeric"),
    "dates but for one": "datetime",
}
"""The kind of `x`, where the file alone gives nothing to learn from."""
REFUSED = {
    "a padded title": "only one value",
    "a few rows and a total are no evidence": "needs at least 10",
    "JSON lines": "too few",
    "JSON lines with gaps": "only one value",
    "a JSON array": "no column is left",
    "a JSON array over lines": "too few",
    "JSON as pandas splits it": "too few",
    "sentences": "too few",
    "an index of pandas in Parquet": "no column is left",
    "formulas that were never computed": "no column is left",
}
"""Files from which nothing can be learned, and why."""


@dataclass(frozen=True)
class Trained:
    """A model of a case, and what it answers to the rows as they were read."""

    content: bytes
    means: Any


@cache
def trained(name: str, text: str, table: bytes) -> Trained:
    """One epoch: this is about the reading, and the same for both databases."""
    spec = Spec.from_json(text)
    schema = Schema.from_dict(dict(spec.schema))
    rows = ParquetTable(io.BytesIO(table))
    parts = split_rows(rows, schema, Split(**spec.split))
    config = TrainConfig(**spec.hyperparameters)
    ensemble = train_ensemble(rows, schema, parts, config)
    metadata = {}
    if spec.reading["format"] == "csv":
        metadata["reading"] = Dialect.from_dict(spec.reading).to_dict()
    content = to_onnx(ensemble, metadata=metadata)
    columns = {name: column.to_pylist() for name, column in rows.items()}
    return Trained(content, Predictor(content).predict(columns).mean)


def train_case(client: TestClient, case: Case) -> tuple[str, Trained] | None:
    """Upload, job, and a model of it; None if the job is refused as it should be."""
    dataset = upload(client, case.content, case.options).json()
    body = {
        "dataset_id": dataset["id"],
        "target": find_target(dataset["columns"]),
        "columns": {"x": TOLD[case.name]} if case.name in TOLD else {},
        "drop_missing_target": True,
        "hyperparameters": {**SMALL, "max_epochs": 1},
    }
    answer = client.post("/jobs", json=body)
    if case.name in REFUSED:
        check_problem(answer, 422, REFUSED[case.name])
        return None
    assert answer.status_code == 202, (case.name, answer.text)
    with db.transaction() as session:
        job = jobs.claim(session, **CLAIM, job_id=answer.json()["id"])
        assert job is not None
        row = session.get_one(Dataset, job.dataset_id)
        spec = make_spec(job, row, get_settings())
        table = b"".join(blobs.chunks(row.workspace_id, row.table_sha256))
        same = replace(spec, job_id="", attempt=1)
        model = trained(case.name, same.to_json(), table)
        sha256 = blobs.store_bytes(job.workspace_id, model.content)
        assert jobs.finish(
            session,
            job,
            onnx_sha256=sha256,
            reports=REPORTS,
            progress={"epoch": 1, "max_epochs": 1},
        )
    model_id = client.get(f"/jobs/{answer.json()['id']}").json()["model_id"]
    return f"/models/{model_id}/predict", model


def find_target(columns: list[dict[str, Any]]) -> str:
    """The last column of numbers, or else the one with the fewest texts."""
    numbers: list[str] = [c["name"] for c in columns if c["kind"] == "numeric"]
    if numbers:
        return numbers[-1]
    name: str = min(columns, key=lambda c: c["n_distinct"] or 1e9)["name"]
    return name


def find_query(case: Case, reading: dict[str, Any]) -> dict[str, Any]:
    """What a query must say as the upload did."""
    told = {n: v for n, v in case.options.items() if n not in ("not_missing",)}
    header = reading["header"]
    if header is not None and not header["value"]:
        told["header"] = False
    return {
        name: str(value).lower() if value is False else value
        for name, value in told.items()
    }


@pytest.mark.slow
@pytest.mark.both_databases
def test_files_train_and_are_predicted(client: TestClient) -> None:
    assert len(CASES) - len(REFUSED) >= 70
    get_predict.cache_clear()
    for name, case in CASES.items():
        found = train_case(client, case)
        if found is None:
            continue
        path, model = found
        reading = upload(client, case.content, case.options).json()["reading"]
        kind = KINDS[reading["format"]]
        if name.startswith("JSON lines"):
            kind = "application/x-ndjson"
        answer = client.post(
            path,
            params={"include": "mean", **find_query(case, reading)},
            content=case.content,
            headers={"Content-Type": kind},
        )
        assert answer.status_code == 200, (name, answer.text)
        means = [row["mean"] for row in answer.json()["predictions"]]
        np.testing.assert_allclose(
            means, model.means, rtol=1e-5, atol=1e-6, err_msg=name
        )
    get_predict.cache_clear()
