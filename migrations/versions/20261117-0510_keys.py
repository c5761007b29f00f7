"""Keys that expire, rotate and have limits; an audit of changes

Revision: 0005, after 0004.

Only additions: a process of the version before goes on working.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    for column in (
        sa.Column("expires_at", moment, nullable=True),
        sa.Column("last_used_at", moment, nullable=True),
        sa.Column("rotated_from", sa.String(), nullable=True),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("max_concurrent", sa.Integer(), nullable=True),
    ):
        op.add_column("api_keys", column)
    op.create_table(
        "audit",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=True),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("route", sa.String(), nullable=False),
        sa.Column("target_id", sa.String(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(
        op.f("ix_audit_workspace_id_created_at_id"),
        "audit",
        ["workspace_id", "created_at", "id"],
    )
    op.create_index(op.f("ix_audit_created_at"), "audit", ["created_at"])


def downgrade() -> None:
    op.drop_table("audit")
    for name in (
        "max_concurrent",
        "requests_per_minute",
        "rotated_from",
        "last_used_at",
        "expires_at",
    ):
        op.drop_column("api_keys", name)
