"""Every table. The job row is the truth about a job; all else follows it."""

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.storage.enums import (
    HELD,
    MEASURED,
    DeliveryStatus,
    EventType,
    JobKind,
    JobPhase,
    JobRole,
    JobStatus,
    Queue,
    WebhookEvent,
)

DEFAULT_WORKSPACE = "default"
CHUNK_BYTES = 2**20
VERSION_TABLE = "lometab_version"
"""Our revision. Optuna keeps its own in the same database, as `alembic_version`."""


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


class EnumText(sa.TypeDecorator[StrEnum]):
    """A text that comes back as a member of its enum."""

    impl = sa.String()
    cache_ok = True

    def __init__(self, enum: type[StrEnum]) -> None:
        super().__init__()
        self.enum = enum

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(
        self, value: str | None, dialect: sa.Dialect
    ) -> StrEnum | None:
        return None if value is None else self.enum(value)


def _list(words: Iterable[str]) -> str:
    """As SQL has it after IN."""
    return "({})".format(", ".join(f"'{word}'" for word in words))


_NO_TAGS = sa.text("'[]'")
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
        EventType: EnumText(EventType),
        JobKind: EnumText(JobKind),
        JobPhase: EnumText(JobPhase),
        JobRole: EnumText(JobRole),
        JobStatus: EnumText(JobStatus),
        Queue: EnumText(Queue),
        WebhookEvent: EnumText(WebhookEvent),
        DeliveryStatus: EnumText(DeliveryStatus),
    }


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def utc_now() -> datetime:
    return datetime.now(UTC)


class Blob(Base):
    """Bytes known by their hash. The row comes last: then all of them are there."""

    __tablename__ = "blobs"

    workspace_id: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    generation: Mapped[str] = mapped_column(sa.String(64))
    """Which bytes are its own: each time that they are stored, they get another."""
    size: Mapped[int] = mapped_column(sa.BigInteger)
    store: Mapped[str | None]
    """The address of the object store that has its bytes; null: its chunks do."""
    digests: Mapped[bytes | None]
    """Of bytes in an object store: the sha256 of each chunk, one after another."""
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class LooseObject(Base):
    """An object that no blob names: not yet, or not any more.

    Its row is committed before the object is written, and goes in the transaction that
    names it; it comes back in the transaction that forgets it. So whatever is cut off,
    there is a row for each object that has to go.
    """

    __tablename__ = "loose_objects"

    store: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    size: Mapped[int] = mapped_column(sa.BigInteger)
    is_dropped: Mapped[bool] = mapped_column(default=False)
    """It is being removed: nobody may name it any more."""
    touched_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)
    """When it was last written to, or forgotten."""


class BlobChunk(Base):
    """At most CHUNK_BYTES of a blob."""

    __tablename__ = "blob_chunks"

    workspace_id: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True)
    content: Mapped[bytes]
    sha256: Mapped[str | None] = mapped_column(sa.String(64))
    """Of the content alone; null in rows from before it was kept."""


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
    """What the caller said of the file: lometab.table.ReadOptions."""
    reading: Mapped[dict[str, Any]]
    """What the file turned out to be: lometab.table.Reading."""
    profile: Mapped[dict[str, Any]]
    """What is in it: lometab.table.Profile."""
    name: Mapped[str | None]
    tags: Mapped[list[Any]] = mapped_column(default=list, server_default=_NO_TAGS)
    description: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class Job(Base):
    """A run asked for."""

    __tablename__ = "jobs"
    __table_args__ = (
        sa.CheckConstraint(f"status IN {_list(JobStatus)}", name="status"),
        sa.CheckConstraint(f"role IN {_list(JobRole)}", name="role"),
        sa.CheckConstraint(f"queue IN {_list(Queue)}", name="queue"),
        sa.CheckConstraint(
            f"(status IN {_list(HELD)}) = (lease_owner IS NOT NULL)", name="lease"
        ),
        sa.ForeignKeyConstraint(
            ["workspace_id", "checkpoint_sha256"],
            ["blobs.workspace_id", "blobs.sha256"],
        ),
        # The next job of a workspace or of a parent, without a look at the others.
        sa.Index(
            "ix_jobs_next",
            *("status", "queue", "kind", "workspace_id", "parent_id"),
            *("position", "created_at", "id"),
        ),
        sa.Index(None, "workspace_id", "created_at", "id"),
        sa.Index(None, "workspace_id", "status", "created_at", "id"),
        sa.Index(None, "workspace_id", "kind", "created_at", "id"),
        sa.Index(None, "workspace_id", "dataset_id", "created_at", "id"),
        sa.Index(None, "workspace_id", "parent_id", "created_at", "id"),
        sa.Index(None, "dataset_id"),
        sa.Index(None, "parent_id", "position", unique=True),
        sa.Index(None, "parent_id", "role", "number", "repeat", unique=True),
        sa.Index(None, "expires_at"),
        # What a parent counts, without a look at the rows themselves.
        sa.Index(None, "parent_id", "is_reported", "status", "role"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    dataset_id: Mapped[str] = mapped_column(sa.ForeignKey("datasets.id"))
    kind: Mapped[JobKind]
    role: Mapped[JobRole]
    parent_id: Mapped[str | None] = mapped_column(sa.ForeignKey("jobs.id"))
    """The sweep or tune job that this one is a part of."""
    position: Mapped[int | None]
    """In which order the children of a parent begin, from 0; nothing else."""
    number: Mapped[int | None]
    """The cell or the trial that it is, repeats, refits or was promoted from; from 0"""
    repeat: Mapped[int | None]
    """Of a cell or a repeat: which of the seeds, from 0."""
    settings: Mapped[dict[str, Any] | None] = mapped_column(Json)
    """What sets a cell apart from others, or what was drawn for a trial; null before"""
    promoted_from: Mapped[str | None]
    """The sweep or tune job of the cell or trial `number`; it may be deleted since."""
    made_of: Mapped[dict[str, Any] | None] = mapped_column(Json)
    """Where nothing is trained: the `trials` of its parent whose members it chooses
    from, the best first; or the `model_id` whose members it keeps, and `onnx_sha256`"""
    is_reported: Mapped[bool] = mapped_column(default=False)
    """Whether its parent has an event of its end."""
    outcome: Mapped[dict[str, Any] | None] = mapped_column(Json)
    """What a cell or a trial came to: lometab.evaluation.outcome.Outcome. Of a
    prediction and its parts, what was counted."""
    name: Mapped[str | None]
    tags: Mapped[list[Any]] = mapped_column(default=list)
    description: Mapped[str | None]
    queue: Mapped[Queue]
    config: Mapped[dict[str, Any]]
    """What the caller chose, with every preset and guess spelled out."""
    schema: Mapped[dict[str, Any]]
    """What was made of the columns and the task: lometab.table.Schema."""
    estimate: Mapped[dict[str, Any]]
    """Parameters, memory and work, before any of it was done."""
    warnings: Mapped[list[Any] | None] = mapped_column(Json)
    """What was decided that the caller may want to know; null in rows of before."""

    status: Mapped[JobStatus] = mapped_column(default=JobStatus.QUEUED)
    phase: Mapped[JobPhase | None]
    progress: Mapped[dict[str, Any]] = mapped_column(default=dict)
    error: Mapped[dict[str, Any] | None] = mapped_column(Json)

    attempt: Mapped[int] = mapped_column(default=0)
    """How often it was claimed; never set back. Writes of an attempt carry it."""
    lost_attempts: Mapped[int] = mapped_column(default=0)
    """Attempts that died without having moved the checkpoint forward."""
    is_stop_requested: Mapped[bool] = mapped_column(default=False)
    """The request outlives a lost worker."""
    checkpoint_sha256: Mapped[str | None] = mapped_column(sa.String(64))
    """What it stored: a checkpoint, the weights of a run, the answers to a chunk, the
    result of a prediction."""
    checkpoint_epoch: Mapped[int | None]
    checkpoint_attempt: Mapped[int | None]
    """The attempt that wrote the checkpoint."""
    event_seq: Mapped[int] = mapped_column(default=0)
    """The number of its last event."""
    lease_owner: Mapped[str | None]
    """A worker; of a sweep that runs, its cells."""
    lease_expires_at: Mapped[datetime | None]
    traceparent: Mapped[str | None] = mapped_column(sa.String(55))
    """The span of the request that it came of, as W3C Trace Context has it."""

    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    queued_at: Mapped[datetime | None]
    """When it last came back to the queue; null: it is there since it was made."""
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    """Of a prediction that succeeded: how long its result is kept."""

    @property
    def is_measured(self) -> bool:
        """Whether it ends with an outcome, and no model."""
        return self.role in MEASURED


class Attempt(Base):
    """One claim of a job by a worker. No two have the same number."""

    __tablename__ = "attempts"
    __table_args__ = (sa.Index(None, "workspace_id", "claimed_at"),)

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
    type: Mapped[EventType]
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
    tags: Mapped[list[Any]] = mapped_column(default=list, server_default=_NO_TAGS)
    """At first those of its job."""
    description: Mapped[str | None]
    metrics: Mapped[dict[str, Any]]
    """The ensemble's scores on the test part."""
    facts: Mapped[dict[str, Any] | None] = mapped_column("metadata", Json)
    """The metadata of the ONNX file; null in rows from before they were kept here."""
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class ModelAlias(Base):
    """A name for one version of a model that can be moved, such as `champion`."""

    __tablename__ = "model_aliases"

    workspace_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"), index=True)


class ModelCounts(Base):
    """What was predicted on one day, counted by one process; never the rows."""

    __tablename__ = "model_counts"

    model_id: Mapped[str] = mapped_column(
        sa.ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    day: Mapped[str] = mapped_column(sa.String(10), primary_key=True)
    """In UTC, as 2026-11-17."""
    shard: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    """A process, `outcomes` or `looks`."""
    workspace_id: Mapped[str]
    counts: Mapped[dict[str, Any]]
    """app.monitor.tally.Counts."""
    updated_at: Mapped[datetime] = mapped_column(default=utc_now)


class ModelAnswers(Base):
    """Answers that wait for the truth: hashes of their ids, means and spreads."""

    __tablename__ = "model_answers"
    __table_args__ = (sa.Index(None, "model_id", "created_at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(
        sa.ForeignKey("models.id", ondelete="CASCADE")
    )
    workspace_id: Mapped[str]
    n_rows: Mapped[int]
    content: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class Report(Base):
    """One of the reports on a job's model, as served."""

    __tablename__ = "reports"

    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    body: Mapped[dict[str, Any]]


class PredictionFault(Base):
    """A row that could not be answered, and why. Of very many, some are listed."""

    __tablename__ = "prediction_faults"

    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"), primary_key=True)
    row: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    """Of the table, counted from 1."""
    workspace_id: Mapped[str]
    column: Mapped[str | None]
    detail: Mapped[str]


class Worker(Base):
    """A worker that has been heard of; it lives while its heartbeats come."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    queue: Mapped[Queue]
    heartbeat_at: Mapped[datetime]
    memory_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    """What a training process may take there; null if it was never told."""
    threads: Mapped[int | None]
    """CPU threads of a training process there."""
    host: Mapped[str | None] = mapped_column(sa.String(100))
    """The name of its machine or container; null in rows of before, as what follows."""
    machine: Mapped[str | None] = mapped_column(sa.String(100))
    """The same for all containers of one machine: lometab.machine.find_machine."""
    device: Mapped[str | None] = mapped_column(sa.String(100))
    version: Mapped[str | None] = mapped_column(sa.String(100))
    epochs: Mapped[list[Any] | None] = mapped_column(Json)
    """Of its last runs: `flops` and `steps` of an epoch, and its `seconds`."""


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
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    """To the minute."""
    rotated_from: Mapped[str | None]
    """The id of the key whose place it takes."""
    requests_per_minute: Mapped[int | None]
    """Null: as the settings have it for all keys; so below."""
    max_concurrent: Mapped[int | None]


class AuditRecord(Base):
    """A change that was made, and by whom. Rows are only added, and removed by age."""

    __tablename__ = "audit"
    __table_args__ = (
        sa.Index(None, "workspace_id", "created_at", "id"),
        sa.Index(None, "created_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    key_id: Mapped[str | None]
    """Null: without a key, from the machine itself."""
    method: Mapped[str]
    """Of HTTP, or `CLI`."""
    route: Mapped[str]
    """The template of the path, or the command."""
    target_id: Mapped[str | None]
    """What was made, changed or deleted."""
    status: Mapped[int]
    request_id: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class IdempotencyKey(Base):
    """A request that is under way or was answered, by the key its client gave it."""

    __tablename__ = "idempotency_keys"

    workspace_id: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(sa.String(64))
    owner: Mapped[str | None] = mapped_column(sa.String(64))
    """The request that holds the lock: nobody else may write the answer."""
    locked_until: Mapped[datetime]
    response: Mapped[dict[str, Any] | None] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)


class Webhook(Base):
    """An address that is told of what happens in a workspace."""

    __tablename__ = "webhooks"
    __table_args__ = (sa.Index(None, "workspace_id", "created_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    url: Mapped[str]
    events: Mapped[list[Any]]
    """WebhookEvent."""
    description: Mapped[str | None]
    is_enabled: Mapped[bool] = mapped_column(default=True)
    secret: Mapped[str]
    """It signs, so it is kept as it is; no answer of the API has it but the first."""
    old_secret: Mapped[str | None]
    """The one before; it signs too, until `old_until`."""
    old_until: Mapped[datetime | None]
    n_failed: Mapped[int] = mapped_column(default=0)
    """Attempts in a row that failed, of whatever message."""
    not_before: Mapped[datetime | None]
    """A receiver that fails is left alone until then."""
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class Delivery(Base):
    """A message to a webhook: written with what it tells of, sent later."""

    __tablename__ = "deliveries"
    __table_args__ = (
        sa.UniqueConstraint("webhook_id", "key"),
        sa.CheckConstraint(f"status IN {_list(DeliveryStatus)}", name="status"),
        sa.Index(None, "webhook_id", "created_at", "id"),
        sa.Index(None, "status", "next_at"),
        sa.Index(None, "created_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    """The header `webhook-id`: the same in each attempt."""
    webhook_id: Mapped[str] = mapped_column(
        sa.ForeignKey("webhooks.id", ondelete="CASCADE")
    )
    workspace_id: Mapped[str]
    type: Mapped[WebhookEvent]
    key: Mapped[str]
    """What happened: there is one message of it to each webhook."""
    body: Mapped[str]
    """As it is sent and signed."""
    status: Mapped[DeliveryStatus] = mapped_column(default=DeliveryStatus.PENDING)
    attempt: Mapped[int] = mapped_column(default=0)
    """How often it was sent; never set back."""
    n_failed: Mapped[int] = mapped_column(default=0)
    """Attempts that failed, since it was last asked for by hand."""
    next_at: Mapped[datetime] = mapped_column(default=utc_now)
    locked_until: Mapped[datetime | None]
    """A worker sends it."""
    attempts: Mapped[list[Any]] = mapped_column(default=list)
    """The last ones: number, time, status or error, seconds."""
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    delivered_at: Mapped[datetime | None]
