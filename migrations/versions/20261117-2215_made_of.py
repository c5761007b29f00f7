"""What a job is made of, where nothing is trained

Revision: 0008, after 0007.

Only an addition: a process of the version before goes on working.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("made_of", JSON, nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "made_of")
