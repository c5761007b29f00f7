"""What the service keeps, one by one and in lists; tables that were uploaded.

Made of `aio/resources.py` by `make client`: change that file instead.
"""

import json
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self

from lometab.client import show, wire

if TYPE_CHECKING:
    from lometab.client.sync.client import Client


class Pages:
    """Lists that come in pages, of which the next is fetched when it is needed."""

    path: str

    def __init__(self, client: "Client") -> None:
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


class Resource:
    """Something that the service keeps, as it was shown last."""

    def __init__(self, client: "Client", info: dict[str, Any]) -> None:
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


class Dataset(Resource):
    """A table that was uploaded, with its profile in `info`."""

    @property
    def path(self) -> str:
        """Where it is on the service."""
        return f"/datasets/{self.id}"
