"""The newest revision is the tables as the code has them, on both databases."""

from pathlib import Path

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from app.db import make_engine, migrate
from app.models import Base
from tests.stacks import Stack


def test_head_equals_the_models(stack: Stack) -> None:
    engine = make_engine(stack.url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_every_table_has_a_workspace() -> None:
    for table in Base.metadata.tables.values():
        assert "workspace_id" in table.columns, table.name


def test_migrating_twice_changes_nothing(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/twice.db")
    migrate(engine)
    before = sa.inspect(engine).get_table_names()
    migrate(engine)
    assert sa.inspect(engine).get_table_names() == before
    engine.dispose()
