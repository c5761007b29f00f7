"""Fixtures shared by all tests: stacks, an in-process client, tiny tables."""

import os
import random
from collections.abc import Callable, Collection, Iterator

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import auth, db, queue
from app.main import app
from app.settings import get_settings
from tests.servers import Postgres, Redis
from tests.stacks import Service, Stack, StackName, Stacks

STACKS: list[StackName] = ["embedded", "production"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    server = Redis()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def stacks(
    postgres: Postgres, redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Stacks:
    made = Stacks(postgres, redis, tmp_path_factory.mktemp("stacks"))
    made.migrate_templates()
    return made


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest, stacks: Stacks) -> Stack:
    """A database of its own, for tests with other processes; on both stacks."""
    return stacks.make(request.param)


@pytest.fixture
def engine(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    """The stack's database for this process, with real commits: for threads."""
    engine = db.make_engine(stack.url)
    monkeypatch.setattr(db, "get_engine", lambda: engine)
    yield engine
    engine.dispose()


@pytest.fixture
def start_service(stack: Stack) -> Iterator[Callable[[], Service]]:
    """Starts `lometab serve` on the stack; what was started is stopped at the end."""
    started: list[Service] = []

    def start() -> Service:
        started.append(Service(stack))
        return started[-1]

    yield start
    for service in started:
        service.stop()


@pytest.fixture
def service(start_service: Callable[[], Service]) -> Service:
    return start_service()


@pytest.fixture(scope="session", params=STACKS)
def shared_stack(request: pytest.FixtureRequest, stacks: Stacks) -> Stack:
    """One database for all in-process tests of a stack; each of them rolls back."""
    return stacks.make(request.param)


@pytest.fixture
def database(
    shared_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Connection]:
    """All sessions of this process in one transaction, rolled back after the test."""
    for name in [*os.environ]:
        if name.startswith("LOMETAB_"):
            monkeypatch.delenv(name)
    for name, value in shared_stack.environment.items():
        if name.startswith("LOMETAB_"):
            monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    engine = db.make_engine(shared_stack.url)
    with engine.connect() as connection, connection.begin() as transaction:
        with connection.begin_nested():
            monkeypatch.setattr(db, "get_engine", lambda: connection)
            monkeypatch.setattr(db, "get_kept_connection", lambda: connection)
            queue.get_celery.cache_clear()
            yield connection
        transaction.rollback()
    engine.dispose()
    get_settings.cache_clear()


@pytest.fixture
def client(database: sa.Connection) -> Iterator[TestClient]:
    """The API in this process; what it writes is rolled back."""
    address = "http://127.0.0.1"
    with TestClient(app, address, raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {make_key()}"
        yield client


def make_key(
    workspace_id: str = "default", scopes: Collection[auth.Scope] = auth.SCOPES
) -> str:
    """A key for the database of the test."""
    with db.writing() as session:
        _, secret = auth.create_key(
            session, workspace_id=workspace_id, name="test", scopes=scopes
        )
    return secret


def make_csv(n_rows: int = 120, seed: int = 0) -> str:
    """A small table with numbers, categories, gaps, and a number `y` to learn."""
    rng = random.Random(seed)
    lines = ["size,colour,weight,y,label"]
    for _ in range(n_rows):
        size, weight = rng.uniform(0, 10), rng.gauss(5, 2)
        colour = rng.choice(["red", "green", "blue"])
        y = 2 * size - weight + (3 if colour == "red" else 0) + rng.gauss(0, 0.1)
        shown = "" if rng.random() < 0.1 else f"{weight:.4f}"
        label = "high" if y > 5 else "low"
        lines.append(f"{size:.4f},{colour},{shown},{y:.4f},{label}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def table_csv() -> str:
    return make_csv()
