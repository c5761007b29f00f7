"""A hostile page in a real browser, on the machine where the service runs without keys.

The page has a name of its own, which in this browser points here, and tries every way
by which a page can make a browser send something. The service refuses each, nothing
that it says is read, and nothing is changed.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import open_browser
from tests.support.pages import serve_pages
from tests.support.servers import wait_until
from tests.support.stacks import Service
from tests.support.tables import make_csv

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("browser")]

PAGE = """<!doctype html><body><script>
var SERVICE, DATASET, READ = [];
const body = new FormData();
body.append('file', new Blob(['a,b\\n1,2\\n'], {type: 'text/csv'}), 't.csv');
const job = () => JSON.stringify({dataset_id: DATASET, target: 'y'});
const send = (path, init) => fetch(SERVICE + path, init)
    .then(answer => answer.text())
    .then(text => { if (text) READ.push(text); }, () => 0);
const add = (name, more) => {
    const made = Object.assign(document.createElement(name), more);
    document.body.append(made);
    return made;
};
const submit = (path, enctype) => {
    // Its own frame: one that is being left may drop where it is sent next.
    const target = 'frame of ' + enctype;
    add('iframe', {name: target});
    const form = add('form', {target, action: SERVICE + path, enctype, method: 'POST'});
    const name = '{"dataset_id": "' + DATASET + '", "target": "y", "x": "';
    form.append(Object.assign(document.createElement('input'), {name, value: '"}'}));
    form.submit();
};
</script>"""
BLIND = "mode: 'no-cors', credentials: 'include'"
WAYS = {
    "fetch": "send('/jobs')",
    "blind fetch": f"send('/jobs', {{{BLIND}}})",
    "download": f"send('/datasets/' + DATASET, {{{BLIND}}})",
    "upload": f"send('/datasets', {{method: 'POST', {BLIND}, body}})",
    "job as JSON": """send('/jobs', {method: 'POST', body: job(),
        headers: {'Content-Type': 'application/json'}})""",
    "job as text": f"send('/jobs', {{method: 'POST', {BLIND}, body: job()}})",
    "cancel": f"send('/jobs/job_x/cancel', {{method: 'POST', {BLIND}}})",
    "predict": f"""send('/models/m/predict', {{method: 'POST', {BLIND},
        body: '{{"rows": [{{"a": 1}}]}}'}})""",
    "large predict": f"""send('/models/m/predict', {{method: 'POST', {BLIND},
        body: 'a\\n' + '1\\n'.repeat(200000)}})""",
    "delete": "send('/datasets/' + DATASET, {method: 'DELETE'})",
    "alias": """send('/models/m/aliases/a',
        {method: 'PUT', body: '{"version": 1}'})""",
    "key in a header": "send('/jobs', {headers: {Authorization: 'Bearer x'}})",
    "beacon": "navigator.sendBeacon(SERVICE + '/datasets', body)",
    "redirect": f"""fetch('/to/' + SERVICE + '/datasets',
        {{method: 'POST', {BLIND}, body}})""",
    "form": "submit('/datasets', 'multipart/form-data')",
    "form as text": "submit('/jobs', 'text/plain')",
    "image": "add('img', {src: SERVICE + '/jobs'})",
    "script": "add('script', {src: SERVICE + '/jobs'})",
    "style": "add('link', {rel: 'stylesheet', href: SERVICE + '/jobs'})",
    "sound": "new Audio(SERVICE + '/jobs').load()",
    "object": "add('object', {data: SERVICE + '/jobs'})",
    "frame": "add('iframe', {src: SERVICE + '/jobs'})",
    "sandbox": """add('iframe', {sandbox: 'allow-scripts', srcdoc: '<script>fetch("' +
        SERVICE + '/datasets", {method: "POST", mode: "no-cors", body: "a"})' +
        '<' + '/script>'})""",
    "worker": """new Worker(URL.createObjectURL(new Blob(['fetch("' + SERVICE +
        '/jobs", {mode: "no-cors"})'])))""",
    "events": "new EventSource(SERVICE + '/jobs/job_x/events')",
    "socket": "new WebSocket(SERVICE.replace('http', 'ws') + '/jobs')",
    "link": "location.href = SERVICE + '/jobs'",  # the last: the page is gone
}
# But for the icon that the browser looks for by itself, wherever it is.
LINE = re.compile(r"\b([A-Z]+ /(?!favicon)\S*) (\d{3}) [\d.]+ ms")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("browser")
    with open_browser(folder, {"*.example": "127.0.0.1"}) as browser:
        yield browser


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serve_pages({"/": PAGE}) as port:
        yield port


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_page() as page:
        yield page


def list_requests(service: Service) -> list[tuple[str, str]]:
    """Those that the service answered until now, and how."""
    return LINE.findall(service.read_log())


def try_way(page: Page, way: str, service: Service, dataset: str) -> set[str]:
    """The statuses of what comes to the service by it."""
    n_before = len(list_requests(service))
    page.evaluate(
        "([a, b]) => { SERVICE = a; DATASET = b; }", [service.address, dataset]
    )
    page.evaluate(f"() => {{ {WAYS[way]}; }}")
    wait_until(
        lambda: page.wait_for_timeout(50) or len(list_requests(service)) > n_before,
        seconds=30,
        what=f"a request by: {way}",
    )
    return {status for _, status in list_requests(service)[n_before:]}


@pytest.fixture
def dataset(shared_service: Service) -> Iterator[str]:
    client = shared_service.client
    made = client.post("/datasets", files={"file": ("t.csv", make_csv(60))})
    assert made.status_code == 201, made.text
    yield made.json()["id"]
    client.delete(f"/datasets/{made.json()['id']}")


def read_state(service: Service) -> list[object]:
    paths = ("/datasets", "/jobs", "/models", "/audit")
    return [service.client.get(path).json()["data"] for path in paths]


def test_a_page_of_another_site_is_refused_on_every_way_in(
    page: Page, port: int, shared_service: Service, dataset: str
) -> None:
    before = read_state(shared_service)
    page.goto(f"http://evil.example:{port}/")
    for way in WAYS:
        assert try_way(page, way, shared_service, dataset) == {"403"}, way
        if way != "link":
            assert page.evaluate("READ") == [], way
    # The last way leads there: its answer may still be on the way to the window.
    words = re.compile("comes from a page of another site")
    expect(page.locator("body")).to_contain_text(words, timeout=30_000)
    assert read_state(shared_service) == before


def test_a_name_that_was_made_to_point_here_is_refused(
    page: Page, shared_service: Service
) -> None:
    """The page has our port, and so our origin as the browser sees it."""
    service_port = urlsplit(shared_service.address).port
    answer = page.goto(f"http://rebound.example:{service_port}/jobs")
    assert answer is not None and answer.status == 403
    found = page.evaluate("fetch('/jobs').then(answer => answer.status)")
    assert found == 403


def test_the_browser_of_this_machine_is_answered(
    page: Page, port: int, shared_service: Service, dataset: str
) -> None:
    """The same page does all that if it is of this machine: so the test above can
    fail."""
    answer = page.goto(f"{shared_service.address}/jobs")
    assert answer is not None and answer.status == 200
    page.goto(f"http://127.0.0.1:{port}/")
    for way in ("blind fetch", "upload", "image", "form"):
        assert "403" not in try_way(page, way, shared_service, dataset), way
    client = shared_service.client
    for made in client.get("/datasets").json()["data"]:
        client.delete(f"/datasets/{made['id']}")
