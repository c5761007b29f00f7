"""Models that the API of this process serves, trained once for all tests."""

import csv
import io
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app import jobs
from app.settings import get_settings
from app.storage import blobs, db
from app.storage.tables import Dataset, Job
from lometab.table import read_file
from tests.support.http import post
from tests.support.jobs import CLAIM
from tests.support.tables import make_csv
from worker import train
from worker.messages import DATA, REPORTS, Spec
from worker.record import make_spec

TINY = {
    "k": 3,
    "rank": 2,
    "n_blocks": 1,
    "d_block": 16,
    "n_bins": 6,
    "d_embedding": 4,
    "max_epochs": 6,
    "batch_size": 32,
}
TABLE = make_csv(400)
ROWS = [*csv.DictReader(io.StringIO(TABLE))][:20]
OTHER = {"y": "label", "label": "y"}


@cache
def trained(text: str) -> tuple[bytes, dict[str, Any]]:
    """The file and the reports that the training process leaves for a job's spec."""
    with TemporaryDirectory(prefix="lometab-trained-") as name:
        folder = Path(name)
        source = folder / "table.csv"
        source.write_text(TABLE)
        read_file(source, folder / DATA)
        train.run(Spec.from_json(text), folder, lambda _: None, set())
        reports = json.loads((folder / REPORTS).read_text())
        return (folder / train.ONNX).read_bytes(), reports


def finish(session: Session, job: Job) -> None:
    """End a job that was claimed, as a worker does once it is trained."""
    dataset = session.get_one(Dataset, job.dataset_id)
    spec = make_spec(job, dataset, get_settings())
    # Nothing of the job itself, so that one training serves many.
    same = replace(spec, job_id="", attempt=1, dataset_sha256="0" * 64)
    content, reports = trained(same.to_json())
    sha256 = blobs.store_bytes(job.workspace_id, content)
    named = {kind: {**body, "job_id": job.id} for kind, body in reports.items()}
    progress = {"epoch": 6, "max_epochs": 6}
    assert jobs.finish(
        session, job, onnx_sha256=sha256, reports=named, progress=progress
    )


def succeed(client: TestClient, target: str) -> dict[str, Any]:
    """A job posted over HTTP and done as a worker does it."""
    config = {"target": target, "columns": {OTHER[target]: "ignore"}}
    answer = post(client, TABLE, {**config, "hyperparameters": TINY})
    assert answer.status_code == 202, answer.text
    with db.transaction() as session:
        claimed = jobs.claim(session, **CLAIM)
        assert claimed is not None
        finish(session, claimed)
    job: dict[str, Any] = client.get(f"/jobs/{claimed.id}").json()
    assert job["status"] == "succeeded"
    return job


def train_as_worker(folder: Path, *, has_reading: bool = True) -> str:
    """Do the next job as a worker does, files in the folder; its id.

    Args:
        has_reading: whether the model knows how its file was read; those of before
            do not.
    """
    with db.transaction() as session:
        job = jobs.claim(session, **CLAIM)
        assert job is not None
        dataset = session.get_one(Dataset, job.dataset_id)
        table = b"".join(blobs.chunks(dataset.workspace_id, dataset.table_sha256))
        (folder / DATA).write_bytes(table)
        spec = make_spec(job, dataset, get_settings())
        if not has_reading:
            spec = replace(spec, reading={})
        train.run(spec, folder, lambda _: None, set())
        content = (folder / train.ONNX).read_bytes()
        assert jobs.finish(
            session,
            job,
            onnx_sha256=blobs.store_bytes(job.workspace_id, content),
            metadata=jobs.read_facts(content),
            reports=json.loads((folder / REPORTS).read_text()),
            progress={"epoch": 2, "max_epochs": 2},
        )
        return job.id
