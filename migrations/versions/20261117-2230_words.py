"""Names, tags and descriptions that people give to datasets, jobs and models

Revision: 0009, after 0008.

Only additions, with defaults: a process of the version before goes on working. Models
that are there get the tags of their jobs.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("datasets", sa.Column("name", sa.String(), nullable=True))
    for table in ("datasets", "models"):
        op.add_column(
            table,
            sa.Column("tags", JSON, nullable=False, server_default=sa.text("'[]'")),
        )
    for table in ("datasets", "jobs", "models"):
        op.add_column(table, sa.Column("description", sa.String(), nullable=True))
    op.execute(
        "UPDATE models SET tags = "
        "(SELECT jobs.tags FROM jobs WHERE jobs.id = models.job_id)"
    )


def downgrade() -> None:
    for table in ("models", "jobs", "datasets"):
        op.drop_column(table, "description")
    for table in ("models", "datasets"):
        op.drop_column(table, "tags")
    op.drop_column("datasets", "name")
