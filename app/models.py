"""Every table. The job row is the truth about a job; all else follows it."""

import secrets
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

DEFAULT_WORKSPACE = "default"
CHUNK_BYTES = 2**20
VERSION_TABLE = "lometab_version"
"""Our revision. Optuna keeps its own in the same database, as `alembic_version`."""

JOB_STATUSES = (
    "queued",  # waits for a worker
    "running",  # a worker holds its lease
    "stopping",  # the same, and it shall end with the best epoch so far
    "cancelling",  # the same, and it shall end with nothing
    "succeeded",  # its model and reports exist
    "failed",  # given up; `error` says why
    "cancelled",  # ended by the caller; no model
)
HELD = ("running", "stopping", "cancelling")
FINISHED = ("succeeded", "failed", "cancelled")
PARENTS = ("sweep", "tune")
"""Kinds of jobs that are run by their children."""


class UTCDateTime(sa.TypeDecorator[datetime]):
    """A time that goes in with a zone and comes back in UTC, on SQLite too."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(
        self, value: datetime | None, dialect: sa.Dialect
    ) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time must carry a zone, however: {value!r}")
        return value.astimezone(UTC)

    def process_result_value(
        self, value: datetime | None, dialect: sa.Dialect
    ) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        return value.astimezone(UTC)


Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


class Base(DeclarativeBase):
    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012
        datetime: UTCDateTime,
        dict[str, Any]: Json,
        list[Any]: Json,
    }


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def utc_now() -> datetime:
    return datetime.now(UTC)


class Blob(Base):
    """Bytes known by their hash. The row comes last: then all its chunks are there."""

    __tablename__ = "blobs"

    workspace_id: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    size: Mapped[int] = mapped_column(sa.BigInteger)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class BlobChunk(Base):
    """At most CHUNK_BYTES of a blob."""

    __tablename__ = "blob_chunks"

    workspace_id: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True)
    content: Mapped[bytes]


class Dataset(Base):
    """An uploaded table. The same bytes, read with the same options, are one."""

    __tablename__ = "datasets"
    __table_args__ = (
        sa.UniqueConstraint("workspace_id", "sha256", "options_sha256"),
        sa.ForeignKeyConstraint(
            ["workspace_id", "table_sha256"], ["blobs.workspace_id", "blobs.sha256"]
        ),
        sa.Index(None, "workspace_id", "created_at", "id"),
        sa.Index(None, "workspace_id", "table_sha256"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    sha256: Mapped[str] = mapped_column(sa.String(64))
    """Of the file as it was sent."""
    options_sha256: Mapped[str] = mapped_column(sa.String(64))
    table_sha256: Mapped[str] = mapped_column(sa.String(64))
    """The blob with the table in it: Parquet."""
    filename: Mapped[str]
    size: Mapped[int] = mapped_column(sa.BigInteger)
    n_rows: Mapped[int] = mapped_column(sa.BigInteger)
    n_columns: Mapped[int]
    read_options: Mapped[dict[str, Any]]
    """What the caller said of the file: lometab.reading.ReadOptions."""
    reading: Mapped[dict[str, Any]]
    """What the file turned out to be: lometab.reading.Reading."""
    profile: Mapped[dict[str, Any]]
    """What is in it: lometab.profile.Profile."""
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class Job(Base):
    """A run asked for."""

    __tablename__ = "jobs"
    __table_args__ = (
        sa.CheckConstraint(f"status IN {JOB_STATUSES}", name="status"),
        sa.CheckConstraint("queue IN ('cpu', 'gpu')", name="queue"),
        sa.CheckConstraint(
            f"(status IN {HELD}) = (lease_owner IS NOT NULL)", name="lease"
        ),
        sa.ForeignKeyConstraint(
            ["workspace_id", "checkpoint_sha256"],
            ["blobs.workspace_id", "blobs.sha256"],
        ),
        sa.Index(None, "status", "queue", "created_at"),
        sa.Index(None, "workspace_id", "created_at", "id"),
        sa.Index(None, "workspace_id", "status", "created_at", "id"),
        sa.Index(None, "workspace_id", "kind", "created_at", "id"),
        sa.Index(None, "workspace_id", "dataset_id", "created_at", "id"),
        sa.Index(None, "workspace_id", "parent_id", "created_at", "id"),
        sa.Index(None, "dataset_id"),
        sa.Index(None, "parent_id", "position", unique=True),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    kind: Mapped[str]
    """train, which workers claim; sweep or tune, whose children they claim."""
    parent_id: Mapped[str | None] = mapped_column(sa.ForeignKey("jobs.id"))
    """The sweep or tune job that this one is a part of."""
    position: Mapped[int | None]
    """Which part: counted from 0, each there once."""
    outcome: Mapped[dict[str, Any] | None] = mapped_column(Json)
    """What a cell or a trial came to: lometab.outcome.Outcome."""
    name: Mapped[str | None]
    tags: Mapped[list[Any]] = mapped_column(default=list)
    queue: Mapped[str]
    config: Mapped[dict[str, Any]]
    schema: Mapped[dict[str, Any]]
    """What was made of the columns and the task: lometab.data.Schema."""
    estimate: Mapped[dict[str, Any]]
    """Parameters, memory and work, before any of it was done."""

    status: Mapped[str] = mapped_column(default="queued")
    phase: Mapped[str | None]
    """Inside running: preparing, training, exporting, evaluating, comparing; of a tune
    job: searching, repeating, refitting."""
    progress: Mapped[dict[str, Any]] = mapped_column(default=dict)
    error: Mapped[dict[str, Any] | None] = mapped_column(Json)

    attempt: Mapped[int] = mapped_column(default=0)
    """How often it was claimed; never set back. Writes of an attempt carry it."""
    lost_attempts: Mapped[int] = mapped_column(default=0)
    """Attempts that died without having moved the checkpoint forward."""
    is_stop_wished: Mapped[bool] = mapped_column(default=False)
    """A stop was asked for; the wish outlives a lost worker."""
    checkpoint_sha256: Mapped[str | None] = mapped_column(sa.String(64))
    checkpoint_epoch: Mapped[int | None]
    checkpoint_attempt: Mapped[int | None]
    """The attempt that wrote the checkpoint."""
    event_seq: Mapped[int] = mapped_column(default=0)
    """The number of its last event."""
    lease_owner: Mapped[str | None]
    """A worker; of a sweep that runs, its cells."""
    lease_expires_at: Mapped[datetime | None]

    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class Attempt(Base):
    """One claim of a job by a worker. No two have the same number."""

    __tablename__ = "attempts"

    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    owner: Mapped[str]
    claimed_at: Mapped[datetime] = mapped_column(default=utc_now)


class Event(Base):
    """Something that happened to a job. The numbers of a job's events have no gap."""

    __tablename__ = "events"

    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    type: Mapped[str]
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class TrainedModel(Base):
    """What a job made: one ONNX file."""

    __tablename__ = "models"
    __table_args__ = (
        sa.ForeignKeyConstraint(
            ["workspace_id", "onnx_sha256"], ["blobs.workspace_id", "blobs.sha256"]
        ),
        sa.UniqueConstraint("workspace_id", "name", "version"),
        sa.CheckConstraint("(name IS NULL) = (version IS NULL)", name="version"),
        sa.Index(None, "workspace_id", "created_at", "id"),
        sa.Index(None, "workspace_id", "onnx_sha256"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"), unique=True)
    onnx_sha256: Mapped[str] = mapped_column(sa.String(64))
    name: Mapped[str | None]
    version: Mapped[int | None]
    """Models of one name are counted from 1."""
    metrics: Mapped[dict[str, Any]]
    """The ensemble's scores on the test part."""
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class ModelAlias(Base):
    """A name for one version of a model that can be moved, such as `champion`."""

    __tablename__ = "model_aliases"

    workspace_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"), index=True)


class Report(Base):
    """One of the reports on a job's model, as served."""

    __tablename__ = "reports"

    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    body: Mapped[dict[str, Any]]


class Worker(Base):
    """A worker that has been heard of; it lives while it beats."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    queue: Mapped[str]
    beat_at: Mapped[datetime]


class ApiKey(Base):
    """A key that acts in a workspace. The key itself is not kept, only its hash."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    name: Mapped[str]
    sha256: Mapped[str] = mapped_column(sa.String(64), unique=True)
    hint: Mapped[str]
    """Its last characters, to tell keys apart."""
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    revoked_at: Mapped[datetime | None]


class IdempotencyKey(Base):
    """A request that is under way or was answered, by the key its client gave it."""

    __tablename__ = "idempotency_keys"

    workspace_id: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(sa.String(64))
    locked_until: Mapped[datetime]
    response: Mapped[dict[str, Any] | None] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)
