"""Addresses and messages, as they may be shown: without the secrets in them."""

import re

HIDDEN = "***"
_WORD = re.compile(r"\S+")
_USER = re.compile(r"://[^:/\s]*:")
"""Up to the last @: a password may have one that should have been written as %40."""
_QUERY = re.compile(r"([?&;])([^=&;?\s]+)=([^&;\s'\"]*)")
_HARMLESS = {
    *("application_name", "client_encoding", "connect_timeout", "db", "dbname"),
    *("host", "keepalives", "port", "service_name", "sslmode", "ssl_cert_reqs"),
    *("target_session_attrs", "timeout", "user", "virtual_host"),
}
"""Of a query; any other value may be a secret."""


def mask(address: str) -> str:
    """An address of a database, a broker or a store; or a text with such in it."""
    if "://" not in address:
        return address
    return _QUERY.sub(_mask_value, _WORD.sub(_mask_user, address))


def _mask_user(word: re.Match[str]) -> str:
    """In time that grows with the text: a path of a request may be made to be slow."""
    text = word[0]
    end = text.rfind("@")
    user = _USER.search(text, 0, max(0, end))
    return text if user is None else f"{text[: user.end()]}{HIDDEN}{text[end:]}"


def _mask_value(found: re.Match[str]) -> str:
    mark, name, value = found.groups()
    return f"{mark}{name}={value if name.lower() in _HARMLESS else HIDDEN}"
