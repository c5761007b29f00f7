"""Metrics: what is counted, how it is written, and by how many processes."""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from app.observe import Reporting, exchange, metrics
from app.observe.exchange import Exchange
from app.observe.metrics import Family, render
from app.settings import get_settings
from tests.support.http import check_problem, make_key
from tests.support.models import ROWS, succeed
from tests.support.servers import free_port, wait_until


@pytest.fixture(autouse=True)
def from_zero() -> None:
    for family in metrics.FAMILIES.values():
        family.clear()


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family("test_seconds", "Of a test.", ("phase",), (0.1, 1))
    yield made
    del metrics.FAMILIES["test_seconds"]


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse(text: str) -> Samples:
    """By Prometheus' own reader."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for found in text_string_to_metric_families(text)
        for sample in found.samples
    }


def pick(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def test_a_histogram_is_one(family: Family) -> None:
    for seconds in (0.05, 0.1, 0.5, 7):
        family.observe(seconds, 'odd "\\\n label')
    found = parse(render())
    phase = 'odd "\\\n label'
    for le, n in (("0.1", 2), ("1", 3), ("+Inf", 4)):
        assert pick(found, "test_seconds_bucket", phase=phase, le=le) == n
    assert pick(found, "test_seconds_count", phase=phase) == 4
    assert pick(found, "test_seconds_sum", phase=phase) == pytest.approx(7.65)


def test_no_count_is_lost_among_threads(family: Family) -> None:
    def count() -> None:
        for _ in range(5000):
            family.observe(0.5, "a")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pick(parse(render()), "test_seconds_count", phase="a") == 20_000


def test_labels_are_bounded(family: Family) -> None:
    for n in range(metrics.MAX_SERIES + 100):
        family.observe(0.5, str(n))
    assert len(family.read()) == metrics.MAX_SERIES


def test_predict_is_counted_by_phase(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    for _ in range(3):
        response = client.post(f"/models/{model_id}/predict", json={"rows": ROWS})
        assert response.status_code == 200, response.text
    client.get("/nowhere")
    client.get(f"/models/{model_id}")
    found = parse(client.get("/metrics").text)
    for phase in ("parse", "queue", "run", "encode"):
        assert pick(found, "lometab_predict_phase_seconds_count", phase=phase) == 3
    assert pick(found, "lometab_predict_batch_rows_sum") == 3 * len(ROWS)
    route = "/models/{model_id}/predict"
    total = "lometab_http_requests_total"
    assert pick(found, total, method="POST", route=route, status="200") == 3
    assert pick(found, "lometab_http_seconds_count", route=route) == 3
    assert pick(found, total, method="GET", route="other", status="404") == 1
    route = "/models/{model_id}"
    assert pick(found, total, method="GET", route=route, status="200") == 1
    assert pick(found, "lometab_model_cache_total", found="hit") >= 2
    assert pick(found, "lometab_model_cache_models") >= 1
    assert pick(found, "lometab_jobs", status="succeeded", kind="train") == 1
    assert pick(found, "lometab_queue_jobs", queue="cpu") == 0
    assert pick(found, "lometab_blob_bytes") > 0
    assert model_id not in client.get("/metrics").text


def test_where_keys_are_needed_the_public_port_has_none(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"Authorization": f"Bearer {make_key()}"}
    monkeypatch.setattr(get_settings(), "require_keys", True)
    answer = client.get("/metrics", headers=headers)
    check_problem(answer, 404, "LOMETAB_METRICS_PORT")


def test_a_database_that_is_away_hides_nothing_else(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_SHARED", [])
    metrics.HTTP.add("GET", "/x", "200")
    assert "lometab_http_requests_total" in client.get("/metrics").text


WRITE = """
import sys
from pathlib import Path
from app.observe import metrics
from app.observe.exchange import Exchange
metrics.EPOCHS.add(n=int(sys.argv[2]))
metrics.gauge("test_gauge", "Of a test.", lambda: 5)
Exchange(Path(sys.argv[1])).write()
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_several_processes_are_one_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that ended go on counting; what they held is gone with them."""
    monkeypatch.setattr(get_settings(), "metrics_dir", tmp_path)
    metrics.gauge("test_gauge", "Of a test.", lambda: 1)
    metrics.EPOCHS.add(n=1)
    others = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, tmp_path, n],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.defpath, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        for n in ("10", "100")
    ]
    try:
        for each in others:
            assert each.stdout is not None and each.stdout.readline() == b"written\n"
        found = parse(exchange.render_all())
        assert pick(found, "lometab_epochs_total") == 111
        assert pick(found, "test_gauge") == 11
        others[1].communicate()
        for _ in range(2):
            found = parse(exchange.render_all())
            assert pick(found, "lometab_epochs_total") == 111
            assert pick(found, "test_gauge") == 6
            monkeypatch.setattr(exchange, "_MOST_FILES", 0)  # then they are added up
        assert [*tmp_path.glob("ended.json")]
        assert not [*tmp_path.glob(f"{others[1].pid}.json")]
    finally:
        for each in others:
            if each.poll() is None:
                each.communicate()
        del metrics._LOCAL["test_gauge"]


def test_metrics_have_a_port_of_their_own(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    settings = get_settings()
    monkeypatch.setattr(settings, "metrics_port", port)
    monkeypatch.setattr(settings, "metrics_dir", tmp_path)
    monkeypatch.setattr(metrics, "_SHARED", [])  # this test has one connection alone
    check_problem(client.get("/metrics"), 404, "LOMETAB_METRICS_PORT")
    reporting, second = Reporting(), Reporting()
    reporting.start()
    address = f"http://127.0.0.1:{port}"

    def read() -> str | None:
        try:
            with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                return str(answer.read(), "utf-8")
        except urllib.error.URLError:
            return None

    try:
        text = wait_until(read, seconds=30, what="metrics are told")
        route = "/metrics"
        found = parse(text)
        assert pick(found, "lometab_http_seconds_count", route=route) == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/jobs", timeout=10)
        second.start()  # the port is taken: it only writes
    finally:
        second.stop()
        reporting.stop()
    assert read() is None
    (file,) = tmp_path.glob("*.json")
    assert json.loads(file.read_text())["counted"]["lometab_http_seconds"]


def test_the_folder_survives_a_file_of_another_version(tmp_path: Path) -> None:
    series = [["GET", "/x", "200"], [1.0, 2.0]]
    snapshot = {"counted": {"lometab_http_requests_total": [series]}, "gauges": {}}
    (tmp_path / "1.json").write_text(json.dumps(snapshot))
    metrics.HTTP.add("GET", "/x", "200")
    found = parse(render(Exchange(tmp_path).read_others()))
    labels = {"method": "GET", "route": "/x", "status": "200"}
    assert pick(found, "lometab_http_requests_total", **labels) == 1
