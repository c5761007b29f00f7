"""Events out: a real receiver that fails, hangs, redirects and answers late; and
addresses that are refused."""

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import jobs, monitor, webhooks
from app.errors import BadTarget
from app.settings import Settings
from app.storage import blobs, db
from app.storage.enums import DeliveryStatus, WebhookEvent
from app.storage.tables import (
    Delivery,
    Job,
    ModelCounts,
    TrainedModel,
    Webhook,
    utc_now,
)
from app.webhooks import courier, targets
from app.webhooks.sending import post
from tests.support.fake_child import add_job, claim
from tests.support.http import check_problem
from tests.support.jobs import REPORTS
from tests.support.models import TABLE
from tests.support.receivers import Receiver

OK = 204


@pytest.fixture
def settings(engine: sa.Engine) -> Settings:
    return Settings(
        webhook_networks=["127.0.0.0/8"],
        webhook_seconds=5,
        webhook_backoff_seconds=0,
        webhook_attempts=3,
    )


def add_webhook(url: str, *events: WebhookEvent, workspace: str = "default") -> Webhook:
    with db.transaction() as session:
        webhook = Webhook(
            id=f"wh_{len(url)}{workspace}",
            workspace_id=workspace,
            url=url,
            events=[*(events or WebhookEvent)],
            secret="whsec_" + base64.b64encode(b"k" * 32).decode(),
        )
        session.add(webhook)
    return webhook


def announce(key: str = "a", **data: Any) -> None:
    with db.transaction() as session:
        webhooks.announce(
            session, "default", WebhookEvent.JOB_FAILED, {"n": 1, **data}, key=key
        )


def deliver(settings: Settings) -> None:
    webhooks.deliver_all(settings, threading.Event())


def read_deliveries() -> list[Delivery]:
    with db.reading() as session:
        return [*session.scalars(sa.select(Delivery).order_by(Delivery.key))]


def always(status: int) -> Receiver:
    return Receiver(lambda *_: status)


def test_a_message_is_signed_and_arrives_once(settings: Settings) -> None:
    with always(OK) as receiver:
        webhook = add_webhook(receiver.url + "?q=1")
        for _ in range(2):
            announce()  # the same event is told once
        deliver(settings)
        deliver(settings)
    (request,) = receiver.received
    (delivery,) = read_deliveries()
    assert request.path == "/hook?q=1"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["webhook-id"] == delivery.id
    assert request.headers["lometab-attempt"] == "1"
    body = json.loads(request.body)
    assert body["type"] == "job.failed"
    assert body["data"] == {"workspace_id": "default", "n": 1}
    moment = request.headers["webhook-timestamp"]
    key = base64.b64decode(webhook.secret.removeprefix("whsec_"))
    signed = f"{delivery.id}.{moment}.".encode() + request.body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    assert request.headers["webhook-signature"] == f"v1,{expected.decode()}"
    assert delivery.status == DeliveryStatus.DELIVERED and delivery.delivered_at


def test_nothing_is_told_of_what_is_rolled_back(settings: Settings) -> None:
    add_webhook("http://127.0.0.1:1/")
    with pytest.raises(RuntimeError), db.transaction() as session:
        webhooks.announce(session, "default", WebhookEvent.JOB_FAILED, {}, key="x")
        raise RuntimeError
    assert read_deliveries() == []


@pytest.mark.both_databases
def test_a_receiver_that_fails_gets_it_again_and_marked(settings: Settings) -> None:
    with Receiver(lambda _, n: 500 if n < 3 else OK) as receiver:
        add_webhook(receiver.url)
        announce()
        deliver(settings)
    ids = {each.headers["webhook-id"] for each in receiver.received}
    attempts = [each.headers["lometab-attempt"] for each in receiver.received]
    assert len(ids) == 1 and attempts == ["1", "2", "3"]
    (delivery,) = read_deliveries()
    assert delivery.status == DeliveryStatus.DELIVERED
    assert [each["status"] for each in delivery.attempts] == [500, 500, OK]


def test_it_is_given_up_and_can_be_sent_again(settings: Settings) -> None:
    with always(503) as receiver:
        webhook = add_webhook(receiver.url)
        announce()
        deliver(settings)
        (delivery,) = read_deliveries()
        assert delivery.status == DeliveryStatus.DEAD and len(receiver.received) == 3
        deliver(settings)
        assert len(receiver.received) == 3
        receiver.answer = lambda *_: OK
        with db.transaction() as session:
            webhooks.redeliver(
                session,
                session.get_one(Webhook, webhook.id),
                session.get_one(Delivery, delivery.id),
            )
        deliver(settings)
    assert receiver.received[-1].headers["lometab-attempt"] == "4"
    assert receiver.received[-1].headers["webhook-id"] == delivery.id
    assert read_deliveries()[0].status == DeliveryStatus.DELIVERED


def test_redirects_are_not_followed(settings: Settings) -> None:
    with always(307) as receiver:
        add_webhook(receiver.url)
        announce()
        deliver(settings)
    assert {each.path for each in receiver.received} == {"/hook"}
    assert "redirects are not followed" in read_deliveries()[0].attempts[0]["error"]


def test_one_that_is_gone_is_asked_no_more(settings: Settings) -> None:
    with always(410) as receiver:
        add_webhook(receiver.url)
        announce("a")
        announce("b")
        deliver(settings)
        announce("c")
        deliver(settings)
    assert len(receiver.received) == 1
    assert len(read_deliveries()) == 2  # what comes later is not kept for it


def hang(handler: BaseHTTPRequestHandler, receiver: Receiver) -> None:
    """Send a byte of a header now and then, for ever."""
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not receiver.ending.wait(0.1):
            handler.wfile.write(b"x")
    except OSError:
        pass
    handler.close_connection = True


@pytest.mark.slow
@pytest.mark.parametrize("drips", [True, False])
def test_one_that_hangs_is_left(settings: Settings, drips: bool) -> None:
    """The limit is for the whole, however slowly it drips; others are not held up."""
    hasty = settings.model_copy(update={"webhook_seconds": 0.7, "webhook_attempts": 1})

    def answer(handler: BaseHTTPRequestHandler, _: int) -> None:
        if drips:
            hang(handler, receiver)
        else:
            receiver.ending.wait(30)
            handler.close_connection = True

    receiver = Receiver(answer)
    with receiver, always(OK) as other:
        add_webhook(receiver.url)
        announce()
        add_webhook(other.url + "/other")
        announce("b")
        deliver(hasty)
    first, *_ = read_deliveries()
    assert first.status == DeliveryStatus.DEAD
    assert "within 0.7 s" in first.attempts[0]["error"]
    assert first.attempts[0]["seconds"] < 5
    assert len(other.received) == 1


def test_one_that_answers_late_hears_it_twice_and_can_tell(settings: Settings) -> None:
    """A sender that died, or was too slow: another sends it under the same id."""
    with always(OK) as receiver:
        add_webhook(receiver.url)
        announce()
        with db.transaction() as session:
            late = courier.claim(session, settings)
            assert late is not None
        with db.transaction() as session:
            assert courier.claim(session, settings) is None  # it is locked
            session.execute(sa.update(Delivery).values(locked_until=utc_now()))
        deliver(settings)
        webhooks.deliver(settings, late)
    ids = {each.headers["webhook-id"] for each in receiver.received}
    attempts = [each.headers["lometab-attempt"] for each in receiver.received]
    assert len(ids) == 1 and attempts == ["2", "1"]
    (delivery,) = read_deliveries()
    assert [each["attempt"] for each in delivery.attempts] == [2]


def test_a_receiver_that_fails_is_left_alone_for_a_while(settings: Settings) -> None:
    patient = settings.model_copy(update={"webhook_backoff_seconds": 60})
    with always(500) as receiver:
        add_webhook(receiver.url)
        announce("a")
        announce("b")
        deliver(patient)
    assert len(receiver.received) == 1
    with db.reading() as session:
        webhook = session.scalars(sa.select(Webhook)).one()
        assert webhook.not_before is not None
        assert webhook.not_before - utc_now() > timedelta(seconds=30)


def test_a_long_answer_is_not_read(settings: Settings) -> None:
    def answer(handler: BaseHTTPRequestHandler, _: int) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while not receiver.ending.is_set():
                handler.wfile.write(b"x" * 2**16)
        except OSError:
            pass
        handler.close_connection = True

    receiver = Receiver(answer)
    with receiver:
        add_webhook(receiver.url)
        announce()
        deliver(settings)
    assert read_deliveries()[0].status == DeliveryStatus.DELIVERED


# Which addresses are refused

PRIVATE = [
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://0/",
    "https://0.0.0.0/",
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",
    "https://100.100.100.200/",
    "https://169.254.169.254/latest/meta-data/",
    "https://2852039166/",
    "https://168.63.129.16/",
    "https://192.0.0.192/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://240.0.0.1/",
    "https://255.255.255.255/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[::ffff:10.0.0.1]/",
    "https://[::127.0.0.1]/",
    "https://[fe80::1]/",
    "https://[fc00::1]/",
    "https://[fd00:ec2::254]/",
    "https://[ff02::1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b:1::1]/",
    "https://[fec0::1]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:4136:e378:8000:63bf:80ff:fffe]/",
    "https://[2001:db8::1]/",
]
NO_URLS = [
    "http://example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_x",
    "https://user:secret@example.com/",
    "https://example.com@127.0.0.1/",
    "https://example.com/#fragment",
    "https:///path",
    "https://exa mple.com/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com/\r\nX-Header: 1",
    "https://example.com:99999/",
    "https://ex\u0430mple.com/",
    "https://[fe80::1%25eth0]/",
    "https://" + "a" * 3000,
    "//example.com",
]


@pytest.mark.parametrize("url", PRIVATE + NO_URLS)
def test_refused_addresses(url: str) -> None:
    with pytest.raises(BadTarget):
        targets.check_written(targets.read_url(url), [])


@pytest.mark.parametrize("url", PRIVATE)
def test_refused_addresses_when_a_name_leads_there(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the name is: what counts is where it leads when the message is sent."""
    where = socket.getaddrinfo(targets.read_url(url).host, 443)
    good = socket.getaddrinfo("93.184.216.34", 443)
    target = targets.read_url("https://innocent.example/")
    for found in (where, good + where):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, f=found, **__: f)
        with pytest.raises(BadTarget, match="no public address"):
            targets.resolve(target, [])


@pytest.mark.parametrize(
    "url",
    ["https://93.184.216.34/", "https://[2606:4700::1111]/", "https://a.example/"],
)
def test_public_addresses_are_taken(url: str) -> None:
    targets.check_written(targets.read_url(url), [])


def test_a_setting_allows_a_network_and_no_other() -> None:
    for url, is_allowed in (
        ("http://10.1.2.3/", True),
        ("http://[::ffff:10.1.2.3]/", True),
        ("http://10.2.2.3/", False),
        ("http://93.184.216.34/", False),  # http is for such networks alone
    ):
        target = targets.read_url(url)
        if is_allowed:
            targets.check_written(target, ["10.1.0.0/16"])
        else:
            with pytest.raises(BadTarget):
                targets.check_written(target, ["10.1.0.0/16"])
    with pytest.raises(ValueError, match="does not appear to be"):
        Settings(webhook_networks=["everything"])
    assert Settings(webhook_networks="10.1.0.0/16, ::1/128").webhook_networks == [
        "10.1.0.0/16",
        "::1/128",
    ]


def test_a_name_is_looked_up_once_and_the_address_is_kept(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads to an allowed address first, and elsewhere a moment later."""
    asked: list[str] = []
    look_up = socket.getaddrinfo

    def rebind(host: str, *args: Any, **options: Any) -> Any:
        if host != "rebinding.example":
            return look_up(host, *args, **options)
        asked.append(host)
        return look_up(
            "127.0.0.1" if len(asked) == 1 else "127.0.0.2", *args, **options
        )

    monkeypatch.setattr(socket, "getaddrinfo", rebind)
    with always(OK) as receiver:
        add_webhook(f"http://rebinding.example:{receiver.port}/hook")
        announce()
        deliver(settings)
    (request,) = receiver.received
    assert asked == ["rebinding.example"]
    assert request.headers["host"] == f"rebinding.example:{receiver.port}"


def test_a_name_that_turns_private_is_refused_when_it_is_sent(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = settings.model_copy(update={"webhook_networks": [], "webhook_attempts": 1})
    with always(OK) as receiver:
        add_webhook(f"https://localhost:{receiver.port}/")
        announce()
        deliver(strict)
    assert receiver.received == []
    (delivery,) = read_deliveries()
    assert "no public address" in delivery.attempts[0]["error"]


def test_a_receiver_without_a_certificate_is_refused(settings: Settings) -> None:
    with always(OK) as receiver:
        target = targets.read_url(f"https://127.0.0.1:{receiver.port}/")
        answer = post(target, "127.0.0.1", {}, b"{}", 5)
    assert answer.status is None and answer.error is not None
    assert receiver.received == []


# What is told


def test_ends_of_jobs_are_told_in_their_transaction(settings: Settings) -> None:
    add_webhook("http://127.0.0.1:1/")
    add_job()
    with db.transaction() as session:
        job = claim(session)
    with db.transaction() as session:
        assert jobs.fail(session, job, {"code": "internal", "detail": "x" * 5000})
    (delivery,) = read_deliveries()
    body = json.loads(delivery.body)
    assert body["type"] == "job.failed" and body["data"]["job_id"] == job.id
    assert body["data"]["error"]["code"] == "internal"
    assert len(delivery.body) < 3000


def test_no_cell_of_a_table_is_told(settings: Settings) -> None:
    """What is wrong with a table quotes it; a receiver may be anybody's."""
    add_webhook("http://127.0.0.1:1/")
    add_job()
    with db.transaction() as session:
        job = claim(session)
    with db.transaction() as session:
        error = {"code": "bad_data", "detail": "however row 2 holds 'markedodd'"}
        assert jobs.fail(session, job, error)
    (delivery,) = read_deliveries()
    assert json.loads(delivery.body)["data"]["error"]["code"] == "bad_data"
    assert "markedodd" not in delivery.body


def test_no_cell_is_told_by_a_sweep_either(client: TestClient) -> None:
    """Its error quotes that of the first of its jobs."""
    hook = {"url": "https://hooks.example.com", "events": ["job.failed"]}
    assert client.post("/webhooks", json=hook).status_code == 201
    config = {"target": "y", "columns": {"label": "ignore"}, "kind": "sweep"}
    made = client.post(
        "/jobs",
        files={"file": ("t.csv", TABLE)},
        data={"config": json.dumps({**config, "sweep": {"grid": {"rank": [1, 2]}}})},
    )
    assert made.status_code == 202, made.text
    for _ in range(2):
        with db.transaction() as session:
            child = claim(session)
        with db.transaction() as session:
            error = {"code": "bad_data", "detail": "row 7 holds 'markedodd'"}
            assert jobs.fail(session, child, error)
        with db.transaction() as session:
            jobs.follow(session, child)
    parent = client.get(f"/jobs/{made.json()['id']}").json()
    assert parent["status"] == "failed" and "markedodd" in str(parent["error"])
    (delivery,) = read_deliveries()
    assert "no_success" in delivery.body and "markedodd" not in delivery.body


def test_parts_of_a_sweep_are_not_told(settings: Settings) -> None:
    add_webhook("http://127.0.0.1:1/")
    add_job()
    with db.transaction() as session:
        job = claim(session)
    with db.transaction() as session:
        parent = session.get_one(Job, job.id)
        values = {
            column.key: getattr(parent, column.key)
            for column in sa.inspect(Job).columns
        }
        values |= {"id": "job_child", "parent_id": job.id, "position": 0}
        session.add(Job(**values))
    with db.transaction() as session:
        child = session.get_one(Job, "job_child")
        assert jobs.fail(session, child, {"code": "internal", "detail": ""})
    assert read_deliveries() == []


def test_models_and_alarms_are_told(client: TestClient) -> None:
    url = "https://hooks.example.com"
    made = client.post("/webhooks", json={"url": url, "events": [*WebhookEvent]})
    model = finish_model()
    for _ in range(2):
        answer = client.put("/models/n/aliases/champion", json={"version": 1})
        assert answer.status_code == 200
    column = {"missing": 0, "bins": [100_000, 0, 0]}
    counts = {"n_rows": 100_000, "columns": {"x": column}}
    with db.transaction() as session:
        session.add(
            ModelCounts(
                model_id=model.id,
                day=utc_now().strftime("%Y-%m-%d"),
                shard="x",
                workspace_id="default",
                counts=counts,
            )
        )
    for n_made in (1, 0):  # once a day
        with db.transaction() as session:
            assert monitor.announce_alarms(session) == n_made
    path = f"/webhooks/{made.json()['id']}/deliveries"
    found = [each["body"] for each in client.get(path).json()["data"]]
    told = {each["type"]: each["data"] for each in found}
    assert len(found) == 3
    assert told["job.succeeded"]["model_id"] == model.id
    assert told["monitor.alarm"]["drifted"] == ["x"]
    assert told["model.promoted"]["alias"] == "champion"


@pytest.mark.both_databases
def test_a_day_is_looked_at_when_its_rows_have_doubled(client: TestClient) -> None:
    """By whichever worker comes first; each look has a smaller rate."""
    url = "https://hooks.example.com"
    client.post("/webhooks", json={"url": url, "events": ["monitor.alarm"]})
    model = finish_model()
    day = utc_now().strftime("%Y-%m-%d")
    key = {"model_id": model.id, "day": day, "workspace_id": "default"}

    def count_rows(n: int) -> None:
        column = {"missing": 0, "bins": [n // 2, n - n // 2, 0]}
        counts = {"n_rows": n, "columns": {"x": column}}
        with db.transaction() as session:
            session.merge(ModelCounts(**key, shard="x", counts=counts))

    def look() -> Any:
        with db.transaction() as session:
            assert monitor.announce_alarms(session) == 0
        with db.reading() as session:
            row = session.get(ModelCounts, (model.id, day, "looks"))
            return None if row is None else row.counts["looks"]

    count_rows(10)
    assert look() is None  # too few to say anything
    for n, seen in ((30, (1, 30)), (59, (1, 30)), (60, (2, 60)), (500, (3, 500))):
        count_rows(n)
        for _ in range(2):
            assert look() == {"n": seen[0], "n_rows": seen[1]}
    # What was looked at is no part of what was predicted.
    (found,) = client.get(f"/models/{model.id}/monitor").json()["days"]
    assert found["n_rows"] == 500 and not found["is_alarm"]


def test_a_day_is_looked_at_once_more_when_it_is_over(client: TestClient) -> None:
    """Its last rows may be what is wrong with it."""
    url = "https://hooks.example.com"
    client.post("/webhooks", json={"url": url, "events": ["monitor.alarm"]})
    model = finish_model()
    day = (utc_now() - timedelta(days=1)).strftime("%Y-%m-%d")
    key = {"model_id": model.id, "day": day, "workspace_id": "default"}
    column = {"missing": 0, "bins": [14_900, 5_000, 0]}
    looks = {"looks": {"n": 8, "n_rows": 12_800}}
    with db.transaction() as session:
        counts = {"n_rows": 19_900, "columns": {"x": column}}
        session.add(ModelCounts(**key, shard="x", counts=counts))
        session.add(ModelCounts(**key, shard="looks", counts=looks))
    for n_made in (1, 0):
        with db.transaction() as session:
            assert monitor.announce_alarms(session) == n_made


def finish_model() -> TrainedModel:
    """A model with one column, half of whose training rows were above 1."""
    add_job(name="n")
    reference = {"edges": [1.0], "counts": [500, 500, 0]}
    with db.transaction() as session:
        sha256 = blobs.store_bytes("default", b"model")
        assert jobs.finish(
            session,
            claim(session),
            onnx_sha256=sha256,
            reports=REPORTS,
            progress={},
            metadata={"reference": {"n_rows": 1000, "columns": {"x": reference}}},
        )
    with db.reading() as session:
        return session.scalars(sa.select(TrainedModel)).one()


# The routes


@pytest.fixture
def made(client: TestClient) -> Iterator[dict[str, Any]]:
    answer = client.post(
        "/webhooks",
        json={"url": "https://hooks.example.com/x", "events": ["job.failed"]},
    )
    assert answer.status_code == 201
    yield answer.json()


def test_the_secret_is_shown_once(client: TestClient, made: dict[str, Any]) -> None:
    assert made["secret"].startswith("whsec_")
    path = f"/webhooks/{made['id']}"
    for answer in (client.get(path), client.get("/webhooks"), client.get("/audit")):
        assert answer.status_code == 200 and made["secret"] not in answer.text
    rotated = client.post(f"{path}/rotate").json()
    assert rotated["secret"] != made["secret"]
    with db.reading() as session:
        webhook = session.get_one(Webhook, made["id"])
        assert webhook.old_secret == made["secret"]


def test_a_webhook_is_changed_and_deleted(
    client: TestClient, made: dict[str, Any]
) -> None:
    path = f"/webhooks/{made['id']}"
    changed = client.patch(
        path, json={"is_enabled": False, "events": ["job.succeeded"]}
    )
    assert changed.json()["events"] == ["job.succeeded"]
    announce()
    assert client.get(f"{path}/deliveries").json()["data"] == []
    assert client.delete(path).status_code == 204
    check_problem(client.get(path), 404)
    audit = [each["route"] for each in client.get("/audit").json()["data"]]
    assert "/webhooks" in audit and "/webhooks/{webhook_id}" in audit


def test_deliveries_are_listed_and_sent_again(
    client: TestClient, made: dict[str, Any]
) -> None:
    for key in "abc":
        announce(key)
    path = f"/webhooks/{made['id']}/deliveries"
    page = client.get(f"{path}?limit=2&status=pending").json()
    assert len(page["data"]) == 2
    rest = client.get(f"{path}?limit=2&cursor={page['next_cursor']}").json()
    assert len(rest["data"]) == 1
    id_ = rest["data"][0]["id"]
    again = client.post(f"{path}/{id_}/redeliver")
    assert again.status_code == 202 and again.json()["status"] == "pending"
    check_problem(client.post(f"{path}/msg_none/redeliver"), 404)


def test_addresses_and_numbers_are_bounded(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"url": "https://127.0.0.1/", "events": ["job.failed"]}
    assert (
        check_problem(client.post("/webhooks", json=body), 422)["code"] == "bad_target"
    )
    body["url"] = "https://hooks.example.com"
    for unfit in ({"events": []}, {"events": ["job.eaten"]}, {"secret": "x"}):
        check_problem(client.post("/webhooks", json=body | unfit), 422)
    for _ in range(20):
        assert client.post("/webhooks", json=body).status_code == 201
    problem = check_problem(client.post("/webhooks", json=body), 429)
    assert problem["code"] == "too_many_webhooks"


def test_old_messages_go(client: TestClient, made: dict[str, Any]) -> None:
    announce()
    with db.transaction() as session:
        assert webhooks.remove_old(session, days=1) == 0
        session.execute(
            sa.update(Delivery).values(created_at=utc_now() - timedelta(days=2))
        )
        assert webhooks.remove_old(session, days=1) == 1
