"""Jobs: what happens to them, what they report, what they made."""

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from lometab.client import show, wire
from lometab.client.aio.resources import AsyncPages, AsyncResource
from lometab.client.errors import ClientError, Conflict, JobCancelled, JobFailed

if TYPE_CHECKING:
    from lometab.client.aio.models import AsyncModel

SILENT_SECONDS = 45.0
"""An event stream that says nothing for so long is broken: the service speaks every
15 seconds."""
POLL_SECONDS = 1.0


class AsyncJobs(AsyncPages):
    """`client.jobs`."""

    path = "/jobs"

    def __getitem__(self, id_: str) -> "AsyncJob":
        return AsyncJob(self._client, {"id": id_})

    async def read(self, id_: str) -> "AsyncJob":
        """A job as it is now."""
        return await self[id_].refresh()


class AsyncJob(AsyncResource):
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

    async def wait(
        self, *, progress: bool = False, timeout: float | None = None
    ) -> Self:
        """Until it has ended.

        Args:
            progress: show a bar, in a terminal or a notebook.
            timeout: seconds; the job itself goes on.

        Raises:
            JobFailed, JobCancelled: it ended so.
            TimedOut: it has not ended in time.
        """
        with show.open_bar(progress, self.info) as bar:
            async with aclosing(self.events(timeout=timeout)) as events:
                async for event in events:
                    bar.take(event)
        await self.refresh()
        return self.check()

    def check(self) -> Self:
        """Itself, unless it ended without what was asked for."""
        if self.status == "failed":
            raise JobFailed(self.info)
        if self.status == "cancelled":
            raise JobCancelled(self.info)
        return self

    async def events(
        self, after: int = 0, *, timeout: float | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
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
                async with aclosing(self._stream(reader, deadline)) as stream:
                    async for event in stream:
                        yield event
                if (await self.refresh()).has_ended:
                    break  # nothing more will come
            except httpx.TransportError:
                reader.forget()
            deadline.check()
            n_broken = 0 if reader.last_id != n_before else n_broken + 1
            await asyncio.sleep(self._client.retries.pause(max(n_broken, 1), None))
        async with aclosing(self._poll(int(reader.last_id), deadline)) as others:
            async for event in others:
                yield event

    async def _stream(
        self, reader: wire.EventReader, deadline: wire.Deadline
    ) -> AsyncGenerator[dict[str, Any], None]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": reader.last_id}
        timeout = httpx.Timeout(
            self._client.timeout, read=deadline.within(SILENT_SECONDS)
        )
        async with self._client._http.stream(
            "GET", f"{self.path}/events", headers=headers, timeout=timeout
        ) as response:
            if not response.is_success:
                await response.aread()
                if wire.is_passing(response):
                    raise httpx.RemoteProtocolError("refused for the moment")
            wire.check(response)
            async for line in response.aiter_lines():
                deadline.check()
                event = reader.feed(line)
                if event is not None:
                    yield event

    async def _poll(
        self, after: int, deadline: wire.Deadline
    ) -> AsyncGenerator[dict[str, Any], None]:
        """All events after a number, until the job has ended and none is left."""
        while True:
            has_ended = (await self.refresh()).has_ended
            next_after: int | None = after
            while next_after is not None:
                page = await self._client.get(
                    f"{self.path}/events", after=next_after, limit=100
                )
                for event in page["data"]:
                    after = event["seq"]
                    yield event
                next_after = page["next_after"]
            if has_ended:
                return
            deadline.check()
            await asyncio.sleep(POLL_SECONDS)

    async def stop(self) -> Self:
        """Stop training, and keep the best epoch so far."""
        return await self._ask("stop", "stopping", "succeeded")

    async def cancel(self) -> Self:
        """End it, and keep nothing."""
        return await self._ask("cancel", "cancelling", "cancelled")

    async def retry(self) -> Self:
        """Run a failed or cancelled job again, from its last checkpoint."""
        return await self._ask("retry", "queued", "running")

    async def _ask(self, verb: str, *wanted: str) -> Self:
        """A 409 to a question that was repeated may be the answer to the first."""
        try:
            found = await self._client.request("POST", f"{self.path}/{verb}")
            self.info = found.json()
        except Conflict:
            await self.refresh()
            if self.status not in wanted:
                raise
        return self

    async def promote(
        self, *, cell: int | None = None, trial: int | None = None, **options: Any
    ) -> "AsyncJob":
        """A job that makes a model of a cell of a sweep, or a trial of a search."""
        chosen = {"cell": cell, "trial": trial, **options}
        body = {name: value for name, value in chosen.items() if value is not None}
        key = {"Idempotency-Key": uuid.uuid4().hex}
        found = await self._client.request(
            "POST", f"{self.path}/promote", json=body, headers=key
        )
        return AsyncJob(self._client, found.json())

    @property
    async def report(self) -> dict[str, Any]:
        """Scores of the ensemble and of each member."""
        return await self._read("report")

    @property
    async def diversity(self) -> dict[str, Any]:
        """How diverse the members are."""
        return await self._read("diversity")

    @property
    async def calibration(self) -> dict[str, Any]:
        """How far the ensemble's confidence can be trusted."""
        return await self._read("calibration")

    @property
    async def figures(self) -> dict[str, Any]:
        """The pictures of the reports, by name."""
        return await self._read("figures")

    @property
    async def comparison(self) -> dict[str, Any]:
        """The cells of a sweep, or the trials of a search."""
        if "kind" not in self.info:
            await self.refresh()
        return await self._read(self.info["kind"])

    async def _read(self, what: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._client.get(f"{self.path}/{what}")
        return found

    async def download(self, path: str | os.PathLike[str]) -> Path:
        """Write the result of a prediction job, held against its sha256.

        What breaks off goes on where it ended.
        """
        return await self._client.download(f"{self.path}/result", path)

    async def faults(self) -> AsyncGenerator[dict[str, Any], None]:
        """Rows that a prediction job skipped: `{"row", "column", "detail"}`."""
        after: int | None = 0
        while after is not None:
            page = await self._client.get(f"{self.path}/faults", after=after, limit=100)
            for fault in page["data"]:
                yield fault
            after = page["next_after"]

    @property
    async def model(self) -> "AsyncModel":
        """What it made."""
        if self.info.get("model_id") is None:
            await self.refresh()
        model_id = self.info.get("model_id")
        if model_id is None:
            self.check()
            raise ClientError(
                f"{self.id} has no model: it is {self.status}; wait for its end, or "
                "promote a cell or trial of it"
            )
        return self._client.models[model_id]
