"""When a job last came back to the queue

Revision: 0015, after 0014.

Only an addition: code of before leaves it as it is, and is then late by an attempt.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
is_additive = True


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.add_column("jobs", sa.Column("queued_at", moment, nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "queued_at")
