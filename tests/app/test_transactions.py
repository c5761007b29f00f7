"""Whoever opens a transaction ends it, and nobody else."""

import ast
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.storage import db
from app.storage.tables import ApiKey, new_id

ROOT = Path(__file__).parents[2]
ALLOWED = {"app/storage/db.py"}


@pytest.mark.parametrize("package", ["app", "worker"])
def test_nobody_else_commits(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        calls = [
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ]
        assert "commit" not in calls or name in ALLOWED, name


def make_key() -> ApiKey:
    return ApiKey(
        id=new_id("key"),
        workspace_id="default",
        name="test",
        sha256=new_id("").ljust(64, "0"),
        hint="abcd",
        scopes=[],
    )


def count(connection: sa.Connection) -> int | None:
    return connection.scalar(sa.select(sa.func.count()).select_from(ApiKey))


def test_a_transaction_ends_with_its_block(database: sa.Connection) -> None:
    before = count(database) or 0
    with db.transaction() as session:
        session.add(make_key())
    assert count(database) == before + 1
    with pytest.raises(RuntimeError, match="halfway"), db.transaction() as session:
        session.add(make_key())
        session.flush()
        raise RuntimeError("halfway")
    assert count(database) == before + 1
