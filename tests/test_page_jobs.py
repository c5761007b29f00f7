"""What can be asked for on the page, and what comes of it: in a real browser.

As in `test_page.py`: nothing may be complained of, and axe may find nothing serious.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from lometab.config import PRESETS
from tests.support.browser import open_browser
from tests.support.faults import Fault, FaultyProxy
from tests.support.receivers import Receiver
from tests.support.servers import wait_until
from tests.support.services import TINY, post_job, read_events, wait_for_end
from tests.support.stacks import Service, Stacks
from tests.support.tables import make_csv
from tests.support.views import TIMEOUT, Watched, find_pictures, watch
from tests.support.words import LEFT, PARTS, VERDICTS
from tests.support.workbooks import write_workbook

# One browser and one service for all of them.
pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.xdist_group("page jobs"),
]

GRID = {"rank": [1, 2], "dropout": [0.0, 0.2], "variant": ["lometab", "additive"]}
expect.set_options(timeout=TIMEOUT)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def service(browser: Browser, stacks: Stacks) -> Iterator[Service]:
    """One whose webhooks may reach this machine."""
    stack = stacks.make("embedded")
    stack.environment |= {
        "LOMETAB_WEBHOOK_NETWORKS": "127.0.0.0/8",
        "LOMETAB_WEBHOOK_POLL_SECONDS": "0.2",
    }
    service = Service(stack)
    yield service
    service.stop()


@pytest.fixture(scope="module")
def trained(service: Service) -> dict[str, Any]:
    """A job that has ended."""
    job = post_job(service.client, make_csv(200), name="small")
    return wait_for_end(service, job["id"], 600)


@contextmanager
def cancelled_after(service: Service, *jobs: dict[str, Any]) -> Iterator[None]:
    """Whatever becomes of the test, the next one has a worker."""
    try:
        yield
    finally:
        for job in jobs:
            service.client.post(f"/jobs/{job['id']}/cancel")


def test_a_job_is_cancelled_and_tried_again(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    long = {**TINY, "max_epochs": 10_000, "patience": None}
    job = post_job(service.client, make_csv(200), hyperparameters=long, name="long")
    with cancelled_after(service, job), watch(browser, service.address) as watched:
        page = watched.show("")
        row = page.locator("a.item", has_text="long")
        expect(row.get_by_role("progressbar")).to_be_visible()
        expect(page.locator(".badge", has_text="At work")).to_be_visible()
        watched.check()
        watched.take_looks(find_pictures(tmp_path), "busy")
        row.click()
        expect(page.get_by_text(re.compile("Epoch .* to go"))).to_be_visible()
        watched.take_looks(find_pictures(tmp_path), "running")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".badge").first).to_have_text("Cancelled")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".badge").first).to_have_text(re.compile("Queued|Running"))
        expect(page.get_by_text(re.compile("^Epoch "))).to_be_visible()
        page.get_by_role("button", name="Stop and keep the best").click()
        expect(page.locator(".badge").first).to_have_text("Succeeded")
        expect(page.get_by_role("link", name="Read the report")).to_be_visible()


def test_a_stream_that_breaks_loses_nothing(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    """It goes on after the last event that came: none is missing, none is twice."""

    def choose(what: str, n_before: int) -> Fault | None:
        is_cut = what.endswith("/events") and n_before < 2
        return Fault(cut_answer_after=1500) if is_cut else None

    told = [each["type"] for each in read_events(service, trained["id"])]
    with FaultyProxy(service.address, choose) as proxy:
        Service.started[proxy.url] = service
        with watch(browser, proxy.url) as watched:
            page = watched.show(f"jobs/{trained['id']}")
            expect(page.get_by_text("The connection is lost")).to_be_visible()
            expect(page.locator(".log li", has_text="Succeeded")).to_have_count(1)
            expect(page.get_by_text("The connection is lost")).to_be_hidden()
            n_epochs = told.count("epoch")
            expect(page.locator(".log li")).to_have_count(len(told) - n_epochs)
            points = re.compile(rf"^(\S+ ?){{{n_epochs}}}$")
            line = page.locator("polyline.line.main").first
            expect(line).to_have_attribute("points", points)
        assert proxy.n_faults == 2


def test_another_sheet_of_a_workbook_is_read(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "book.xlsx"
    rows = [[i, i % 3] for i in range(30)]
    others = {"Other": [["b", "y"], *rows]}
    path.write_bytes(write_workbook([["a", "y"], *rows[:20]], others=others))
    held: list[Route] = []
    with watch(browser, service.address) as watched:
        page = watched.show("data")
        page.route(re.compile("/datasets$"), lambda route: held.append(route))
        page.locator("input[type=file]").set_input_files(path)
        expect(page.get_by_role("progressbar", name="Upload")).to_be_visible()
        held[0].continue_()
        page.unroute_all()
        expect(page.get_by_text("20 rows, 2 columns")).to_be_visible()
        expect(page.locator(".warning")).to_contain_text("'Other'")
        page.get_by_text("Read it otherwise").click()
        page.get_by_label("Sheet").fill("Other")
        watched.check()
        page.get_by_role("button", name="Read it so").click()
        expect(page.get_by_text("30 rows, 2 columns")).to_be_visible()
        expect(page.locator("dd", has_text="Other")).to_be_visible()


def open_form(watched: Watched, dataset_id: str, **settings: object) -> Page:
    """The form of a new job that predicts `y`, with these settings filled in."""
    page = watched.show(f"train/{dataset_id}")
    page.get_by_label("Predict", exact=True).select_option("y")
    page.get_by_text("Every other setting").click()
    for label, value in settings.items():
        page.get_by_label(label, exact=True).fill(str(value))
    return page


def test_the_form_has_what_the_service_has(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    """Presets with what they take here, settings with their bounds: no list of ours."""
    with watch(browser, service.address) as watched:
        page = open_form(watched, trained["dataset_id"])
        cards = page.locator(".choice input")
        values = [cards.nth(i).get_attribute("value") for i in range(cards.count())]
        assert values == [*PRESETS, "time"]
        for preset, settings in PRESETS.items():
            card = page.locator(".choice", has=page.locator(f"[value={preset}]"))
            expect(card).to_contain_text(f"{settings['k']} members")
        width = page.get_by_label("Width", exact=True)
        assert (width.get_attribute("min"), width.get_attribute("max")) == ("8", "4096")
        page.get_by_label("Keep copies of a row in one part").check()
        page.get_by_label("Share batches").select_option("no")
        page.get_by_label("Weight init").select_option("he")
        command = page.locator(".snippet code")
        expect(command).to_contain_text('"share_batches": false')
        expect(command).to_contain_text('"weight_init": "he"')
        expect(command).to_contain_text('"group_duplicates": true')
        width.fill("3")  # what the service says to it is told beside the form
        expect(page.locator("aside .problem")).to_contain_text("d_block")
        watched.check()


def test_a_sweep_over_any_settings_is_asked_for(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    with watch(browser, service.address) as watched:
        page = open_form(watched, trained["dataset_id"], Width=16)
        page.get_by_role("tab", name="Sweep").click()
        page.get_by_label("Values of rank").fill("1, 2")
        page.get_by_label("Setting").nth(1).select_option("dropout")
        page.get_by_label("Values of dropout").fill("0, 0.2")
        page.get_by_role("button", name="Add a setting").click()
        page.get_by_label("Setting").nth(2).select_option("share_batches")
        expect(page.get_by_label("Values of share_batches")).to_have_value("yes, no")
        expect(page.get_by_text(re.compile("2 . 2 . 2 = 8 cells"))).to_be_visible()
        grid = re.compile(r'"share_batches": \[\s*true,\s*false\s*\]')
        expect(page.locator(".snippet code")).to_contain_text(grid)
        watched.check()
        page.get_by_label("Values of rank").fill("1, many")
        expect(page.locator("aside .problem")).to_contain_text("many")
        page.get_by_role("button", name="Leave out share_batches").click()
        page.get_by_label("Values of rank").fill("1, 2")
        page.get_by_role("button", name="Start the sweep").click()
        expect(page.get_by_text("Sweep of 4 runs")).to_be_visible()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".badge").first).to_have_text("Cancelled")


def test_a_search_is_asked_for_in_any_space(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    """The paper's space, or near the settings; of either, what people change."""
    with watch(browser, service.address) as watched:
        page = open_form(watched, trained["dataset_id"], Width=16)
        page.get_by_role("tab", name="Tune").click()
        width = page.get_by_label("Values of d_block")
        expect(width).to_have_value("64 to 1024 step 16")
        expect(page.get_by_label("Values of lr")).to_have_value("0.0001 to 0.005 log")
        command = page.locator(".snippet code")
        expect(command).to_contain_text('"n_trials": 20')
        expect(command).not_to_contain_text("space")  # the paper's is the usual one
        watched.check()
        page.get_by_label("It looks in").select_option("near")
        expect(width).to_have_value("16, 192, 256")
        expect(page.get_by_label("Values of k")).to_have_count(0)
        expect(command).to_contain_text('"k": null')
        names = page.get_by_role("button", name=re.compile("^Leave out "))
        while names.count() > 2:
            names.last.click()
        page.get_by_label("Values of lr").fill("0.001 to 0.02 log")
        width.fill("16, wide")
        expect(page.locator("aside .problem")).to_contain_text("wide")
        width.fill("16 to 32 step 8")
        page.get_by_label("Trials", exact=True).fill("2")
        page.get_by_role("button", name="Start the search").click()
        expect(page.get_by_text("Search over 2 trials")).to_be_visible()
        job_id = page.url.rpartition("/")[2]
        space = service.client.get(f"/jobs/{job_id}/tune").json()["space"]
        assert {name: (each["low"], each["high"]) for name, each in space.items()} == {
            "d_block": (16, 32),
            "lr": (0.001, 0.02),
        }
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".badge").first).to_have_text("Cancelled")


def test_a_cell_of_a_sweep_becomes_a_model(browser: Browser, service: Service) -> None:
    """Of three settings any two are a map, and the third is chosen, or the best."""
    asked = {"sweep": {"grid": GRID}, "baselines": ["tabm"]}
    job = post_job(service.client, make_csv(120), kind="sweep", **asked)
    with watch(browser, service.address) as watched:
        page = watched.show(f"jobs/{job['id']}")
        # One map for each measure that a regression has: score and diversity.
        expect(page.locator(".heat")).to_have_count(2)
        expect(page.locator(".badge").first).to_have_text("Succeeded")
        expect(page.locator(".heat button")).to_have_count(2 * 4)
        expect(page.get_by_role("button", name="variant tabm")).to_be_visible()
        page.get_by_label("Down").select_option("rank")
        page.get_by_label("Across").select_option("variant")
        page.get_by_label("dropout", exact=True).select_option(label="0.2")
        cell = page.locator(".heat button").first
        expect(cell).to_have_accessible_name(re.compile("at rank 1, variant lometab"))
        cell.click()
        expect(page.locator(".chosen")).to_contain_text(
            "dropout 0.2, rank 1, variant lometab"
        )
        watched.check()
        page.get_by_role("button", name="Make a model of it").click()
        expect(page.get_by_role("link", name="Ask the model")).to_be_visible()


def test_a_search_by_the_clock_ends_in_time(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    with watch(browser, service.address) as watched:
        page = open_form(watched, trained["dataset_id"], **{"Epochs at most": 2})
        page.get_by_role("radio", name="By the clock").check()
        page.get_by_label("Minutes", exact=True).fill("0.2")
        command = page.locator(".snippet code")
        expect(command).to_contain_text('"time_budget_seconds": 12')
        expect(page.get_by_role("tab", name="Sweep")).to_be_hidden()  # it decides
        watched.check()
        page.get_by_role("button", name="Search until then").click()
        expect(page.locator(".badge").first).to_have_text("Succeeded")
        expect(
            page.get_by_text(re.compile(r"Trial \d+ is the best with"))
        ).to_be_visible()
        expect(page.get_by_role("link", name="Ask the model")).to_be_visible()
        watched.check()
        job = service.client.get(f"/jobs/{page.url.rpartition('/')[2]}").json()
        assert job["kind"] == "tune" and job["config"]["time_budget_seconds"] == 12


def test_the_model_in_use_tells_of_drift(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    path = f"models/{trained['model_id']}"
    table = make_csv(300).splitlines()
    far = [",".join(["99", *line.split(",")[1:]]) for line in table[1:]]
    answer = service.client.post(
        f"/{path}/predict?exclude=members",
        content="\n".join([table[0], *far]).encode(),
        headers={"Content-Type": "text/csv"},
    )
    assert answer.status_code == 200, answer.text
    wait_until(
        lambda: service.client.get(f"/{path}/monitor").json()["total"]["is_alarm"],
        seconds=60,
        what="the rows are counted",
    )
    with watch(browser, service.address) as watched:
        page = watched.show(f"{path}/monitor")
        expect(page.locator(".badge").first).to_have_text("Drift")
        name = table[0].split(",")[0]
        expect(page.locator("tr.is-drifted", has_text=name)).to_be_visible()
        watched.check()


def test_a_small_file_is_answered_at_once(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    held: list[Route] = []
    with watch(browser, service.address) as watched:
        page = watched.show(f"models/{trained['model_id']}")
        page.route(re.compile("/predict\\?"), lambda route: held.append(route))
        file = {"name": "rows.csv", "mimeType": "text/csv"}
        page.get_by_label("The file to predict").set_input_files(
            {**file, "buffer": make_csv(30).encode()}
        )
        page.get_by_role("button", name="Predict", exact=True).click()
        expect(page.get_by_role("progressbar", name="Predicting")).to_be_visible()
        watched.check()
        held[0].continue_()
        expect(page.get_by_text("30 rows answered")).to_be_visible()
        expect(page.get_by_role("progressbar", name="Predicting")).to_be_hidden()
        with page.expect_download() as waited:
            page.get_by_role("link", name="Save the answers").click()
        assert waited.value.suggested_filename == "rows-predicted.csv"
        assert len(waited.value.path().read_text().splitlines()) == 1 + 30
        watched.check()


def write_large(path: Path, n_rows: int) -> None:
    """A table of more than 8 MB, of which two rows have no number for `size`."""
    head, *rows = make_csv(n_rows).splitlines()
    lines = [f"{row},{i:0{9_000_000 // n_rows}}" for i, row in enumerate(rows)]
    for i in (6, 700):
        lines[i] = "huge" + lines[i][lines[i].index(",") :]
    path.write_text("\n".join([f"{head},note", *lines]) + "\n")


def test_a_large_file_becomes_a_job_of_the_workers(
    browser: Browser, service: Service, trained: dict[str, Any], tmp_path: Path
) -> None:
    n_rows = 1200
    write_large(tmp_path / "many.csv", n_rows)
    with watch(browser, service.address) as watched:
        page = watched.show(f"models/{trained['model_id']}")
        page.get_by_label("The file to predict").set_input_files(tmp_path / "many.csv")
        page.get_by_label("If a row cannot be read").select_option("skip")
        page.get_by_role("button", name="Predict", exact=True).click()
        expect(page).to_have_url(re.compile("#/jobs/job_"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Answers to many.csv")
        expect(page.locator(".badge").first).to_have_text("Succeeded")
        expect(page.get_by_text("1,198 of 1,200 rows answered, 2")).to_be_visible()
        fault = page.get_by_role("row", name=re.compile("huge")).first
        expect(fault).to_contain_text("7")  # counted from 1
        expect(fault).to_contain_text("size")
        with page.expect_download() as waited:
            page.get_by_role("link", name=re.compile("Download the answers")).click()
        assert len(waited.value.path().read_text().splitlines()) == 1 + n_rows
        watched.check()
        page = watched.show("")
        row = page.locator("a.item", has_text="Answers to many.csv")
        expect(row).to_contain_text("Prediction of 1,200 rows")


def test_a_job_that_waits_says_why(browser: Browser, service: Service) -> None:
    long = {**TINY, "max_epochs": 10_000, "patience": None}
    first, second = (
        post_job(service.client, make_csv(200), hyperparameters=long, name=name)
        for name in ("first", "second")
    )
    with (
        cancelled_after(service, second, first),
        watch(browser, service.address) as watched,
    ):
        page = watched.show("")
        row = page.locator("a.item", has_text="second")
        expect(row).to_contain_text("It is the next one; it begins in at most")
        watched.show(f"jobs/{second['id']}")
        expect(page.get_by_text("It is the next one")).to_be_visible()
        watched.check()


def test_a_webhook_is_made_told_and_deleted(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    with (
        Receiver(lambda _, n: 500 if n == 1 else 204) as receiver,
        watch(browser, service.address) as watched,
    ):
        page = watched.show("webhooks")
        page.get_by_label("Address").fill("http://10.0.0.1/hook")
        page.get_by_role("button", name="Add the webhook").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Address").fill(receiver.url)
        page.get_by_label("What it is for").fill("<b>chat</b>")
        page.get_by_label("An alias points at another model").check()
        page.get_by_role("button", name="Add the webhook").click()
        secret = page.get_by_label("Secret")
        expect(secret).to_have_text(re.compile(r"^whsec_\S{40,}$"))
        kept = str(secret.text_content())
        watched.check()
        page.get_by_role("link", name="Go to the webhook").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("<b>chat</b>")
        assert kept not in page.content()  # it was shown that once
        expect(page.get_by_text("Nothing has happened yet")).to_be_visible()
        body = {"version": 1}
        service.client.put("/models/small/aliases/told", json=body).raise_for_status()
        message = page.get_by_role("row", name=re.compile("model.promoted"))
        expect(message).to_contain_text("delivered")
        expect(message).to_contain_text("2 attempts")  # the first was answered by 500
        watched.check()
        message.get_by_role("button", name="Send again").click()
        wait_until(
            lambda: page.wait_for_timeout(50) or len(receiver.received) == 3,
            seconds=60,
            what="it is sent again",
        )
        expect(message).to_contain_text("3 attempts")
        assert len({each.headers["webhook-id"] for each in receiver.received}) == 1
        page.get_by_role("button", name="Turn it off").click()
        expect(page.locator(".badge").first).to_have_text("Off")
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("button", name="Yes").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Webhooks")
        expect(page.get_by_text("<b>chat</b>")).to_have_count(0)
        watched.check()


CALL = """async ([file, name, given]) => {
    const module = document.querySelector(`link[href$="/${file}.js"]`).href;
    return (await import(module))[name](given);
}"""


def test_a_verdict_is_in_words(browser: Browser, service: Service) -> None:
    with watch(browser, service.address) as watched:
        page = watched.show("key")
        for mae, about, tone, words in VERDICTS:
            report = {
                "scores": {"test": {"ensemble": {"rmse": 3.0, "mae": mae}}},
                "naive": [{"scores": {"mae": 2.0}}, {"scores": {"mae": None}}],
                "summary": [{"about": about, "text": ""}],
            }
            found = page.evaluate(CALL, ["sentences", "verdict", {"report": report}])
            assert found["tone"] == tone and words in found["words"], found
            assert not re.search(r"\d", found["words"])


def test_what_is_left_of_a_job_is_in_words(browser: Browser, service: Service) -> None:
    """Of jobs that are as far as these: a real one is done before it is looked at."""
    with watch(browser, service.address) as watched:
        page = watched.show("key")
        for kind, progress, words in LEFT:
            job = {
                "kind": kind,
                "status": "running",
                "phase": "training" if kind == "train" else None,
                "progress": {**PARTS, **progress},
                "config": {"task": "regression"},
            }
            assert page.evaluate(CALL, ["jobs", "progressWords", job]) == words


@pytest.mark.timing
def test_a_slider_is_answered_at_once(
    browser: Browser, service: Service, trained: dict[str, Any]
) -> None:
    with watch(browser, service.address) as watched:
        page = watched.show(f"models/{trained['model_id']}")
        slider = page.get_by_label(re.compile(", slider$")).first
        took = []
        for _ in range(8):
            with page.expect_response(re.compile("/predict$")):
                slider.press("ArrowRight")
            words = page.get_by_text(re.compile(r"answered in \d+ ms"))
            words.wait_for()
            took.append(int(re.sub(r"\D", "", str(words.text_content()))))
        assert sorted(took)[4] <= 100, took
