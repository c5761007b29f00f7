"""Webhooks, and messages to them

Revision: 0013, after 0012.

Only additions: a process of the version before goes on working.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    json = sa.JSON(none_as_null=True).with_variant(
        JSONB(none_as_null=True), "postgresql"
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("events", json, nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("old_secret", sa.String(), nullable=True),
        sa.Column("old_until", moment, nullable=True),
        sa.Column("n_failed", sa.Integer(), nullable=False),
        sa.Column("not_before", moment, nullable=True),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index(
        op.f("ix_webhooks_workspace_id_created_at_id"),
        "webhooks",
        ["workspace_id", "created_at", "id"],
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("webhook_id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("n_failed", sa.Integer(), nullable=False),
        sa.Column("next_at", moment, nullable=False),
        sa.Column("locked_until", moment, nullable=True),
        sa.Column("attempts", json, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("delivered_at", moment, nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'delivered', 'dead')",
            name=op.f("ck_deliveries_status"),
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhooks.id"],
            name=op.f("fk_deliveries_webhook_id_webhooks"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint(
            "webhook_id", "key", name=op.f("uq_deliveries_webhook_id_key")
        ),
    )
    for columns in (
        ["webhook_id", "created_at", "id"],
        ["status", "next_at"],
        ["created_at"],
    ):
        name = op.f(f"ix_deliveries_{'_'.join(columns)}")
        op.create_index(name, "deliveries", columns)


def downgrade() -> None:
    op.drop_table("deliveries")
    op.drop_table("webhooks")
