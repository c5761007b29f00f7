"""Blobs may be in an object store

Revision: 0010, after 0009.

Only additions: a process of the version before goes on working, as long as all blobs
are in the database.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("blobs", sa.Column("store", sa.String(), nullable=True))
    op.add_column("blobs", sa.Column("digests", sa.LargeBinary(), nullable=True))
    op.create_table(
        "loose_objects",
        sa.Column("store", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("is_dropped", sa.Boolean(), nullable=False),
        sa.Column("touched_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("store", "name", name=op.f("pk_loose_objects")),
    )
    op.create_index(
        op.f("ix_loose_objects_touched_at"), "loose_objects", ["touched_at"]
    )


def downgrade() -> None:
    op.drop_table("loose_objects")
    op.drop_column("blobs", "digests")
    op.drop_column("blobs", "store")
