"""Prediction jobs: their roles, how long results are kept, rows that had faults

Revision: 0011, after 0010.

A process of the version before goes on working until there is a prediction job: it
does not know the roles of these. Replace workers and APIs before one is made.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

BEFORE = "'train', 'sweep', 'tune', 'cell', 'trial', 'repeat', 'refit'"
ROLES = f"{BEFORE}, 'predict', 'chunk', 'assemble'"
INDEXES = {
    "ix_jobs_parent_id_role_number_repeat": (
        ["parent_id", "role", "number", "repeat"],
        True,
    ),
    "ix_jobs_parent_id_is_reported_status_role": (
        ["parent_id", "is_reported", "status", "role"],
        False,
    ),
}


def upgrade() -> None:
    _allow_roles(ROLES)
    moment = sa.DateTime(timezone=True)
    op.add_column("jobs", sa.Column("expires_at", moment, nullable=True))
    op.create_index(op.f("ix_jobs_expires_at"), "jobs", ["expires_at"])
    op.create_table(
        "prediction_faults",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("row", sa.BigInteger(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("column", sa.String(), nullable=True),
        sa.Column("detail", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_prediction_faults_job_id_jobs")
        ),
        sa.PrimaryKeyConstraint("job_id", "row", name=op.f("pk_prediction_faults")),
    )


def _allow_roles(roles: str) -> None:
    """SQLite cannot change a check: there the column is made anew, and its indexes."""
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint(op.f("ck_jobs_role"), "jobs")
        op.create_check_constraint(op.f("ck_jobs_role"), "jobs", f"role IN ({roles})")
        return
    for name in INDEXES:
        op.drop_index(name, "jobs")
    op.execute(
        "ALTER TABLE jobs ADD COLUMN new_role VARCHAR NOT NULL DEFAULT 'train' "
        f"CONSTRAINT ck_jobs_role CHECK (new_role IN ({roles}))"
    )
    op.execute("UPDATE jobs SET new_role = role")
    op.execute("ALTER TABLE jobs DROP COLUMN role")
    op.execute("ALTER TABLE jobs RENAME COLUMN new_role TO role")
    for name, (columns, is_unique) in INDEXES.items():
        op.create_index(name, "jobs", columns, unique=is_unique)


def downgrade() -> None:
    op.drop_table("prediction_faults")
    op.drop_index(op.f("ix_jobs_expires_at"), "jobs")
    op.drop_column("jobs", "expires_at")
    _allow_roles(BEFORE)
