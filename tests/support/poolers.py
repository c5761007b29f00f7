"""PgBouncer in front of a Postgres, by transactions: Debian's `pgbouncer`."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from tests.support.servers import Postgres, free_port, wait_until


class PgBouncer:
    """One database of a server through few connections, by transactions."""

    def __init__(
        self, postgres: Postgres, database: str, *, server_connections: int = 20
    ) -> None:
        self.postgres, self.database = postgres, database
        self.server_connections = server_connections
        self.port = free_port()

    @property
    def settings(self) -> dict[str, str]:
        """Of a service that goes through it."""
        url = f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{self.database}"
        return {"LOMETAB_DATABASE_URL": url, "LOMETAB_DATABASE_POOLER": "true"}

    def __enter__(self) -> "PgBouncer":
        self.folder = Path(tempfile.mkdtemp(prefix="lometab-pgbouncer-"))
        users = self.folder / "users"
        users.write_text('"postgres" ""\n')
        file = self.folder / "pgbouncer.ini"
        file.write_text(f"""
[databases]
{self.database} = host=127.0.0.1 port={self.postgres.port} dbname={self.database}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
max_client_conn = 5000
default_pool_size = {self.server_connections}
logfile = {self.folder / "log"}
""")
        command: list[str | Path] = ["pgbouncer", file]
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:  # it refuses to run as root
            nobody = pwd.getpwnam("nobody")
            for path in (self.folder, users, file):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user
        )
        wait_until(self._answers, seconds=10, what="PgBouncer answers")
        return self

    def _answers(self) -> bool:
        try:
            psycopg.connect(
                host="127.0.0.1",
                port=self.port,
                user="postgres",
                dbname=self.database,
                connect_timeout=2,
            ).close()
        except psycopg.OperationalError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)
