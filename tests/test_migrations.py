"""The newest revision is the tables as the code has them, on both databases."""

import hashlib
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import migrations
from app.storage.db import find_head, make_engine, migrate
from app.storage.tables import VERSION_TABLE, Base
from tests.support.stacks import Stack


@pytest.mark.both_databases
def test_head_equals_the_models(stack: Stack) -> None:
    engine = make_engine(stack.url)
    with engine.connect() as connection:
        options = {"version_table": VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_the_head_that_is_checked_is_the_newest_revision() -> None:
    folder = Path(__file__).parents[1] / "migrations"
    assert find_head() == ScriptDirectory(str(folder)).get_current_head()


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


def test_a_database_of_before_the_version_table_had_its_name(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/old.db")
    migrate(engine)
    with engine.begin() as connection:
        sql = f"ALTER TABLE {VERSION_TABLE} RENAME TO alembic_version"
        connection.exec_driver_sql(sql)
    before = sa.inspect(engine).get_table_names()
    migrate(engine)
    assert "alembic_version" in before
    after = sa.inspect(engine).get_table_names()
    assert "alembic_version" not in after and VERSION_TABLE in after
    engine.dispose()


REVISIONS = Path(__file__).parent / "old" / "revisions.sha256"
"""`sha256sum` of the revisions, in the order of their names. A new one adds a line."""


def test_no_revision_is_changed_in_place() -> None:
    """Databases out there have run them: what is wrong in one is mended by the next."""
    lines = REVISIONS.read_text().splitlines()
    listed = {name: sha256 for sha256, name in map(str.split, lines)}
    folder = Path(next(iter(migrations.__path__))) / "versions"
    there = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("2*.py")
    }
    changed = [name for name in listed if listed[name] != there.get(name)]
    assert not changed, f"changed or removed: {changed}; write a new revision instead"
    assert list(listed) == sorted(there), "a new revision is listed at the end"


def test_each_revision_says_whether_the_version_before_goes_on() -> None:
    """Since there is a place for it in the database."""
    scripts = ScriptDirectory(str(Path(__file__).parents[1] / "migrations"))
    for script in scripts.walk_revisions():
        if script.revision > "0013":
            assert isinstance(script.module.is_additive, bool), script.revision
