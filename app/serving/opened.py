"""A predict request whose body is open: its names and options are known and fit."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from app.answering import (
    DEFAULT,
    ArrowWriter,
    Columns,
    CsvWriter,
    JsonWriter,
    PredictOptions,
    Writer,
    check_doubt,
    encode_rows,
    find_id_column,
    make_columns,
    read_options,
    warn_of_coverage,
)
from app.observe import metrics
from app.serving.formats import find_formats
from app.serving.models import ServedModel
from app.serving.requests import PredictRequest
from app.serving.rows import (
    Body,
    CsvRows,
    Matrix,
    Records,
    Rows,
    open_rows,
    read_json,
)
from lometab.errors import DataError
from lometab.prediction import Answered
from lometab.predictor import MAX_ROWS, Notes, Predictor

HEAD = "Lometab-Head"
"""The header with the head of an answer that is not JSON."""
_HEAD_BYTES = 4096
_WITH_TEXTS = (CsvRows, Records, Matrix)
"""Rows whose numbers and dates may be texts."""


class Inputs(NamedTuple):
    """Rows as the model takes them, and their ids."""

    x_num: Any
    x_cat: Any
    ids: Any


class Opened(NamedTuple):
    """The second stage. Nothing of it changes but the notes, which grow by the rows."""

    request: PredictRequest
    model: ServedModel
    predictor: Predictor
    options: PredictOptions
    rows: Rows | None
    """None: they have been encoded, and are not kept."""
    id_column: str | None
    notes: Notes
    reading_warnings: tuple[str, ...] = ()
    """What was decided about how the body is written."""
    formats: Mapping[str, str] | None = None
    """How its numbers and dates are, if not as in training."""

    @property
    def n_rows(self) -> int | None:
        """As many as the file says it has, if it does."""
        return getattr(self.rows, "n_rows", None)

    def encode_only(self) -> Inputs | None:
        """The inputs of the model if there is a single, ordinary row."""
        if not isinstance(self.rows, Records) or self.rows.only is None:
            return None
        row = self.rows.only
        try:
            encoded = self.predictor.encode_record(row, self.notes)
        except OverflowError:  # an integer beyond all floats
            return None
        if encoded is None:
            return None
        ids = None
        if self.id_column is not None:
            ids = check_ids([row[self.id_column]], self.request.media_type)
        return Inputs(*encoded, ids)

    def encode(self, notes: Notes) -> Iterator[Inputs]:
        """The inputs of the model, chunk by chunk."""
        wanted = self.predictor.columns
        if self.id_column is not None and self.id_column not in wanted:
            wanted = [*wanted, self.id_column]
        assert self.rows is not None
        try:
            for table, n_rows in self.rows.chunks(wanted, MAX_ROWS):
                yield self._encode(table, n_rows, notes)
        except RecursionError:
            raise _too_deep() from None

    def _encode(self, table: Mapping[str, Any], n_rows: int, notes: Notes) -> Inputs:
        x_num, x_cat = encode_rows(self.predictor, table, n_rows, notes, self.formats)
        ids = None
        if self.id_column is not None:
            ids = check_ids(table[self.id_column], self.request.media_type)
        return Inputs(x_num, x_cat, ids)

    def head(self) -> dict[str, Any]:
        """What is answered beside the predictions."""
        return {
            "model_id": self.model.id,
            "task": self.predictor.task,
            "k": self.predictor.k,
            "classes": self.predictor.classes,
            "calibrated": self.options.calibrated,
            "coverage": self.options.coverage,
            "warnings": [
                *self.reading_warnings,
                *self.notes.warnings(),
                *warn_of_coverage(self.predictor, self.options),
            ],
        }

    def make_columns(self, answered: Answered, x_cat: Any) -> Columns:
        """What is answered of each row, out of what the model said.

        Args:
            x_cat: the rows' texts, as the model was given them.
        """
        return make_columns(self.predictor, self.options, *answered, x_cat)

    def make_writer(self) -> Writer:
        if self.request.media_type == "application/json":
            return JsonWriter()
        classes = self.predictor.classes
        is_csv = self.request.media_type == "text/csv"
        if is_csv:
            return CsvWriter(classes, self.options.spreadsheet_safe)
        return ArrowWriter(classes)

    def make_headers(
        self, head: dict[str, Any], seconds: Mapping[str, float]
    ) -> dict[str, str]:
        """Those of the answer.

        Args:
            seconds: what it took to parse, wait in the queue, run and encode.
        """
        for name, spent in seconds.items():
            metrics.PREDICT_SECONDS.observe(spent, name)
        timing = [f"{name};dur={1e3 * spent:.3f}" for name, spent in seconds.items()]
        headers = {"Server-Timing": ", ".join(timing)}
        if self.request.media_type != "application/json":
            headers[HEAD] = _to_header(head)
        return headers


def open_request(
    request: PredictRequest, body: Body, model: ServedModel, predictor: Predictor
) -> Opened:
    """Read the body as far as its names and options."""
    try:
        rows, options = _open_rows(request, body, predictor)
    except RecursionError:
        raise _too_deep() from None
    names = rows.names
    id_column = find_id_column(options, names)
    notes = predictor.compare(names, missing_columns=options.missing_columns)
    if id_column in notes.extra:
        notes.extra.remove(id_column)
    if options is not DEFAULT:
        check_doubt(options, predictor)
    warnings = [*getattr(rows, "warnings", ())]
    formats = None
    if isinstance(rows, _WITH_TEXTS):
        formats, more = find_formats(rows, predictor.metadata, options.read_options)
        warnings += more
    return Opened(
        request,
        model,
        predictor,
        options,
        rows,
        id_column,
        notes,
        tuple(warnings),
        formats,
    )


def _open_rows(
    request: PredictRequest, body: Body, predictor: Predictor
) -> tuple[Rows, PredictOptions]:
    if request.kind == "json":
        rows, given = read_json(body)
        return rows, read_options(request.query, given)
    options = read_options(request.query, {})
    rows = open_rows(
        body,
        request.kind,
        predictor.columns,
        request.charset,
        trained=predictor.metadata.get("reading"),
        options=options.read_options,
    )
    return rows, options


def _too_deep() -> DataError:
    """A value that is nested too deeply to be shown in an error is one itself."""
    return DataError("the JSON is nested too deeply; a value is no list")


def check_ids(ids: Any, media_type: str) -> Any:
    """Ids as the answer can hold them: in a table, those of JSON are texts."""
    if isinstance(ids, pa.Array):
        if pa.types.is_dictionary(ids.type):  # which `rows` has found to be small
            ids = ids.dictionary_decode()
        if media_type != "application/json":
            return ids
        try:
            ids = ids.to_pylist()
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise DataError(f"an id cannot be read: {error}") from None
        return [each if _is_json(each) else str(each) for each in ids]
    for value in ids:
        if isinstance(value, list | dict):
            raise DataError("an id must be a text, a number, a boolean or null")
    if media_type == "application/json":
        return ids
    texts = [
        each if each is None or isinstance(each, str) else orjson.dumps(each).decode()
        for each in ids
    ]
    return pa.array(texts, pa.string())


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _to_header(head: dict[str, Any]) -> str:
    """The head as JSON in ASCII; warnings beyond some kilobytes are counted only."""
    warnings: list[str] = []
    n_bytes = 0
    for i, warning in enumerate(head["warnings"]):
        n_bytes += len(warning)
        if n_bytes > _HEAD_BYTES:
            warnings.append(f"and {len(head['warnings']) - i} more")
            break
        warnings.append(warning)
    text = orjson.dumps({**head, "warnings": warnings}).decode()
    # What is beyond ASCII stands in texts only, where an escape means the same.
    return "".join(c if " " <= c <= "~" else _escape(c) for c in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
