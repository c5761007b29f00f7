"""No update is lost when several processes write."""

import subprocess
import sys

import pytest

from tests.support.stacks import Stack

pytestmark = [pytest.mark.both_databases, pytest.mark.processes]

ADD_200 = """
import sys
import sqlalchemy as sa
from app.storage.db import make_engine
engine = make_engine(sys.argv[1])
for _ in range(200):
    with engine.begin() as connection:
        lock = " FOR UPDATE" if engine.dialect.name == "postgresql" else ""
        n = connection.scalar(sa.text("SELECT n FROM counter" + lock))
        connection.execute(sa.text("UPDATE counter SET n = :n"), {"n": n + 1})
"""


def test_no_update_is_lost(stack: Stack) -> None:
    stack.query("CREATE TABLE counter (n INTEGER)")
    stack.query("INSERT INTO counter VALUES (0)")
    processes = [
        subprocess.Popen([sys.executable, "-c", ADD_200, stack.url]) for _ in range(4)
    ]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert stack.query("SELECT n FROM counter") == [(800,)]
