"""Requests to the app as a server makes them, for bodies that no client would send."""

import asyncio
from typing import Any

from app.main import app


class Call:
    """One request to the app, whose body never ends."""

    def __init__(self, method: str, path: str, **headers: str) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
            "headers": [
                (name.replace("_", "-").lower().encode(), value.encode())
                for name, value in {"host": "127.0.0.1", **headers}.items()
            ],
        }
        self.n_received = 0
        self.status = 0

    async def receive(self) -> Any:
        self.n_received += 2**16
        assert self.n_received < 2**25, "it reads without end"
        return {"type": "http.request", "body": b" " * 2**16, "more_body": True}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)

    def run(self) -> int:
        asyncio.run(app(self.scope, self.receive, self.send))
        return self.status
