"""Whose work is done now: ids that every line of the log carries as JSON."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_ids: ContextVar[Mapping[str, object]] = ContextVar("ids", default={})  # noqa: B039


def get_ids() -> Mapping[str, object]:
    return _ids.get()


def set_ids(ids: Mapping[str, object]) -> None:
    """For the rest of this task: what it is about."""
    _ids.set(ids)


@contextmanager
def about(**ids: object) -> Iterator[None]:
    """What is logged meanwhile is about this job, attempt or workspace."""
    token = _ids.set({**_ids.get(), **ids})
    try:
        yield
    finally:
        _ids.reset(token)
