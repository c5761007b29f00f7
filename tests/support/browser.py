"""A real browser for tests: the machine's Chromium, driven by Playwright.

Playwright's own download is not used: Debian's `chromium`, or any other that is on the
path or named by CHROMIUM, will do. Where there is none, tests that need it are skipped.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",  # which root has not
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str:
    """Where it is; the test is skipped if there is none."""
    named = os.environ.get("CHROMIUM")
    for name in (named,) if named else NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip(
        "no Chromium was found: install it (Debian: apt-get install chromium), or name "
        "one in CHROMIUM"
    )


@contextmanager
def open_browser(
    folder: Path, hosts: Mapping[str, str] | None = None
) -> Iterator[Browser]:
    """A browser without a window.

    Args:
        folder: for what it writes.
        hosts: names, with stars in them if you like, and the addresses that they have
            in this browser. All others have none: nothing leaves this machine.
    """
    rules = [f"MAP {name} {address}" for name, address in (hosts or {}).items()]
    rules += ["MAP * ~NOTFOUND", "EXCLUDE localhost", "EXCLUDE 127.0.0.1"]
    # The path of its socket may have 107 characters.
    with (
        TemporaryDirectory(prefix="browser-") as short,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=find_chromium(),
            args=[*FLAGS, f"--host-resolver-rules={', '.join(rules)}"],
            env={**os.environ, "HOME": str(folder), "TMPDIR": short},
        )
        try:
            yield browser
        finally:
            browser.close()
