"""Large tables: gone through once to find what is wrong, then answered in chunks.

So errors come before the first byte of an answer, and an answer that begins is whole.
All of it happens in threads, never in the event loop.
"""

from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import orjson

from app.answering import with_ids
from app.errors import TooLarge
from app.monitor import get_collector
from app.serving.explanations import refuse_large
from app.serving.models import find_served
from app.serving.opened import Inputs, Opened, check_ids, open_request
from app.serving.predictors import Predictors
from app.serving.requests import PredictRequest
from app.serving.rows import Body
from lometab.errors import DataError
from lometab.predictor import Notes


class TableAnswer(NamedTuple):
    """The last stage of a table: what is sent, piece by piece."""

    headers: dict[str, str]
    first: bytes
    others: Iterator[bytes]
    """Made as they are asked for."""


def answer_table(
    request: PredictRequest,
    body: Body,
    asked_at: float,
    predictors: Predictors,
    max_rows: int,
) -> TableAnswer:
    """Check the whole table, and make the first piece of its answer."""
    started_at = perf_counter()
    model = find_served(request.secret, request.reference)
    opened = open_request(request, body, model, predictors.get(model))
    if opened.options.explain:
        refuse_large()
    chunks: Iterable[Inputs]
    if request.kind == "json":
        chunks = InputFile(_check(opened, max_rows), request.media_type)
        opened = opened._replace(rows=None)  # parsed, they take twenty times the body
    else:
        for _ in _check(opened, max_rows):
            pass
        chunks = opened.encode(Notes())
    parsed_at = perf_counter()
    seconds = {"parse": parsed_at - started_at, "queue": started_at - asked_at}
    head = opened.head()
    pieces = _write(opened, head, chunks, seconds)
    first = next(pieces)
    return TableAnswer(opened.make_headers(head, seconds), first, pieces)


def _check(opened: Opened, max_rows: int) -> Iterator[Inputs]:
    """Find all that is wrong, and what is worth a warning."""
    if opened.n_rows is not None and opened.n_rows > max_rows:
        raise _too_many_rows(opened.n_rows, max_rows)
    for inputs in opened.encode(opened.notes):
        if opened.notes.n_rows > max_rows:
            raise _too_many_rows(opened.notes.n_rows, max_rows)
        yield inputs
    if opened.notes.n_rows == 0:
        raise DataError("there are no rows to predict")


def _write(
    opened: Opened,
    head: dict[str, Any],
    chunks: Iterable[Inputs],
    seconds: dict[str, float],
) -> Iterator[bytes]:
    writer = opened.make_writer()
    collector = get_collector()
    piece = writer.begin(head)
    for inputs in chunks:
        running_at = perf_counter()
        answered = opened.predictor.run_all(inputs.x_num, inputs.x_cat)
        writing_at = perf_counter()
        if collector.is_on:
            about = opened.model[:2]
            collector.watch(
                *about,
                opened.predictor,
                inputs.x_num,
                inputs.x_cat,
                answered,
                inputs.ids,
            )
        columns = opened.make_columns(answered, inputs.x_cat)
        columns = with_ids(columns, inputs.ids)
        piece += writer.write(columns)
        # The headers tell of the first piece.
        seconds.setdefault("run", writing_at - running_at)
        seconds.setdefault("encode", perf_counter() - writing_at)
        if piece:
            yield piece
        piece = b""
    yield piece + writer.end()


class InputFile:
    """Encoded rows in a temporary file, so that what they were parsed from can go."""

    def __init__(self, chunks: Iterable[Inputs], media_type: str) -> None:
        self._media_type = media_type
        self._file = TemporaryFile(prefix="lometab-predict-")
        self._codes: dict[str, int] = {}
        self._n_chunks = 0
        try:
            self._write(chunks)
        except BaseException:
            self._file.close()
            raise

    def _write(self, chunks: Iterable[Inputs]) -> None:
        for x_num, x_cat, ids in chunks:
            np.save(self._file, x_num, allow_pickle=False)
            np.save(self._file, self._encode(x_cat), allow_pickle=False)
            texts = ids if ids is None or isinstance(ids, list) else ids.to_pylist()
            content = np.frombuffer(orjson.dumps(texts), np.uint8)
            np.save(self._file, content, allow_pickle=False)
            self._n_chunks += 1

    def _encode(self, x_cat: Any) -> Any:
        """Texts as numbers; there are not many, as all unseen ones are the same."""
        codes = self._codes
        flat = [codes.setdefault(text, len(codes)) for text in x_cat.ravel()]
        return np.array(flat, np.int32).reshape(x_cat.shape)

    def __iter__(self) -> Iterator[Inputs]:
        """Once; then the file is gone."""
        self._file.seek(0)
        texts = np.array([*self._codes, None], dtype=object)
        with self._file:
            for _ in range(self._n_chunks):
                x_num, codes, content = (
                    np.load(self._file, allow_pickle=False) for _ in range(3)
                )
                ids = orjson.loads(content.tobytes())
                if ids is not None:
                    ids = check_ids(ids, self._media_type)
                yield Inputs(x_num, texts[codes], ids)


def _too_many_rows(n_rows: int, max_rows: int) -> TooLarge:
    return TooLarge(
        f"{n_rows} rows or more are beyond the limit of {max_rows} in one request; "
        "send them in parts"
    )
