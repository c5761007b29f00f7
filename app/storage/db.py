"""The database: one engine per process, sessions for writing and for reading."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.settings import Settings, get_settings
from app.storage.files import protect_files
from app.storage.tables import VERSION_TABLE, Base


class Limits(NamedTuple):
    """What a process may ask of the database at a time, and how long it may take."""

    connections: int = 15
    kept: int = 15
    """Connections that stay open while nobody uses them."""
    is_pooled: bool = False
    """Whether a pooler gives connections out for a transaction."""
    pool_seconds: float = 5.0
    """How long to wait for a connection of ours that is free."""
    idle_seconds: float = 30.0
    """How long a transaction may stand still."""
    lock_seconds: float = 10.0
    """How long a statement may wait for what another transaction holds."""
    statement_seconds: float = 60.0
    """How long a statement may take; 0: as long as it takes."""

    @property
    def timeouts(self) -> dict[str, int]:
        """By their names in Postgres, which counts in milliseconds."""
        limits = {
            "idle_in_transaction_session_timeout": self.idle_seconds,
            "lock_timeout": self.lock_seconds,
            "statement_timeout": self.statement_seconds,
        }
        return {name: int(1000 * seconds) for name, seconds in limits.items()}

    @property
    def connect_args(self) -> dict[str, Any]:
        """For Postgres. Through a pooler, what is set for a session meets others."""
        if self.is_pooled:
            return {"prepare_threshold": None}
        return {"options": " ".join(f"-c {k}={v}" for k, v in self.timeouts.items())}


_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A server that is gone without a word is noticed within half a minute."""


BYTES_AS_THEY_ARE = "bytes_as_they_are"
"""The execution option of a statement that reads many bytes: otherwise Postgres sends
them as text, which is twice as long."""


def make_engine(url: str, limits: Limits | None = None) -> sa.Engine:
    """An engine that keeps every update, on SQLite too.

    A process that freezes in the middle of a transaction must not keep its locks:
    Postgres ends the transaction after `idle_seconds`. SQLite's default setup loses
    updates when several processes read, then write: here each transaction takes the
    write lock as it begins, unless it only reads.
    """
    limits = limits or Limits()
    pool = {
        "pool_size": min(limits.kept, limits.connections),
        "max_overflow": max(0, limits.connections - limits.kept),
        "pool_timeout": limits.pool_seconds,
    }
    if not url.startswith("sqlite"):
        return _make_postgres(url, limits, pool)
    engine = sa.create_engine(
        url, connect_args={"timeout": 30}, hide_parameters=True, **pool
    )

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


def _make_postgres(url: str, limits: Limits, pool: dict[str, Any]) -> sa.Engine:
    engine = sa.create_engine(
        url,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5, **limits.connect_args, **_KEEPALIVE},
        json_deserializer=orjson.loads,
        hide_parameters=True,
        **pool,
    )
    from psycopg.pq import Format  # where Postgres is: it takes a while to load

    @sa.event.listens_for(engine, "before_cursor_execute", named=True)
    def choose_format(cursor: Any, context: Any, **_: object) -> None:
        if context.execution_options.get(BYTES_AS_THEY_ARE, False):
            cursor.format = Format.BINARY

    if limits.is_pooled:
        timeouts = limits.timeouts.items()
        settings = ", ".join(f"set_config('{k}', '{v}', true)" for k, v in timeouts)

        @sa.event.listens_for(engine, "begin")
        def limit_transaction(connection: sa.Connection) -> None:
            connection.exec_driver_sql(f"SELECT {settings}")

    return engine


@cache
def get_engine() -> sa.Engine:
    settings = get_settings()
    if settings.is_embedded:
        folder = settings.data_dir.absolute()
        protect_files(folder, folder / "lometab.db")
    return make_process_engine()


def make_process_engine() -> sa.Engine:
    """An engine with the limits of this process."""
    settings = get_settings()
    return make_engine(settings.sqlalchemy_url, _limits(settings))


def keep_one_connection() -> None:
    """Have this process close connections after use, but for one: a worker seldom needs
    two at a time, and there may be hundreds of workers."""
    _most_kept[:] = [1]


_most_kept: list[int] = []
"""Connections that this process keeps open; empty: as many as it may have."""


def _limits(settings: Settings) -> Limits:
    return Limits(
        connections=settings.database_connections,
        kept=min([settings.database_connections, *_most_kept]),
        is_pooled=settings.database_pooler,
        idle_seconds=max(1.0, settings.lease_seconds / 2),
        statement_seconds=settings.statement_seconds,
    )


def get_predict_engine() -> sa.Engine:
    """The same database through connections of predict's own: whatever holds up the
    others, these are free."""
    engine = get_engine()
    for beside, own in _predict_engine:  # asked in every request: without a lock
        if beside is engine:
            return own
    if not isinstance(engine, sa.Engine):
        return engine  # a test's one connection
    with _making:
        if engine not in [beside for beside, _ in _predict_engine]:
            _predict_engine[:] = [(engine, _make_predict_engine(engine.url))]
        return _predict_engine[0][1]


def _make_predict_engine(url: sa.URL) -> sa.Engine:
    settings = get_settings()
    # One that each thread keeps, one to load a model, and those of the event loop.
    threads = settings.predict_threads + settings.table_threads
    connections = 2 * (threads + settings.explain_threads + 1)
    limits = _limits(settings)._replace(
        connections=connections,
        kept=connections,
        lock_seconds=2.0,
        statement_seconds=5.0,
    )
    return make_engine(url.render_as_string(hide_password=False), limits)


def dispose_predict_engine() -> None:
    """Let go of predict's connections, and of this thread's kept one."""
    drop_kept_connection()
    for _, own in _predict_engine:
        own.dispose()
    _predict_engine.clear()


_making = threading.Lock()
_predict_engine: list[tuple[sa.Engine, sa.Engine]] = []
"""The engine that it stands beside, and itself; none before it is asked for."""


@contextmanager
def transaction() -> Iterator[Session]:
    """A session that may write: committed at the end, rolled back after an error.

    Nobody else commits: what is called with a session only writes to it. Objects stay
    readable after the commit.
    """
    with Session(get_engine(), expire_on_commit=False) as session:
        yield session
        session.commit()


def reading() -> Session:
    """A session that only reads, and so waits for no writer."""
    is_predict = getattr(_thread, "is_predict", False)
    engine = get_predict_engine() if is_predict else get_engine()
    return Session(engine.execution_options(only_reads=True), expire_on_commit=False)


@contextmanager
def as_predict() -> Iterator[None]:
    """What this thread reads meanwhile, it reads by predict's own connections."""
    before = getattr(_thread, "is_predict", False)
    _thread.is_predict = True
    try:
        yield
    finally:
        _thread.is_predict = before


_thread = threading.local()


def get_kept_connection() -> sa.Connection:
    """A connection that this thread keeps, for what is asked in every request.

    Each statement on it is a transaction of its own, and so sees what is committed by
    then; it costs a fifth of what a session does.
    """
    engine = get_predict_engine()
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


class WrongRevision(Exception):
    """The database does not have tables that this version works with."""


@cache
def list_revisions() -> tuple[str, ...]:
    """All that this version knows, oldest first."""
    files = sorted(_migrations().glob("versions/2*.py"))  # a name begins with its date
    pattern = re.compile(r'^revision = "(.+)"$', re.MULTILINE)
    found = [pattern.search(each.read_text("utf-8")) for each in files]
    return tuple(each[1] for each in found if each is not None)


def find_head() -> str:
    """The revision that this version's tables have."""
    return list_revisions()[-1]


def _find_revisions(connection: sa.Connection) -> list[str] | None:
    """What the database is at; None if it has no tables of ours."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return [*connection.scalars(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))]


def check_revision(session: Session) -> str:
    """See that this version works with the tables that the database has.

    They are its own, or newer ones to which all was only added since: during an upgrade
    processes of both versions run.

    Returns:
        The revision that the database is at.

    Raises:
        WrongRevision: it does not; the message says what to do.
    """
    return _check_revision(session.connection())


def _check_revision(connection: sa.Connection) -> str:
    found = _find_revisions(connection)
    if found is None:
        raise WrongRevision(
            "the database has no tables of ours yet: run `lometab migrate`"
        )
    if found == [find_head()] or _is_compatible(connection, found):
        return found[0]
    raise WrongRevision(
        f"the database is at revision {', '.join(found) or 'none'}, and this version "
        f"needs {find_head()}: run `lometab migrate`, or, if the database is newer, a "
        "newer version"
    )


def _is_compatible(connection: sa.Connection, found: list[str]) -> bool:
    """Whether the database is newer, and says that code of a revision that we know
    works with it."""
    known = list_revisions()
    if len(found) != 1 or found[0] in known:
        return False
    columns = sa.inspect(connection).get_columns(VERSION_TABLE)
    if "compatible_since" not in [column["name"] for column in columns]:
        return False
    since = f"SELECT compatible_since FROM {VERSION_TABLE}"
    return connection.scalar(sa.text(since)) in known


def _migrations() -> Path:
    package = find_spec("migrations")
    assert package is not None and package.origin is not None
    return Path(package.origin).parent


def migrate(engine: sa.Engine | None = None) -> None:
    """Bring the database to the newest revision, all or nothing.

    One that is newer and compatible is left as it is.

    Raises:
        WrongRevision: it is newer, and this version does not work with it.
    """
    with (engine or get_engine()).begin() as connection:
        if connection.dialect.name == "postgresql":  # it takes as long as it takes
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
            connection.exec_driver_sql(
                "SET LOCAL idle_in_transaction_session_timeout = 0"
            )
        found = _find_revisions(connection)
        if found and set(found) - {*list_revisions()}:
            _check_revision(connection)
        elif found != [find_head()]:
            _upgrade(connection)


def _upgrade(connection: sa.Connection) -> None:
    from alembic import command  # most starts have nothing to migrate
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_migrations()))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
