"""The database: one engine per process, sessions for writing and for reading."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

import migrations
from app.models import Base
from app.settings import get_settings


def make_engine(url: str, *, idle_seconds: float = 30.0) -> sa.Engine:
    """An engine that keeps every update, on SQLite too.

    A process that freezes in the middle of a transaction must not keep its locks:
    Postgres ends the transaction after `idle_seconds`. SQLite's default setup loses
    updates when several processes read, then write: here each transaction takes the
    write lock as it begins, unless it only reads.
    """
    if not url.startswith("sqlite"):
        limit = f"-c idle_in_transaction_session_timeout={int(idle_seconds * 1000)}"
        return sa.create_engine(
            url,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 5, "options": limit},
            json_deserializer=orjson.loads,
        )
    engine = sa.create_engine(url, connect_args={"timeout": 30})

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _: object) -> None:
        connection.isolation_level = None  # so that `begin` below says how to begin
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "busy_timeout=30000",
            "foreign_keys=ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        if options.get("each_alone", False):
            return
        only_reads = options.get("only_reads", False)
        connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")

    return engine


@cache
def get_engine() -> sa.Engine:
    settings = get_settings()
    if settings.is_embedded:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    return make_engine(
        settings.sqlalchemy_url, idle_seconds=max(1.0, settings.lease_seconds / 2)
    )


def writing() -> Session:
    """A session that may write. Objects stay readable after its commit."""
    return Session(get_engine(), expire_on_commit=False)


def reading() -> Session:
    """A session that only reads, and so waits for no writer."""
    return Session(
        get_engine().execution_options(only_reads=True), expire_on_commit=False
    )


def get_kept_connection() -> sa.Connection:
    """A connection that this thread keeps, for what is asked in every request.

    Each statement on it is a transaction of its own, and so sees what is committed by
    then; it costs a fifth of what a session does.
    """
    engine = get_engine()
    if getattr(_kept, "engine", None) is not engine:
        drop_kept_connection()
        is_sqlite = engine.dialect.name == "sqlite"
        option = (
            {"each_alone": True} if is_sqlite else {"isolation_level": "AUTOCOMMIT"}
        )
        _kept.connection = engine.connect().execution_options(**option)
        _kept.engine = engine
    connection: sa.Connection = _kept.connection
    return connection


def find_version() -> object:
    """What is another after each change of the database, by whomever, as this thread's
    kept connection sees it; None if the database does not tell."""
    connection = get_kept_connection()
    if getattr(_kept, "asked", None) is not connection:
        is_sqlite = connection.dialect.name == "sqlite"
        _kept.cursor = connection.connection.cursor() if is_sqlite else None
        _kept.asked = connection
    cursor = _kept.cursor
    if cursor is None:
        return None
    try:
        (version,) = cursor.execute("PRAGMA data_version").fetchone()
    except connection.dialect.loaded_dbapi.Error:
        return None  # whoever asks for more is told
    # By others, by itself; and versions of two connections mean nothing to each other.
    return version, cursor.connection.total_changes, cursor


def drop_kept_connection() -> None:
    """After an error: the next one is new."""
    connection = getattr(_kept, "connection", None)
    _kept.engine = _kept.connection = None
    if connection is not None:
        connection.invalidate()
        connection.close()


_kept = threading.local()


def get_session() -> Iterator[Session]:
    with writing() as session:
        yield session


def get_read_session() -> Iterator[Session]:
    with reading() as session:
        yield session


def now(session: Session) -> datetime:
    """The time by the clock that all processes share: the database server's."""
    if session.get_bind().dialect.name == "postgresql":
        moment = session.scalar(sa.select(sa.func.clock_timestamp()))
        assert isinstance(moment, datetime)
        return moment.astimezone(UTC)
    return datetime.now(UTC)


def insert_unless_exists(session: Session, table: type[Base], **values: object) -> bool:
    """Insert a row unless it meets one with the same key; whether it was inserted."""
    dialect = session.get_bind().dialect.name
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = insert(table).values(**values).on_conflict_do_nothing()
    return session.execute(statement.returning(sa.literal(1))).first() is not None


def migrate(engine: sa.Engine | None = None) -> None:
    """Bring the database to the newest revision, all or nothing."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with (engine or get_engine()).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
