"""Jobs: what happens to them, what they report, what they made.

Made of `aio/jobs.py` by `make client`: change that file instead.
"""

import os
import time
import uuid
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from lometab.client import show, wire
from lometab.client.errors import ClientError, Conflict, JobCancelled, JobFailed
from lometab.client.sync.resources import Pages, Resource

if TYPE_CHECKING:
    from lometab.client.sync.models import Model

SILENT_SECONDS = 45.0
"""An event stream that says nothing for so long is broken: the service speaks every
15 seconds."""
POLL_SECONDS = 1.0


class Jobs(Pages):
    """`client.jobs`."""

    path = "/jobs"

    def __getitem__(self, id_: str) -> "Job":
        return Job(self._client, {"id": id_})

    def read(self, id_: str) -> "Job":
        """A job as it is now."""
        return self[id_].refresh()


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
        return self._client.download(f"{self.path}/result", path)

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
        return self._client.models[model_id]
