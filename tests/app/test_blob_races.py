"""Storing bytes against removing the same bytes: nothing acknowledged is lost."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.datasets import store as datasets
from app.datasets.uploads import Upload
from app.settings import get_settings
from app.storage import blobs, db
from app.storage.tables import CHUNK_BYTES, Blob, BlobChunk, Dataset
from lometab.table import ReadOptions
from tests.support.blobs import Watched, count, refer, remove
from tests.support.tables import make_csv

pytestmark = pytest.mark.both_databases

CONTENT = bytes(range(251)) * (4 * CHUNK_BYTES // 251)
N_ROUNDS = 25


N_READS = len(CONTENT) // CHUNK_BYTES + 2  # of one pass over the file, its end included


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 2 * N_READS + 1))
def test_a_removal_in_the_middle_of_storing(engine: sa.Engine, at: int) -> None:
    """The same bytes are there already, and go away at each possible moment."""
    sha256 = blobs.store_bytes("default", CONTENT)
    first = refer(sha256)
    is_removed = False

    def on_read(n_reads: int) -> None:
        nonlocal is_removed
        if n_reads == at and not is_removed:
            is_removed = True
            remove(first)

    assert blobs.store("default", Watched(CONTENT, on_read)) == sha256
    if not is_removed:  # it was found whole before that moment came
        remove(first)
    try:
        refer(sha256)
    except IntegrityError:
        # Removed after it was found whole: whoever refers to it is told, and stores it.
        assert blobs.store_bytes("default", CONTENT) == sha256
        refer(sha256)
    assert blobs.is_intact("default", sha256)
    assert blobs.read("default", sha256) == CONTENT


@pytest.mark.database_store
def test_a_removal_between_the_chunks_of_a_new_blob(engine: sa.Engine) -> None:
    """Two store the same new bytes; one is done and deleted while the other writes."""

    def on_read(n_reads: int) -> None:
        if n_reads == N_READS + 2:  # the second chunk, when it is written
            remove(refer(blobs.store_bytes("default", CONTENT)))

    sha256 = blobs.store("default", Watched(CONTENT, on_read))
    refer(sha256)
    assert blobs.read("default", sha256) == CONTENT
    assert count(Blob) == 1 and count(BlobChunk) == -(-len(CONTENT) // CHUNK_BYTES)


@pytest.mark.database_store
def test_of_two_that_store_the_same_one_is_kept(engine: sa.Engine) -> None:
    def on_read(n_reads: int) -> None:
        if n_reads == N_READS + 2:
            refer(blobs.store_bytes("default", CONTENT))

    sha256 = blobs.store("default", Watched(CONTENT, on_read))
    assert blobs.read("default", sha256) == CONTENT
    assert count(Blob) == 1 and count(BlobChunk) == -(-len(CONTENT) // CHUNK_BYTES)


def damage(sha256: str) -> None:
    """All chunks but the first are lost."""
    with db.transaction() as session:
        generation = session.get_one(Blob, ("default", sha256)).generation
        session.execute(
            sa.delete(BlobChunk).where(
                BlobChunk.generation == generation, BlobChunk.index > 0
            )
        )


@pytest.mark.database_store
def test_a_damaged_blob_is_told_and_mended(engine: sa.Engine) -> None:
    sha256 = blobs.store_bytes("default", CONTENT)
    refer(sha256)
    damage(sha256)
    assert not blobs.is_intact("default", sha256)
    with pytest.raises(blobs.BlobDamaged, match="upload the file again"):
        blobs.read("default", sha256)
    assert blobs.store_bytes("default", CONTENT) == sha256
    assert blobs.read("default", sha256) == CONTENT
    assert count(BlobChunk) == -(-len(CONTENT) // CHUNK_BYTES)


def upload(folder: Path, text: str) -> Dataset:
    folder.mkdir()
    path = folder / "file"
    path.write_text(text)
    sent = Upload(path=path, filename="t.csv", size=len(text), sha256="1" * 64)
    return datasets.ingest(sent, "default", ReadOptions(), get_settings())


@pytest.mark.database_store
def test_uploading_again_mends_a_dataset(engine: sa.Engine, tmp_path: Path) -> None:
    text = make_csv(200)
    dataset = upload(tmp_path / "first", text)
    with db.transaction() as session:
        session.execute(sa.delete(BlobChunk))
    again = upload(tmp_path / "second", text)
    assert again.id == dataset.id
    assert datasets.open_table(again).n_rows == 200


@pytest.mark.slow
@pytest.mark.database_store
def test_uploads_and_deletions_at_random(engine: sa.Engine, tmp_path: Path) -> None:
    """Whatever the order: what an upload answered with can be read, unless deleted."""
    text = make_csv(60)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        try:
            for i in range(N_ROUNDS):
                dataset = upload(tmp_path / f"{number}-{i}", text)
                if rng.random() < 0.6:
                    delete_if_there(dataset.id)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    dataset = upload(tmp_path / "last", text)
    assert datasets.open_table(dataset).n_rows == 60
    assert count(Blob) == 1 and count(Dataset) == 1
    with db.reading() as session:
        generation = session.scalars(sa.select(Blob.generation)).one()
        found = set(session.scalars(sa.select(BlobChunk.generation)))
    assert found == {generation}  # nothing is left of the others


def delete_if_there(id_: str) -> None:
    with db.transaction() as session:
        dataset = session.get(Dataset, id_, with_for_update=True)
        if dataset is None:
            return
        session.delete(dataset)
        session.flush()
        blobs.remove_unused(session, "default", dataset.table_sha256)


def test_a_dataset_that_goes_while_it_is_looked_for(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another row was in the way of ours, and is deleted before we can read it."""
    insert = db.insert_unless_exists
    met: list[type[Any]] = []

    def meet(session: Any, table: type[Any], **values: Any) -> bool:
        if table is Dataset and not met:
            met.append(table)
            return False
        return insert(session, table, **values)

    monkeypatch.setattr(db, "insert_unless_exists", meet)
    dataset = upload(tmp_path / "first", make_csv(30))
    assert met and datasets.open_table(dataset).n_rows == 30


@pytest.mark.database_store
def test_a_store_that_is_cut_off_leaves_nothing(engine: sa.Engine) -> None:
    def on_read(n_reads: int) -> None:
        if n_reads == N_READS + 3:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        blobs.store("default", Watched(CONTENT, on_read))
    assert count(Blob) == count(BlobChunk) == 0
