"""A table that was damaged where it is stored: no training on it, and a way out."""

import pytest
import sqlalchemy as sa

from app import jobs
from app.storage import blobs, db
from app.storage.tables import BlobChunk, Job
from tests.support.fake_child import FakeChild, add_job, attempt, read, write_model

pytestmark = pytest.mark.usefixtures("sqlite")


@pytest.mark.database_store
def test_retry_succeeds_once_the_file_was_sent_again() -> None:
    job = add_job()
    with db.transaction() as session:
        session.execute(sa.update(BlobChunk).values(content=b"a tablf"))
    child = FakeChild([write_model])
    with pytest.raises(blobs.BlobDamaged):
        attempt(child)
    failed = read(job)
    assert failed.status == "failed" and failed.error is not None
    assert failed.error["code"] == "internal"
    assert "upload the file again" in failed.error["detail"]
    assert child.specs == []
    blobs.store_bytes("default", b"a table")  # what uploading it again does
    with db.transaction() as session:
        assert jobs.retry(session, session.get_one(Job, job.id))
    assert attempt(FakeChild([write_model])).status == "succeeded"
