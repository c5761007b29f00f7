"""The connection: what is sent, and sent again."""

import asyncio
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from lometab.client import wire
from lometab.client.aio.jobs import AsyncJob, AsyncJobs
from lometab.client.aio.models import AsyncModels
from lometab.client.aio.resources import AsyncDataset, AsyncDatasets
from lometab.client.aio.webhooks import AsyncWebhooks
from lometab.client.errors import ClientError, TimedOut, Unreachable
from lometab.client.wire import Content, Retries


class AsyncClient:
    """A connection to a LoMETab service.

    Args:
        url: the address of the service; None: `LOMETAB_URL`, else this machine.
        key: an API key; None: `LOMETAB_KEY`, else none, as the embedded default has it.
        timeout: seconds for an answer to begin. Uploads and training have their own.
        retries: how often a request is sent again that was cut off or refused for the
            moment. Only what may be repeated is: each job is made once.
        transport: of httpx, for tests and unusual networks.

    **Examples**

    >>> async def main():
    ...     async with AsyncClient("http://127.0.0.1:8000") as client:
    ...         job = await client.train("wine.csv", target="quality", preset="fast")
    ...         model = await (await job.wait()).model
    ...         return await model.predict([{"alcohol": 9.4, "pH": 3.5}])
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = wire.find_url(url)
        self.timeout = timeout
        self.retries = retries or Retries()
        secret = wire.find_key(key)
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {secret}"} if secret else {},
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
            # The service closes an idle connection after five seconds.
            limits=httpx.Limits(keepalive_expiry=4.0),
            transport=transport,
        )

    @property
    def datasets(self) -> AsyncDatasets:
        """Tables that were uploaded."""
        return AsyncDatasets(self)

    @property
    def jobs(self) -> AsyncJobs:
        """What was asked for."""
        return AsyncJobs(self)

    @property
    def models(self) -> AsyncModels:
        """What came of it: `client.models["churn@champion"]`."""
        return AsyncModels(self)

    @property
    def webhooks(self) -> AsyncWebhooks:
        """Addresses that are told of what happens."""
        return AsyncWebhooks(self)

    async def train(
        self, data: Any, target: str | None = None, **config: Any
    ) -> AsyncJob:
        """Train a model; the job is there when this returns, and runs.

        Args:
            data: a path, bytes, a frame of pandas or polars, an Arrow table, rows, or
                a dataset or its id.
            target: the column to predict.
            config: the settings of the job (`preset`, `task`, `split`, `name` ...) and
                of the model (`k`, `rank`, `lr` ...).
        """
        return await self._create(data, wire.make_config(target, config))

    async def sweep(
        self,
        data: Any,
        target: str | None = None,
        grid: Mapping[str, Sequence[Any]] | None = None,
        *,
        seeds: int = 1,
        **config: Any,
    ) -> AsyncJob:
        """Train every combination of a grid of settings; None: the paper's grid."""
        cells: dict[str, Any] = {"seeds": seeds}
        if grid is not None:
            cells["grid"] = {name: [*values] for name, values in grid.items()}
        made = wire.make_config(target, config)
        return await self._create(data, {"kind": "sweep", "sweep": cells, **made})

    async def tune(
        self,
        data: Any,
        target: str | None = None,
        *,
        n_trials: int = 50,
        space: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> AsyncJob:
        """Search for the best settings, and train a model with them.

        What is given beside the space, as `k=8`, is held and not searched.
        """
        made = wire.make_config(target, config)
        search = wire.make_search(n_trials, space, made)
        return await self._create(data, {"kind": "tune", "tune": search, **made})

    async def _create(self, data: Any, config: dict[str, Any]) -> AsyncJob:
        key = {"Idempotency-Key": uuid.uuid4().hex}
        id_ = data.id if isinstance(data, AsyncDataset) else wire.find_dataset(data)
        if id_ is not None:
            body = {**config, "dataset_id": id_}
            found = await self.request("POST", "/jobs", json=body, headers=key)
        else:
            fields = {"config": json.dumps(config)}
            found = await self.upload("/jobs", wire.encode(data), fields, headers=key)
        return AsyncJob(self, found.json())

    # Requests

    async def get(self, path: str, **params: Any) -> Any:
        """What is at a path of the service, as Python has JSON."""
        known = {name: value for name, value in params.items() if value is not None}
        return (await self.request("GET", path, params=known)).json()

    async def upload(
        self,
        path: str,
        content: Content,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a table as a form; as often as it takes, from its beginning each time.

        The answer waits for the table to be read: that may take minutes.
        """

        async def send() -> httpx.Response:
            with content.open() as file:
                return await self._http.post(
                    path,
                    files={"file": (content.filename, file)},
                    data=dict(fields or {}),
                    headers=dict(headers or {}),
                    timeout=httpx.Timeout(self.timeout, read=10 * self.timeout),
                )

        return await self._send(send, f"POST {path}", is_safe=True)

    async def request(
        self, method: str, path: str, *, is_safe: bool = True, **options: Any
    ) -> httpx.Response:
        """Any request; repeated if it was cut off or refused for the moment.

        Args:
            is_safe: whether it may arrive twice.
        """

        async def send() -> httpx.Response:
            return await self._http.request(method, path, **options)

        return await self._send(send, f"{method} {path}", is_safe=is_safe)

    async def download(self, path: str, target: str | os.PathLike[str]) -> Path:
        """Write what is at a path to a file, which is there once it is whole.

        What breaks off goes on where it ended; all of it is held against its sha256.
        """
        target = Path(target)
        part = wire.PartFile(target.with_name(target.name + ".part"))
        n_broken = 0
        with part:
            while n_broken < self.retries.attempts:
                n_before = part.size
                try:
                    if await self._download(path, part):
                        break
                except httpx.TransportError as error:
                    if n_broken + 1 == self.retries.attempts:
                        raise self._explain(error, f"GET {path}") from error
                n_broken = 0 if part.size > n_before else n_broken + 1
                await asyncio.sleep(self.retries.pause(max(n_broken, 1), None))
            part.finish(target)
        return target

    async def _download(self, path: str, part: wire.PartFile) -> bool:
        """From where the file ends; whether it is whole now."""
        async with self._http.stream("GET", path, headers=part.headers) as response:
            if not response.is_success:
                await response.aread()
                if wire.is_passing(response):
                    return False
            wire.check(response)
            part.begin(response)
            async for piece in response.aiter_bytes():
                part.write(piece)
            part.end()
        return part.is_whole

    async def _send(self, send: Any, what: str, *, is_safe: bool) -> httpx.Response:
        response: httpx.Response | None = None
        for n_sent in range(1, self.retries.attempts + 1):
            is_last = n_sent == self.retries.attempts
            try:
                response = await send()
            except httpx.TransportError as error:
                response = None
                has_arrived = not isinstance(
                    error, httpx.ConnectError | httpx.ConnectTimeout
                )
                if is_last or (has_arrived and not is_safe):
                    raise self._explain(error, what) from error
            if response is not None and (is_last or not wire.is_passing(response)):
                return wire.check(response)
            await asyncio.sleep(self.retries.pause(n_sent, response))
        raise AssertionError("the last sending returns or raises")

    def _explain(self, error: httpx.TransportError, what: str) -> ClientError:
        if isinstance(error, httpx.TimeoutException):
            return TimedOut(
                f"{self.url} did not answer {what} within {self.timeout:g} s; give "
                "the client a longer `timeout`"
            )
        return Unreachable(
            f"{self.url} could not be asked ({what}): {error or type(error).__name__}; "
            "is the service running there?"
        )

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"
