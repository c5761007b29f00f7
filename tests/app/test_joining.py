"""Shared runs, the cache of predictors, and who is asked for a model."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from app import auth, blobs, db
from app.deps import AskedModel, Predictors, find_asked_model
from app.errors import NotFound, Unauthorized
from app.joining import Lanes
from app.settings import Settings
from lometab.predictor import Predictor
from tests.lometab.test_predictor import ROW, train

N_SECONDS = 30.0  # more than anything here takes


class Gate:
    """A run that notes what it gets and waits until it is let through."""

    def __init__(self, limit: int = 100) -> None:
        self.limit = limit
        self.runs: list[list[int]] = []
        self.is_open = threading.Event()
        self.has_begun = threading.Event()

    def run(self, items: list[int]) -> int:
        taken = items[: self.limit]
        self.runs.append(taken)
        self.has_begun.set()
        assert self.is_open.wait(N_SECONDS)
        if -1 in taken:
            raise ValueError("no good")
        return len(taken)


async def begin(
    gate: Gate, lanes: Lanes[int], *items: int
) -> list["asyncio.Task[None]"]:
    """The first item in a run of its own that is under way, the others waiting."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(lanes.pass_through("a", items[0]))]
    await loop.run_in_executor(None, gate.has_begun.wait, N_SECONDS)
    tasks += [loop.create_task(lanes.pass_through("a", item)) for item in items[1:]]
    await asyncio.sleep(0)
    return tasks


def test_what_waits_shares_the_next_run() -> None:
    async def main() -> None:
        gate = Gate()
        lanes = Lanes(gate.run, threads=4, joined=True)
        tasks = await begin(gate, lanes, 1, 2, 3, 4)
        assert lanes.n_items == 4
        gate.is_open.set()
        await asyncio.gather(*tasks)
        assert gate.runs == [[1], [2, 3, 4]]
        assert lanes.n_items == 0
        await lanes.pass_through("a", 5)
        assert gate.runs[-1] == [5]

    asyncio.run(main())


def test_what_is_too_much_for_a_run_goes_into_the_next() -> None:
    async def main() -> None:
        gate = Gate(limit=2)
        lanes = Lanes(gate.run, threads=4, joined=True)
        tasks = await begin(gate, lanes, *range(6))
        gate.is_open.set()
        await asyncio.gather(*tasks)
        assert gate.runs == [[0], [1, 2], [3, 4], [5]]

    asyncio.run(main())


def test_lanes_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        gate = Gate()
        lanes = Lanes(gate.run, threads=4, joined=True)
        tasks = await begin(gate, lanes, 1)
        gate.has_begun.clear()
        loop = asyncio.get_running_loop()
        tasks.append(loop.create_task(lanes.pass_through("b", 2)))
        assert await loop.run_in_executor(None, gate.has_begun.wait, N_SECONDS)
        assert gate.runs == [[1], [2]]
        gate.is_open.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_joining_switched_off() -> None:
    async def main() -> None:
        gate = Gate()
        gate.is_open.set()
        lanes = Lanes(gate.run, threads=2, joined=False)
        await asyncio.gather(*(lanes.pass_through("a", i) for i in range(9)))
        assert sorted(gate.runs) == [[i] for i in range(9)]

    asyncio.run(main())


def test_an_error_reaches_all_who_share_the_run() -> None:
    async def main() -> None:
        gate = Gate()
        lanes = Lanes(gate.run, threads=2, joined=True)
        tasks = await begin(gate, lanes, 1, 2, -1)
        gate.is_open.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[0] is None
        assert [str(error) for error in results[1:]] == ["no good"] * 2
        await lanes.pass_through("a", 3)

    asyncio.run(main())


def test_who_has_gone_is_not_waited_for() -> None:
    async def main() -> None:
        gate = Gate()
        lanes = Lanes(gate.run, threads=2, joined=True)
        tasks = await begin(gate, lanes, 1, 2, 3)
        tasks[1].cancel()
        gate.is_open.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[1], asyncio.CancelledError)
        assert lanes.n_items == 0

    asyncio.run(main())


# The cache


@pytest.fixture(scope="module")
def content() -> bytes:
    from lometab.export import to_onnx

    return to_onnx(train("price"))


def store(content: bytes, n_models: int) -> list[AskedModel]:
    """Models of one file: the cache knows them by their ids."""
    sha256 = blobs.store_bytes("default", content)
    return [AskedModel(f"mdl_{i}", "default", sha256) for i in range(n_models)]


def test_least_recently_used_goes(engine: sa.Engine, content: bytes) -> None:
    size = Predictor(content).folded_bytes
    predictors = Predictors(Settings(model_cache_bytes=3 * size))
    models = store(content, 4)
    kept = {model.id: predictors.get(model) for model in models[:3]}
    assert predictors.get(models[0]) is kept["mdl_0"]
    predictors.get(models[3])  # in the place of 1, the least recently used
    assert predictors.get(models[0]) is kept["mdl_0"]
    assert predictors.get(models[2]) is kept["mdl_2"]
    assert predictors.get(models[1]) is not kept["mdl_1"]


def test_a_model_beyond_the_limit_is_served(engine: sa.Engine, content: bytes) -> None:
    predictors = Predictors(Settings(model_cache_bytes=1))
    for model in store(content, 2) * 2:
        assert predictors.get(model).predict([ROW]).mean.shape == (1,)


def test_one_load_for_many(engine: sa.Engine, content: bytes) -> None:
    (model,) = store(content, 1)
    predictors = Predictors(Settings())
    with ThreadPoolExecutor(8) as pool:
        found = {*pool.map(lambda _: predictors.get(model), range(8))}
    assert len(found) == 1


def test_a_file_that_is_gone(engine: sa.Engine) -> None:
    predictors = Predictors(Settings())
    for _ in range(2):  # a failed load is not in the way of the next
        with pytest.raises(NotFound):
            predictors.get(AskedModel("mdl_x", "default", "0" * 64))


# Who asks


@pytest.fixture
def keeping(engine: sa.Engine) -> Iterator[None]:
    yield
    db.drop_kept_connection()


def test_kept_connections_see_what_others_write(
    engine: sa.Engine, keeping: None
) -> None:
    with db.writing() as session:
        row, secret = auth.create_key(
            session, workspace_id="default", name="x", scopes=auth.SCOPES
        )
    for _ in range(3):
        with pytest.raises(NotFound):
            find_asked_model(secret, "mdl_x")
    with ThreadPoolExecutor(1) as pool:
        with db.writing() as session:
            assert pool.submit(auth.revoke_key, session, row.id).result()
    with pytest.raises(Unauthorized):
        find_asked_model(secret, "mdl_x")


def test_connections_that_broke_are_made_anew(engine: sa.Engine, keeping: None) -> None:
    with pytest.raises(NotFound):
        find_asked_model(None, "mdl_x")
    if engine.dialect.name == "postgresql":
        with engine.connect() as other:
            other.execute(
                sa.text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                    "datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
    for reference in ("mdl_x", "name@1", "name@alias"):
        with pytest.raises(NotFound):
            find_asked_model(None, reference)


# Settings


@pytest.mark.parametrize(
    ("text", "providers"),
    [
        ("cuda,cpu", ["CUDAExecutionProvider", "CPUExecutionProvider"]),
        ('["CPUExecutionProvider"]', ["CPUExecutionProvider"]),
        (" CPU ", ["CPUExecutionProvider"]),
    ],
)
def test_providers(
    text: str, providers: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOMETAB_ORT_PROVIDERS", text)
    settings = Settings()
    assert settings.ort_providers == providers
    handed_on = settings.environment()["LOMETAB_ORT_PROVIDERS"]
    monkeypatch.setenv("LOMETAB_ORT_PROVIDERS", handed_on)
    assert Settings().ort_providers == providers


def test_batches_do_not_change_answers(content: bytes) -> None:
    """Rows get the same answer alone and in company, up to rounding."""
    predictor = Predictor(content)
    rng = np.random.default_rng(0)
    x_num, x_cat, _ = predictor.encode([ROW] * 64)
    x_num[:, 0] = rng.normal(size=64)
    together, _ = predictor.run(x_num, x_cat)
    for i in range(64):
        alone, _ = predictor.run(x_num[i : i + 1], x_cat[i : i + 1])
        np.testing.assert_allclose(alone, together[i : i + 1], rtol=1e-5)
