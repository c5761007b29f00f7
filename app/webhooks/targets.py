"""Where a webhook may lead: to public addresses, or those that a setting allows.

A name is resolved when a message is sent, every address that it has must be allowed,
and the connection goes to one of those addresses: a name that resolves otherwise a
moment later changes nothing.
"""

import re
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

from app.errors import BadTarget

MAX_URL = 2000
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?\.?|[0-9a-f:.]+", re.I)
_NAT64 = ip_network("64:ff9b::/96")
_REFUSED = (
    *(ip_network("64:ff9b:1::/48"), ip_network("192.0.0.0/24")),
    ip_network("fec0::/10"),  # of a site, before fc00::/7 was
)
"""Of special use by their registry, whatever this version of Python says of them."""
_HOSTS_OF_CLOUDS = frozenset({ip_address("168.63.129.16")})
"""Public by its number, and yet the cloud's own: Azure's host."""


class Target(NamedTuple):
    """A URL, taken apart."""

    scheme: str
    host: str
    port: int
    path: str
    """With its query."""

    @property
    def authority(self) -> str:
        """The header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self.port == {"http": 80, "https": 443}[self.scheme]
        return host if is_usual else f"{host}:{self.port}"


def read_url(url: str) -> Target:
    """Take a URL apart.

    Raises:
        BadTarget: it is none that a webhook can have.
    """
    if len(url) > MAX_URL or not re.fullmatch(r"[!-\[\]-~]+", url):
        raise BadTarget("the url is too long, or has characters that belong escaped")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise BadTarget("the url cannot be read") from None
    if parts.scheme not in ("http", "https"):
        raise BadTarget("the url must begin with https://")
    if parts.username is not None or parts.password is not None:
        raise BadTarget("the url must have no user and no password in it")
    if parts.fragment:
        raise BadTarget("the url must have no fragment")
    if not _HOST.fullmatch(host):
        raise BadTarget("the url must have the name or the address of a host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    default = 443 if parts.scheme == "https" else 80
    return Target(parts.scheme, host, default if port is None else port, path)


def check_written(target: Target, networks: Sequence[str]) -> None:
    """What can be said of a URL without asking anybody: an address in it is checked in
    whatever way it is written."""
    try:
        found = socket.getaddrinfo(
            target.host, target.port, flags=socket.AI_NUMERICHOST
        )
    except (OSError, UnicodeError):
        if target.scheme == "http" and not networks:
            raise BadTarget("the url must begin with https://") from None
        return  # a name
    for *_, address in found:
        _check(target, str(address[0]), networks)


def resolve(target: Target, networks: Sequence[str]) -> str:
    """The address to connect to.

    Raises:
        BadTarget: one that the name has is not allowed.
        OSError: the name cannot be resolved.
    """
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [str(address[0]) for *_, address in found]
    for address in addresses:
        _check(target, address, networks)
    return addresses[0]


def _check(target: Target, text: str, networks: Sequence[str]) -> None:
    address = ip_address(text.partition("%")[0])
    plain = _unwrap(address)
    is_listed = any(
        each.version == plain.version and plain in each
        for each in map(ip_network, networks)
    )
    if is_listed:
        return
    if "%" in text or not _is_public(plain):
        raise BadTarget(
            f"{target.host} is at {text}, which is no public address; who runs the "
            "service can allow its network by LOMETAB_WEBHOOK_NETWORKS"
        )
    if target.scheme == "http":
        raise BadTarget("the url must begin with https://")


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and address not in _HOSTS_OF_CLOUDS
        and not any(
            each.version == address.version and address in each for each in _REFUSED
        )
    )


def _unwrap(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one leads to, if it does."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or int(address) >> 32 == 0:
        return IPv4Address(int(address) & 0xFFFFFFFF) if int(address) > 1 else address
    return address
