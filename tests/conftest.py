"""Fixtures and markers shared by all tests.

A test that needs a database runs on SQLite, in this process or with a service as real
processes. With the marker `both_databases` it runs once more on Postgres and Redis.

With TEST_BLOB_STORE=s3 (or local) files are kept in an object store in place of
the database; tests that look into the database's chunks are then left out.
"""

import gc
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import hypothesis
import numpy.testing  # noqa: F401  # NumPy 2.0 starts lscpu here: before any test
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app.jobs import queue
from app.main import app
from app.monitor import get_collector
from app.settings import get_settings
from app.storage import db, scratch
from tests.support.groups import (
    pytest_xdist_make_scheduler as pytest_xdist_make_scheduler,
)
from tests.support.http import make_key
from tests.support.stacks import Service, Stack, StackName, Stacks
from tests.support.tables import make_csv

# Until all is loaded there is nothing to collect, and much to look through.
gc.disable()

STACKS: list[StackName] = ["embedded", "production"]
ON_STACKS = ("stack", "shared_stack", "shared_service")
STARTS_PROCESSES = {"start_service", "shared_service", "second_worker"}

# How long an example takes depends on what else the machine does. The same examples
# every time, so that a change fails for what it changes; `make fuzz` draws others.
hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize="LOMETAB_FUZZ_EXAMPLES" not in os.environ
)
hypothesis.settings.load_profile("tests")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On which stacks a test runs, unless it says so itself by `parametrize`."""
    marks = metafunc.definition.iter_markers("parametrize")
    chosen = [mark.args[0] for mark in marks]
    names = STACKS if _has(metafunc.definition, "both_databases") else STACKS[:1]
    for fixture in ON_STACKS:
        if fixture in metafunc.fixturenames and fixture not in chosen:
            metafunc.parametrize(fixture, names, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Postgres, Redis or a running service are told from the others.

    They come first, the slow ones before all: they wait much, and short tests fill the
    gaps at the end.
    """
    for item in items:
        if isinstance(item, pytest.Function) and _needs_processes(item):
            item.add_marker("processes")
        if _has(item, "database_store") and "TEST_BLOB_STORE" in os.environ:
            item.add_marker(
                pytest.mark.skip(reason="it is about the database's chunks")
            )
    items.sort(key=lambda item: (not _has(item, "processes"), not _has(item, "slow")))


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no collection of a test looks through it."""
    gc.freeze()
    gc.enable()


def _needs_processes(item: pytest.Function) -> bool:
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    is_production = "production" in [chosen.get(fixture) for fixture in ON_STACKS]
    return is_production or not STARTS_PROCESSES.isdisjoint(item.fixturenames)


def _has(node: pytest.Item, marker: str) -> bool:
    return node.get_closest_marker(marker) is not None


@pytest.fixture(autouse=True)
def no_processes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no marker for it starts none, so that `make quick` stays quick."""

    def refuse(self: object, args: Any, *_: object, **__: object) -> None:
        raise AssertionError(f"mark this test as `processes`: it starts {args}")

    if not _has(request.node, "processes"):
        monkeypatch.setattr(subprocess.Popen, "__init__", refuse)


@pytest.fixture(autouse=True)
def own_variables() -> Iterator[None]:
    """Commands set variables for processes they start; the next test has its own."""
    before = {**os.environ}
    yield
    for name in [name for name in os.environ if name.startswith("LOMETAB_")]:
        if name not in before:
            del os.environ[name]
    os.environ.update({n: v for n, v in before.items() if n.startswith("LOMETAB_")})


@pytest.fixture(autouse=True)
def no_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API in this process leaves the temporary folder as tests have set it."""
    monkeypatch.setattr(scratch, "use_own_folder", nullcontext)


@pytest.fixture(scope="session")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    made = Stacks(tmp_path_factory.mktemp("stacks"))
    if made.store == "s3":
        made.s3  # noqa: B018  # before any test, which may start no process
    yield made
    made.close()


@pytest.fixture(autouse=True)
def choose_store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of tests without a stack's settings go where all others do."""
    if "TEST_BLOB_STORE" in os.environ:
        made: Stacks = request.getfixturevalue("stacks")
        for name, value in made.choose_store(made.folder).items():
            monkeypatch.setenv(name, value)
        get_settings.cache_clear()


@pytest.fixture
def stack(request: pytest.FixtureRequest, stacks: Stacks) -> Stack:
    """A database of its own, for tests with other processes or threads."""
    return stacks.make(request.param)


@pytest.fixture
def engine(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    """The stack's database for this process, with real commits: for threads."""
    engine = db.make_engine(stack.url)
    monkeypatch.setattr(db, "get_engine", lambda: engine)
    yield engine
    db.dispose_predict_engine()
    engine.dispose()


@pytest.fixture
def start_service(stack: Stack) -> Iterator[Callable[..., Service]]:
    """Starts `lometab serve`, or `api`, on the stack; at the end it is stopped."""
    started: list[Service] = []

    def start(command: str = "serve") -> Service:
        started.append(Service(stack, command))
        return started[-1]

    yield start
    for service in started:
        service.stop()


@pytest.fixture
def service(start_service: Callable[[], Service]) -> Service:
    return start_service()


@pytest.fixture(scope="session")
def shared_service(request: pytest.FixtureRequest, stacks: Stacks) -> Iterator[Service]:
    """A service for tests that leave it as it was, with no job under way."""
    service = Service(stacks.make(request.param))
    yield service
    service.stop()


@pytest.fixture(scope="session")
def shared_stack(request: pytest.FixtureRequest, stacks: Stacks) -> Stack:
    """One database for all in-process tests of a stack; each of them rolls back."""
    return stacks.make(request.param)


@pytest.fixture(scope="session")
def shared_engine(shared_stack: Stack) -> Iterator[sa.Engine]:
    """One for all of them too: it knows the statements that it compiled before."""
    engine = db.make_engine(shared_stack.url)
    yield engine
    engine.dispose()


@pytest.fixture
def database(
    shared_stack: Stack, shared_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Connection]:
    """All sessions of this process in one transaction, rolled back after the test."""
    for name in [*os.environ]:
        if name.startswith("LOMETAB_"):
            monkeypatch.delenv(name)
    for name, value in shared_stack.environment.items():
        if name.startswith("LOMETAB_"):
            monkeypatch.setenv(name, value)
    # Threads have no part in this transaction: what is counted is written on request.
    monkeypatch.setenv("LOMETAB_MONITOR_SECONDS", "1e9")
    get_settings.cache_clear()
    get_collector.cache_clear()
    with shared_engine.connect() as connection, connection.begin() as transaction:
        if shared_stack.name == "production":  # a long test on a busy machine
            connection.exec_driver_sql(
                "SET LOCAL idle_in_transaction_session_timeout = 0"
            )
        with connection.begin_nested():
            monkeypatch.setattr(db, "get_engine", lambda: connection)
            monkeypatch.setattr(db, "get_kept_connection", lambda: connection)
            queue.get_celery.cache_clear()
            yield connection
            get_collector().close()
        transaction.rollback()
    get_settings.cache_clear()


@pytest.fixture
def session(database: sa.Connection) -> Iterator[Session]:
    with db.transaction() as session:
        yield session


@pytest.fixture
def client(database: sa.Connection) -> Iterator[TestClient]:
    """The API in this process; what it writes is rolled back."""
    address = "http://127.0.0.1"
    peer = ("127.0.0.1", 50000)
    with TestClient(app, address, client=peer, raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {make_key()}"
        yield client


@pytest.fixture(scope="session")
def table_csv() -> str:
    return make_csv()
