"""The documentation at `/help`, where `make docs` has built it.

Only files that are in the folder when the first of them is asked for are sent, by their
names in a table: no path of a request reaches the file system.
"""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from app.page.files import File

SITE = Path(__file__).parents[2] / "docs" / "site"
STYLE = "'sha256-NwSx/R2V/U4jnW0Tq5pQ53Y/rzPVJ4dqE7D6UTA/J1k='"
"""The one style that a script of the site makes, for its search: of Zensical 0.0.73. A
test with a browser tells if another version makes another."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@cache
def read_site(folder: Path = SITE) -> dict[str, File]:
    """Every file of the site by its name, folders included; none if it is not built."""
    return {
        path.relative_to(folder).as_posix(): File(
            path.read_bytes(), _TYPES[path.suffix]
        )
        for path in sorted(folder.rglob("*"))
        if path.suffix in _TYPES and path.is_file()
    }


@cache
def hash_scripts(document: bytes) -> tuple[str, ...]:
    """What a policy calls the scripts that are written into a document.

    The generator of the site writes three short ones. Their hashes allow these alone.
    """
    scripts = re.findall(rb"<script>(.*?)</script>", document, re.DOTALL)
    digests = (hashlib.sha256(each).digest() for each in scripts)
    return tuple(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests)
