"""Dashboards, alerts and the compose file name what there is."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.application import cli
from app.main import _read_gauges  # noqa: F401  (it makes the gauges known)
from app.observe import metrics
from app.settings import Settings

ROOT = Path(__file__).parents[2]
OBSERVE = ROOT / "deploy" / "observe"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OURS = ("api", "api-gpu", "worker-cpu", "worker-gpu", "bootstrap")


def known_names() -> set[str]:
    """Of all series that we tell."""
    names = {*metrics._LOCAL}
    for name, family in metrics.FAMILIES.items():
        if family.bounds is None:
            names.add(name)
        else:
            names |= {f"{name}_{end}" for end in ("bucket", "sum", "count")}
    text = (ROOT / "app" / "jobs" / "gauges.py").read_text()
    return names | set(re.findall(r'"(lometab_\w+)"', text))


def used_names(text: str) -> set[str]:
    return set(re.findall(r"\blometab_\w+", text))


@pytest.mark.parametrize(
    "path",
    [
        "deploy/observe/alerts.yml",
        "deploy/observe/dashboards/lometab.json",
        "deploy/helm/lometab/templates/_helpers.tpl",
    ],
)
def test_only_metrics_that_there_are_are_asked_for(path: str) -> None:
    used = used_names((ROOT / path).read_text())
    assert used and used <= known_names()


def test_the_dashboard_shows_all_families() -> None:
    board = json.loads((ROOT / "deploy/observe/dashboards/lometab.json").read_text())
    shown = used_names(json.dumps(board))
    for name, family in metrics.FAMILIES.items():
        end = "" if family.bounds is None else "_bucket"
        assert {f"{name}{end}", f"{name}_sum"} & shown, name
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def list_places(service: dict[str, Any]) -> list[str]:
    """Folders that it may write to: in memory, or of a volume."""
    volumes = [
        each["target"] if isinstance(each, dict) else each.split(":")[1]
        for each in service.get("volumes", ())
        if isinstance(each, dict) or not each.endswith(":ro")
    ]
    return [each.split(":")[0] for each in service["tmpfs"]] + volumes


def test_all_services_are_hardened() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True and service["init"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service.get("cap_add", []) == ["NET_BIND_SERVICE"] * (name == "caddy")
        assert service["security_opt"] == ["no-new-privileges:true"], name
        limits = service["deploy"]["resources"]["limits"]
        assert limits["memory"] and limits["cpus"], name
        assert service["logging"]["options"]["max-size"], name
        assert "/tmp" in list_places(service), name
    # Their images begin as root, and only then become another user.
    for name in ("postgres", "redis"):
        assert COMPOSE["services"][name]["user"] == name
        for each in COMPOSE["services"][name]["tmpfs"]:
            assert each.endswith(":mode=1777")  # not the owner's of the folder below


def test_what_is_named_is_there() -> None:
    for name, service in COMPOSE["services"].items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:") or name == "caddy"
        for secret in service.get("secrets", ()):
            assert secret in COMPOSE["secrets"]
        for volume in service.get("volumes", ()):
            if isinstance(volume, dict):  # of no name: a fresh one each time
                assert {*volume} == {"type", "target"}
                continue
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).exists(), source
            else:
                assert source in COMPOSE["volumes"]


def test_ours_reach_the_world_and_the_databases_do_not() -> None:
    """Workers send webhooks; tables and models may be in an object store."""
    networks = COMPOSE["networks"]
    assert networks["inside"]["internal"] is True
    outward = {
        name for name, told in networks.items() if not (told or {}).get("internal")
    }
    for name in OURS:
        of_it = {*COMPOSE["services"][name]["networks"]}
        assert "inside" in of_it and outward & of_it, name
    for name in ("postgres", "redis"):
        assert COMPOSE["services"][name]["networks"] == ["inside"]


@pytest.mark.parametrize(
    "path", ["docker-compose.yml", "docs/operations.md", "docs/start/install.md"]
)
def test_all_secrets_are_made(path: str) -> None:
    made = re.search(r"for name in ([a-z ]+); do", (ROOT / path).read_text())
    assert made is not None
    assert {*made[1].split()} == {*COMPOSE["secrets"]}


def test_prometheus_asks_all_that_have_metrics() -> None:
    told = yaml.safe_load((OBSERVE / "prometheus.yml").read_text())
    asked = {
        name: job["job_name"]
        for job in told["scrape_configs"]
        for config in job["dns_sd_configs"]
        for name in config["names"]
    }
    assert asked.keys() == {*OURS} - {"bootstrap"}
    # An alert misses the job of the API if it is gone: nothing else may be in it.
    assert [name for name, job in asked.items() if job == "lometab-api"] == ["api"]
    (rule,) = [
        each
        for each in yaml.safe_load((OBSERVE / "alerts.yml").read_text())["groups"][0][
            "rules"
        ]
        if each["alert"] == "ApiIsAway"
    ]
    down, _, gone = rule["expr"].partition(" or ")
    assert gone == 'absent(up{job="lometab-api"})'
    wanted = re.fullmatch(r'up\{job=~"(.+)"\} == 0', down)
    assert wanted is not None
    for name in ("api", "api-gpu"):
        assert re.fullmatch(wanted[1], asked[name])


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
@pytest.mark.parametrize(
    ("up", "told"),
    [
        ({"lometab-api": 1}, None),
        ({"lometab-api": 0}, "The API at here:9090 does not answer."),
        ({"lometab-api-gpu": 1}, "The API does not answer."),
        ({}, "The API does not answer."),
    ],
)
def test_an_api_that_is_away_is_told_of(
    up: dict[str, int], told: str | None, tmp_path: Path
) -> None:
    """As Prometheus itself has it, where its tool is installed."""
    place = {"instance": "here:9090"} if up.get("lometab-api") == 0 else {}
    alert = {
        "exp_labels": {"severity": "page", "job": "lometab-api", **place},
        "exp_annotations": {"summary": told},
    }
    tests = {
        "rule_files": [str(OBSERVE / "alerts.yml")],
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {
                        "series": f'up{{job="{job}",instance="here:9090"}}',
                        "values": f"{value}x40",
                    }
                    for job, value in up.items()
                ],
                "alert_rule_test": [
                    {
                        "eval_time": "5m",
                        "alertname": "ApiIsAway",
                        "exp_alerts": [alert] if told else [],
                    }
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        ["promtool", "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_variable_is_a_setting_and_each_command_is_one() -> None:
    known = {f"LOMETAB_{name.upper()}" for name in Settings.model_fields}
    commands = {each.callback.__name__ for each in cli.registered_commands}  # type: ignore[union-attr]
    for name in OURS:
        service = COMPOSE["services"][name]
        ours = {each for each in service["environment"] if each.startswith("LOMETAB_")}
        assert ours <= known
        program, command, *_ = service["command"]
        assert program == "lometab" and command in commands


def test_targets_are_in_the_dockerfile() -> None:
    text = (ROOT / "Dockerfile").read_text()
    targets = set(re.findall(r"AS ([\w-]+)", text))
    for name in OURS:
        assert COMPOSE["services"][name]["build"]["target"] in targets
    assert re.search(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}\n", text)
    env = set(re.findall(r"(LOMETAB_\w+)=", text))
    assert env <= {f"LOMETAB_{name.upper()}" for name in Settings.model_fields}


def test_redis_never_drops_what_it_was_told() -> None:
    command = COMPOSE["services"]["redis"]["command"][-1]
    assert "noeviction" in command and "requirepass" in command
    started, *given = command.splitlines()
    # By the shell in there, not compose; and not as an argument, which `ps` shows.
    assert any("$$(cat /run/secrets/redis)" in each for each in given)
    assert "secrets" not in started and "requirepass" not in started
