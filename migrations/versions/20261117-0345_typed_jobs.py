"""Role, number and settings of a job in columns; blobs by generation

Revision: 0003, after 0002.

Nothing here copies a table: columns are added or renamed in place, so that the bytes of
blobs stay where they are, on SQLite too.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
ROLES = "'train', 'sweep', 'tune', 'cell', 'trial', 'repeat', 'refit'"
MARKS = ("is_cell", "cell", "trial_of", "repeat_of", "refit_of", "promoted_from")
"""What a job was, in the config that its caller sees."""
BATCH = 500

jobs = sa.table(
    "jobs",
    sa.column("id", sa.String),
    sa.column("kind", sa.String),
    sa.column("role", sa.String),
    sa.column("status", sa.String),
    sa.column("attempt", sa.Integer),
    sa.column("parent_id", sa.String),
    sa.column("position", sa.Integer),
    sa.column("number", sa.Integer),
    sa.column("repeat", sa.Integer),
    sa.column("settings", JSON),
    sa.column("promoted_from", sa.String),
    sa.column("is_reported", sa.Boolean),
    sa.column("config", JSON),
    sa.column("progress", JSON),
)
events = sa.table(
    "events",
    sa.column("job_id", sa.String),
    sa.column("type", sa.String),
    sa.column("data", JSON),
)


def upgrade() -> None:
    _change_blobs()
    op.execute("ALTER TABLE jobs RENAME COLUMN is_stop_wished TO is_stop_requested")
    op.execute("ALTER TABLE workers RENAME COLUMN beat_at TO heartbeat_at")
    op.add_column("models", sa.Column("metadata", JSON, nullable=True))
    op.execute(
        "ALTER TABLE jobs ADD COLUMN role VARCHAR NOT NULL DEFAULT 'train' "
        f"CONSTRAINT ck_jobs_role CHECK (role IN ({ROLES}))"
    )
    for column in (
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("repeat", sa.Integer(), nullable=True),
        sa.Column("settings", JSON, nullable=True),
        sa.Column("promoted_from", sa.String(), nullable=True),
        sa.Column(
            "is_reported", sa.Boolean(), nullable=False, server_default=sa.false()
        ),
    ):
        op.add_column("jobs", column)
    connection = op.get_bind()
    _fill_alone(connection)
    parents = connection.execute(
        sa.select(jobs.c.id, jobs.c.kind, jobs.c.config, jobs.c.progress).where(
            jobs.c.kind.in_(("sweep", "tune"))
        )
    ).all()
    for parent in parents:
        _fill_family(connection, parent)
    op.create_index(
        op.f("ix_jobs_parent_id_role_number_repeat"),
        "jobs",
        ["parent_id", "role", "number", "repeat"],
        unique=True,
    )
    op.create_index(
        op.f("ix_jobs_parent_id_is_reported_status_role"),
        "jobs",
        ["parent_id", "is_reported", "status", "role"],
    )


def _change_blobs() -> None:
    """Blobs that are there keep their chunks: their generation is their hash."""
    op.add_column(
        "blobs",
        sa.Column("generation", sa.String(64), nullable=False, server_default=""),
    )
    op.execute("UPDATE blobs SET generation = sha256")
    op.execute("ALTER TABLE blob_chunks RENAME COLUMN sha256 TO generation")


def _fill_alone(connection: sa.Connection) -> None:
    """Jobs on their own: some were promoted from a cell or a trial."""
    rows = connection.execute(
        sa.select(jobs.c.id, jobs.c.config).where(
            jobs.c.kind == "train", jobs.c.parent_id.is_(None)
        )
    ).all()
    for job_id, config in rows:
        source = config.get("promoted_from")
        if source is None:
            continue
        number = source.get("cell", source.get("trial"))
        _write(
            connection,
            job_id,
            config=_strip(config),
            promoted_from=source["job_id"],
            number=number,
        )


def _fill_family(connection: sa.Connection, parent: Any) -> None:
    told = _read_told(connection, parent.id)
    find = _find_cell if parent.kind == "sweep" else _find_part
    seed = parent.config["hyperparameters"]["seed"]
    space: dict[str, Any] | None = None
    n_cells = 0
    if parent.kind == "sweep":
        n_cells = parent.progress["n_runs"] // parent.config["sweep"]["seeds"]
    for child in _read_children(connection, parent.id):
        if space is None and "trial_of" in child.config:
            space = child.config["trial_of"]["space"]
        _write(
            connection,
            child.id,
            **find(child, seed, n_cells),
            config=_strip(child.config),
            is_reported=(child.id, child.attempt, child.status) in told,
        )
    config = parent.config
    if space is not None:
        given = config["tune"].get("space", {})
        config = {**config, "tune": {**config["tune"], "space": {**given, **space}}}
    _write(connection, parent.id, role=parent.kind, config=config)


def _read_told(connection: sa.Connection, parent_id: str) -> set[tuple[Any, ...]]:
    """Whose ends the parent has an event of."""
    rows = connection.scalars(
        sa.select(events.c.data).where(
            events.c.job_id == parent_id, events.c.type == "child"
        )
    )
    return {(data["job_id"], data["attempt"], data["status"]) for data in rows}


def _read_children(connection: sa.Connection, parent_id: str) -> Iterator[Any]:
    """By position, a batch at a time: each has a config of its own."""
    last = -1
    while True:
        rows = connection.execute(
            sa.select(
                jobs.c.id,
                jobs.c.position,
                jobs.c.status,
                jobs.c.attempt,
                jobs.c.config,
            )
            .where(jobs.c.parent_id == parent_id, jobs.c.position > last)
            .order_by(jobs.c.position)
            .limit(BATCH)
        ).all()
        if not rows:
            return
        yield from rows
        last = rows[-1].position


def _find_cell(child: Any, seed: int, n_cells: int) -> dict[str, Any]:
    repeat, number = divmod(child.position, n_cells)
    return {
        "role": "cell",
        "number": number,
        "repeat": repeat,
        "settings": child.config.get("cell"),
    }


def _find_part(child: Any, seed: int, n_cells: int) -> dict[str, Any]:
    """A trial, a repeat or the refit of a tune job."""
    config = child.config
    if "trial_of" in config:
        settings = None
        if config["trial_of"].get("is_drawn"):
            names = config["trial_of"]["space"]
            settings = {name: config["hyperparameters"][name] for name in names}
        return {
            "role": "trial",
            "number": child.position,
            "repeat": 0,
            "settings": settings,
        }
    if "repeat_of" in config:
        repeat = config["hyperparameters"]["seed"] - seed
        return {"role": "repeat", "number": config["repeat_of"], "repeat": repeat}
    # Refits of early versions do not tell of which trial they are.
    return {"role": "refit", "number": config.get("refit_of"), "repeat": 0}


def _strip(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in MARKS}


def _write(connection: sa.Connection, job_id: str, **values: Any) -> None:
    connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(**values))


def downgrade() -> None:
    raise NotImplementedError(
        "chunks of blobs that were stored since have no place in the tables before; "
        "restore a backup of the database"
    )
