"""Names and values that would run, if anybody took them for markup."""

from pathlib import Path

from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_TARGET = "<b>b</b>"


def write_hostile(folder: Path) -> Path:
    """A table whose names and values would run, if anybody took them for markup."""
    path = folder / f"{HOSTILE.replace('/', '')}.csv"
    lines = [f'y,{HOSTILE},"{HOSTILE_TARGET}"']
    for i in range(60):
        lines.append(f'{(i * 37) % 11},{i % 7},"<script>alert({i % 3})</script>"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def count_markup(page: Page) -> int:
    """Elements that can only have come from a name or a value."""
    made = "main script, main b b, main h1 *, main img:not([data-base])"
    return page.locator(made).count()
