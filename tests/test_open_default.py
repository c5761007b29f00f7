"""Without keys the service is for programs of this machine: over real HTTP, a page from
elsewhere, a proxy and another machine are refused on every way in."""

import http.client
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import psutil
import pytest

from app.access import is_loopback
from tests.support.servers import free_port, wait_until
from tests.support.stacks import Service, Stack

pytestmark = pytest.mark.processes

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\na,b\n1,2\n\r\n--b--\r\n'
)
JSON = {"Content-Type": "application/json"}
WAYS: list[tuple[str, str, dict[str, str], bytes]] = [
    ("GET", "/jobs", {}, b""),
    ("GET", "/audit", {}, b""),
    ("POST", "/datasets", {"Content-Type": "multipart/form-data; boundary=b"}, FORM),
    ("POST", "/jobs", JSON, b'{"dataset_id": "ds_x", "target": "y"}'),
    ("POST", "/jobs", {"Content-Type": "text/plain"}, b"{}"),
    ("POST", "/models/mdl_x/predict", JSON, b'{"rows": [{"a": 1}]}'),
    ("POST", "/models/mdl_x/predict", {"Content-Type": "text/csv"}, b"a\n1\n" * 40000),
    ("GET", "/jobs/job_x/events", {"Accept": "text/event-stream"}, b""),
    ("GET", "/models/mdl_x/onnx", {}, b""),
    ("GET", "/jobs/job_x/report?format=csv", {}, b""),
    ("PUT", "/models/n/aliases/a", JSON, b'{"version": 1}'),
    ("DELETE", "/datasets/ds_x", {}, b""),
]
HOSTILE = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},  # a page in a sandbox, or a file
    {"Origin": "http://localhost.evil.example"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Origin": "http://evil.example#127.0.0.1"},
    {"Origin": "http://127.0.0.1@evil.example"},
    {"Host": "evil.example"},  # a name that was made to point here
    {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"},
    {"Host": "localhost.evil.example"},
    {"Host": "127.0.0.1.nip.io"},
    {"Host": "0.0.0.0"},
    {"Host": "127.0.0.1@evil.example"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Forwarded-Host": "localhost"},
    {"X-Forwarded-Proto": "https"},
    {"Forwarded": "for=127.0.0.1"},
    {"X-Real-IP": "127.0.0.1"},
    {"Via": "1.1 proxy"},
]
FRIENDLY = [
    {},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://[::1]:3000", "Sec-Fetch-Site": "cross-site"},
    {"Host": "localhost"},
    {"Host": "LOCALHOST:1"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
]


def ask(
    address: str, way: tuple[str, str, dict[str, str], bytes], more: dict[str, str]
) -> int:
    method, path, headers, body = way
    where = urlsplit(address)
    assert where.hostname is not None
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
    try:
        # A refusal may come before the whole of the body was taken.
        connection.request(method, path, body or None, {**headers, **more})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("more", HOSTILE, ids=str)
def test_a_hostile_page_or_a_proxy_is_refused(
    shared_service: Service, more: dict[str, str]
) -> None:
    for way in WAYS:
        assert ask(shared_service.address, way, more) == 403, way[:2]


@pytest.mark.parametrize("more", FRIENDLY, ids=str)
def test_programs_of_this_machine_pass(
    shared_service: Service, more: dict[str, str]
) -> None:
    for way in WAYS:
        assert ask(shared_service.address, way, more) not in (401, 403), way[:2]


def find_own_address() -> str | None:
    """An address by which this machine can be reached from others."""
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family == socket.AF_INET and not each.address.startswith("127."):
                return str(each.address)
    return None


@pytest.fixture
def open_server(stack: Stack) -> Iterator[Callable[[str], str]]:
    """`uvicorn app.main:app` on all addresses: past our command and what it checks."""
    started: list[subprocess.Popen[bytes]] = []

    def start(host: str) -> str:
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "app.main:app"]
        started.append(
            subprocess.Popen(
                [*command, "--host", host, "--port", str(port), "--log-level=warning"],
                env=stack.environment,
            )
        )

        def answers() -> bool:
            try:
                return ask(f"http://127.0.0.1:{port}", WAYS[0], {}) > 0
            except OSError:
                return False

        wait_until(answers, seconds=60, what="uvicorn answers")
        return f":{port}"

    yield start
    for process in started:
        process.terminate()
        process.wait(60)


def test_another_machine_is_refused_whatever_it_says(
    open_server: Callable[[str], str],
) -> None:
    own = find_own_address()
    if own is None:
        pytest.skip("this machine has loopback addresses alone")
    port = open_server("0.0.0.0")
    for way in WAYS:
        # It comes from an address that is no loopback one, and claims to be local.
        for more in ({"Host": "localhost"}, {"Host": "127.0.0.1"}, {}):
            assert ask(f"http://{own}{port}", way, more) == 403, way[:2]
    assert ask(f"http://127.0.0.1{port}", WAYS[0], {}) == 200
    assert ask(f"http://{own}{port}", ("GET", "/healthz", {}, b""), {}) == 200


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),  # of a socket for both versions
        ("::ffff:192.0.2.1", False),
        ("192.0.2.1", False),
        ("0.0.0.0", False),
        ("", False),
        ("testclient", False),
    ],
)
def test_loopback_addresses(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
