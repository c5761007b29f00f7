"""A key in a cookie, for the page: only a page of ours can make a browser send it.

The cookie is HttpOnly, so that no script reads it, and SameSite=Strict, so that no page
of another site makes use of it. Another port of the same host is the same site:
therefore the request itself has to come from our own origin.
"""

from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from app.access.peers import Headers
from app.errors import Forbidden

COOKIE = "lometab_key"


def read_cookie(headers: Headers) -> str | None:
    """The key in the cookie, if there is one."""
    given = headers.get(b"cookie")
    if given is None:
        return None
    try:
        found = SimpleCookie(given.decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    if found is None or not found.value:
        return None
    _refuse_other_origins(headers)
    return found.value


def _refuse_other_origins(headers: Headers) -> None:
    """By what the browser says of the page; elsewhere than in one, there is none."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        is_ours = site in (b"same-origin", b"none")
    else:
        origin = headers.get(b"origin")
        host = headers.get(b"host", b"").decode("latin-1")
        is_ours = origin is None or urlsplit(origin.decode("latin-1")).netloc == host
    if not is_ours:
        raise Forbidden(
            "the key in the cookie is for the page of this service alone; send the key "
            "itself: `Authorization: Bearer lmt_...`"
        )
