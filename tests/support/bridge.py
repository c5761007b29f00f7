"""Our client, and the command, on the API of this process."""

import httpx
from fastapi.testclient import TestClient


class Bridge(httpx.BaseTransport):
    """Hands the requests of httpx to a test client."""

    def __init__(self, client: TestClient) -> None:
        self._client = client
        self.requests: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        answer = self._client.request(
            request.method,
            str(request.url),
            headers=[*request.headers.items()],
            content=request.read(),
        )
        headers = [
            each
            for each in answer.headers.items()
            if each[0].lower() not in ("content-encoding", "content-length")
        ]
        return httpx.Response(
            answer.status_code, headers=headers, content=answer.content
        )
