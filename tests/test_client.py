"""The client against the service, with faults on the way: nothing is lost, nothing is
done twice."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lometab import Predictor
from lometab.client import (
    AsyncClient,
    Client,
    Model,
    NotFound,
    Retries,
    TimedOut,
)
from tests.support.faults import Fault, FaultyProxy
from tests.support.receivers import Receiver
from tests.support.servers import wait_until
from tests.support.services import TINY
from tests.support.stacks import Service, Stack
from tests.support.tables import make_csv

QUICK = Retries(attempts=6, first_seconds=0.05, most_seconds=0.5)
pytestmark = [pytest.mark.slow, pytest.mark.processes]


def choose(what: str, n_before: int) -> Fault | None:
    """The first tries of whatever matters are spoilt, each in another way."""
    spoilt: dict[str, list[Fault]] = {
        "POST /jobs": [
            Fault(cut_request_after=2000),  # in the middle of the file
            Fault(cut_answer_after=10),  # the job exists, and the client does not know
            Fault(status=503),
        ],
        "events": [
            Fault(cut_answer_after=700),
            Fault(status=503),
            Fault(cut_answer_after=1200),
        ],
        "predict": [
            Fault(cut_request_after=300),
            Fault(),
            Fault(cut_answer_after=200),
            Fault(delay=5.0),  # longer than the client waits
        ],
        "stop": [Fault(cut_answer_after=0)],
        "predictions": [
            Fault(cut_request_after=700),
            Fault(cut_answer_after=10),  # the job exists, and the client does not know
            Fault(status=503),
        ],
        "result": [Fault(cut_answer_after=3000), Fault(status=503), Fault(delay=5.0)],
    }
    name = what if what in spoilt else what.rpartition("/")[2]
    faults = spoilt.get(name, [])
    return faults[n_before] if n_before < len(faults) else None


@pytest.fixture
def proxy(service: Service) -> Iterator[FaultyProxy]:
    with FaultyProxy(service.address, choose) as proxy:
        yield proxy


@pytest.mark.both_databases
def test_nothing_is_lost_and_nothing_is_done_twice(
    service: Service, proxy: FaultyProxy, tmp_path: Path
) -> None:
    frame = pl.read_csv(make_csv(300).encode())
    with (
        Client(proxy.url, service.stack.key, timeout=3.0, retries=QUICK) as client,
        Client(service.address, service.stack.key) as direct,
    ):
        client.timeout = 30.0  # of uploads, which are read before they are answered
        job = client.train(
            frame, "y", name="faulty", tags=["t"], **{**TINY, "max_epochs": 25}
        )
        seen = [event["seq"] for event in job.events()]
        assert seen == [*range(1, len(seen) + 1)] and len(seen) > 25
        job.refresh().check()
        made = direct.get("/jobs")["data"]
        assert [each["id"] for each in made] == [job.id]  # sent four times
        assert len(direct.get("/datasets")["data"]) == 1
        model = job.model
        rows = frame.drop("y")
        answered = model.predict(rows, chunk_rows=70)
        expected = direct.models["faulty@1"].predict(rows)
        assert isinstance(answered, pl.DataFrame)
        assert answered["mean"].to_list() == pytest.approx(
            expected["mean"].to_list(), abs=1e-5
        )
        assert answered.height == frame.height
        assert proxy.seen.count(f"POST {model.path}/predict") == 5 + 3
        assert proxy.n_faults >= 9
        # What it made is whole, and has its manners.
        path = model.download(tmp_path / "m.onnx")
        by_file = Predictor(path).predict(rows[:5]).mean
        assert by_file.tolist() == pytest.approx(
            expected["mean"].to_list()[:5], abs=1e-5
        )
        predict_by_a_job(model, direct, rows, tmp_path)
        model.set_alias("champion")
        assert direct.models.read("faulty@champion").id == model.id
        assert job.report["scores"]["test"]["ensemble"]["rmse"] > 0
        assert job.diversity["k"] == TINY["k"] and job.calibration["task"]


def predict_by_a_job(
    model: Model, direct: Client, rows: pl.DataFrame, folder: Path
) -> None:
    """The table is sent once, in effect, and every answer arrives."""
    path = model.predict_file(rows, folder / "answers.csv", timeout=120)
    answered = pl.read_csv(path)
    expected = direct.models["faulty@1"].predict(rows)
    assert answered["mean"].to_list() == pytest.approx(
        expected["mean"].to_list(), abs=1e-5
    )
    assert len(direct.get("/jobs", kind="predict")["data"]) == 1  # sent four times


@pytest.mark.both_databases
def test_webhooks_by_both_clients(
    stack: Stack, start_service: Callable[[], Service]
) -> None:
    """Made, told of a job, listed, sent again, turned off and deleted."""
    stack.environment["LOMETAB_WEBHOOK_NETWORKS"] = "127.0.0.0/8"
    service = start_service()
    with (
        Receiver(lambda *_: 204) as receiver,
        Client(service.address, stack.key, retries=QUICK) as client,
    ):
        hook = client.webhooks.create(receiver.url, ["job.succeeded"])
        job = client.train(make_csv(100).encode(), "y", **TINY).wait(timeout=120)
        wait_until(lambda: [*hook.deliveries("delivered")], seconds=60, what="told")
        (message,) = hook.deliveries()
        assert message["body"]["data"]["job_id"] == job.id
        assert receiver.received[0].headers["webhook-id"] == message["id"]

        async def ask() -> None:
            async with AsyncClient(service.address, stack.key) as other:
                (same,) = await other.webhooks.list()
                assert same.id == hook.id and same.secret is None
                again = await same.redeliver(message["id"])
                assert again["status"] == "pending"
                wait_until(lambda: len(receiver.received) == 2, seconds=60, what="sent")
                await same.update(is_enabled=False)

        asyncio.run(ask())
        ids = {each.headers["webhook-id"] for each in receiver.received}
        assert ids == {message["id"]}
        assert not hook.refresh().info["is_enabled"]
        hook.delete()
        with pytest.raises(NotFound):
            hook.refresh()


def test_a_stop_arrives_once_and_the_best_is_kept(
    service: Service, proxy: FaultyProxy
) -> None:
    async def run() -> dict[str, Any]:
        async with AsyncClient(proxy.url, service.stack.key, retries=QUICK) as client:
            job = await client.train(
                make_csv(300).encode(),
                "y",
                **{**TINY, "max_epochs": 5000},
                patience=None,
            )
            async for event in job.events():
                if event["type"] == "epoch":
                    break
            await job.stop()
            await job.wait(timeout=120)
            with pytest.raises(TimedOut):
                again = await client.train(
                    job.info["dataset_id"], "y", **{**TINY, "max_epochs": 5000}
                )
                try:
                    await again.wait(timeout=0.5)
                finally:
                    await again.cancel()
            return job.info

    info = asyncio.run(run())
    assert info["status"] == "succeeded" and info["stopped_early"]
