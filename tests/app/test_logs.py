"""Lines of the log: none can be forged, and none shows a value of a statement."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.observe import (
    Formatter,
    JsonFormatter,
    Observed,
    about,
    configure_logging,
    describe_error,
    write_lines,
)
from app.settings import get_settings
from app.storage import db
from app.storage.tables import ApiKey
from tests.support.http import make_key

FORGED = "x\n2026-01-01 00:00:00,000 INFO app.main: forged \x1b[31m\x9b\u2028\r"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a logger with our format writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Formatter())
    logger = logging.getLogger("tests.forging")
    logger.propagate = False
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)
    logger.propagate = True


log = logging.getLogger("tests.forging")


def test_a_message_is_one_line_whatever_is_in_it(written: io.StringIO) -> None:
    log.warning("a file %s came", FORGED)
    (line,) = written.getvalue().splitlines()
    assert line.isprintable()
    assert r"x\n2026-01-01" in line and r"\x1b[31m\x9b\u2028\r" in line


def test_no_line_of_a_traceback_looks_like_one_of_ours(written: io.StringIO) -> None:
    try:
        try:
            raise ValueError(FORGED)
        except ValueError as error:
            raise ExceptionGroup("two", [error, KeyError(FORGED)]) from error
    except ExceptionGroup:
        log.exception("it failed")
    first, *others = written.getvalue().splitlines()
    assert first.endswith("tests.forging: it failed")
    assert len(others) > 6
    for line in others:
        assert line.startswith("    ") and line.isprintable()
    assert sum("ValueError: x" in line for line in others) == 1
    assert "in test_no_line_of_a_traceback" in written.getvalue()


@pytest.mark.parametrize("formatter", [Formatter(), JsonFormatter()])
def test_no_address_shows_its_password(
    written: io.StringIO, formatter: logging.Formatter
) -> None:
    for handler in log.handlers:
        handler.setFormatter(formatter)
    broker = "redis://:geheim@h:1/0"
    try:
        raise OSError(f"{broker} is away")
    except OSError:
        log.exception("no way to %s", "postgresql://u@h/db?password=geheim")
    assert written.getvalue().count("***") == 2
    assert "geheim" not in written.getvalue()


SECRET = "5ec2e7" * 10


def insert_twice(engine: sa.Engine) -> None:
    values = {
        "id": f"key_{SECRET}",
        "workspace_id": "w",
        "name": "n",
        "sha256": SECRET,
        "hint": "h",
        "scopes": [],
    }
    with engine.begin() as connection:
        connection.execute(sa.insert(ApiKey), values)
        connection.execute(sa.insert(ApiKey), values)


def give_a_text_for_a_number(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        statement = sa.text("SELECT CAST(:value AS integer)")
        connection.execute(statement, {"value": SECRET})
        if engine.dialect.name == "sqlite":  # which takes it
            raise sa.exc.DataError("SELECT 1", {}, Exception("no"))


@pytest.mark.both_databases
@pytest.mark.parametrize("fail", [insert_twice, give_a_text_for_a_number])
def test_values_of_statements_stay_out_of_logs(
    engine: sa.Engine, written: io.StringIO, fail: Any
) -> None:
    try:
        fail(engine)
    except sa.exc.DBAPIError as error:
        log.exception("request %s failed: %s", "r", describe_error(error))
    text = written.getvalue()
    assert "DBAPIError" in text or "Error" in text
    assert "[SQL: " in text  # the statement without its values is of use
    assert SECRET not in text
    if fail is insert_twice:
        assert "api_keys" in text


def test_our_format_takes_the_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery configures the root before us; uvicorn its own loggers."""
    monkeypatch.setattr(logging, "_srcfile", logging._srcfile)
    root = logging.getLogger()
    for name in ("", "uvicorn"):
        handler = logging.StreamHandler(io.StringIO())
        logging.getLogger(name).addHandler(handler)
        try:
            configure_logging()
            assert isinstance(handler.formatter, Formatter)
        finally:
            logging.getLogger(name).removeHandler(handler)
    assert root.handlers  # those of the test run


def test_engines_hide_parameters(engine: sa.Engine, tmp_path: Path) -> None:
    assert engine.hide_parameters
    assert db.make_engine(f"sqlite:///{tmp_path}/other.db").hide_parameters


def test_a_line_of_json_has_the_ids_of_what_it_is_about(written: io.StringIO) -> None:
    for handler in log.handlers:
        handler.setFormatter(JsonFormatter())
    with about(job_id="job_1", attempt=2):
        try:
            raise ValueError(FORGED)
        except ValueError:
            log.exception("it is %s", FORGED)
    log.warning("apart")
    first, second = map(json.loads, written.getvalue().splitlines())
    assert (first["job_id"], first["attempt"], first["level"]) == ("job_1", 2, "ERROR")
    assert first["message"] == f"it is {FORGED}"
    assert "ValueError: x" in first["error"]
    assert "job_id" not in second and datetime.fromisoformat(second["time"])


def test_a_request_is_told_with_its_key_and_workspace(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    secret = make_key("elsewhere")
    caplog.set_level(logging.INFO, "app.observe.requests")
    headers = {"Authorization": f"Bearer {secret}", "X-Request-ID": "one-of-mine"}
    client.get("/jobs", headers=headers)
    write_lines()
    (record,) = [each for each in caplog.records if "/jobs" in each.getMessage()]
    fields = json.loads(JsonFormatter().format(record))
    assert fields["request_id"] == "one-of-mine"
    assert (fields["method"], fields["path"], fields["status"]) == ("GET", "/jobs", 200)
    assert fields["workspace_id"] == "elsewhere" and fields["key_id"].startswith("key_")
    assert secret not in json.dumps(fields)


def test_the_level_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_settings(), "log_level", "warning")
    monkeypatch.setattr(logging, "_srcfile", logging._srcfile)
    try:
        configure_logging()
        assert not logging.getLogger("app.any").isEnabledFor(logging.INFO)
    finally:
        monkeypatch.undo()
        configure_logging()
    assert logging.getLogger("app.any").isEnabledFor(logging.INFO)


def test_a_client_that_went_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is not counted among those that alarms are about."""

    async def leave(scope: Any, receive: Any, send: Any) -> None:
        """As an answer does that finds nobody there."""

    async def ask() -> None:
        scope = {"type": "http", "method": "GET", "path": "/jobs", "headers": []}
        await Observed(leave)(scope, wait_for_nothing, wait_for_nothing)
        write_lines()

    async def wait_for_nothing(*_: Any) -> Any:
        raise AssertionError("nobody asks")

    write_lines()  # those of requests before
    caplog.clear()
    with caplog.at_level(logging.INFO, "app.observe.requests"):
        asyncio.run(ask())
    (line,) = caplog.messages
    assert line.startswith("GET /jobs 499 ")
