"""Addresses of the page: `/`, its files, and the reference of the API at `/docs`."""

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import RedirectResponse, Response

from app.errors import NotFound
from app.page.files import File, find_version, read_files, read_html, read_swagger

router = APIRouter(include_in_schema=False)

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""What a browser may load and run: files of ours, and nothing that is written into a
document. Pictures may also be in style sheets, as those of Swagger UI are."""
_HEADERS = {
    "Content-Security-Policy": POLICY,
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


def _send(file: File, caching: str, if_none_match: str | None) -> Response:
    headers = {**_HEADERS, "Cache-Control": caching, "ETag": file.etag}
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    if file.etag in tags:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
