"""Addresses that are told of what happens, and what was sent to them.

Made of `aio/webhooks.py` by `make client`: change that file instead.
"""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Self

from lometab.client.sync.resources import Resource

if TYPE_CHECKING:
    from lometab.client.sync.client import Client


class Webhooks:
    """`client.webhooks`."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def __getitem__(self, id_: str) -> "Webhook":
        """A webhook by its id; nothing is asked yet."""
        return Webhook(self._client, {"id": id_})

    def list(self) -> "list[Webhook]":
        """All of the workspace, newest first."""
        found = self._client.get("/webhooks")
        return [Webhook(self._client, row) for row in found["data"]]

    def create(
        self, url: str, events: Sequence[str], *, description: str | None = None
    ) -> "Webhook":
        """Have an address told of what happens, by messages that are signed.

        The secret that they are signed with is in `secret`, this once. A receiver
        checks them by any library of Standard Webhooks.

        Args:
            url: where messages are posted to.
            events: of `job.succeeded`, `job.failed`, `model.promoted` and
                `monitor.alarm`.
        """
        body = {"url": url, "events": [*events], "description": description}
        found = self._client.request("POST", "/webhooks", json=body, is_safe=False)
        return Webhook(self._client, found.json())

    def read(self, id_: str) -> "Webhook":
        """A webhook as it is now."""
        return self[id_].refresh()


class Webhook(Resource):
    """An address that is told of what happens."""

    def __init__(self, client: "Client", info: dict[str, Any]) -> None:
        self.secret: str | None = info.get("secret")
        """What messages are signed with; known only after `create` and `rotate`."""
        known = {name: value for name, value in info.items() if name != "secret"}
        super().__init__(client, known)

    @property
    def path(self) -> str:
        """Where it is on the service."""
        return f"/webhooks/{self.id}"

    def update(self, **changes: Any) -> Self:
        """Change its `url`, `events` or `description`, or turn it off by `is_enabled`.

        One that is turned on again is tried at once.
        """
        return super().update(**changes)

    def rotate(self) -> Self:
        """Give it another `secret`; for a day messages are signed with both."""
        path = f"{self.path}/rotate"
        found = (self._client.request("POST", path, is_safe=False)).json()
        self.secret = found.pop("secret")
        self.info = found
        return self

    def deliveries(
        self, status: str | None = None
    ) -> Generator[dict[str, Any], None, None]:
        """What was sent to it, newest first, with the last attempts of each.

        Args:
            status: only `pending`, `delivered` or `dead` ones.
        """
        cursor = None
        while True:
            page = self._client.get(
                f"{self.path}/deliveries", status=status, cursor=cursor
            )
            for delivery in page["data"]:
                yield delivery
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def redeliver(self, delivery_id: str) -> dict[str, Any]:
        """Send a message again, whatever became of it before: under the same id."""
        path = f"{self.path}/deliveries/{delivery_id}/redeliver"
        found = self._client.request("POST", path, is_safe=False)
        message: dict[str, Any] = found.json()
        return message
