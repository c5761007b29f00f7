"""The page in a real browser, against a running service.

Whatever a test does, the browser may not complain, no other host may be asked, the
policy may not be violated, and axe may find nothing serious.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy.orm import Session

from app.access import Scope, create_key
from app.storage.db import make_engine
from tests.support.browser import open_browser
from tests.support.servers import wait_until
from tests.support.services import TINY, post_job, wait_for_end
from tests.support.stacks import Service, Stacks
from tests.support.tables import make_csv
from tests.support.views import TIMEOUT, watch

# One browser and one service for all of them.
pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.xdist_group("page"),
]

HOSTILE = "<img src=x onerror=alert(1)>"
WIDE = {"width": 1360, "height": 900}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE},
    "dark": {"color_scheme": "dark", "viewport": WIDE},
    "narrow": {"viewport": {"width": 360, "height": 740}},
}
expect.set_options(timeout=TIMEOUT)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def service(browser: Browser, stacks: Stacks) -> Iterator[Service]:
    """Its own: an empty one is what people see first."""
    service = Service(stacks.make("embedded"))
    yield service
    service.stop()


def write_hostile(folder: Path) -> Path:
    """A table whose names and values would run, if anybody took them for markup."""
    path = folder / f"{HOSTILE.replace('/', '')}.csv"
    lines = [f'y,{HOSTILE},"<b>b</b>"']
    for i in range(60):
        lines.append(f'{(i * 37) % 11},{i % 7},"<script>alert({i % 3})</script>"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_from_a_dropped_file_to_a_trained_model(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    with watch(browser, service.address) as watched:
        page = watched.show("")
        expect(
            page.get_by_role("button", name="Train on the wine example")
        ).to_be_visible()
        watched.check()
        # A file that is none is refused in words, at the place where it was given.
        broken = tmp_path / "broken.csv"
        broken.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 100)
        page.locator("input[type=file]").set_input_files(broken)
        expect(page.get_by_role("alert")).to_be_visible()
        page.locator("input[type=file]").set_input_files(write_hostile(tmp_path))
        expect(page.get_by_role("heading", level=1)).to_contain_text("<img")
        expect(page.locator("td", has_text=HOSTILE).first).to_be_visible()
        assert page.locator("main img, main script, main b b").count() == 0
        page.get_by_label(f"{HOSTILE} is used as").select_option("categorical")
        page.get_by_label("Predict y").check()
        watched.check()
        page.get_by_role("link", name="Train on y").click()
        expect(page.get_by_text("Parameters")).to_be_visible()
        page.get_by_text("Every other setting").click()
        for name, value in {
            "Members (K)": TINY["k"],
            "Width": TINY["d_block"],
            "Epochs at most": 40,
        }.items():
            page.get_by_label(name).fill(str(value))
        command = page.locator(".snippet code")
        expect(command).to_contain_text('"max_epochs": 40')
        expect(command).to_contain_text(f'"{HOSTILE}": "categorical"')
        watched.check()
        page.get_by_role("button", name="Train", exact=True).click()
        expect(page).to_have_url(re.compile("#/jobs/job_"))
        line = page.locator("polyline.line.main").first
        expect(line).to_have_attribute("points", re.compile(","))
        # Losing the page in the middle loses nothing, and doubles nothing.
        page.reload()
        expect(line).to_have_attribute("points", re.compile(","))
        expect(page.locator(".badge").first).to_have_text("Succeeded")
        job_id = page.url.rpartition("/")[2]
        epochs = wait_for_end(service, job_id)["progress"]["epoch"]
        points = re.compile(rf"^(\S+ ?){{{epochs}}}$")
        expect(line).to_have_attribute("points", points)
        expect(page.locator(".log li", has_text="succeeded")).to_have_count(1)
        watched.check()


def test_a_job_is_cancelled_and_tried_again(browser: Browser, service: Service) -> None:
    long = {**TINY, "max_epochs": 10_000, "patience": None}
    job = post_job(service.client, make_csv(200), hyperparameters=long, name="long")
    with watch(browser, service.address) as watched:
        page = watched.show("")
        row = page.get_by_role("link", name=re.compile("long"))
        expect(row.get_by_role("progressbar")).to_be_visible()
        watched.check()
        row.click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".badge").first).to_have_text("Cancelled")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".badge").first).to_have_text(re.compile("Queued|Running"))
        page.get_by_role("button", name=re.compile("Stop|Cancel")).first.wait_for()
        service.client.post(f"/jobs/{job['id']}/cancel")
        expect(page.locator(".badge").first).to_have_text("Cancelled")


@pytest.fixture(scope="module")
def trained(service: Service) -> dict[str, Any]:
    """A job that has ended, on a table with a number, a category and a date."""
    job = post_job(service.client, make_csv(200), name="small")
    return wait_for_end(service, job["id"], 180)


def test_the_report_shows_every_pair_and_the_model_answers(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    k = TINY["k"]
    with watch(browser, service.address) as watched:
        page = watched.show(f"jobs/{trained['id']}/report")
        expect(page.locator(".matrix .cell")).to_have_count(k * k)
        expect(page.locator(".said").first).to_contain_text("rows")
        watched.check()
        page.get_by_role("link", name="Ask the model").click()
        expect(page.locator("svg circle.member")).to_have_count(k)
        watched.check()
        before = read_dots(page)
        slider = page.get_by_label(re.compile(", slider$")).first
        slider.press("End")
        wait_until(
            lambda: page.wait_for_timeout(50) or read_dots(page) != before,
            seconds=30,
            what="the slider moves the dots",
        )
        page.get_by_role("tab", name="Python").click()
        expect(page.locator(".snippet code")).to_contain_text("httpx.post(")
        file = {"name": "rows.csv", "mimeType": "text/csv"}
        page.get_by_label("The file to predict").set_input_files(
            {**file, "buffer": make_csv(30).encode()}
        )
        page.get_by_role("button", name="Predict", exact=True).click()
        expect(page.get_by_text("30 rows answered")).to_be_visible()
        page.get_by_role("button", name="Make it the champion").click()
        expect(page.locator("td .tag", has_text="champion")).to_be_visible()
        watched.check()


def read_dots(page: Page) -> list[str | None]:
    dots = page.locator("svg circle.member")
    return [dots.nth(i).get_attribute("cx") for i in range(dots.count())]


def test_a_cell_of_a_sweep_becomes_a_model(browser: Browser, service: Service) -> None:
    sweep = {"grid": {"rank": [1, 2], "sigma_init": [0.1, 1.0]}}
    job = post_job(service.client, make_csv(120), kind="sweep", sweep=sweep)
    with watch(browser, service.address) as watched:
        page = watched.show(f"jobs/{job['id']}")
        expect(page.locator(".heat button")).to_have_count(4)
        expect(page.locator(".badge").first).to_have_text("Succeeded")
        page.locator(".heat button").first.click()
        watched.check()
        page.get_by_role("button", name="Make a model of it").click()
        expect(page.get_by_role("link", name="Ask the model")).to_be_visible()


def test_every_view_light_dark_and_narrow(
    browser: Browser, service: Service, trained: dict[str, Any], tmp_path: Path
) -> None:
    """With a picture of each, in the folder that LOMETAB_PICTURES names."""
    folder = Path(os.environ.get("LOMETAB_PICTURES", tmp_path))
    folder.mkdir(exist_ok=True)
    data, job = trained["dataset_id"], trained["id"]
    views = {
        "home": "",
        "data": "data",
        "dataset": f"data/{data}",
        "train": f"train/{data}",
        "job": f"jobs/{job}",
        "report": f"jobs/{job}/report",
        "models": "models",
        "model": f"models/{trained['model_id']}",
        "key": "key",
    }
    for look, options in LOOKS.items():
        with watch(browser, service.address, **options) as watched:
            for name, view in views.items():
                page = watched.show(view)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
                watched.check()


@pytest.fixture(scope="module")
def closed(browser: Browser, stacks: Stacks) -> Iterator[Service]:
    """A service that takes nobody without a key."""
    stack = stacks.make("embedded")
    stack.environment["LOMETAB_REQUIRE_KEYS"] = "true"
    service = Service(stack)
    yield service
    service.stop()


def make_key(service: Service, *scopes: Scope) -> str:
    engine = make_engine(service.stack.url)
    with Session(engine) as session, session.begin():
        _, secret = create_key(
            session, workspace_id="default", name="page", scopes=scopes
        )
    engine.dispose()
    return secret


def test_a_key_logs_in_and_out_and_does_what_it_may(
    browser: Browser, closed: Service
) -> None:
    with watch(browser, closed.address) as watched:
        page = watched.show("")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        watched.check()
        page.get_by_label("API key").fill("lmt_wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("API key").fill(make_key(closed, "read"))
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("What is going on")
        expect(page.get_by_role("link", name="Train", exact=True)).to_be_hidden()
        expect(page.locator(".drop")).to_be_hidden()
        assert page.evaluate("document.cookie") == ""  # no script reads it
        page.reload()
        page.get_by_role("link", name="Key", exact=True).click()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        page.get_by_label("API key").fill(make_key(closed, "read", "write"))
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("link", name="Train", exact=True)).to_be_visible()
        expect(page.locator(".drop")).to_be_visible()
        watched.check()


def test_the_keyboard_is_enough(browser: Browser, service: Service) -> None:
    with watch(browser, service.address) as watched:
        page = watched.show("")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.get_by_role("link", name="Data", exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Data")
        watched.check()


def test_the_reference_works_without_internet(
    browser: Browser, service: Service
) -> None:
    with watch(browser, service.address) as watched:
        page = watched.page
        page.goto(f"{service.address}/docs")
        expect(page.locator(".opblock-summary").first).to_be_visible()
        expect(page.get_by_text("/jobs/plan")).to_be_visible()
        assert page.evaluate("violations") == []
        assert watched.faults == []
