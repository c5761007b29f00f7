"""A backup that was restored predicts as before; nothing is overwritten."""

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
import typer
from fastapi.testclient import TestClient

from app import jobs
from app.cli import backup
from app.errors import StoreAway
from app.main import app
from app.settings import Settings, get_settings
from app.storage import blobs, db, stores
from app.storage.tables import Blob, Dataset
from tests.support.http import post
from tests.support.jobs import CLAIM
from tests.support.models import ROWS, TABLE, TINY, trained
from tests.support.services import post_job, wait_for_end
from tests.support.stacks import Service, Stack, Stacks
from tests.support.tables import make_csv
from worker.record import Record, make_spec

Use = Callable[[Path], TestClient]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """The API on a data directory."""
    engines = []
    clients = []

    def use(folder: Path) -> TestClient:
        folder.mkdir(exist_ok=True)
        engine = db.make_engine(f"sqlite:///{folder}/lometab.db")
        engines.append(engine)
        monkeypatch.setattr(db, "get_engine", lambda: engine)
        monkeypatch.setattr(
            backup, "find_settings", lambda **_: Settings(data_dir=folder)
        )
        client = TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 50000))
        clients.append(client)
        return client

    yield use
    db.dispose_predict_engine()
    for engine in engines:
        engine.dispose()


def train(client: TestClient) -> str:
    """A model, each of whose writes is a transaction of its own."""
    config = {"target": "y", "columns": {"label": "ignore"}, "hyperparameters": TINY}
    assert post(client, TABLE, config).status_code == 202
    with db.transaction() as session:
        job = jobs.claim(session, **CLAIM)
        assert job is not None
        dataset = session.get_one(Dataset, job.dataset_id)
    spec = make_spec(job, dataset, get_settings())
    same = replace(spec, job_id="", attempt=1, dataset_sha256="0" * 64)
    content, reports = trained(same.to_json())
    assert Record(job).finish(content, reports, {"epoch": 6, "max_epochs": 6})
    return str(client.get(f"/jobs/{job.id}").json()["model_id"])


def test_a_restored_backup_predicts(use: Use, tmp_path: Path) -> None:
    client = use(tmp_path / "old")
    db.migrate()
    with client:
        model_id = train(client)
        predict = f"/models/{model_id}/predict"
        before = client.post(predict, json={"rows": ROWS}).json()
        file = tmp_path / "backup"
        backup.backup(file)
    assert file.stat().st_mode & 0o777 == 0o600
    client = use(tmp_path / "new")
    backup.restore(file)
    with client:
        assert client.post(predict, json={"rows": ROWS}).json() == before
        assert client.get(f"/models/{model_id}/onnx").status_code == 200
    assert {path.name for path in tmp_path.iterdir()} == {"old", "new", "backup"}
    for again in (backup.backup, backup.restore):  # both are there already
        with pytest.raises(typer.Exit):
            again(file)


def test_files_that_are_kept_elsewhere_are_told_of(
    use: Use,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, file = tmp_path / "store", tmp_path / "backup"
    monkeypatch.setenv("LOMETAB_BLOB_STORE", str(store))
    get_settings.cache_clear()
    client = use(tmp_path / "old")
    db.migrate()
    with client:
        model_id = train(client)
    n_files = sum(each.is_file() for each in store.rglob("*"))
    n_bytes = sum(each.stat().st_size for each in store.rglob("*") if each.is_file())
    assert n_files > 1
    backup.backup(file, as_json=True)
    told = capsys.readouterr()
    elsewhere = {"store": f"file://{store}", "files": n_files, "bytes": n_bytes}
    assert json.loads(told.out)["elsewhere"] == [elsewhere]
    assert f"lacks {n_files} files, {n_bytes} bytes" in told.err.replace("\n", " ")
    client = use(tmp_path / "new")
    backup.restore(file, as_json=True)
    told = capsys.readouterr()
    assert json.loads(told.out)["elsewhere"] == [{**elsewhere, "missing": 0}]
    assert not told.err
    with client:
        answer = client.post(f"/models/{model_id}/predict", json={"rows": ROWS})
        assert answer.status_code == 200
    store.rename(tmp_path / "away")
    use(tmp_path / "newer")
    with pytest.raises(typer.Exit) as raised:
        backup.restore(file, as_json=True)
    assert raised.value.exit_code == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["elsewhere"] == [{**elsewhere, "missing": n_files}]
    assert f"lacks {n_files} of them" in told.err.replace("\n", " ")
    get_settings.cache_clear()


def test_a_store_out_of_reach_is_told_of(
    use: Use,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use(tmp_path / "old")
    db.migrate()
    blobs.store_bytes("default", b"a file")
    with db.transaction() as session:
        session.execute(sa.update(Blob).values(store="s3://no-bucket"))
    backup.backup(tmp_path / "backup")
    with pytest.raises(typer.Exit):
        use(tmp_path / "new")
        monkeypatch.setattr(stores, "get_store", fail)
        backup.restore(tmp_path / "backup")
    told = capsys.readouterr().err.replace("\n", " ")
    assert "are in s3://no-bucket: save that store too" in told
    assert "s3://no-bucket, which cannot be reached" in told


def fail(_: str | None) -> None:
    raise StoreAway()


def test_a_backup_is_one_state_whoever_writes(use: Use, tmp_path: Path) -> None:
    """Two numbers that are written together are the same in it."""
    use(tmp_path / "old")
    db.migrate()
    database = tmp_path / "old" / "lometab.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE a (n)")
        connection.execute("CREATE TABLE b (n)")
        for name in "ab":
            connection.execute(f"INSERT INTO {name} VALUES (0)")
    stopping = threading.Event()

    def write() -> None:
        with closing(
            sqlite3.connect(database, isolation_level=None, timeout=30)
        ) as connection:
            n = 0
            while not stopping.is_set():
                n += 1
                connection.execute("BEGIN IMMEDIATE")
                for name in "ab":
                    connection.execute(f"UPDATE {name} SET n = {n}")
                connection.execute("COMMIT")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        file = tmp_path / "backup"
        backup.backup(file)
    finally:
        stopping.set()
        writer.join()
    with closing(sqlite3.connect(file)) as connection:
        ((a, b),) = connection.execute("SELECT a.n, b.n FROM a, b")
    assert a == b


def test_what_is_no_backup_is_not_restored(
    use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(tmp_path / "new")
    (tmp_path / "text").write_text("no database\n" * 1000)
    with closing(sqlite3.connect(tmp_path / "other")) as connection:
        connection.execute("CREATE TABLE a (n)")
    for name in ("text", "other", "nothing"):
        with pytest.raises(typer.Exit):
            backup.restore(tmp_path / name)
    assert not [*(tmp_path / "new").iterdir()]
    told = capsys.readouterr().err
    assert told.count("no whole backup") == 2 and "there is no file" in told


def test_postgres_has_its_own_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(database_url="postgresql+psycopg://me@host/db")
    monkeypatch.setattr(backup, "find_settings", lambda **_: settings)
    with pytest.raises(typer.Exit):
        backup.backup(Path("x"))
    assert "pg_dump" in capsys.readouterr().err


@pytest.mark.parametrize("stack", ["production"], indirect=True)
def test_a_restored_dump_of_postgres_predicts(
    stack: Stack, stacks: Stacks, start_service: Callable[[], Service]
) -> None:
    """By the programs and the options that docs/operations.md names."""
    service = start_service()
    job = wait_for_end(service, post_job(service.client, make_csv())["id"])
    predict, body = f"/models/{job['model_id']}/predict", {"rows": [ROW]}
    before = service.client.post(predict, json=body)
    assert before.status_code == 200, before.text
    postgres, dump = stacks.postgres, stack.folder / "lometab.dump"

    def run(program: str, *options: str) -> None:
        done = subprocess.run(
            [postgres.programs / program, *options],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    old, new = plain(stack.url), plain(postgres.url("restored"))
    run("pg_dump", "--format=custom", f"--file={dump}", old)
    service.stop()
    run("createdb", f"--maintenance-db={old}", "restored")
    run("pg_restore", f"--dbname={new}", str(dump))
    stack.environment["LOMETAB_DATABASE_URL"] = postgres.url("restored")
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "doctor", "--deep"],
        env=stack.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    after = start_service().client.post(predict, json=body)
    assert after.json() == before.json()


ROW = {"size": 5.0, "colour": "red", "weight": 4.0, "label": "high"}


def plain(url: str) -> str:
    """As Postgres' own programs take it."""
    return url.replace("+psycopg", "")
