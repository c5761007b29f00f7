"""The chart, rendered by Helm itself and held against Kubernetes' schemas.

No cluster is asked. Kinds of others (KEDA, the Prometheus operator) have no schema
here: of those it is tested that they name what the chart has.
"""

import re
from math import ceil
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

from scripts.write_chart_settings import DECIDED, SCHEMA, write_names

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "lometab"
ALL = {
    "workerGpu": {"enabled": True},
    "keda": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "settings": {"LOMETAB_LEASE_SECONDS": "90", "OTEL_SERVICE_NAME": "models"},
    "envFrom": [
        {"secretRef": {"name": "store"}},
        {"configMapRef": {"name": "region", "optional": True}, "prefix": "AWS_"},
    ],
    "networkPolicy": {"apiFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
}
LEAST = {
    "api": {"autoscaling": {"enabled": False}},
    "workerCpu": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
OF_OTHERS = ("ScaledObject", "ServiceMonitor", "PodMonitor")

Manifest = dict[str, Any]


def render(values: dict[str, Any]) -> dict[tuple[str, str], Manifest]:
    """What Helm makes of it, by kind and name."""
    with_chart = helm_python.Chart.load(CHART)
    try:
        rendered = with_chart.render(values, name="shop", namespace="models")
    finally:
        with_chart.close()
    manifests = [
        manifest
        for text in rendered.values()
        for manifest in yaml.safe_load_all(text)
        if manifest
    ]
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests}
    assert len(found) == len(manifests)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("values", [{}, ALL, LEAST], ids=["default", "all", "least"])
@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_manifest_fits_its_schema(values: dict[str, Any], version: str) -> None:
    for (kind, _), manifest in render(values).items():
        if kind not in OF_OTHERS:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_a_schema_refuses_what_does_not_fit() -> None:
    manifest = render({})["Deployment", "shop-api"]
    manifest["spec"]["replcas"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.31", strict=True)


def test_helm_has_nothing_to_say() -> None:
    for values in ({}, ALL, LEAST):
        found = helm_python.lint(CHART, values, strict=True)
        messages = found.get("messages") or []
        assert [m for m in messages if "icon" not in str(m)] == []


def test_the_parts_are_there() -> None:
    kinds = {*render(ALL)}
    for kind, name in [
        ("Deployment", "shop-api"),
        ("Deployment", "shop-worker-cpu"),
        ("Deployment", "shop-worker-gpu"),
        ("Job", "shop-migrate"),
        ("PodDisruptionBudget", "shop-api"),
        ("HorizontalPodAutoscaler", "shop-api"),
        ("ScaledObject", "shop-worker-cpu"),
        ("ScaledObject", "shop-worker-gpu"),
        ("NetworkPolicy", "shop-api"),
        ("ServiceMonitor", "shop-api"),
        ("PodMonitor", "shop-workers"),
    ]:
        assert (kind, name) in kinds


def list_pods(found: dict[tuple[str, str], Manifest]) -> dict[str, Manifest]:
    return {
        name: manifest["spec"]["template"]
        for (kind, name), manifest in found.items()
        if kind in ("Deployment", "Job")
    }


def test_no_pod_has_rights_or_secrets_in_its_environment() -> None:
    for name, pod in list_pods(render(ALL)).items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        (container,) = spec["containers"]
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert container["image"].startswith("lometab:0.1.0-"), name
        files = {
            each["name"]: each["value"]
            for each in container["env"]
            if each["name"].endswith("_FILE")
        }
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        assert {str(Path(file).parent) for file in files.values()} <= mounts
        assert len(files) == 2


def test_selectors_find_their_pods_and_scalers_their_workers() -> None:
    found = render(ALL)
    pods = {name: pod["metadata"]["labels"] for name, pod in list_pods(found).items()}
    for (kind, name), manifest in found.items():
        if kind in ("Service", "PodDisruptionBudget"):
            selector = manifest["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            assert [n for n, has in pods.items() if wanted.items() <= has.items()] == [
                "shop-api"
            ], name
        if kind in ("ScaledObject", "HorizontalPodAutoscaler"):
            target = manifest["spec"]["scaleTargetRef"]["name"]
            scaled = found["Deployment", target]["spec"]
            assert "replicas" not in scaled  # they would fight over it
    monitored = found["ServiceMonitor", "shop-api"]["spec"]["selector"]["matchLabels"]
    services = [
        name
        for (kind, name), each in found.items()
        if kind == "Service" and monitored.items() <= each["metadata"]["labels"].items()
    ]
    assert services == ["shop-metrics"]


def test_the_job_is_named_as_alerts_ask_for_it() -> None:
    found = render(ALL)
    label = found["ServiceMonitor", "shop-api"]["spec"]["jobLabel"]
    labels = found["Service", "shop-metrics"]["metadata"]["labels"]
    alerts = (CHART.parents[1] / "observe" / "alerts.yml").read_text()
    assert f'absent(up{{job="{labels[label]}"}})' in alerts


def test_workers_that_are_not_wanted_are_not_there() -> None:
    for values, names in [
        (LEAST, set()),
        ({}, {"shop-worker-cpu"}),
        (ALL | LEAST, {"shop-worker-gpu"}),
    ]:
        workers = {name for _, name in render(values) if "-worker-" in name}
        assert workers == names


@pytest.mark.parametrize("queue", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("queued", "busy", "workers"),
    [(0, 0, 0), (1, 0, 1), (4, 0, 2), (0, 2, 2), (0, 10, 10), (3, 10, 12)],
)
def test_workers_with_a_job_are_kept(
    queue: str, queued: int, busy: int, workers: int
) -> None:
    """Kubernetes divides what the query gives by the threshold, and rounds up."""
    spec = render(ALL)["ScaledObject", f"shop-worker-{queue}"]["spec"]
    (trigger,) = spec["triggers"]
    query = trigger["metadata"]["query"]
    labels = f'{{queue="{queue}",namespace="models"}}'
    for name, value in {"queue_jobs": queued, "busy_workers": busy}.items():
        series = f"max(lometab_{name}{labels})"
        assert series in query
        query = query.replace(series, str(value))
    assert re.fullmatch(r"ceil\(\d+ / 2\) \+ \d+", query)
    found = eval(query, {"ceil": ceil}) / int(trigger["metadata"]["threshold"])
    assert ceil(found) == workers


def test_scaling_needs_its_numbers() -> None:
    with pytest.raises(helm_python.HelmError, match=r"needs serviceMonitor\.enabled"):
        render({"keda": {"enabled": True}})


def test_variables_come_from_secrets_too_and_each_once() -> None:
    settings = {"LOMETAB_LOG_FORMAT": "text", "LOMETAB_LOG_LEVEL": "debug"}
    for pod in list_pods(render(ALL | {"settings": settings})).values():
        (container,) = pod["spec"]["containers"]
        assert container["envFrom"] == ALL["envFrom"]
        names = [each["name"] for each in container["env"]]
        assert len({*names}) == len(names)
        assert {"name": "LOMETAB_LOG_FORMAT", "value": "text"} in container["env"]
    for pod in list_pods(render({})).values():
        (container,) = pod["spec"]["containers"]
        assert "envFrom" not in container
        assert {"name": "LOMETAB_LOG_FORMAT", "value": "json"} in container["env"]


def test_the_schema_has_the_settings_there_are() -> None:
    schema = SCHEMA.read_text()
    assert write_names(schema) == schema, "run `make chart`"
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    for name in re.findall(r"- \{ name: LOMETAB_(\w+)", helpers):
        assert name.lower() in DECIDED  # or the chart and `settings` would both set it


@pytest.mark.parametrize(
    "values",
    [
        {"api": {"replicas": 0}},
        {"settings": {"PATH": "x"}},
        {"settings": {"LOMETAB_LEESE_SECONDS": "60"}},
        {"settings": {"LOMETAB_METRICS_PORT": "1"}},
        {"settings": {"LOMETAB_DATABASE_URL": "sqlite://"}},
        {"envFrom": [{"secretRef": {}}]},
        {"envFrom": [{"secretRef": {"name": "a"}, "configMapRef": {"name": "b"}}]},
        {"envFrom": [{"secretKeyRef": {"name": "a"}}]},
        {"databse": {}},
        {"database": {"url": "postgresql+psycopg://me:secret@host/db"}},
    ],
)
def test_mistakes_in_values_are_refused(values: dict[str, Any]) -> None:
    with_chart = helm_python.Chart.load(CHART)
    try:
        with pytest.raises(helm_python.HelmError):
            with_chart.validate_schema(with_chart.merge_values(values))
    finally:
        with_chart.close()
