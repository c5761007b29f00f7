"""The page's files, read once; their address has a digest of all of them in it.

So a browser may keep them for ever, and a new version of the service is a new address:
there is nothing to build, and modules import each other by relative paths.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

_HERE = Path(__file__).parent
_EXAMPLE = _HERE.parents[1] / "examples" / "wine_quality.csv"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".csv": "text/csv; charset=utf-8",
}
_SWAGGER = ("swagger-ui-bundle.js", "swagger-ui.css")


@dataclass(frozen=True)
class File:
    """A file as it is sent."""

    content: bytes
    media_type: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'


@cache
def read_files() -> dict[str, File]:
    """Every file of the page by its name, folders included."""
    found = {
        path.relative_to(_HERE).as_posix(): path
        for path in sorted(_HERE.rglob("*"))
        if path.suffix in _TYPES and path.suffix != ".html"
    }
    found[_EXAMPLE.name] = _EXAMPLE
    return {
        name: File(path.read_bytes(), _TYPES[path.suffix])
        for name, path in found.items()
    }


@cache
def find_version() -> str:
    """A digest of all files."""
    digest = hashlib.sha256()
    for name, file in read_files().items():
        digest.update(name.encode() + b"\0" + file.content + b"\0")
    return digest.hexdigest()[:16]


@cache
def read_html(name: str) -> File:
    """A document, with the folder of this version and the list of its modules."""
    folder = f"page/{find_version()}"
    modules = [
        each
        for each in read_files()
        if each.endswith(".js") and not each.startswith("docs")
    ]
    loads = "\n".join(
        f'    <link rel="modulepreload" href="{folder}/{each}">' for each in modules
    )
    text = (_HERE / name).read_text(encoding="utf-8")
    text = text.replace("{folder}", folder).replace("{modules}", loads.strip())
    return File(text.encode(), _TYPES[".html"])


@cache
def read_swagger() -> dict[str, File]:
    """Swagger UI, from the package that brings it."""
    folder = files("fastapi_offline") / "static"
    return {
        name: File((folder / name).read_bytes(), _TYPES[Path(name).suffix])
        for name in _SWAGGER
    }
