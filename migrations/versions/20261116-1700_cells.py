"""Jobs that are cells of a sweep or trials of a tune job

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    parent = sa.ForeignKey("jobs.id", name=op.f("fk_jobs_parent_id_jobs"))
    op.add_column(
        "jobs",
        sa.Column("parent_id", sa.String(), parent, nullable=True),
        inline_references=True,
    )
    op.add_column("jobs", sa.Column("position", sa.Integer(), nullable=True))
    json = sa.JSON().with_variant(JSONB(), "postgresql")
    op.add_column("jobs", sa.Column("outcome", json, nullable=True))
    op.create_index(
        op.f("ix_jobs_parent_id_position"),
        "jobs",
        ["parent_id", "position"],
        unique=True,
    )
    op.create_index(
        op.f("ix_jobs_workspace_id_parent_id_created_at_id"),
        "jobs",
        ["workspace_id", "parent_id", "created_at", "id"],
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_jobs_workspace_id_parent_id_created_at_id"), "jobs")
    op.drop_index(op.f("ix_jobs_parent_id_position"), "jobs")
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.drop_column("outcome")
        batch_op.drop_column("position")
        batch_op.drop_column("parent_id")
