"""Hashes of chunks, owners of idempotency keys, what workers have, a fair queue

Revision: 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NEW = (
    ("blob_chunks", sa.Column("sha256", sa.String(64), nullable=True)),
    ("idempotency_keys", sa.Column("owner", sa.String(64), nullable=True)),
    ("workers", sa.Column("memory_bytes", sa.BigInteger(), nullable=True)),
    ("workers", sa.Column("threads", sa.Integer(), nullable=True)),
)
BY_AGE = "ix_jobs_status_queue_created_at"
BY_TURN = "ix_attempts_workspace_id_claimed_at"


def upgrade() -> None:
    for table, column in NEW:
        op.add_column(table, column)
    order = ["status", "queue", "kind", "workspace_id", "parent_id"]
    order += ["position", "created_at", "id"]
    op.create_index("ix_jobs_next", "jobs", order)
    op.drop_index(op.f(BY_AGE), "jobs")
    op.create_index(op.f(BY_TURN), "attempts", ["workspace_id", "claimed_at"])


def downgrade() -> None:
    op.drop_index(op.f(BY_TURN), "attempts")
    op.create_index(op.f(BY_AGE), "jobs", ["status", "queue", "created_at"])
    op.drop_index("ix_jobs_next", "jobs")
    for table, column in reversed(NEW):
        op.drop_column(table, column.name)
