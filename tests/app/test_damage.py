"""Stored bytes that change by themselves: told as our fault, and never handed on."""

import hashlib
import io
import logging

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.serving import get_predict, get_predictors
from app.storage import blobs, db
from app.storage.tables import CHUNK_BYTES, Blob, BlobChunk, Dataset, TrainedModel
from tests.support.http import check_problem, post
from tests.support.models import ROWS, TABLE, succeed

pytestmark = [pytest.mark.both_databases, pytest.mark.database_store]

CONTENT = bytes(range(251)) * (3 * CHUNK_BYTES // 251)


def flip(sha256: str, at: int) -> None:
    """Change one bit of a stored blob."""
    index, offset = divmod(at, CHUNK_BYTES)
    with db.transaction() as session:
        blob = session.scalars(sa.select(Blob).where(Blob.sha256 == sha256)).one()
        chunk = session.get_one(BlobChunk, (blob.workspace_id, blob.generation, index))
        content = bytearray(chunk.content)
        content[offset] ^= 1
        chunk.content = bytes(content)


def forget_hashes() -> None:
    """As chunks are that were stored by earlier versions."""
    with db.transaction() as session:
        session.execute(sa.update(BlobChunk).values(sha256=None))


@pytest.mark.parametrize("at", [0, CHUNK_BYTES + 5, len(CONTENT) - 1])
def test_a_flipped_bit_is_found_and_mended(
    engine: sa.Engine, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    sha256 = blobs.store_bytes("default", CONTENT)
    flip(sha256, at)
    received = b""
    with pytest.raises(blobs.BlobDamaged):
        for chunk in blobs.chunks("default", sha256):
            received += chunk
    assert len(received) < len(CONTENT)
    with pytest.raises(blobs.BlobDamaged):
        blobs.read("default", sha256)
    alarms = [r for r in caplog.records if r.levelno == logging.CRITICAL]
    assert sha256 in alarms[0].getMessage()
    assert blobs.store_bytes("default", CONTENT) == sha256
    assert blobs.read("default", sha256) == CONTENT


@pytest.mark.parametrize("has_hashes", [True, False])
def test_a_part_of_a_damaged_file_is_not_read(
    engine: sa.Engine, has_hashes: bool
) -> None:
    sha256 = blobs.store_bytes("default", CONTENT)
    flip(sha256, CHUNK_BYTES + 5)
    if not has_hashes:
        forget_hashes()
    file = blobs.BlobFile("default", sha256)
    file.seek(CHUNK_BYTES + 100)
    with pytest.raises(blobs.BlobDamaged):
        file.read(10)


def test_chunks_of_earlier_versions_are_read(engine: sa.Engine) -> None:
    sha256 = blobs.store_bytes("default", CONTENT)
    forget_hashes()
    file = io.BufferedReader(blobs.BlobFile("default", sha256))
    assert hashlib.sha256(file.read()).hexdigest() == sha256


def test_a_reader_goes_on_when_the_blob_is_stored_again(engine: sa.Engine) -> None:
    sha256 = blobs.store_bytes("default", CONTENT)
    chunks = blobs.chunks("default", sha256)
    received = next(chunks)
    flip(sha256, 2 * CHUNK_BYTES)
    assert blobs.store_bytes("default", CONTENT) == sha256
    assert received + b"".join(chunks) == CONTENT


def find_table() -> str:
    with db.reading() as session:
        return session.scalars(sa.select(Dataset.table_sha256)).one()


def test_a_job_on_a_damaged_dataset_is_our_fault_until_it_is_sent_again(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"target": "y", "columns": {"label": "ignore"}}
    answer = client.post("/datasets", files={"file": ("t.csv", TABLE)})
    dataset_id = answer.json()["id"]
    flip(find_table(), 4000)
    on_dataset = {"dataset_id": dataset_id, **config}
    problem = check_problem(client.post("/jobs", json=on_dataset), 500, "upload")
    assert problem["code"] == "stored_data_damaged"
    assert any(r.levelno == logging.CRITICAL for r in caplog.records)
    again = client.post("/datasets", files={"file": ("t.csv", TABLE)})
    assert again.json()["id"] == dataset_id
    assert client.post("/jobs", json=on_dataset).status_code == 202


def test_a_damaged_model_is_not_served(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    model_id = succeed(client, "y")["model_id"]
    etag = client.get(f"/models/{model_id}/onnx").headers["etag"].strip('"')
    get_predictors.cache_clear()
    get_predict.cache_clear()  # which has the other ones
    flip(etag, 1000)
    for answer in (
        client.get(f"/models/{model_id}/onnx"),
        client.post(f"/models/{model_id}/predict", json={"rows": ROWS[:1]}),
    ):
        problem = check_problem(answer, 500)
        assert problem["code"] == "stored_data_damaged"
        assert "etag" not in answer.headers
    assert any(r.levelno == logging.CRITICAL for r in caplog.records)
    flip(etag, 1000)
    answer = client.post(f"/models/{model_id}/predict", json={"rows": ROWS[:1]})
    assert answer.status_code == 200


def test_a_stored_model_that_cannot_be_loaded_is_our_fault(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    sha256 = blobs.store_bytes("default", b"no model of ours")
    with db.transaction() as session:
        model = session.get_one(TrainedModel, model_id)
        model.onnx_sha256, model.facts = sha256, None
    for answer in (
        client.post(f"/models/{model_id}/predict", json={"rows": ROWS[:1]}),
        client.get(f"/models/{model_id}"),
    ):
        assert check_problem(answer, 500)["code"] == "model_unusable"


def test_uploading_again_is_no_second_copy(client: TestClient) -> None:
    config = {"target": "y", "columns": {"label": "ignore"}}
    for _ in range(2):
        assert post(client, TABLE, config).status_code == 202
    with db.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Blob)) == 1
