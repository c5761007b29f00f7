"""Where a worker runs, and which request a job came of

Revision: 0012, after 0011.

Only additions: a process of the version before goes on working.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("host", "machine", "device", "version"):
        op.add_column("workers", sa.Column(name, sa.String(100), nullable=True))
    op.add_column("jobs", sa.Column("traceparent", sa.String(55), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "traceparent")
    for name in ("version", "device", "machine", "host"):
        op.drop_column("workers", name)
