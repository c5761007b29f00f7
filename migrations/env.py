"""Alembic's entry: runs the revisions on the database that the settings name."""

from typing import Any, Literal

import sqlalchemy as sa
from alembic import context
from alembic.runtime.migration import MigrationInfo

from app.settings import get_settings
from app.storage.tables import VERSION_TABLE, Base, Json, UTCDateTime


def render_item(kind: str, item: Any, _: object) -> str | Literal[False]:
    """Spell our column types in plain SQLAlchemy, so that revisions import no code."""
    if kind == "type" and isinstance(item, UTCDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and item is Json:
        return 'sa.JSON().with_variant(JSONB(), "postgresql")'
    return False


def note_break(*, ctx: Any, step: MigrationInfo, **_: object) -> None:
    """Leave word of a revision that code of the one before does not work with."""
    revision = step.up_revision
    if not step.is_upgrade or revision is None or revision.revision <= LAST_UNMARKED:
        return
    if not getattr(revision.module, "is_additive", False):
        ctx.connection.execute(
            sa.text(f"UPDATE {VERSION_TABLE} SET compatible_since = :since"),
            {"since": revision.revision},
        )


LAST_UNMARKED = "0013"
"""Revisions up to this one say nothing, and there was no place for it."""


def run(connection: sa.Connection) -> None:
    is_postgres = connection.dialect.name == "postgresql"
    if is_postgres:  # two services that start at once must not both migrate
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(5417231)")
    tables = sa.inspect(connection).get_table_names()
    if "jobs" in tables and VERSION_TABLE not in tables:  # made before it had its name
        connection.exec_driver_sql(
            f"ALTER TABLE alembic_version RENAME TO {VERSION_TABLE}"
        )
    context.configure(
        connection=connection,
        version_table=VERSION_TABLE,
        target_metadata=Base.metadata,
        render_as_batch=not is_postgres,
        render_item=render_item,
        on_version_apply=note_break,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with sa.create_engine(get_settings().sqlalchemy_url).begin() as connection:
        run(connection)
