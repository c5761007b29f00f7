"""The client. Made of `aio.py` by `make client`: change that file instead."""

import json
import os
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import httpx

from lometab.client import show, wire
from lometab.client.errors import (
    ClientError,
    Conflict,
    JobCancelled,
    JobFailed,
    TimedOut,
    Unreachable,
)
from lometab.client.wire import Content, Retries

SILENT_SECONDS = 45.0
"""An event stream that says nothing for so long is broken: the service speaks every
15 seconds."""
POLL_SECONDS = 1.0


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
    def datasets(self) -> "Datasets":
        """Tables that were uploaded."""
        return Datasets(self)

    @property
    def jobs(self) -> "Jobs":
        """What was asked for."""
        return Jobs(self)

    @property
    def models(self) -> "Models":
        """What came of it: `client.models["churn@champion"]`."""
        return Models(self)

    def train(self, data: Any, target: str | None = None, **config: Any) -> "Job":
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
    ) -> "Job":
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
    ) -> "Job":
        """Search for the best settings, and train a model with them."""
        search = {"n_trials": n_trials, "space": dict(space or {})}
        made = wire.make_config(target, config)
        return self._create(data, {"kind": "tune", "tune": search, **made})

    def _create(self, data: Any, config: dict[str, Any]) -> "Job":
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


class Pages:
    """Lists that come in pages, of which the next is fetched when it is needed."""

    path: str

    def __init__(self, client: Client) -> None:
        self._client = client

    def rows(self, **filters: Any) -> Generator[dict[str, Any], None, None]:
        """Newest first, as the service shows them."""
        cursor = None
        while True:
            page = self._client.get(self.path, cursor=cursor, **filters)
            for row in page["data"]:
                yield row
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def first(self, n: int = 20, **filters: Any) -> list[dict[str, Any]]:
        """The newest few, in one request."""
        limit = max(1, min(n, 100))
        rows: list[dict[str, Any]] = (
            self._client.get(self.path, limit=limit, **filters)
        )["data"]
        return rows[:n]


class Datasets(Pages):
    """`client.datasets`."""

    path = "/datasets"

    def __getitem__(self, id_: str) -> "Dataset":
        return Dataset(self._client, {"id": id_})

    def upload(self, data: Any, **read_options: Any) -> "Dataset":
        """Keep a table, to train on it as often as one likes.

        The same bytes with the same options are one dataset.

        Args:
            read_options: how a file is to be read, such as `delimiter`, where that
                should not be guessed.
        """
        fields = {"read_options": json.dumps(read_options)} if read_options else {}
        content = wire.encode(data)
        found = self._client.upload("/datasets", content, fields)
        return Dataset(self._client, found.json())


class Jobs(Pages):
    """`client.jobs`."""

    path = "/jobs"

    def __getitem__(self, id_: str) -> "Job":
        return Job(self._client, {"id": id_})

    def read(self, id_: str) -> "Job":
        """A job as it is now."""
        return self[id_].refresh()


class Models(Pages):
    """`client.models`."""

    path = "/models"

    def __getitem__(self, reference: str) -> "Model":
        """A model by its id, `name@version` or `name@alias`; nothing is asked yet."""
        return Model(self._client, reference)

    def read(self, reference: str) -> "Model":
        """The same, once the service has shown what it is."""
        return self[reference].refresh()


class Resource:
    """Something that the service keeps, as it was shown last."""

    def __init__(self, client: Client, info: dict[str, Any]) -> None:
        self._client = client
        self.info = info
        """All that the service said of it."""

    @property
    def id(self) -> str:
        """By which the service knows it."""
        return str(self.info["id"])

    @property
    def path(self) -> str:
        """Where it is on the service."""
        raise NotImplementedError

    def refresh(self) -> Self:
        """Ask the service again."""
        self.info = self._client.get(self.path)
        return self

    def update(self, **changes: Any) -> Self:
        """Change its `name`, `tags` or `description`; what is not named stays.

        A model with another name becomes the newest version of that. None takes a name
        or a description away.
        """
        found = self._client.request("PATCH", self.path, json=changes)
        self.info = {**self.info, **found.json()}
        return self

    def delete(self) -> None:
        """Remove it from the service."""
        self._client.request("DELETE", self.path)

    def __repr__(self) -> str:
        return show.describe(type(self).__name__, self.info)

    def _repr_html_(self) -> str:
        return show.describe_html(type(self).__name__, self.info)


class Dataset(Resource):
    """A table that was uploaded, with its profile in `info`."""

    @property
    def path(self) -> str:
        """Where it is on the service."""
        return f"/datasets/{self.id}"


class Job(Resource):
    """A training, a sweep, a search or a prediction."""

    @property
    def path(self) -> str:
        """Where it is on the service."""
        return f"/jobs/{self.id}"

    @property
    def status(self) -> str:
        """`queued`, `running`, ... as it was shown last; `refresh` asks again."""
        return str(self.info.get("status", "unknown"))

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it, as it was shown last."""
        return self.status in wire.ENDED

    def wait(self, *, progress: bool = False, timeout: float | None = None) -> Self:
        """Until it has ended.

        Args:
            progress: show a bar, in a terminal or a notebook.
            timeout: seconds; the job itself goes on.

        Raises:
            JobFailed, JobCancelled: it ended so.
            TimedOut: it has not ended in time.
        """
        with show.open_bar(progress, self.info) as bar:
            with closing(self.events(timeout=timeout)) as events:
                for event in events:
                    bar.take(event)
        self.refresh()
        return self.check()

    def check(self) -> Self:
        """Itself, unless it ended without what was asked for."""
        if self.status == "failed":
            raise JobFailed(self.info)
        if self.status == "cancelled":
            raise JobCancelled(self.info)
        return self

    def events(
        self, after: int = 0, *, timeout: float | None = None
    ) -> Generator[dict[str, Any], None, None]:
        """What happened to it and what happens, each once, until it has ended.

        Live by Server-Sent Events. A stream that breaks is taken up where it ended;
        where none comes through, events are asked for every second.

        Raises:
            TimedOut: it has not ended within so many seconds.
        """
        reader = wire.EventReader(str(after))
        deadline = wire.Deadline(self.id, timeout)
        n_broken = 0
        while n_broken < self._client.retries.attempts:
            n_before = reader.last_id
            try:
                with closing(self._stream(reader, deadline)) as stream:
                    for event in stream:
                        yield event
                if (self.refresh()).has_ended:
                    break  # nothing more will come
            except httpx.TransportError:
                reader.forget()
            deadline.check()
            n_broken = 0 if reader.last_id != n_before else n_broken + 1
            time.sleep(self._client.retries.pause(max(n_broken, 1), None))
        with closing(self._poll(int(reader.last_id), deadline)) as others:
            for event in others:
                yield event

    def _stream(
        self, reader: wire.EventReader, deadline: wire.Deadline
    ) -> Generator[dict[str, Any], None, None]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": reader.last_id}
        timeout = httpx.Timeout(
            self._client.timeout, read=deadline.within(SILENT_SECONDS)
        )
        with self._client._http.stream(
            "GET", f"{self.path}/events", headers=headers, timeout=timeout
        ) as response:
            if not response.is_success:
                response.read()
                if wire.is_passing(response):
                    raise httpx.RemoteProtocolError("refused for the moment")
            wire.check(response)
            for line in response.iter_lines():
                deadline.check()
                event = reader.feed(line)
                if event is not None:
                    yield event

    def _poll(
        self, after: int, deadline: wire.Deadline
    ) -> Generator[dict[str, Any], None, None]:
        """All events after a number, until the job has ended and none is left."""
        while True:
            has_ended = (self.refresh()).has_ended
            next_after: int | None = after
            while next_after is not None:
                page = self._client.get(
                    f"{self.path}/events", after=next_after, limit=100
                )
                for event in page["data"]:
                    after = event["seq"]
                    yield event
                next_after = page["next_after"]
            if has_ended:
                return
            deadline.check()
            time.sleep(POLL_SECONDS)

    def stop(self) -> Self:
        """Stop training, and keep the best epoch so far."""
        return self._ask("stop", "stopping", "succeeded")

    def cancel(self) -> Self:
        """End it, and keep nothing."""
        return self._ask("cancel", "cancelling", "cancelled")

    def retry(self) -> Self:
        """Run a failed or cancelled job again, from its last checkpoint."""
        return self._ask("retry", "queued", "running")

    def _ask(self, verb: str, *wanted: str) -> Self:
        """A 409 to a question that was repeated may be the answer to the first."""
        try:
            found = self._client.request("POST", f"{self.path}/{verb}")
            self.info = found.json()
        except Conflict:
            self.refresh()
            if self.status not in wanted:
                raise
        return self

    def promote(
        self, *, cell: int | None = None, trial: int | None = None, **options: Any
    ) -> "Job":
        """A job that makes a model of a cell of a sweep, or a trial of a search."""
        chosen = {"cell": cell, "trial": trial, **options}
        body = {name: value for name, value in chosen.items() if value is not None}
        key = {"Idempotency-Key": uuid.uuid4().hex}
        found = self._client.request(
            "POST", f"{self.path}/promote", json=body, headers=key
        )
        return Job(self._client, found.json())

    @property
    def report(self) -> dict[str, Any]:
        """Scores of the ensemble and of each member."""
        return self._read("report")

    @property
    def diversity(self) -> dict[str, Any]:
        """How diverse the members are."""
        return self._read("diversity")

    @property
    def calibration(self) -> dict[str, Any]:
        """How far the ensemble's confidence can be trusted."""
        return self._read("calibration")

    @property
    def figures(self) -> dict[str, Any]:
        """The pictures of the reports, by name."""
        return self._read("figures")

    @property
    def comparison(self) -> dict[str, Any]:
        """The cells of a sweep, or the trials of a search."""
        if "kind" not in self.info:
            self.refresh()
        return self._read(self.info["kind"])

    def _read(self, what: str) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get(f"{self.path}/{what}")
        return found

    def download(self, path: str | os.PathLike[str]) -> Path:
        """Write the result of a prediction job, held against its sha256.

        What breaks off goes on where it ended.
        """
        target = Path(path)
        part = wire.PartFile(target.with_name(target.name + ".part"))
        n_broken = 0
        with part:
            while n_broken < self._client.retries.attempts:
                n_before = part.size
                try:
                    if self._download(part):
                        break
                except httpx.TransportError as error:
                    if n_broken + 1 == self._client.retries.attempts:
                        what = f"GET {self.path}/result"
                        raise self._client._explain(error, what) from error
                n_broken = 0 if part.size > n_before else n_broken + 1
                time.sleep(self._client.retries.pause(max(n_broken, 1), None))
            part.finish(target)
        return target

    def _download(self, part: wire.PartFile) -> bool:
        """From where the file ends; whether it is whole now."""
        with self._client._http.stream(
            "GET", f"{self.path}/result", headers=part.headers
        ) as response:
            if not response.is_success:
                response.read()
                if wire.is_passing(response):
                    return False
            wire.check(response)
            part.begin(response)
            for piece in response.iter_bytes():
                part.write(piece)
        return part.is_whole

    def faults(self) -> Generator[dict[str, Any], None, None]:
        """Rows that a prediction job skipped: `{"row", "column", "detail"}`."""
        after: int | None = 0
        while after is not None:
            page = self._client.get(f"{self.path}/faults", after=after, limit=100)
            for fault in page["data"]:
                yield fault
            after = page["next_after"]

    @property
    def model(self) -> "Model":
        """What it made."""
        if self.info.get("model_id") is None:
            self.refresh()
        model_id = self.info.get("model_id")
        if model_id is None:
            self.check()
            raise ClientError(
                f"{self.id} has no model: it is {self.status}; wait for its end, or "
                "promote a cell or trial of it"
            )
        return Model(self._client, model_id)


class Model(Resource):
    """A trained ensemble that answers rows.

    Args:
        reference: an id, `name@version` or `name@alias`.
    """

    def __init__(self, client: Client, reference: str) -> None:
        super().__init__(client, {"id": reference})
        self.reference = reference
        self.warnings: list[str] = []
        """What was worth a word about the rows that were asked last."""

    @property
    def path(self) -> str:
        """Where it is on the service, by its id or name."""
        return f"/models/{self.reference}"

    def update(self, **changes: Any) -> Self:
        """Change its `name`, `tags` or `description`; what is not named stays."""
        super().update(**changes)
        self.reference = self.id  # `name@version` may be another's from now on
        return self

    def predict(self, data: Any, *, chunk_rows: int = 10_000, **options: Any) -> Any:
        """Answers to rows, in their order, in the form in which these came.

        A frame of pandas or polars gives a frame, an Arrow table a table, a list of
        rows a list. Members are left out unless `include` names them.

        Args:
            data: as `Client.train` takes it, without the target.
            chunk_rows: rows in one request; each is repeated by itself if it has to
                be. A file is sent whole.
            options: those of the service, such as `coverage`, `calibrated`, `include`,
                `abstain_above` and `missing_columns`.
        """
        if "include" not in options and "exclude" not in options:
            options["exclude"] = ["members"]
        parts = []
        with closing(self.predict_chunks(data, chunk_rows, **options)) as chunks:
            for chunk in chunks:
                parts.append(wire.flatten(chunk))
        return wire.to_frame(wire.join(parts), data)

    def predict_chunks(
        self, data: Any, chunk_rows: int = 10_000, **options: Any
    ) -> Generator[dict[str, Any], None, None]:
        """The service's answers to one chunk of rows after the other.

        No more than one is held at a time: for tables of any size.
        """
        self.warnings = []
        for part in wire.split_rows(data, chunk_rows):
            answer = self._predict(wire.encode(part), options)
            self.warnings += [w for w in answer["warnings"] if w not in self.warnings]
            yield answer

    def _predict(self, content: Content, options: Mapping[str, Any]) -> dict[str, Any]:
        query = {
            name: ",".join(value)
            if isinstance(value, list | tuple)
            else value
            if isinstance(value, str)
            else json.dumps(value)
            for name, value in options.items()
            if value not in (None, [], ())
        }

        def send() -> httpx.Response:
            with content.open() as file:
                return self._client._http.post(
                    f"{self.path}/predict",
                    params=query,
                    content=file.read(),
                    headers={"Content-Type": content.media_type},
                )

        what = f"POST {self.path}/predict"
        response = self._client._send(send, what, is_safe=True)
        found: dict[str, Any] = response.json()
        return found

    def predict_file(
        self,
        data: Any,
        output: str | os.PathLike[str],
        *,
        progress: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> Path:
        """Answers to a table of any size, as a file: by a job of the service's workers.

        The file has a row for each row of the table, in its order. It is there once it
        is whole.

        Args:
            data: as `Client.train` takes it, without the target: a path, or a
                dataset or its id.
            output: where to write: `.csv`, `.parquet` or `.arrow`.
            progress: show a bar.
            timeout: seconds; the job itself goes on.
            options: those of `predict`, and `on_error`: `skip` leaves rows that cannot
                be read without an answer.
        """
        job = self.start_predictions(data, output=wire.find_output(output), **options)
        job.wait(progress=progress, timeout=timeout)
        self.warnings = job.info["warnings"]
        return job.download(output)

    def start_predictions(
        self, data: Any, *, output: str = "csv", **options: Any
    ) -> "Job":
        """The job of `predict_file`, which runs when this returns."""
        if "include" not in options and "exclude" not in options:
            options["exclude"] = ["members"]
        config = {"output": output, **options}
        path = f"{self.path}/predictions"
        key = {"Idempotency-Key": uuid.uuid4().hex}
        id_ = data.id if isinstance(data, Dataset) else wire.find_dataset(data)
        if id_ is not None:
            body = {**config, "dataset_id": id_}
            found = self._client.request("POST", path, json=body, headers=key)
        else:
            fields = {"config": json.dumps(config)}
            content = wire.encode(data)
            found = self._client.upload(path, content, fields, headers=key)
        return Job(self._client, found.json())

    def predict_proba(self, data: Any, **options: Any) -> Any:
        """The probability of each class: a column `mean_<class>` for each."""
        return self.predict(data, include=["mean"], **options)

    def predict_members(self, data: Any, **options: Any) -> Any:
        """What each member says: `member_0`, or of classes `member_0_<class>`."""
        return self.predict(data, include=["members"], **options)

    def predict_interval(self, data: Any, coverage: float = 0.9, **options: Any) -> Any:
        """`interval_lower` and `interval_upper`; of classes, the column `set`."""
        wanted = ["interval", "set"]
        return self.predict(data, include=wanted, coverage=coverage, **options)

    def explain(self, data: Any, **options: Any) -> list[dict[str, Any]]:
        """For each of at most 20 rows, what every column adds to its answer."""
        body = {"rows": wire.to_rows(data), "explain": True, **options}
        found = self._client.request("POST", f"{self.path}/predict", json=body)
        return [row["explanation"] for row in found.json()["predictions"]]

    def download(self, path: str | os.PathLike[str]) -> Path:
        """Write the self-contained ONNX file, for `lometab.Predictor`."""
        response = self._client.request("GET", f"{self.path}/onnx")
        target = Path(path)
        part = target.with_name(target.name + ".part")
        part.write_bytes(response.content)
        part.replace(target)  # whole, or not at all
        return target

    def set_alias(self, alias: str, *, expected: str | None = None) -> Self:
        """Let `name@alias` stand for this version.

        Args:
            expected: the id of the model that the alias must point at until now, else
                it is left alone (`Changed`).
        """
        if "version" not in self.info:
            self.refresh()
        name, version = self.info["name"], self.info["version"]
        if name is None:
            raise ClientError(f"{self.id} has no name; train it with `name`")
        headers = {} if expected is None else {"If-Match": f'"{expected}"'}
        self._client.request(
            "PUT",
            f"/models/{name}/aliases/{alias}",
            json={"version": version},
            headers=headers,
        )
        return self.refresh()
