"""The oldest revision whose code works with these tables

Revision: 0014, after 0013.

It stands beside the number of the revision itself: code that does not know a newer
revision reads there whether it may go on. From here on, each revision says by
`is_additive` whether code of the one before goes on working, and env.py keeps the
column.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
is_additive = True

TABLE = "lometab_version"


def upgrade() -> None:
    op.add_column(TABLE, sa.Column("compatible_since", sa.String(32), nullable=True))
    op.execute(f"UPDATE {TABLE} SET compatible_since = '{down_revision}'")


def downgrade() -> None:
    op.drop_column(TABLE, "compatible_since")
