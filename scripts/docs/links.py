"""Every link of the site leads somewhere, and nothing is loaded from another host."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class Document(HTMLParser):
    """Names that a page has, links that it follows, and files that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "link" and found.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(found["href"])
        if tag in LOADS and LOADS[tag] in found:
            self.loads.append(found[LOADS[tag]])


def check_site(site: Path) -> list[str]:
    """What is wrong, one line each."""
    pages = {path: Document(path.read_text("utf-8")) for path in site.rglob("*.html")}
    wrong = [
        f"{path.relative_to(site)}: {problem}"
        for path, page in sorted(pages.items())
        for problem in _check_page(path, page, pages)
    ]
    for path in site.rglob("*.css"):
        addresses = re.findall(r"url\(\"?(https?:[^)\"]+)", path.read_text("utf-8"))
        wrong += [f"{path.relative_to(site)}: loads {each}" for each in addresses]
    return wrong


def _check_page(
    path: Path, page: Document, pages: dict[Path, Document]
) -> Iterator[str]:
    for address in page.loads:
        if urlsplit(address).netloc:
            yield f"loads {address}"
        elif not _find(path, address).is_file():
            yield f"loads {address}, which is not there"
    for address in page.links:
        if urlsplit(address).scheme in ("https", "mailto"):
            continue
        if urlsplit(address).scheme:
            yield f"leads to {address}"
            continue
        target = _find(path, address)
        name = unquote(urldefrag(address).fragment)
        if not target.is_file():
            yield f"leads to {address}, which is not there"
        elif name and target in pages and name not in pages[target].names:
            yield f"leads to {address}, which has no such place"


def _find(path: Path, address: str) -> Path:
    """The file that an address of a page names."""
    name = unquote(urlsplit(address).path)
    target = (path.parent / name).resolve() if name else path
    return target / "index.html" if target.is_dir() else target


def count_clicks(site: Path, start: str = "index.html") -> dict[str, int]:
    """How many links lie between the start page and each other page."""
    queue = [(site / start).resolve()]
    reached = {queue[0]: 0}
    for here in queue:  # which grows
        for address in Document(here.read_text("utf-8")).links:
            target = _find(here, address)
            is_page = not urlsplit(address).scheme and target.suffix == ".html"
            if is_page and target.is_file() and target not in reached:
                reached[target] = reached[here] + 1
                queue.append(target)
    return {p.relative_to(site.resolve()).as_posix(): n for p, n in reached.items()}
