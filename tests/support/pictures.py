"""Take the pictures of the page that README and docs show: `make pictures`.

A service of its own trains on the wine example, so the numbers in them are real. Those
that need no training are taken alone by `python -m tests.support.pictures before`.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ViewportSize

from tests.support.browser import open_browser
from tests.support.services import post_job, wait_for_end
from tests.support.stacks import Service, Stacks
from tests.support.views import PRESETS_TOLD, Watched, watch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "figures"
WINE = ROOT / "examples" / "wine_quality.csv"
SIZE: ViewportSize = {"width": 1280, "height": 860}
TALL: ViewportSize = {"width": 1280, "height": 1320}
"""From the verdict to the pairs of members."""
SWEEP = {"grid": {"rank": [1, 4, 16], "sigma_init": [0.1, 0.5, 1.0, 2.0]}, "seeds": 2}


def main(*, trains: bool = True) -> None:
    with tempfile.TemporaryDirectory(prefix="lometab-pictures-") as name:
        folder = Path(name)
        stacks = Stacks(folder)
        service = Service(stacks.make("embedded"))
        try:
            made = train(service) if trains else ()
            with open_browser(folder) as browser:
                take_before(browser, service)
                if made:
                    take_all(browser, service, *made)
        finally:
            service.stop()
            stacks.close()


def train(service: Service) -> tuple[dict[str, Any], dict[str, Any]]:
    content = WINE.read_text()
    asked: dict[str, Any] = {
        "target": "quality",
        "filename": WINE.name,
        "preset": "fast",
        "split": {"group_duplicates": True},
    }
    settings = {"k": 16, "max_epochs": 40}
    model = post_job(
        service.client,
        content,
        **asked,
        name="wine",
        baselines=["tabm", "mlp"],
        hyperparameters=settings,
    )
    small = {"k": 8, "d_block": 64, "max_epochs": 6}
    sweep = post_job(
        service.client,
        content,
        **asked,
        kind="sweep",
        sweep=SWEEP,
        hyperparameters=small,
    )
    ended = [wait_for_end(service, each["id"], 1200) for each in (model, sweep)]
    return ended[0], ended[1]


def take_before(browser: Browser, service: Service) -> None:
    """What is seen before anything is trained: a table, and the form of a job."""
    with WINE.open("rb") as file:
        table = service.client.post("/datasets", files={"file": file}).json()
    with watch(browser, service.address, viewport=SIZE) as watched:
        watched.show(f"data/{table['id']}")
        take(watched, "data")
        page = watched.show(f"train/{table['id']}")
        page.get_by_text("Looking").wait_for(state="hidden")
        page.locator(PRESETS_TOLD).wait_for()
        take(watched, "train")


def take_all(
    browser: Browser, service: Service, model: dict[str, Any], sweep: dict[str, Any]
) -> None:
    with watch(browser, service.address, viewport=SIZE) as watched:
        page = watched.show(f"jobs/{model['id']}/report")
        page.set_viewport_size(TALL)
        take(watched, "report")
        page.set_viewport_size(SIZE)
        watched.show(f"jobs/{sweep['id']}")
        page.locator(".heat button.is-best").first.click()
        take(watched, "sweep")
    dark = {"viewport": SIZE, "color_scheme": "dark"}
    with watch(browser, service.address, **dark) as watched:
        page = watched.show(f"models/{model['model_id']}")
        page.get_by_label(re.compile("^alcohol, slider")).fill("12.4")
        page.get_by_role("button", name="Why?").click()
        page.locator(".push").first.wait_for()
        # It says more of the machine at that moment than of the page.
        time = page.get_by_text(re.compile(r"answered in \d+ ms"))
        time.evaluate("each => (each.style.visibility = 'hidden')")
        take(watched, "model")


def take(watched: Watched, name: str) -> None:
    watched.draw()
    watched.page.screenshot(path=FOLDER / f"page-{name}.png")


if __name__ == "__main__":
    main(trains="before" not in sys.argv)
