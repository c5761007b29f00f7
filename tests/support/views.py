"""A page of ours in a browser that keeps note of all that goes wrong on it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request, Response, expect

from tests.support.stacks import Service

TIMEOUT = 180_000
"""Milliseconds after which a wait is given up: more than a busy machine takes."""
WIDE = {"width": 1360, "height": 900}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE},
    "dark": {"color_scheme": "dark", "viewport": WIDE},
    "narrow": {"viewport": {"width": 360, "height": 740}},
    "large": {"viewport": {"width": 3840, "height": 2160}},
}
PRESETS_TOLD = ".choices" + "".join(
    f":has(.choice:nth-child({i}):has-text('layers'))" for i in (1, 2, 3)
)
"""There once the service has said what each preset comes to."""
_LISTEN = """
window.violations = [];
document.addEventListener('securitypolicyviolation', event =>
    violations.push(event.violatedDirective + ' ' + event.blockedURI));
window.shifted = 0;
new PerformanceObserver(list => {
    for (const entry of list.getEntries())
        if (!entry.hadRecentInput) shifted += entry.value;
}).observe({type: 'layout-shift', buffered: true});
"""
# What is in sight is told between two frames, however long these take.
_FRAMES = """
window.frames_pass = async () => {
    for (let i = 0; i < 2; i += 1)
        await new Promise(done => requestAnimationFrame(done));
    await new Promise(done => setTimeout(done, 0));
};
"""
_SCROLL = """async () => {
    const {documentElement: page} = document;
    for (let y = 0; y < page.scrollHeight; y += innerHeight / 2) {
        scrollTo(0, y);
        await frames_pass();
    }
    scrollTo(0, 0);
}"""
_AXE = Axe()


class Watched:
    """A page, with what the browser complained of and whom it asked."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.faults: list[str] = []
        page.set_default_timeout(TIMEOUT)
        page.add_init_script(_LISTEN + _FRAMES)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._hear)
        page.on("request", self._see)
        page.on("response", self._mark)
        page.on("dialog", lambda dialog: self._refuse(dialog))

    def _hear(self, message: Any) -> None:
        # What the page shows in words, or asks for again, is no fault of it: nor that
        # another process has changed an interface of this machine.
        is_told = re.search("status of (4|503)|ERR_NETWORK_CHANGED", message.text)
        if message.type == "error" and not is_told:
            self.faults.append(message.text)

    def _see(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws"):
            if f"{parts.scheme}://{parts.netloc}" != self.address:
                self.faults.append(f"asked another host: {request.url}")

    def _mark(self, response: Response) -> None:
        if response.status >= 500 and response.status != 503:
            self.faults.append(f"{response.status} of {response.url}")

    def _refuse(self, dialog: Any) -> None:
        self.faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def show(self, view: str) -> Page:
        """Go to a view, and wait until it is there, or the one that asks for a key."""
        self.page.goto(f"{self.address}/#/{view}")
        route = view.partition("?")[0]
        places = (f'main[data-route="{name}"] h1' for name in (route, "key"))
        self.page.locator(", ".join(places)).first.wait_for()
        return self.page

    def log_in(self, key: str) -> None:
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Log in").click()
        self.page.locator('main[data-route=""] h1').wait_for()

    def drop(self, path: Path) -> None:
        """A text file on the view, as a file manager does it."""
        given = self.page.evaluate_handle(
            """([name, text]) => {
                const all = new DataTransfer();
                all.items.add(new File([text], name, {type: 'text/csv'}));
                return all;
            }""",
            [path.name, path.read_text(encoding="utf-8")],
        )
        for event in ("dragenter", "dragover", "drop"):
            self.page.dispatch_event(".drop", event, {"dataTransfer": given})

    def draw(self) -> None:
        """Look at all of the view, and wait for every figure that the service draws."""
        self.page.evaluate(_SCROLL)
        figures = self.page.locator("main img[data-base]:not(.is-drawn)")
        expect(figures).to_have_count(0, timeout=TIMEOUT)

    def wait_for_frames(self) -> None:
        """Until what was changed by now is drawn."""
        self.page.evaluate("frames_pass()")

    def take(self, path: Path, *, is_whole: bool = True) -> None:
        """A picture of the view, or of what is in sight."""
        self.page.screenshot(path=path, full_page=is_whole)

    def take_looks(self, folder: Path, name: str) -> None:
        """Pictures of what is there now, for what no address leads to."""
        for look in ("light", "dark", "narrow"):
            colours, size = LOOKS[look].get("color_scheme"), LOOKS[look]["viewport"]
            self.page.emulate_media(color_scheme=colours or "light")
            self.page.set_viewport_size(size)
            self.take(folder / f"{name}-{look}.png")
            self.check_layout()
        self.page.set_viewport_size(LOOKS["light"]["viewport"])

    def read_shift(self) -> float:
        """How far things jumped since the document was loaded."""
        shift: float = self.page.evaluate("shifted")
        return shift

    def check(self) -> None:
        """Nothing was wrong until now, and the view is one for everybody."""
        self.check_layout()
        self.check_access()

    def check_layout(self) -> None:
        """Nothing was wrong until now, and nothing is wider than the window."""
        violations = self.page.evaluate("violations")
        assert not violations and not self.faults, (violations, self.faults)
        width, room = self.page.evaluate(
            "[document.documentElement.scrollWidth, innerWidth]"
        )
        wide = self.page.evaluate(
            "[...document.querySelectorAll('main *')].filter((each) => "
            "each.getBoundingClientRect().right > innerWidth + 1).slice(0, 5)"
            ".map((each) => each.outerHTML.slice(0, 120))"
        )
        assert width <= room, f"{self.page.url}: {width} pixels of {room}, {wide}"
        slips = re.findall(
            r".*\b(?:undefined|NaN)\b.*|.*\[object .*", self.read_words()
        )
        assert slips == [], f"{self.page.url}: {slips}"

    def read_words(self) -> str:
        """All that is there to read."""
        words: str = self.page.locator("main").inner_text()
        return words

    def check_access(self, *rules: str) -> None:
        """Axe finds nothing serious, by these rules or by all."""
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = {"type": "rule", "values": rules}
        found = _AXE.run(self.page, options=options).response["violations"]
        grave = [
            (each["id"], each["help"], [node["target"] for node in each["nodes"]][:3])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert grave == [], f"{self.page.url}: {grave}"


def find_pictures(usual: Path) -> Path:
    """Where pictures of views go: the folder that LOMETAB_PICTURES names, if any."""
    folder = Path(os.environ.get("LOMETAB_PICTURES", usual))
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def watch(browser: Browser, address: str, **options: Any) -> Iterator[Watched]:
    """A page of a new window. A test that fails shows the log of the service.

    Args:
        options: of the window, such as `color_scheme` and `viewport`.
    """
    context = browser.new_context(**{"reduced_motion": "reduce", **options})
    try:
        yield Watched(context.new_page(), address)
    except BaseException:
        print(Service.started[address].read_log()[-10_000:])  # noqa: T201
        raise
    finally:
        context.close()
