"""Who may call without a key: programs of this machine, and nobody through them.

The address that a connection comes from must be a loopback one, nothing may have handed
the request on, and no web page from elsewhere may act through its visitor's browser.
"""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from app.errors import BadRequest, Forbidden

Headers = Mapping[bytes, bytes]
"""The headers of a request as ASGI has them: names in lower case."""
Peer = tuple[str, int] | None
"""The address and port that a connection comes from; None: it has none."""

_FORWARDED = (b"x-forwarded", b"forwarded", b"x-real-ip", b"via")
"""How the names of headers begin by which a proxy tells of itself."""
_ADVICE = "make an API key by `lometab keys create` and set LOMETAB_REQUIRE_KEYS=true"


def refuse_strangers(headers: Headers, peer: Peer) -> None:
    """Raise unless the request comes from a program of this machine, by itself."""
    if peer is None or not is_loopback(peer[0]):
        raise Forbidden(
            "requests without an API key must come from this machine, however this one "
            f"comes from {peer[0] if peer else 'a socket'!r}; {_ADVICE}"
        )
    for name in headers:
        if name.startswith(_FORWARDED):
            raise Forbidden(
                "requests without an API key must not come through a proxy, however "
                f"there is a header {name.decode('latin-1')!r}; {_ADVICE}"
            )
    _refuse_foreign_page(headers)


def _refuse_foreign_page(headers: Headers) -> None:
    """Such a request names a foreign `Origin`; or, by a name that was made to point
    here, a foreign `Host`; or, of an image or a script, that it crosses sites."""
    for name in (b"origin", b"host"):
        value = headers.get(name)
        if value is not None:
            _refuse_foreign_host(name.decode().title(), value)
    if headers.get(b"sec-fetch-site") == b"cross-site" and b"origin" not in headers:
        raise Forbidden(
            "requests without an API key must come from this machine, however this one "
            "comes from a page of another site"
        )


@lru_cache(maxsize=1000)
def _refuse_foreign_host(name: str, value: bytes) -> None:
    text = value.decode("latin-1")
    try:
        host = urlsplit(text if "//" in text else f"//{text}").hostname or ""
    except ValueError:
        raise BadRequest(f"the header {name} cannot be read") from None
    if not is_loopback(host):
        raise Forbidden(
            f"requests without an API key must come from this machine, however "
            f"their {name} is {host!r}"
        )


@lru_cache(maxsize=1000)
def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback  # of a socket for both versions
    return address.is_loopback
