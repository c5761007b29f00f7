"""What dead processes leave behind goes; what the living use stays."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.jobs import queue
from app.settings import Settings
from app.storage import blobs, chunks, db, orphans, scratch
from app.storage.scratch import use_own_folder
from app.storage.tables import Blob, BlobChunk, Worker, utc_now
from tests.support.fake_child import add_job
from tests.support.servers import wait_until
from worker import janitor, reaper
from worker.identity import stopping

ROOT = Path(__file__).parents[2]
HOLDER = """
import pathlib, sys, tempfile, time
from app.storage import scratch
with scratch.use_own_folder():
    pathlib.Path(tempfile.mkdtemp(prefix="lometab-upload-"), "file").touch()
    print("ready", flush=True)
    sys.stdin.read()
"""


def age(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


@pytest.mark.processes
def test_folders_go_with_their_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        (folder,) = tmp_path.iterdir()
        assert len([*folder.glob("lometab-upload-*/file")]) == 1
        assert scratch.remove_abandoned(tmp_path, min_age=-1) == 0
        assert folder.exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert scratch.remove_abandoned(tmp_path) == 0  # it may be new, not yet locked
        assert scratch.remove_abandoned(tmp_path, min_age=-1) == 1
        assert [*tmp_path.iterdir()] == []
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_an_orderly_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = tmp_path / f"{scratch.PREFIX}dead"
    dead.mkdir()
    age(dead, 120)
    with use_own_folder():
        assert not dead.exists()
        (folder,) = tmp_path.iterdir()
        assert Path(tempfile.mkdtemp()).parent == folder
        assert scratch.find_base() == tmp_path
    assert tempfile.gettempdir() == str(tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_what_earlier_versions_left_goes_after_a_day(tmp_path: Path) -> None:
    for name in ("lometab-upload-a", "lometab-job-b", "lometab-notes", "other"):
        (tmp_path / name).mkdir()
        age(tmp_path / name, 2 * 86400)
    (tmp_path / "lometab-predict-c").touch()
    age(tmp_path / "lometab-predict-c", 2 * 86400)
    (tmp_path / "lometab-job-new").mkdir()
    assert scratch.remove_abandoned(tmp_path) == 3
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["lometab-job-new", "lometab-notes", "other"]


@pytest.fixture
def clean(sqlite: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_rows_of_dead_workers_go(clean: None) -> None:
    with db.transaction() as session:
        for name, hours in (("dead", 2), ("busy", 0.5)):
            moment = utc_now() - timedelta(hours=hours)
            session.add(
                Worker(
                    id=name, workspace_id="default", queue="cpu", heartbeat_at=moment
                )
            )
    janitor.run(Settings())
    with db.reading() as session:
        assert [*session.scalars(sa.select(Worker.id))] == ["busy"]


def test_the_reaper_runs_it(clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Settings] = []

    def run(settings: Settings) -> None:
        runs.append(settings)
        stopping.set()

    monkeypatch.setattr(janitor, "run", run)
    monkeypatch.setattr(queue, "notify", lambda *_: None)
    reaper.run_for_ever()
    assert len(runs) == 1


def backdate(seconds: float) -> None:
    """As if all that is stored had been stored before."""
    with db.transaction() as session:
        for blob in session.scalars(sa.select(Blob)):
            blob.created_at -= timedelta(seconds=seconds)


def count(table: type[Blob] | type[BlobChunk]) -> int:
    with db.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(table)) or 0


@pytest.mark.database_store
def test_blobs_that_nothing_refers_to_go(clean: None) -> None:
    checkpoint = blobs.store_bytes("default", b"a checkpoint")
    add_job(checkpoint_sha256=checkpoint)  # and its table
    blobs.store_bytes("default", b"nobody's")
    blobs.store_bytes("other", b"a table")
    backdate(4000)
    blobs.store_bytes("default", b"somebody's in a moment")
    assert orphans.remove_orphans() == 2
    assert count(Blob) == count(BlobChunk) == 3
    assert blobs.is_intact("default", checkpoint)
    assert orphans.remove_orphans() == 0


def add_chunk(generation: str) -> None:
    with db.transaction() as session:
        session.add(
            BlobChunk(
                workspace_id="default", generation=generation, index=0, content=b"x"
            )
        )


@pytest.mark.database_store
def test_chunks_that_nobody_named_go(clean: None) -> None:
    add_job()
    add_chunk(f"{int(time.time()) - 4000:010x}-{'0' * 24}")
    add_chunk("f" * 64)  # of an earlier version
    add_chunk(f"{int(time.time()) - 10:010x}-{'0' * 24}")
    assert orphans.remove_orphans() == 2
    assert count(BlobChunk) == 2


@pytest.mark.database_store
def test_an_upload_that_takes_longer_than_that_is_not_lost(
    clean: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chunks are cleared away before it could name them: it stores them again."""
    write = chunks.DatabaseStore.write
    n_writes = 0

    def write_slowly(*args: object) -> None:
        nonlocal n_writes
        n_writes += 1
        write(*args)  # type: ignore[arg-type]
        if n_writes == 1:
            assert orphans.remove_orphans(min_age=-5) == 1

    monkeypatch.setattr(chunks.DatabaseStore, "write", write_slowly)
    sha256 = blobs.store_bytes("default", b"slow")
    assert n_writes == 2
    assert blobs.read("default", sha256) == b"slow"
    assert count(BlobChunk) == 1


@pytest.mark.database_store
def test_what_is_named_at_that_moment_stays(
    clean: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = blobs.store_bytes("default", b"here")
    with db.reading() as session:
        blob = session.get_one(Blob, ("default", sha256))
    with db.transaction() as session:
        assert not chunks.remove_unnamed(session, "default", blob.generation)
    assert blobs.read("default", sha256) == b"here"


@pytest.mark.processes
@pytest.mark.slow
def test_a_worker_leaves_no_folder(sqlite: sa.Engine, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.tasks"],
        env={
            **os.environ,
            "LOMETAB_DATA_DIR": str(tmp_path),
            "TMPDIR": str(temporary),
            "PYTHONPATH": str(ROOT),
        },
    )
    try:
        wait_until(lambda: any(temporary.iterdir()), seconds=60, what="its folder")
        wait_until(lambda: count_workers() == 1, seconds=60, what="its heartbeat")
    finally:
        process.terminate()
        process.wait(60)
    assert [*temporary.iterdir()] == []


def count_workers() -> int:
    with db.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(Worker)) or 0
