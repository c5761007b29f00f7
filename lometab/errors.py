"""Everything this package raises on purpose."""


class LoMETabError(Exception):
    """Base class of this package's errors."""


class DataError(LoMETabError, ValueError):
    """The caller's data cannot be used as it is.

    `column` and `line` point at the place where there is one; the message is a
    sentence the caller can act on.
    """

    def __init__(
        self, message: str, *, column: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message)
        self.column = column
        self.line = line


class TrainingCancelled(LoMETabError):
    """Raised by an `on_epoch` callable to end training and keep nothing."""


class TrainingDiverged(LoMETabError):
    """The loss or the weights stopped being finite numbers."""


class ExportMismatch(LoMETabError):
    """The exported file does not answer as the trained model does."""


class ModelFileError(LoMETabError, ValueError):
    """The file is not a model that this version can load."""
