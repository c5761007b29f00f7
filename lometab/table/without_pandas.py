"""pyarrow without pandas, in processes that have no frames."""

import sys
from collections.abc import Sequence

import pyarrow as pa


def leave_out_pandas() -> None:
    """Once, when a process of the service starts.

    When the first list becomes an array, pyarrow imports pandas where it is installed,
    to tell whether the list is a series: a quarter of a second, and tens of megabytes.
    It tries once, and does without if there is none.
    """
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([""])
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """While it is asked where modules are, pandas is nowhere."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is left out", name=name)
