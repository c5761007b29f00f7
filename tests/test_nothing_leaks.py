"""A full run whose cells, keys and secrets are marked: none of them is in a log, a
trace, a metric, an event or a message to a webhook."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.receivers import Receiver
from tests.support.servers import free_port, wait_until
from tests.support.services import TINY, post_job, read_events, wait_for_end
from tests.support.stacks import Service, Stack

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PASSWORD = "marked-password-71c3"
WRONG_KEY = "lmt_marked0wrong0key0000000000000000"
CELLS = {
    "text": ("markedred", "markedgreen", "markedblue"),
    "class": ("markedyes", "markedno"),
    "number": "987654.25",
    "odd": "markedodd",
    "asked": "markedasked",
    "asked number": "876543.5",
    "id": "markedid",
}
"""What is in the tables that are sent: to be trained on, and to be predicted."""

EXPORTER = '''
"""Stands in for OpenTelemetry's exporter, which sends over HTTP: spans go to a file."""
import os, sys, types

name = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
for i in range(3, name.count(".") + 1):
    parent = ".".join(name.split(".")[:i])
    sys.modules.setdefault(parent, types.ModuleType(parent)).__path__ = []
module = sys.modules[name] = types.ModuleType(name)

class OTLPSpanExporter:
    def export(self, spans):
        from opentelemetry.sdk.trace.export import SpanExportResult
        with open(os.environ["TEST_SPANS"], "a") as file:
            file.writelines(span.to_json(indent=None) + "\\n" for span in spans)
        return SpanExportResult.SUCCESS
    def shutdown(self): pass
    def force_flush(self, timeout_millis=30000): return True

module.OTLPSpanExporter = OTLPSpanExporter
'''


def make_table(n_rows: int = 150) -> str:
    rng = random.Random(0)
    lines = ["shade,size,outcome"]
    for i in range(n_rows):
        shade = rng.choice(CELLS["text"])
        size = CELLS["number"] if i % 50 == 0 else f"{rng.uniform(0, 9):.3f}"
        is_yes = shade == CELLS["text"][0]
        lines.append(f"{shade},{size},{CELLS['class'][not is_yes]}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def service(stack: Stack, tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "sitecustomize.py").write_text(EXPORTER)
    url = stack.environment["LOMETAB_DATABASE_URL"]
    stack.environment |= {
        "LOMETAB_DATABASE_URL": url.replace("postgres@", f"postgres:{PASSWORD}@"),
        "LOMETAB_LOG_LEVEL": "debug",
        "LOMETAB_LOG_FORMAT": "json",
        "LOMETAB_TRACES": "true",
        "LOMETAB_TRACES_PREDICT_SHARE": "1",
        "LOMETAB_METRICS_PORT": str(free_port()),
        "LOMETAB_WEBHOOK_NETWORKS": "127.0.0.1/32",
        "LOMETAB_WEBHOOK_POLL_SECONDS": "0.2",
        "LOMETAB_WEBHOOK_BACKOFF_SECONDS": "0.2",
        "LOMETAB_MAX_ATTEMPTS": "1",
        "PYTHONPATH": str(tmp_path),
        "TEST_SPANS": str(tmp_path / "spans"),
    }
    started = Service(stack)
    yield started
    started.stop()


def train(service: Service) -> list[str]:
    """A job that succeeds, one of steep steps, one that is killed; their ids."""
    table = make_table()
    good = post_job(service.client, table, target="outcome")
    steep = {**TINY, "lr": 1.0, "max_epochs": 50}
    other = post_job(service.client, table, "size", hyperparameters=steep)
    long = {**TINY, "max_epochs": 10_000, "patience": None}
    killed = post_job(service.client, table, "outcome", hyperparameters=long)
    wait_for_end(service, good["id"], 300)
    wait_for_end(service, other["id"], 300)
    child = wait_until(
        lambda: service.find_process(killed["id"]), seconds=300, what="a child"
    )
    child.kill()
    assert wait_for_end(service, killed["id"], 300)["status"] == "failed"
    return [good["id"], other["id"], killed["id"]]


def ask(service: Service, model_id: str) -> None:
    """Rows that are answered, odd ones, unfit ones; by a wrong key, too."""
    path = f"/models/{model_id}/predict"
    asked = {"shade": CELLS["asked"], "size": float(CELLS["asked number"])}
    rows = [asked, {"shade": CELLS["text"][0], "size": 1.0, "id": CELLS["id"]}]
    assert service.client.post(path, json={"rows": rows}).status_code == 200
    for unfit in ({"shade": "x", "size": CELLS["odd"]}, {CELLS["odd"]: 1}):
        answer = service.client.post(path, json={"rows": [unfit]})
        assert answer.status_code == 422, answer.text
    body = f"shade,size\n{CELLS['odd']},{CELLS['odd']}\n"
    headers = {"Content-Type": "text/csv"}
    assert service.client.post(path, content=body, headers=headers).is_client_error
    ragged = make_table(20) + f"{CELLS['odd']},1,2,3,4\n"
    refused = service.client.post("/datasets", files={"file": ("t.csv", ragged)})
    assert refused.is_client_error, refused.text
    wrong = {"Authorization": f"Bearer {WRONG_KEY}"}
    assert service.client.get("/jobs", headers=wrong).status_code == 401


def do_the_rest(service: Service, model_id: str) -> list[str]:
    """A sweep, prediction jobs with an unfit row, an explained row, a dataset's first
    rows; the ids of the jobs that succeed."""
    client = service.client
    sweep = post_job(
        client,
        make_table(),
        "outcome",
        kind="sweep",
        sweep={"grid": {"rank": [1, 2]}},
    )
    text, number = CELLS["asked"], CELLS["asked number"]
    table = f"shade,size\n{text},{number}\n{text},{CELLS['odd']}\n"
    predictions = [
        client.post(
            f"/models/{model_id}/predictions",
            files={"file": ("t.csv", table)},
            data={"config": json.dumps({"on_error": on_error})},
        ).json()["id"]
        for on_error in ("skip", "fail")
    ]
    explained = client.post(
        f"/models/{model_id}/predict",
        json={"rows": [{"shade": text, "size": float(number)}], "explain": True},
    )
    assert explained.status_code == 200, explained.text
    assert "n_background" in explained.text
    dataset = client.get(f"/datasets/{sweep['dataset_id']}")
    assert CELLS["text"][0] in dataset.text
    ids = [sweep["id"], predictions[0]]
    for id_ in ids:
        ended = wait_for_end(service, id_, 300)
        assert ended["status"] == "succeeded", ended["error"]
    assert CELLS["class"][0] in client.get(f"/jobs/{ids[1]}/result").text
    assert client.get(f"/jobs/{ids[1]}/faults").json()["data"]
    # Whoever may read the job is told the cell; nobody else is.
    failed = wait_for_end(service, predictions[1], 300)
    assert CELLS["odd"] in failed["error"]["detail"]
    return ids


def flatten(value: Any) -> Iterator[str]:
    if isinstance(value, tuple):
        yield from value
    else:
        yield value


@pytest.mark.parametrize("stack", ["production"], indirect=True)
def test_no_cell_key_or_secret_is_told(
    stack: Stack, service: Service, tmp_path: Path
) -> None:
    with Receiver(lambda _, n: 500 if n == 1 else 204) as receiver:
        hook = service.client.post(
            "/webhooks",
            json={"url": receiver.url, "events": ["job.succeeded", "job.failed"]},
        )
        assert hook.status_code == 201, hook.text
        secret = hook.json()["secret"]
        ids = train(service)
        job = service.client.get(f"/jobs/{ids[0]}").json()
        ask(service, job["model_id"])
        ids += do_the_rest(service, job["model_id"])
        wait_until(
            lambda: len(receiver.received) >= len(ids) + 2,
            seconds=300,
            what="messages arrive",
        )
        events = [read_events(service, id_) for id_ in ids]
        port = stack.environment["LOMETAB_METRICS_PORT"]
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        sent = [(each.headers, each.body.decode()) for each in receiver.received]
    assert service.stop() == 0
    spans = (tmp_path / "spans").read_text()
    told = {
        "log": service.read_log(),
        "spans": spans,
        "metrics": metrics,
        "events": json.dumps(events),
        "messages": json.dumps(sent),
    }
    check_all_was_told(told, ids)
    assert stack.key is not None
    secrets = [stack.key, stack.key.split("_")[-1], secret, PASSWORD, WRONG_KEY]
    marked = [each for value in CELLS.values() for each in flatten(value)]
    for place, text in told.items():
        for word in (*secrets, *marked):
            at = text.find(word)
            assert at < 0, (
                f"{word} is in the {place}: {text[max(0, at - 200) : at + 80]}"
            )


def check_all_was_told(told: dict[str, str], ids: list[str]) -> None:
    """There is much to look at: else that nothing was found would say nothing."""
    assert all(id_ in told["log"] for id_ in ids)
    assert all(f'"{each}"' in told["events"] for each in ("epoch", "failed"))
    names = set(re.findall(r'"name": "([^"]+)"', told["spans"]))
    assert {
        *("POST /jobs", "job attempt", "job epoch"),
        *("POST /models/{model_id}/predict", "POST /models/{model_id}/predictions"),
        *("GET /datasets/{dataset_id}", "GET /jobs/{job_id}/faults"),
    } <= names, names
    assert 'status="succeeded"' in told["metrics"] and ids[0] in told["messages"]
    assert "401" in told["log"] and "predict" in told["log"]
