"""What was decided about a job is kept in its row; workers tell their pace

Revision: 0006, after 0005.

Only additions: a process of the version before goes on working.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("warnings", JSON, nullable=True))
    op.add_column("workers", sa.Column("epochs", JSON, nullable=True))


def downgrade() -> None:
    op.drop_column("workers", "epochs")
    op.drop_column("jobs", "warnings")
