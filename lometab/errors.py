"""Everything this package raises on purpose, and the hint that goes with a name."""

import difflib
from collections.abc import Collection
from itertools import islice


class LoMETabError(Exception):
    """Base class of this package's errors."""


class DataError(LoMETabError, ValueError):
    """The caller's data cannot be used as it is.

    `column` and `line` point at what is wrong where that is known; the message is a
    sentence the caller can act on.
    """

    def __init__(
        self, message: str, *, column: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message)
        self.column = column
        self.line = line


class FileTypeError(DataError):
    """The file is of a kind that is not read."""


class FileTooLarge(DataError):
    """The file, or what it unpacks to, is larger than the limit."""


class ConfigError(LoMETabError, ValueError):
    """A setting is outside what it may be; the message names it and its bounds."""


class TrainingCancelled(LoMETabError):
    """Raised by an `on_epoch` callable to end training and keep nothing."""


class TrainingDiverged(LoMETabError):
    """The loss or the weights stopped being finite numbers."""


class ExportMismatch(LoMETabError):
    """The exported file does not answer as the trained model does."""


class ModelFileError(LoMETabError, ValueError):
    """The file is not a model that this version can load."""


_MAX_NAMES = 1000
_MAX_LENGTH = 100


def nearest(name: str, names: Collection[str]) -> str | None:
    """The known name that is most like a mistyped one, if any is.

    Names are compared in quadratic time: of very many the first ones are, and none
    that is very long.
    """
    if len(name) > _MAX_LENGTH:
        return None
    lowered = {
        known.lower(): known
        for known in islice(names, _MAX_NAMES)
        if len(known) <= _MAX_LENGTH
    }
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    return lowered[near[0]] if near else None


def suggest(name: str, names: Collection[str]) -> str:
    """` (did you mean 'x'?)` for the nearest of the known names, or nothing."""
    near = nearest(name, names)
    return f" (did you mean {near!r}?)" if near else ""


class MissingPackage(LoMETabError, ImportError):
    """What was asked for needs a package that is not installed."""
