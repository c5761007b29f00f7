"""Keys that expire, are rotated, and tell when they were last used."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from app import access as auth
from app.access.uses import uses
from app.cli.application import cli
from app.errors import Unauthorized
from app.serving.models import find_served
from app.settings import get_settings
from app.storage import db
from app.storage.tables import ApiKey, AuditRecord, utc_now
from tests.support.http import check_problem, make_key

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def no_uses() -> Iterator[None]:
    uses.clear()
    yield
    uses.clear()


def make(**values: object) -> tuple[ApiKey, str]:
    with db.transaction() as session:
        return auth.create_key(
            session,
            workspace_id="default",
            name="test",
            scopes=auth.SCOPES,
            **values,  # type: ignore[arg-type]
        )


def ask(client: TestClient, secret: str) -> int:
    """The same by a route and by predict, which look for the key in two ways."""
    headers = {"Authorization": f"Bearer {secret}"}
    status = client.get("/jobs", headers=headers).status_code
    body = {"rows": [{"a": 1}]}
    predict = client.post("/models/mdl_x/predict", headers=headers, json=body)
    assert predict.status_code == {200: 404, 401: 401}[status]
    return status


@pytest.mark.both_databases
def test_a_key_ends_with_its_time(client: TestClient) -> None:
    _, secret = make(expires_at=utc_now() + HOUR)
    assert ask(client, secret) == 200
    with db.transaction() as session:
        session.execute(
            sa.update(ApiKey)
            .where(ApiKey.sha256 == auth.hash_key(secret))
            .values(expires_at=utc_now() - HOUR)
        )
    assert ask(client, secret) == 401
    headers = {"Authorization": f"Bearer {secret}"}
    check_problem(client.get("/jobs", headers=headers), 401, "expired")


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_key_ends_by_the_clock_alone(engine: sa.Engine) -> None:
    """Nothing is written meanwhile: what predict keeps of a key on SQLite holds for a
    second at most."""
    _, secret = make(expires_at=utc_now() + timedelta(seconds=1.5))
    db.drop_kept_connection()
    try:
        with pytest.raises(Exception, match="no model"):
            find_served(secret, "mdl_x")
        auth.find_caller(secret)
        time.sleep(3.6)
        with pytest.raises(Unauthorized):
            auth.find_caller(secret)
        with pytest.raises(Unauthorized):
            find_served(secret, "mdl_x")
    finally:
        db.drop_kept_connection()


@pytest.mark.both_databases
def test_a_rotated_key_is_valid_for_a_while(client: TestClient) -> None:
    old, old_secret = make(
        expires_at=utc_now() + 100 * HOUR, requests_per_minute=50, max_concurrent=5
    )
    with db.transaction() as session:
        made = auth.rotate_key(session, old.id, HOUR)
    assert made is not None
    new, secret = made
    assert ask(client, old_secret) == ask(client, secret) == 200
    assert (new.rotated_from, new.name, new.scopes) == (old.id, "test", old.scopes)
    assert (new.requests_per_minute, new.max_concurrent) == (50, 5)
    assert new.expires_at is not None and new.expires_at > utc_now() + 99 * HOUR
    with db.reading() as session:
        ends = session.get_one(ApiKey, old.id).expires_at
    assert ends is not None and ends <= utc_now() + HOUR
    with db.transaction() as session:
        assert auth.rotate_key(session, old.id, timedelta(0)) is not None
    with db.transaction() as session:
        assert auth.rotate_key(session, "key_x", HOUR) is None


def test_a_key_without_grace_ends_at_once(client: TestClient) -> None:
    old, secret = make()
    with db.transaction() as session:
        assert auth.rotate_key(session, old.id, timedelta(seconds=-2)) is not None
    assert ask(client, secret) == 401


@pytest.mark.both_databases
def test_the_last_use_is_written_apart_from_requests(client: TestClient) -> None:
    key, secret = make()
    headers = {"Authorization": f"Bearer {secret}"}

    def read() -> datetime | None:
        with db.reading() as session:
            return session.get_one(ApiKey, key.id).last_used_at

    client.get("/jobs", headers=headers)
    assert read() is None  # no request waits for it
    asyncio.run(uses.write())
    first = read()
    assert first is not None and abs(first - utc_now()) < timedelta(seconds=10)
    asyncio.run(uses.write())
    assert read() == first  # nothing was used since
    client.post("/models/mdl_x/predict", headers=headers, json={"rows": [{}]})
    asyncio.run(uses.write())
    second = read()
    assert second is not None and second > first


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["keys", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


@pytest.fixture
def command(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    assert engine.url.database is not None
    monkeypatch.setenv("LOMETAB_DATA_DIR", str(Path(engine.url.database).parent))
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


def test_the_command_makes_keys_that_end(command: None) -> None:
    secret = run("create", "laptop", "--expires", "90d", "--requests-per-minute", "9")
    assert auth.find_caller(secret).requests_per_minute == 9
    assert "until 20" in run("list") and "laptop" in run("list")
    run("create", "--expires", "2999-01-31")
    for wrong in ("soon", "2001-01-01", "90", "2026-13-01"):
        done = CliRunner().invoke(cli, ["keys", "create", "--expires", wrong])
        assert done.exit_code == 2, wrong


def test_the_command_rotates_and_leaves_a_record(command: None) -> None:
    run("create", "laptop")
    id_ = json.loads(run("list", "--json"))[0]["id"]
    secret = run("rotate", id_, "--grace", "60")
    auth.find_caller(secret)
    run("revoke", id_)
    assert CliRunner().invoke(cli, ["keys", "rotate", id_]).exit_code == 2
    with db.reading() as session:
        records = session.scalars(
            sa.select(AuditRecord).order_by(AuditRecord.created_at)
        ).all()
    assert [each.route for each in records] == [
        "keys create",
        "keys rotate",
        "keys revoke",
    ]
    assert {each.method for each in records} == {"CLI"}
    assert records[0].target_id == records[2].target_id == id_


def test_the_rule_for_an_active_key_is_in_one_place() -> None:
    root = Path(__file__).parents[2]
    for path in (root / "app").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name not in ("keys.py", "tables.py", "cli.py"):
            assert "revoked_at" not in text, path


def test_make_key_is_active(client: TestClient) -> None:
    assert ask(client, make_key()) == 200
