"""Dashboards, alerts and the compose file name what there is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.application import cli
from app.main import _read_gauges  # noqa: F401  (it makes the gauges known)
from app.observe import metrics
from app.settings import Settings

ROOT = Path(__file__).parents[2]
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


def test_services_of_ours_are_hardened() -> None:
    for name in OURS:
        service = COMPOSE["services"][name]
        assert service["read_only"] is True and service["init"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["deploy"]["resources"]["limits"]["memory"]
        assert service["logging"]["options"]["max-size"]
        volumes = [each["target"] for each in service.get("volumes", [])]
        assert any(each.startswith("/tmp") for each in (*service["tmpfs"], *volumes))
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
    assert "$$(cat /run/secrets/redis)" in command  # by the shell in there, not compose
