"""Addresses of the page: `/`, its files, the reference of the API at `/docs`, and the
documentation at `/help`."""

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import RedirectResponse, Response

from app.errors import NotFound
from app.page.files import File, find_version, read_files, read_html, read_swagger
from app.page.help import STYLE, hash_scripts, read_site

router = APIRouter(include_in_schema=False)

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""What a browser may load and run: files of ours, and nothing that is written into a
document. Pictures may also be in style sheets, as those of Swagger UI are."""
_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_FOR_EVER = "public, max-age=31536000, immutable"

IfNoneMatch = Annotated[str | None, Header()]


@router.get("/")
async def read_page(if_none_match: IfNoneMatch = None) -> Response:
    # async, as all of these: the files are in memory.
    return _send(read_html("index.html"), "no-cache", if_none_match)


@router.get("/docs")
async def read_docs(if_none_match: IfNoneMatch = None) -> Response:
    return _send(read_html("docs.html"), "no-cache", if_none_match)


@router.get("/redoc")
async def read_redoc() -> Response:
    """There is one reference; its other look needs styles that the policy forbids."""
    return RedirectResponse("docs")


@router.get("/docs/{name}")
async def read_docs_file(name: str, if_none_match: IfNoneMatch = None) -> Response:
    return _send(_find(read_swagger(), name), "no-cache", if_none_match)


@router.get("/help")
async def read_help() -> Response:
    """The folder, since links of the documentation are relative."""
    return RedirectResponse("help/index.html")


@router.get("/help/{name:path}")
async def read_help_file(name: str, if_none_match: IfNoneMatch = None) -> Response:
    site = read_site()
    if not site:
        raise NotFound(
            "the documentation was not built: `make docs` in the repository does it; "
            "then start the service, or build its wheel or image, again; /docs is the "
            "reference of the API"
        )
    if name not in site:
        raise NotFound(f"the documentation has no file {name!r}: begin at /help")
    file = site[name]
    policy = _allow(hash_scripts(file.content)) if name.endswith(".html") else POLICY
    return _send(file, "no-cache", if_none_match, policy)


def _allow(hashes: tuple[str, ...]) -> str:
    """The policy with these scripts, which are written into a document, and the style
    of its search."""
    return f"{POLICY}; script-src 'self' {' '.join(hashes)}; style-src 'self' {STYLE}"


@router.get("/page/{version}/{name:path}")
async def read_file(
    version: str, name: str, if_none_match: IfNoneMatch = None
) -> Response:
    if version != find_version():
        raise NotFound("this is a file of another version: load the page again")
    return _send(_find(read_files(), name), _FOR_EVER, if_none_match)


def _find(files: dict[str, File], name: str) -> File:
    if name not in files:
        raise NotFound(f"the page has no file {name!r}")
    return files[name]


def _send(
    file: File, caching: str, if_none_match: str | None, policy: str = POLICY
) -> Response:
    headers = {**_HEADERS, "Cache-Control": caching, "ETag": file.etag}
    headers["Content-Security-Policy"] = policy
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    if file.etag in tags:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
