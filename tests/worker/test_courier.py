"""A worker sends messages to webhooks beside all else."""

import threading

import pytest
import sqlalchemy as sa

from app import webhooks
from app.settings import get_settings
from app.storage import db
from app.storage.enums import WebhookEvent
from app.storage.tables import Delivery, Webhook
from tests.support.receivers import Receiver
from tests.support.servers import wait_until
from worker import courier
from worker.identity import stopping


@pytest.fixture
def quick(sqlite: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOMETAB_WEBHOOK_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("LOMETAB_WEBHOOK_POLL_SECONDS", "0.05")
    monkeypatch.setenv("LOMETAB_WEBHOOK_BACKOFF_SECONDS", "0")
    get_settings.cache_clear()


def test_it_sends_until_the_worker_ends(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong meanwhile."""
    looked: list[int] = []

    def fail() -> None:
        looked.append(1)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(courier, "look_for_alarms", fail)
    with Receiver(lambda _, n: 500 if n == 1 else 204) as receiver:
        with db.transaction() as session:
            webhooks.create_webhook(
                session,
                workspace_id="default",
                url=receiver.url,
                events=[WebhookEvent.JOB_FAILED],
                description=None,
            )
            webhooks.announce(session, "default", WebhookEvent.JOB_FAILED, {}, key="a")
        thread = threading.Thread(target=courier.run_for_ever)
        thread.start()

        def is_delivered() -> bool:
            with db.reading() as session:
                return session.scalar(sa.select(Delivery.status)) == "delivered"

        wait_until(is_delivered, seconds=60, what="the message is delivered")
        stopping.set()
        thread.join(60)
    assert not thread.is_alive() and looked
    assert [each.headers["lometab-attempt"] for each in receiver.received] == ["1", "2"]


def test_alarms_are_looked_for_if_anybody_wants_them(quick: None) -> None:
    courier.look_for_alarms()
    with db.transaction() as session:
        session.add(
            Webhook(
                id="wh_1",
                workspace_id="default",
                url="http://127.0.0.1/",
                events=[WebhookEvent.MONITOR_ALARM],
                secret="whsec_",
            )
        )
    courier.look_for_alarms()
    with db.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Delivery)) == 0
