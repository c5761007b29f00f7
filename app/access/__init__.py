"""Keys and callers: who may do what, where, and how much of it."""

from app.access.audit import record_change, record_command
from app.access.callers import (
    LOCAL,
    Anybody,
    Caller,
    Reader,
    Writer,
    bearer,
    check_scope,
    find_caller,
    read_caller,
    read_secret,
    select_caller,
)
from app.access.cookies import COOKIE
from app.access.keys import (
    IS_ACTIVE,
    SCOPES,
    Scope,
    create_key,
    has_keys,
    hash_key,
    list_keys,
    revoke_key,
    rotate_key,
)
from app.access.peers import Headers, Peer, is_loopback
from app.access.rules import (
    INFER,
    INVOCATIONS,
    MAX_JSON_BODY,
    PREDICT,
    RULES,
    Rule,
    find_rule,
)
from app.access.space import check_space
from app.access.uses import KeyUse, keep, uses

__all__ = [
    "COOKIE",
    "INFER",
    "INVOCATIONS",
    "IS_ACTIVE",
    "LOCAL",
    "MAX_JSON_BODY",
    "PREDICT",
    "RULES",
    "SCOPES",
    "Anybody",
    "Caller",
    "Headers",
    "KeyUse",
    "Peer",
    "Reader",
    "Rule",
    "Scope",
    "Writer",
    "bearer",
    "check_scope",
    "check_space",
    "create_key",
    "find_caller",
    "find_rule",
    "has_keys",
    "hash_key",
    "is_loopback",
    "keep",
    "list_keys",
    "read_caller",
    "read_secret",
    "record_change",
    "record_command",
    "revoke_key",
    "rotate_key",
    "select_caller",
    "uses",
]
