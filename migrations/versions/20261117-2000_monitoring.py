"""Counts of what is predicted, and answers that wait for the truth

Revision: 0007, after 0006.

Only additions: a process of the version before goes on working.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    json = sa.JSON(none_as_null=True).with_variant(
        JSONB(none_as_null=True), "postgresql"
    )
    op.create_table(
        "model_counts",
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("shard", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("counts", json, nullable=False),
        sa.Column("updated_at", moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"],
            ["models.id"],
            name=op.f("fk_model_counts_model_id_models"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "model_id", "day", "shard", name=op.f("pk_model_counts")
        ),
    )
    op.create_table(
        "model_answers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("n_rows", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"],
            ["models.id"],
            name=op.f("fk_model_answers_model_id_models"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_answers")),
    )
    op.create_index(
        op.f("ix_model_answers_model_id_created_at"),
        "model_answers",
        ["model_id", "created_at"],
    )


def downgrade() -> None:
    op.drop_table("model_answers")
    op.drop_table("model_counts")
