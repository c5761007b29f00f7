"""The command: what it refuses and what it says."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        env={"LOMETAB_DATA_DIR": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help(tmp_path: Path) -> None:
    done = run("--help", folder=tmp_path)
    assert done.returncode == 0
    for command in ("serve", "worker", "migrate"):
        assert command in done.stdout


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_open_addresses_are_refused(tmp_path: Path, host: str) -> None:
    done = run("serve", "--host", host, "--port", "0", folder=tmp_path)
    assert done.returncode == 2
    assert "lometab keys create" in " ".join(done.stderr.replace("│", " ").split())


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    made = run("keys", "create", "laptop", "--scope", "read", folder=tmp_path)
    secret = made.stdout.strip()
    assert secret.startswith("lmt_")
    assert secret not in (tmp_path / "lometab.db").read_bytes().decode("latin-1")
    (line,) = run("keys", "list", folder=tmp_path).stdout.splitlines()
    assert "laptop" in line and "read" in line and "active" in line
    id_ = line.split()[0]
    assert run("keys", "revoke", id_, folder=tmp_path).returncode == 0
    assert "revoked" in run("keys", "list", folder=tmp_path).stdout
    assert run("keys", "revoke", id_, folder=tmp_path).returncode == 2
    refused = run("keys", "create", "--scope", "all", folder=tmp_path)
    assert refused.returncode == 2


def test_wrong_setting_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "migrate"],
        env={"LOMETAB_DATA_DIR": str(tmp_path), "LOMETAB_PORT": "many"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "port" in done.stderr
