"""The command: what it refuses and what it says."""

import json
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli import reports
from lometab.evaluation import compare_cells
from tests.support.outcomes import outcome

pytestmark = pytest.mark.processes


ROOT = Path(__file__).parents[2]


def run(
    *arguments: str, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        env={"LOMETAB_DATA_DIR": str(folder), "PATH": "/usr/bin:/bin", **environment},
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


def test_a_look_where_nothing_is_stored_leaves_nothing(tmp_path: Path) -> None:
    """An empty database would be taken for one that was never migrated."""
    nowhere = tmp_path / "nowhere"
    done = run("keys", "list", "--data-dir", str(nowhere), folder=tmp_path)
    assert done.returncode == 0 and "lometab keys create" in done.stdout
    assert run("blobs", "list", "--data-dir", str(nowhere), folder=tmp_path)
    assert not (nowhere / "lometab.db").exists()


def test_keys_are_made_where_the_service_will_look(tmp_path: Path) -> None:
    other = tmp_path / "other"
    where = ("--data-dir", str(other))
    refused = run("serve", "--host", "0.0.0.0", "--port", "0", *where, folder=tmp_path)
    told = "".join(refused.stderr.replace("│", " ").split())
    assert f"keyscreate--data-dir{other}" in told
    assert run("keys", "create", *where, folder=tmp_path).returncode == 0
    assert "active" in run("keys", "list", *where, folder=tmp_path).stdout
    assert "active" not in run("keys", "list", folder=tmp_path).stdout


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
    _, line = run("keys", "list", folder=tmp_path).stdout.splitlines()
    assert "laptop" in line and "read" in line and "active" in line
    id_ = line.split()[0]
    assert run("keys", "revoke", id_, folder=tmp_path).returncode == 0
    assert "revoked" in run("keys", "list", folder=tmp_path).stdout
    assert run("keys", "revoke", id_, folder=tmp_path).returncode == 2
    refused = run("keys", "create", "--scope", "all", folder=tmp_path)
    assert refused.returncode == 2


POSTGRES = "postgresql+psycopg://"
MISTAKES: list[tuple[dict[str, str], list[str], int, list[str]]] = [
    ({"LOMETAB_PORT": "many"}, ["migrate"], 2, ["LOMETAB_PORT", "'many'"]),
    ({"LOMETAB_PROT": "1"}, ["config"], 0, ["LOMETAB_PROT", "'LOMETAB_PORT'"]),
    (
        {"LOMETAB_DATABASE_URL": f"{POSTGRES}u:geheim@127.0.0.1:1/db"},
        ["keys", "list"],
        3,
        ["u:***@127.0.0.1:1/db cannot be reached", "is it running"],
    ),
    (
        {"LOMETAB_DATABASE_URL": f"{POSTGRES}u@127.0.0.1:1/db?password=geheim"},
        ["bootstrap"],
        3,
        ["127.0.0.1:1/db?password=*** cannot be reached"],
    ),
    (
        {"LOMETAB_DATABASE_URL": f"{POSTGRES}u@127.0.0.1:1/db?password=geheim"},
        ["worker", "--check"],
        3,
        ["127.0.0.1:1/db?password=*** cannot be reached"],
    ),
    (
        {"LOMETAB_DATABASE_URL": f"{POSTGRES}u:ge@geheim@127.0.0.1:1/db"},
        ["migrate"],
        2,
        ["u:***@127.0.0.1:1/db", "%40"],
    ),
    ({"LOMETAB_BLOB_OPTIONS": "{geheim"}, ["config"], 2, ["LOMETAB_BLOB_OPTIONS: the"]),
    ({"LOMETAB_BLOB_OPTIONS": '["geheim"]'}, ["config"], 2, ["BLOB_OPTIONS: Input"]),
    ({"LOMETAB_DATABASE_URL": "nonsense"}, ["migrate"], 2, ["LOMETAB_DATABASE_URL"]),
    ({"LOMETAB_URL": "http://127.0.0.1:1"}, ["jobs"], 3, ["is the service running"]),
    ({"LOMETAB_DATABASE_URL": "sqlite:///x"}, ["jobs"], 1, ["--url"]),
    ({"LOMETAB_URL": "localhost:1"}, ["jobs"], 2, ["begin with http://"]),
    ({}, ["blobs", "list"], 2, ["nothing is stored in", "--data-dir"]),
    ({}, ["dashboard"], 2, ["nothing is stored in", "--data-dir"]),
    ({}, ["worker", "--check"], 2, ["nothing is stored in"]),
    ({}, ["serve", "--port", "0", "--host", "no.such.invalid"], 2, ["no address"]),
]


@pytest.mark.parametrize(
    ("environment", "arguments", "code", "words"),
    MISTAKES,
    ids=[" ".join([*each[0], *each[1]]) for each in MISTAKES],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path,
    environment: dict[str, str],
    arguments: list[str],
    code: int,
    words: list[str],
) -> None:
    done = run(*arguments, folder=tmp_path, **environment)
    assert done.returncode == code, done.stderr
    told = " ".join(done.stderr.replace("│", " ").split())
    for word in words:
        assert word in told
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) < 8
    assert "geheim" not in done.stdout + done.stderr


def test_a_port_that_is_taken_gets_a_hint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run("serve", "--port", str(port), folder=tmp_path)
    assert done.returncode == 3 and "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_say_where_they_come_from(tmp_path: Path) -> None:
    secret = "postgresql+psycopg://u:geheim@host/db"
    done = run("config", "--json", folder=tmp_path, LOMETAB_DATABASE_URL=secret)
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["LOMETAB_DATABASE_URL"]["value"] == "postgresql+psycopg://u:***@host/db"
    assert rows["LOMETAB_DATABASE_URL"]["from"] == "environment"
    assert rows["LOMETAB_PORT"] | {"meaning": ""} == {
        "name": "LOMETAB_PORT",
        "value": "8000",
        "from": "default",
        "meaning": "",
    }


def test_the_doctor_shows_no_password(tmp_path: Path) -> None:
    done = run(
        "doctor",
        folder=tmp_path,
        LOMETAB_DATABASE_URL=f"{POSTGRES}u@127.0.0.1:1/db?password=geheim",
        LOMETAB_BROKER_URL="redis://127.0.0.1:1/0?password=geheim",
    )
    assert "?password=***" in done.stdout
    assert "geheim" not in done.stdout + done.stderr


def test_the_doctor_says_what_to_do(tmp_path: Path) -> None:
    done = run("doctor", "--json", folder=tmp_path, LOMETAB_PROT="1")
    lines = {line["name"]: line for line in json.loads(done.stdout)}
    assert done.returncode == 1 and "LOMETAB_PORT" in lines["settings"]["text"]
    assert lines["python"]["state"] == lines["device"]["state"] == "ok"
    assert "lometab serve" in lines["database"]["text"]
    assert run("doctor", folder=tmp_path).returncode == 0


def test_the_data_directory_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    code = "from app.settings import find_data_dir as f; print(f())"
    environment = {"XDG_DATA_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    here, old = tmp_path / "here", tmp_path / "old"
    here.mkdir()
    (old / "lometab-data").mkdir(parents=True)
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for folder in (tmp_path, here, old)
    ]
    assert found == [*[str(tmp_path / "home" / "lometab")] * 2, "lometab-data"]


def test_a_baseline_in_the_lead_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    settings = [{"rank": 1}, {"variant": "catboost"}]
    runs = [[outcome(0.8)], [outcome(0.9)]]
    compared = asdict(compare_cells(settings, runs, baselines=[1]))
    job = SimpleNamespace(
        id="job_1", info={"kind": "sweep"}, comparison={"comparison": compared}
    )
    reports._print_comparison(job)  # type: ignore[arg-type]
    said = " ".join(capsys.readouterr().out.split())
    assert "cell 1 (catboost) is ahead on validation" in said
    assert "promote job_1 --cell 0" in said
