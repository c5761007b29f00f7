"""Addresses that are told of what happens, and what was sent to them."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Self

from lometab.client.aio.resources import AsyncResource

if TYPE_CHECKING:
    from lometab.client.aio.client import AsyncClient


class AsyncWebhooks:
    """`client.webhooks`."""

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client

    def __getitem__(self, id_: str) -> "AsyncWebhook":
        """A webhook by its id; nothing is asked yet."""
        return AsyncWebhook(self._client, {"id": id_})

    async def list(self) -> "list[AsyncWebhook]":
        """All of the workspace, newest first."""
        found = await self._client.get("/webhooks")
        return [AsyncWebhook(self._client, row) for row in found["data"]]

    async def create(
        self, url: str, events: Sequence[str], *, description: str | None = None
    ) -> "AsyncWebhook":
        """Have an address told of what happens, by messages that are signed.

        The secret that they are signed with is in `secret`, this once. A receiver
        checks them by any library of Standard Webhooks.

        Args:
            url: where messages are posted to.
            events: of `job.succeeded`, `job.failed`, `model.promoted` and
                `monitor.alarm`.
        """
        body = {"url": url, "events": [*events], "description": description}
        found = await self._client.request(
            "POST", "/webhooks", json=body, is_safe=False
        )
        return AsyncWebhook(self._client, found.json())

    async def read(self, id_: str) -> "AsyncWebhook":
        """A webhook as it is now."""
        return await self[id_].refresh()


class AsyncWebhook(AsyncResource):
    """An address that is told of what happens."""

    def __init__(self, client: "AsyncClient", info: dict[str, Any]) -> None:
        self.secret: str | None = info.get("secret")
        """What messages are signed with; known only after `create` and `rotate`."""
        known = {name: value for name, value in info.items() if name != "secret"}
        super().__init__(client, known)

    @property
    def path(self) -> str:
        """Where it is on the service."""
        return f"/webhooks/{self.id}"

    async def update(self, **changes: Any) -> Self:
        """Change its `url`, `events` or `description`, or turn it off by `is_enabled`.

        One that is turned on again is tried at once.
        """
        return await super().update(**changes)

    async def rotate(self) -> Self:
        """Give it another `secret`; for a day messages are signed with both."""
        path = f"{self.path}/rotate"
        found = (await self._client.request("POST", path, is_safe=False)).json()
        self.secret = found.pop("secret")
        self.info = found
        return self

    async def deliveries(
        self, status: str | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """What was sent to it, newest first, with the last attempts of each.

        Args:
            status: only `pending`, `delivered` or `dead` ones.
        """
        cursor = None
        while True:
            page = await self._client.get(
                f"{self.path}/deliveries", status=status, cursor=cursor
            )
            for delivery in page["data"]:
                yield delivery
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def redeliver(self, delivery_id: str) -> dict[str, Any]:
        """Send a message again, whatever became of it before: under the same id."""
        path = f"{self.path}/deliveries/{delivery_id}/redeliver"
        found = await self._client.request("POST", path, is_safe=False)
        message: dict[str, Any] = found.json()
        return message
