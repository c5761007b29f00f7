"""Shared runs, the cache of predictors, and the query for caller and model."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from app import access as auth
from app.errors import NotFound, Unauthorized
from app.serving import Predictors, ServedModel
from app.serving.batcher import Batcher
from app.serving.models import find_served
from app.settings import Settings
from app.storage import blobs, db
from lometab.predictor import Predictor
from tests.support.ensembles import ROW, train

N_SECONDS = 30.0  # more than anything here takes


class Gate:
    """A run that notes what it gets and waits until it is let through."""

    def __init__(self, limit: int = 100) -> None:
        self.limit = limit
        self.runs: list[list[int]] = []
        self.is_open = threading.Event()
        self.has_begun = threading.Event()

    def run(self, items: list[int]) -> list[int | Exception]:
        taken = items[: self.limit]
        self.runs.append(taken)
        self.has_begun.set()
        assert self.is_open.wait(N_SECONDS)
        if -1 in taken:
            raise ValueError("no good")
        return [KeyError("odd") if item == -2 else 10 * item for item in taken]


async def begin(
    gate: Gate, batcher: Batcher[int, int], *items: int
) -> list["asyncio.Task[int]"]:
    """The first item in a run of its own that is under way, the others waiting."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(batcher.submit("a", items[0]))]
    await loop.run_in_executor(None, gate.has_begun.wait, N_SECONDS)
    tasks += [loop.create_task(batcher.submit("a", item)) for item in items[1:]]
    await asyncio.sleep(0)
    return tasks


def test_what_waits_shares_the_next_run() -> None:
    async def main() -> None:
        gate = Gate()
        batcher: Batcher[int, int] = Batcher(gate.run, threads=4, is_shared=True)
        tasks = await begin(gate, batcher, 1, 2, 3, 4)
        gate.is_open.set()
        assert await asyncio.gather(*tasks) == [10, 20, 30, 40]
        assert gate.runs == [[1], [2, 3, 4]]
        await batcher.submit("a", 5)
        assert gate.runs[-1] == [5]

    asyncio.run(main())


def test_what_is_too_much_for_a_run_goes_into_the_next() -> None:
    async def main() -> None:
        gate = Gate(limit=2)
        batcher: Batcher[int, int] = Batcher(gate.run, threads=4, is_shared=True)
        tasks = await begin(gate, batcher, *range(6))
        gate.is_open.set()
        await asyncio.gather(*tasks)
        assert gate.runs == [[0], [1, 2], [3, 4], [5]]

    asyncio.run(main())


def test_keys_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        gate = Gate()
        batcher: Batcher[int, int] = Batcher(gate.run, threads=4, is_shared=True)
        tasks = await begin(gate, batcher, 1)
        gate.has_begun.clear()
        loop = asyncio.get_running_loop()
        tasks.append(loop.create_task(batcher.submit("b", 2)))
        assert await loop.run_in_executor(None, gate.has_begun.wait, N_SECONDS)
        assert gate.runs == [[1], [2]]
        gate.is_open.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_sharing_switched_off() -> None:
    async def main() -> None:
        gate = Gate()
        gate.is_open.set()
        batcher: Batcher[int, int] = Batcher(gate.run, threads=2, is_shared=False)
        await asyncio.gather(*(batcher.submit("a", i) for i in range(9)))
        assert sorted(gate.runs) == [[i] for i in range(9)]

    asyncio.run(main())


def test_an_error_is_for_its_own_item() -> None:
    async def main() -> None:
        gate = Gate()
        batcher: Batcher[int, int] = Batcher(gate.run, threads=2, is_shared=True)
        tasks = await begin(gate, batcher, 1, 2, -2, 3)
        gate.is_open.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [results[i] for i in (0, 1, 3)] == [10, 20, 30]
        assert isinstance(results[2], KeyError)
        assert gate.runs == [[1], [2, -2, 3]]

    asyncio.run(main())


def test_a_run_that_fails_is_run_again_one_by_one() -> None:
    async def main() -> None:
        gate = Gate()
        batcher: Batcher[int, int] = Batcher(gate.run, threads=2, is_shared=True)
        tasks = await begin(gate, batcher, 1, 2, -1, 3)
        gate.is_open.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [results[i] for i in (0, 1, 3)] == [10, 20, 30]
        assert str(results[2]) == "no good"
        assert gate.runs == [[1], [2, -1, 3], [2], [-1], [3]]
        assert await batcher.submit("a", 4) == 40

    asyncio.run(main())


def test_who_has_gone_is_not_waited_for() -> None:
    async def main() -> None:
        gate = Gate()
        batcher: Batcher[int, int] = Batcher(gate.run, threads=2, is_shared=True)
        tasks = await begin(gate, batcher, 1, 2, 3)
        tasks[1].cancel()
        gate.is_open.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[1], asyncio.CancelledError)

    asyncio.run(main())


# The cache


@pytest.fixture(scope="module")
def content() -> bytes:
    from lometab.export import to_onnx

    return to_onnx(train("price"))


def store(content: bytes, n_models: int) -> list[ServedModel]:
    """Models of one file: the cache knows them by their ids."""
    sha256 = blobs.store_bytes("default", content)
    return [ServedModel(f"mdl_{i}", "default", sha256) for i in range(n_models)]


def test_least_recently_used_goes(engine: sa.Engine, content: bytes) -> None:
    size = Predictor(content).loaded_bytes
    predictors = Predictors(Settings(model_cache_bytes=3 * size))
    models = store(content, 4)
    kept = {model.id: predictors.get(model) for model in models[:3]}
    assert predictors.get(models[0]) is kept["mdl_0"]
    predictors.get(models[3])  # in the place of 1, the least recently used
    assert predictors.get(models[0]) is kept["mdl_0"]
    assert predictors.get(models[2]) is kept["mdl_2"]
    assert predictors.get(models[1]) is not kept["mdl_1"]


def test_a_model_beyond_the_limit_is_served_and_not_kept(
    engine: sa.Engine, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    predictors = Predictors(Settings(model_cache_bytes=1))
    for model in store(content, 2) * 2:
        assert predictors.get(model).predict([ROW]).mean.shape == (1,)
        assert (len(predictors), predictors.n_bytes) == (0, 0)
    assert "raise LOMETAB_MODEL_CACHE_BYTES" in caplog.text


def test_bytes_are_counted_exactly(engine: sa.Engine, content: bytes) -> None:
    """However many ask at once for however many models."""
    size = Predictor(content).loaded_bytes
    predictors = Predictors(Settings(model_cache_bytes=2 * size + size // 2))
    models = store(content, 5)
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(predictors.get, models * 12):
            pass
    assert len(predictors) == 2
    assert predictors.n_bytes == 2 * size


def test_one_load_for_many(engine: sa.Engine, content: bytes) -> None:
    (model,) = store(content, 1)
    predictors = Predictors(Settings())
    with ThreadPoolExecutor(8) as pool:
        found = {*pool.map(lambda _: predictors.get(model), range(8))}
    assert len(found) == 1


@pytest.mark.both_databases
def test_a_file_that_is_gone(engine: sa.Engine) -> None:
    predictors = Predictors(Settings())
    for _ in range(2):  # a failed load is not in the way of the next
        with pytest.raises(NotFound):
            predictors.get(ServedModel("mdl_x", "default", "0" * 64))


# Who asks


@pytest.fixture
def keeping(engine: sa.Engine) -> Iterator[None]:
    yield
    db.drop_kept_connection()


@pytest.mark.both_databases
def test_kept_connections_see_what_others_write(
    engine: sa.Engine, keeping: None
) -> None:
    with db.transaction() as session:
        row, secret = auth.create_key(
            session, workspace_id="default", name="x", scopes=auth.SCOPES
        )
    for _ in range(3):
        with pytest.raises(NotFound):
            find_served(secret, "mdl_x")
    with ThreadPoolExecutor(1) as pool:
        with db.transaction() as session:
            assert pool.submit(auth.revoke_key, session, row.id).result()
    with pytest.raises(Unauthorized):
        find_served(secret, "mdl_x")


@pytest.mark.both_databases
def test_connections_that_broke_are_made_anew(engine: sa.Engine, keeping: None) -> None:
    with pytest.raises(NotFound):
        find_served(None, "mdl_x")
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
            find_served(None, reference)


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
