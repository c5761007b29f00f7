"""What goes over the wire, apart from sending it: settings, data, chunks, events, and
when to try again. Nothing here waits or knows a connection, so both clients share it.
"""

import hashlib
import io
import json
import os
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Self

import httpx

from lometab.answers import flatten as flatten
from lometab.client.errors import (
    ClientError,
    ServiceError,
    TimedOut,
    Unreachable,
    make_error,
)
from lometab.config import TrainConfig
from lometab.errors import DataError

URL = "http://127.0.0.1:8000"
"""Where `lometab serve` listens, if nothing else is said."""
ENDED = ("succeeded", "failed", "cancelled")
"""The statuses in which a job stays."""
CSV = "text/csv"
PARQUET = "application/vnd.apache.parquet"
LINES = "application/x-ndjson"

_HYPERPARAMETERS = frozenset(field.name for field in fields(TrainConfig))


def find_url(given: str | None) -> str:
    """The address: what is given, else `LOMETAB_URL`, else that of this machine."""
    url = given or os.environ.get("LOMETAB_URL") or URL
    if not re.match(r"https?://", url):
        raise ClientError(f"the address must begin with http:// or https://: {url!r}")
    return url.rstrip("/")


def find_key(given: str | None) -> str | None:
    """The API key: what is given, else `LOMETAB_KEY`."""
    return given or os.environ.get("LOMETAB_KEY") or None


def make_config(target: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a job. Names of hyperparameters go where these belong.

    >>> make_config("y", {"preset": "fast", "rank": 8})
    {'target': 'y', 'preset': 'fast', 'hyperparameters': {'rank': 8}}
    """
    config = {k: v for k, v in given.items() if k not in _HYPERPARAMETERS}
    own = {k: v for k, v in given.items() if k in _HYPERPARAMETERS}
    if own:
        config["hyperparameters"] = {**config.get("hyperparameters", {}), **own}
    return {"target": target, **config} if target is not None else config


def make_search(
    n_trials: int, space: Mapping[str, Any] | None, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The search of a tune job. A setting that is given is not searched for.

    >>> make_search(9, {"rank": {"values": [1, 4]}}, {"hyperparameters": {"k": 4}})
    {'n_trials': 9, 'space': {'k': None, 'rank': {'values': [1, 4]}}}
    """
    held = dict.fromkeys(config.get("hyperparameters", {}))
    return {"n_trials": n_trials, "space": {**held, **(space or {})}}


# ----------------------------------------------------------------------------
# When to try again


@dataclass(frozen=True)
class Retries:
    """How often a request is repeated that may be, and how long to wait between."""

    attempts: int = 6
    """Sendings at most."""
    first_seconds: float = 0.25
    """The pause after the first; it doubles, with a random part."""
    most_seconds: float = 30.0
    """The longest pause, also if the service asks for a longer one."""

    def pause(self, n_sent: int, response: httpx.Response | None) -> float:
        """Seconds to wait; what the service asks for (`Retry-After`) comes first."""
        told = "" if response is None else response.headers.get("Retry-After", "")
        if told.isdecimal():
            return min(float(told), self.most_seconds)
        longest = min(self.first_seconds * 2 ** (n_sent - 1), self.most_seconds)
        return float(longest * (0.5 + random.random() / 2))


def is_passing(response: httpx.Response) -> bool:
    """Whether the same request may get another answer in a moment."""
    if response.status_code in (429, 502, 503, 504):
        return True
    return read_problem(response).get("code") == "request_in_progress"


def read_problem(response: httpx.Response) -> dict[str, Any]:
    """The problem document of an answer; of a proxy's page, its status alone."""
    if response.is_success:
        return {}
    try:
        found = response.json()
    except (ValueError, httpx.ResponseNotRead):
        found = None
    if isinstance(found, dict):
        return found
    return {"detail": f"the service answered {response.status_code}"}


def check(response: httpx.Response) -> httpx.Response:
    """The answer, if it is none of an error; else the exception that it stands for."""
    if response.is_success:
        return response
    error: ServiceError = make_error(response.status_code, read_problem(response))
    raise error


# ----------------------------------------------------------------------------
# Data


@dataclass(frozen=True)
class Content:
    """A table as it is sent: a file that is read anew for each sending, or bytes."""

    source: Path | bytes
    filename: str
    media_type: str

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        if isinstance(self.source, bytes):
            yield io.BytesIO(self.source)
            return
        with self.source.open("rb") as file:
            yield file


_TYPES = {
    ".csv": CSV,
    ".tsv": CSV,
    ".txt": CSV,
    ".parquet": PARQUET,
    ".arrow": "application/vnd.apache.arrow.stream",
    ".jsonl": LINES,
    ".ndjson": LINES,
    ".json": "application/json",
}


def encode(data: Any) -> Content:
    """A path, bytes, a frame of pandas or polars, an Arrow table, or rows, to send.

    Frames are sent as Parquet without their index; a frame of pandas as CSV where
    pyarrow is not installed.
    """
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        if not path.is_file():
            raise DataError(f"there is no file {str(path)!r}")
        media_type = _TYPES.get(path.suffix.lower(), CSV)
        return Content(path, path.name, media_type)
    if isinstance(data, bytes | bytearray):
        is_parquet = data[:4] == b"PAR1"
        name = "table.parquet" if is_parquet else "table.csv"
        return Content(bytes(data), name, PARQUET if is_parquet else CSV)
    library = find_library(data)
    if library == "polars":
        file = io.BytesIO()
        data.write_parquet(file)
        return Content(file.getvalue(), "frame.parquet", PARQUET)
    if library == "pyarrow":
        return _encode_arrow(data)
    if library == "pandas":
        return _encode_pandas(data)
    text = "\n".join(map(json.dumps, to_rows(data)))
    return Content(text.encode(), "rows.jsonl", LINES)


def find_dataset(data: Any) -> str | None:
    """The id that the data is, if it is one."""
    is_id = isinstance(data, str) and data.startswith("ds_") and not Path(data).exists()
    return data if is_id else None


def find_output(path: str | os.PathLike[str]) -> str:
    """The format of a result, by the name of its file.

    >>> find_output("night.parquet")
    'parquet'
    """
    suffix = Path(path).suffix.lower().lstrip(".")
    if suffix not in ("csv", "parquet", "arrow"):
        raise DataError(
            f"answers go to .csv, .parquet or .arrow, however: {Path(path).name}"
        )
    return suffix


def find_library(data: Any) -> str | None:
    """Whose frame it is: pandas, polars or pyarrow; None of any other thing."""
    library = type(data).__module__.partition(".")[0]
    return library if library in ("pandas", "polars", "pyarrow") else None


def _encode_arrow(table: Any) -> Content:
    parquet = import_module("pyarrow.parquet")
    file = io.BytesIO()
    parquet.write_table(table, file)
    return Content(file.getvalue(), "frame.parquet", PARQUET)


def _encode_pandas(frame: Any) -> Content:
    try:
        arrow = import_module("pyarrow")
    except ImportError:
        content = frame.to_csv(index=False).encode()
        return Content(content, "frame.csv", CSV)
    return _encode_arrow(arrow.Table.from_pandas(frame, preserve_index=False))


def _plain(value: Any) -> Any:
    """As JSON has it: moments as texts, NaN as null."""
    if hasattr(value, "isoformat"):
        value = value.isoformat()
    elif hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and value != value:
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise DataError(f"a value cannot be sent as JSON: {value!r}")


def split_rows(data: Any, size: int) -> Iterator[Any]:
    """The same data in pieces of at most so many rows; a file in one."""
    if isinstance(data, str | os.PathLike | bytes | bytearray):
        yield data
        return
    if isinstance(data, Mapping):
        n_rows = len(next(iter(data.values()), ()))
        for start in range(0, n_rows, size):
            yield {name: v[start : start + size] for name, v in data.items()}
        return
    library = find_library(data)
    n_rows = data.num_rows if library == "pyarrow" else len(data)
    for start in range(0, n_rows, size):
        if library == "pandas":
            yield data.iloc[start : start + size]
        elif library == "pyarrow":
            yield data.slice(start, size)
        else:
            yield data[start : start + size]


# ----------------------------------------------------------------------------
# Answers


def join(parts: Sequence[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: [v for part in parts for v in part[name]] for name in names}


def to_frame(columns: Mapping[str, list[Any]], like: Any) -> Any:
    """As what was asked: a frame of pandas with the same index, one of polars, an
    Arrow table, a dict of lists, or else a list of rows."""
    library = find_library(like)
    if library == "pandas":
        pandas = import_module("pandas")
        return pandas.DataFrame(columns, index=like.index)
    if library == "polars":
        return import_module("polars").DataFrame(columns, strict=False)
    if library == "pyarrow":
        return import_module("pyarrow").table(columns)
    if isinstance(like, Mapping):
        return dict(columns)
    names = [*columns]
    return [
        dict(zip(names, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


def to_rows(data: Any) -> list[dict[str, Any]]:
    """Any data but a file as a list of rows that JSON can hold."""
    library = find_library(data)
    if library == "pandas":
        rows = data.to_dict("records")
    elif library == "polars":
        rows = data.to_dicts()
    elif library == "pyarrow":
        rows = data.to_pylist()
    elif isinstance(data, Mapping):
        columns = {name: list(values) for name, values in data.items()}
        values = zip(*columns.values(), strict=True)
        rows = [dict(zip(columns, row, strict=True)) for row in values]
    elif isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        rows = [*data]
    else:
        raise DataError(
            "data must be a path, bytes, a frame of pandas or polars, an Arrow table, "
            f"a list of dicts or a dict of lists, however: {type(data).__name__}"
        )
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


class PartFile:
    """A file that is downloaded, in several goes if need be, and there when whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._etag = ""
        self._total: int | None = None
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def headers(self) -> dict[str, str]:
        """Those of the next request: as the file is, from where ours ends."""
        as_it_is = {"Accept-Encoding": "identity"}
        if not self.size:
            return as_it_is
        return as_it_is | {"Range": f"bytes={self.size}-", "If-Range": self._etag}

    @property
    def is_whole(self) -> bool:
        return self._total is not None and self.size == self._total

    def begin(self, response: httpx.Response) -> None:
        """An answer has come: the rest, or all of it anew."""
        if response.status_code != 206:
            self._empty()
        self._etag = response.headers.get("ETag", "")
        length = response.headers.get("Content-Length")
        self._total = None if length is None else self.size + int(length)

    def _empty(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        self.size, self._digest = 0, hashlib.sha256()

    def write(self, piece: bytes) -> None:
        assert self._file is not None
        self._file.write(piece)
        self._digest.update(piece)
        self.size += len(piece)

    def end(self) -> None:
        """An answer ended as it should; without a length, that is all of it."""
        if self._total is None:
            self._total = self.size

    def finish(self, target: Path) -> None:
        """Give it its name, if it is what the service has."""
        assert self._file is not None
        self._file.close()
        if not self.is_whole:
            raise Unreachable(f"{target.name} broke off again and again")
        if self._etag.strip('"') != self._digest.hexdigest():
            raise ClientError(f"{target.name} came damaged; download it again")
        self._path.replace(target)

    def __enter__(self) -> Self:
        self._file = self._path.open("wb")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        self._file.close()
        self._path.unlink(missing_ok=True)


# ----------------------------------------------------------------------------
# Events


class Deadline:
    """When to stop waiting for a job; never, if it has no seconds."""

    def __init__(self, job_id: str, seconds: float | None) -> None:
        self._job_id, self._seconds = job_id, seconds
        self._at = None if seconds is None else time.monotonic() + seconds

    def within(self, seconds: float) -> float:
        """So many seconds, or as many as are left."""
        if self._at is None:
            return seconds
        return max(0.001, min(seconds, self._at - time.monotonic()))

    def check(self) -> None:
        if self._at is not None and time.monotonic() >= self._at:
            raise TimedOut(
                f"{self._job_id} has not ended within {self._seconds:g} s; it goes on"
            )


class EventReader:
    """Lines of an event stream become events: `{"seq", "type", "data", ...}`.

    >>> reader = EventReader()
    >>> [reader.feed(line) for line in ("id: 1", 'data: {"seq": 1}', "")]
    [None, None, {'seq': 1}]
    >>> reader.last_id
    '1'
    """

    def __init__(self, last_id: str = "0") -> None:
        self.last_id = last_id
        """The id of the last whole event: where to go on from."""
        self._id = last_id
        self._data: list[str] = []

    def feed(self, line: str) -> dict[str, Any] | None:
        """The event that a line ends, if it ends one."""
        if line.startswith("data:"):
            self._data.append(line[5:].strip())
        elif line.startswith("id:"):
            self._id = line[3:].strip()
        elif not line and self._data:
            event: dict[str, Any] = json.loads("\n".join(self._data))
            self._data = []
            self.last_id = self._id
            return event
        return None

    def forget(self) -> None:
        """The connection broke: half an event comes again, whole."""
        self._data = []
        self._id = self.last_id
