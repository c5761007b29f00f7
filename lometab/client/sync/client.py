"""The connection: what is sent, and sent again.

Made of `aio/client.py` by `make client`: change that file instead.
"""

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from lometab.client import wire
from lometab.client.errors import ClientError, TimedOut, Unreachable
from lometab.client.sync.jobs import Job, Jobs
from lometab.client.sync.models import Models
from lometab.client.sync.resources import Dataset, Datasets
from lometab.client.sync.webhooks import Webhooks
from lometab.client.wire import Content, Retries


class Client:
    """A connection to a LoMETab service.

    Args:
        url: the address of the service; None: `LOMETAB_URL`, else this machine.
        key: an API key; None: `LOMETAB_KEY`, else none, as the embedded default has it.
        timeout: seconds for an answer to begin. Uploads and training have their own.
        retries: how often a request is sent again that was cut off or refused for the
            moment. Only what may be repeated is: each job is made once.
        transport: of httpx, for tests and unusual networks.

    **Examples**

    >>> def main():
    ...     with Client("http://127.0.0.1:8000") as client:
    ...         job = client.train("wine.csv", target="quality", preset="fast")
    ...         model = (job.wait()).model
    ...         return model.predict([{"alcohol": 9.4, "pH": 3.5}])
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = wire.find_url(url)
        self.timeout = timeout
        self.retries = retries or Retries()
        secret = wire.find_key(key)
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {secret}"} if secret else {},
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
            # The service closes an idle connection after five seconds.
            limits=httpx.Limits(keepalive_expiry=4.0),
            transport=transport,
        )

    @property
    def datasets(self) -> Datasets:
        """Tables that were uploaded."""
        return Datasets(self)

    @property
    def jobs(self) -> Jobs:
        """What was asked for."""
        return Jobs(self)

    @property
    def models(self) -> Models:
        """What came of it: `client.models["churn@champion"]`."""
        return Models(self)

    @property
    def webhooks(self) -> Webhooks:
        """Addresses that are told of what happens."""
        return Webhooks(self)

    def train(self, data: Any, target: str | None = None, **config: Any) -> Job:
        """Train a model; the job is there when this returns, and runs.

        Args:
            data: a path, bytes, a frame of pandas or polars, an Arrow table, rows, or
                a dataset or its id.
            target: the column to predict.
            config: the settings of the job (`preset`, `task`, `split`, `name` ...) and
                of the model (`k`, `rank`, `lr` ...).
        """
        return self._create(data, wire.make_config(target, config))

    def sweep(
        self,
        data: Any,
        target: str | None = None,
        grid: Mapping[str, Sequence[Any]] | None = None,
        *,
        seeds: int = 1,
        **config: Any,
    ) -> Job:
        """Train every combination of a grid of settings; None: the paper's grid."""
        cells: dict[str, Any] = {"seeds": seeds}
        if grid is not None:
            cells["grid"] = {name: [*values] for name, values in grid.items()}
        made = wire.make_config(target, config)
        return self._create(data, {"kind": "sweep", "sweep": cells, **made})

    def tune(
        self,
        data: Any,
        target: str | None = None,
        *,
        n_trials: int = 50,
        space: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> Job:
        """Search for the best settings, and train a model with them.

        What is given beside the space, as `k=8`, is held and not searched.
        """
        made = wire.make_config(target, config)
        search = wire.make_search(n_trials, space, made)
        return self._create(data, {"kind": "tune", "tune": search, **made})

    def _create(self, data: Any, config: dict[str, Any]) -> Job:
        key = {"Idempotency-Key": uuid.uuid4().hex}
        id_ = data.id if isinstance(data, Dataset) else wire.find_dataset(data)
        if id_ is not None:
            body = {**config, "dataset_id": id_}
            found = self.request("POST", "/jobs", json=body, headers=key)
        else:
            fields = {"config": json.dumps(config)}
            found = self.upload("/jobs", wire.encode(data), fields, headers=key)
        return Job(self, found.json())

    # Requests

    def get(self, path: str, **params: Any) -> Any:
        """What is at a path of the service, as Python has JSON."""
        known = {name: value for name, value in params.items() if value is not None}
        return (self.request("GET", path, params=known)).json()

    def upload(
        self,
        path: str,
        content: Content,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a table as a form; as often as it takes, from its beginning each time.

        The answer waits for the table to be read: that may take minutes.
        """

        def send() -> httpx.Response:
            with content.open() as file:
                return self._http.post(
                    path,
                    files={"file": (content.filename, file)},
                    data=dict(fields or {}),
                    headers=dict(headers or {}),
                    timeout=httpx.Timeout(self.timeout, read=10 * self.timeout),
                )

        return self._send(send, f"POST {path}", is_safe=True)

    def request(
        self, method: str, path: str, *, is_safe: bool = True, **options: Any
    ) -> httpx.Response:
        """Any request; repeated if it was cut off or refused for the moment.

        Args:
            is_safe: whether it may arrive twice.
        """

        def send() -> httpx.Response:
            return self._http.request(method, path, **options)

        return self._send(send, f"{method} {path}", is_safe=is_safe)

    def download(self, path: str, target: str | os.PathLike[str]) -> Path:
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
                    if self._download(path, part):
                        break
                except httpx.TransportError as error:
                    if n_broken + 1 == self.retries.attempts:
                        raise self._explain(error, f"GET {path}") from error
                n_broken = 0 if part.size > n_before else n_broken + 1
                time.sleep(self.retries.pause(max(n_broken, 1), None))
            part.finish(target)
        return target

    def _download(self, path: str, part: wire.PartFile) -> bool:
        """From where the file ends; whether it is whole now."""
        with self._http.stream("GET", path, headers=part.headers) as response:
            if not response.is_success:
                response.read()
                if wire.is_passing(response):
                    return False
            wire.check(response)
            part.begin(response)
            for piece in response.iter_bytes():
                part.write(piece)
            part.end()
        return part.is_whole

    def _send(self, send: Any, what: str, *, is_safe: bool) -> httpx.Response:
        response: httpx.Response | None = None
        for n_sent in range(1, self.retries.attempts + 1):
            is_last = n_sent == self.retries.attempts
            try:
                response = send()
            except httpx.TransportError as error:
                response = None
                has_arrived = not isinstance(
                    error, httpx.ConnectError | httpx.ConnectTimeout
                )
                if is_last or (has_arrived and not is_safe):
                    raise self._explain(error, what) from error
            if response is not None and (is_last or not wire.is_passing(response)):
                return wire.check(response)
            time.sleep(self.retries.pause(n_sent, response))
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

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"
