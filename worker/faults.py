"""Which errors are the machine's, and how an error is shown to the client."""

import errno

_ERRNOS = {
    errno.ENOSPC,  # the disk is full
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
    errno.EMFILE,  # too many open files
    errno.ENFILE,
    errno.EACCES,
    errno.EPERM,
    errno.ENOMEM,
    errno.EAGAIN,  # no process can be started
}
_TEXTS = ("No space left on device", "Read-only file system")
"""In errors of libraries that are no OSError, such as safetensors'."""


class MachineFault(Exception):
    """No folder can be made, or no process be started."""


def is_machine_fault(error: BaseException) -> bool:
    """Whether another machine, or this one later, may well do what failed.

    A MemoryError is one in a supervisor, which needs little; in a child process it is
    the job's own.
    """
    if isinstance(error, MachineFault):
        return True
    if isinstance(error, OSError):
        return error.errno in _ERRNOS
    return any(text in str(error) for text in _TEXTS)


def describe(error: BaseException) -> str:
    """The type and the first line: the log has the rest."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return f"{type(error).__name__}: {lines[0][:300]}"
