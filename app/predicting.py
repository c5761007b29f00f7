"""From the body of a predict request to its answer.

Small requests go through `Serving.answer`, where those for one model share runs. Large
ones are tables in a file: gone through once to find what is wrong, so that errors come
before the first byte of an answer, then answered chunk by chunk as the client reads.
Parsing, running and writing happen in threads, never in the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np
import orjson
import pyarrow as pa
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError
from starlette.datastructures import QueryParams

from app.answers import Answer, ArrowAnswer, Columns, CsvAnswer, JsonAnswer
from app.deps import AskedModel, Predictors, find_asked_model, get_predictors
from app.errors import AppError, Overloaded, TooLarge, from_validation
from app.joining import Lanes
from app.rows import Body, Kind, ParquetRows, Records, Rows, open_rows, read_json
from app.schemas import PredictField, PredictOptions
from app.settings import Settings, get_settings
from lometab.errors import DataError, LoMETabError
from lometab.predictor import MAX_ROWS, Notes, Predictor

JOINED_BYTES = 2**16
"""A larger body is a table of its own."""
FIELDS: tuple[str, ...] = get_args(PredictField)
"""What can be asked for of each row, in the order in which it is answered."""
HEAD = "Lometab-Head"
"""The header with the head of an answer that is not JSON."""
_HEAD_BYTES = 4096
_QUICK_BODY = 2048
_QUICK_BRACKETS = 8
_QUICK_BYTES = 8 * 2**20
_COMPANY_SECONDS = 0.005
_EXPECTED = (AppError, LoMETabError, OperationalError)
_DEFAULT = PredictOptions()
Result = TypeVar("Result")


class Inputs(NamedTuple):
    """Rows as the model takes them, and their ids."""

    x_num: Any
    x_cat: Any
    ids: Any


@dataclass(eq=False, slots=True)
class Question:
    """A request for predictions, and what becomes of it."""

    secret: str | None
    reference: str
    kind: Kind
    charset: str
    accept: str
    query: Mapping[str, str]
    body: Body = b""

    asked_at: float = field(default_factory=perf_counter)
    seconds: dict[str, float] = field(default_factory=dict)
    """What it took to parse, wait in the queue, run and encode."""
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    error: Exception | None = None
    is_long: bool = False
    """It is no small one, though its body is."""

    model: AskedModel = field(init=False)
    predictor: Predictor = field(init=False)
    options: PredictOptions = field(init=False)
    rows: Rows = field(init=False)
    notes: Notes = field(init=False)
    id_column: str | None = field(init=False)
    wanted: list[str] = field(init=False)

    def open(self, model: AskedModel, predictor: Predictor) -> None:
        """Read the body as far as its names and options."""
        self.model, self.predictor = model, predictor
        columns = predictor.columns
        self.options = _DEFAULT
        given: dict[str, Any] = {}
        if self.kind == "json":
            self.rows, given = read_json(self.body)
        else:
            self.rows = open_rows(self.body, self.kind, columns, self.charset)
        if given or self.query:
            self.options = _read_options(self.query, given)
        names = self.rows.names
        self.id_column = self.options.id_column
        if self.id_column is None and "id" in names:
            self.id_column = "id"
        elif self.id_column is not None and self.id_column not in names:
            raise DataError(
                f"there is no column {self.id_column!r} to hand through as id",
                column=self.id_column,
            )
        self.notes = predictor.compare(
            names, missing_columns=self.options.missing_columns
        )
        if self.id_column in self.notes.extra:
            self.notes.extra.remove(self.id_column)
        self.wanted = columns
        if self.id_column is not None and self.id_column not in columns:
            self.wanted = [*columns, self.id_column]
        if self.options.abstain_above is not None and _uncertainty(predictor) is None:
            raise DataError(
                "abstain_above takes the spread of members, and this model has one"
            )

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
            ids = _check_ids([row[self.id_column]], self.accept)
        return Inputs(*encoded, ids)

    def encode(self, notes: Notes) -> Iterator[Inputs]:
        """The inputs of the model, chunk by chunk."""
        for table, n_rows in self.rows.chunks(self.wanted, MAX_ROWS):
            start = notes.n_rows
            try:
                x_num, x_cat = self.predictor.encode_columns(table, n_rows, notes)
            except DataError as error:
                if start == 0:
                    raise
                raise DataError(
                    f"counted from row {start + 1} as the first: {error}",
                    column=error.column,
                ) from None
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise DataError(f"a cell cannot be read: {error}") from None
            ids = None
            if self.id_column is not None:
                ids = _check_ids(table[self.id_column], self.accept)
            yield Inputs(x_num, x_cat, ids)

    def head(self, notes: Notes) -> dict[str, Any]:
        return {
            "model_id": self.model.id,
            "task": self.predictor.task,
            "k": self.predictor.k,
            "classes": self.predictor.classes,
            "calibrated": self.options.calibrated,
            "coverage": self.options.coverage,
            "warnings": notes.warnings(),
        }

    def describe(self, mean: Any, members: Any, ids: Any) -> Columns:
        """What is answered of each row, out of what the model said."""
        options = self.options
        wanted: Sequence[str] = FIELDS
        if options is not _DEFAULT:
            chosen = FIELDS if options.include is None else options.include
            wanted = [n for n in FIELDS if n in chosen and n not in options.exclude]
        measure = None
        if options.abstain_above is not None:
            measure = _uncertainty(self.predictor)
        fields = self.predictor.measure(
            mean,
            members,
            calibrated=options.calibrated,
            coverage=options.coverage,
            without=() if wanted is FIELDS else {*FIELDS} - {*wanted, measure},
        )
        columns: Columns = {} if ids is None else {"id": ids}
        for name in wanted:
            value = fields.get(name)
            if value is not None:  # it applies to the model
                columns[name] = value
        if measure is not None:
            columns["abstain"] = fields[measure] > options.abstain_above
        return columns

    def start_answer(self) -> Answer:
        if self.accept == "application/json":
            return JsonAnswer()
        classes = self.predictor.classes
        return CsvAnswer(classes) if self.accept == "text/csv" else ArrowAnswer(classes)

    def finish(self, head: dict[str, Any]) -> None:
        """The headers of the answer."""
        timing = ", ".join(
            [f"{name};dur={1e3 * spent:.3f}" for name, spent in self.seconds.items()]
        )
        self.headers = {"Server-Timing": timing}
        if self.accept != "application/json":
            self.headers[HEAD] = _header_of(head)


def _read_options(query: Mapping[str, str], body: dict[str, Any]) -> PredictOptions:
    """Those of the query, and over them those of the body."""
    given: dict[str, Any] = dict(query)
    for name in ("include", "exclude"):
        if name in given:
            given[name] = given[name].split(",")
    for name in ("calibrated", "coverage", "abstain_above"):
        if name in given:
            try:
                given[name] = orjson.loads(given[name])
            except orjson.JSONDecodeError:
                pass  # a text, which is refused
    try:
        return PredictOptions.model_validate({**given, **body})
    except ValidationError as error:
        raise from_validation(error, PredictOptions.model_fields) from None


def _uncertainty(predictor: Predictor) -> str | None:
    """What `abstain_above` is held against."""
    if predictor.classes is not None:
        return "entropy"
    return "std" if predictor.k > 1 else None


def _check_ids(ids: Any, accept: str) -> Any:
    """Ids as the answer can hold them: in a table, those of JSON are texts."""
    if isinstance(ids, pa.Array):
        if accept != "application/json":
            return ids
        try:
            ids = ids.to_pylist()
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise DataError(f"an id cannot be read: {error}") from None
        return [_simple(value) for value in ids]
    for value in ids:
        if isinstance(value, list | dict):
            raise DataError("an id must be a text, a number, a boolean or null")
    if accept == "application/json":
        return ids
    texts = [
        value if value is None or isinstance(value, str) else orjson.dumps(value)
        for value in ids
    ]
    return pa.array(
        [text.decode() if isinstance(text, bytes) else text for text in texts],
        pa.string(),
    )


def _simple(value: Any) -> Any:
    is_plain = value is None or isinstance(value, str | bool | int | float)
    return value if is_plain else str(value)


def _header_of(head: dict[str, Any]) -> str:
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
    return "".join(c if c.isascii() else _escape(c) for c in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def read_query(query: bytes) -> Mapping[str, str]:
    """The options in the query; of one that is there again, all values count."""
    texts: dict[str, str] = {}
    for name, value in QueryParams(query).multi_items() if query else ():
        texts[name] = f"{texts[name]},{value}" if name in texts else value
    return texts


class Serving:
    """Answers questions within the bounds of the settings."""

    def __init__(self, settings: Settings, predictors: Predictors) -> None:
        self.settings = settings
        self._predictors = predictors
        self._lanes: Lanes[Question] = Lanes(
            self._answer_together,
            threads=settings.predict_threads,
            joined=settings.join_rows > 0,
        )
        self._tables = ThreadPoolExecutor(
            settings.table_threads, thread_name_prefix="tables"
        )
        self._n_tables = 0
        self._last: tuple[object, float] = (None, 0.0)

    @property
    def is_full(self) -> bool:
        return self._lanes.n_items >= self.settings.predict_queue

    def find_limit(self, kind: Kind) -> int:
        """How many bytes a body may have."""
        settings = self.settings
        return settings.max_json_bytes if kind == "json" else settings.max_predict_bytes

    # Small requests

    async def answer(self, question: Question, client: object) -> None:
        """Fill in the answer, unless the question turns out to be a long one."""
        if self._is_alone(client) and self._is_quick(question):
            self._answer_together([question])
        else:
            await self._lanes.pass_through(question.reference, question)
        if question.error is not None:
            raise question.error

    def _is_alone(self, client: object) -> bool:
        """Whether no other connection has asked for a while."""
        (last_client, last_at), now = self._last, perf_counter()
        self._last = client, now
        is_other = client != last_client and now < last_at + _COMPANY_SECONDS
        return self._lanes.n_items == 0 and not is_other

    def _is_quick(self, question: Question) -> bool:
        """Whether it takes well below a millisecond: a few rows for a small model that
        is loaded, and a database in this process. Then the way to another thread and
        back would be the greater part of it."""
        body = question.body
        if question.kind != "json" or not isinstance(body, bytes):
            return False
        predictor = self._predictors.find(question.reference)
        return (
            predictor is not None
            and predictor.folded_bytes <= _QUICK_BYTES
            and len(body) <= _QUICK_BODY
            and body.count(b"{") + body.count(b"[") <= _QUICK_BRACKETS
            and self.settings.is_embedded
        )

    def _answer_together(self, questions: list[Question]) -> int:
        """Answer the first of them, up to a number of rows; how many that is."""
        found: dict[str | None, AskedModel | Exception] = {}
        together: dict[str, list[tuple[Question, Inputs]]] = {}
        n_rows = n_done = 0
        for question in questions:
            if n_rows >= max(1, self.settings.join_rows):
                break
            n_done += 1
            started_at = perf_counter()
            question.seconds["parse"] = 0.0
            question.seconds["queue"] = started_at - question.asked_at
            try:
                model = self._find(question, found)
                inputs = self._read(question, model)
            except _EXPECTED as error:
                question.error = error
                continue
            question.seconds["parse"] = perf_counter() - started_at
            if inputs is not None:
                n_rows += len(inputs.x_num)
                together.setdefault(model.id, []).append((question, inputs))
        for group in together.values():
            self._run_together(group)
        return n_done

    def _find(
        self, question: Question, found: dict[str | None, AskedModel | Exception]
    ) -> AskedModel:
        """The model; questions with the same key share one look into the database."""
        if question.secret not in found:
            try:
                found[question.secret] = find_asked_model(
                    question.secret, question.reference
                )
            except _EXPECTED as error:
                found[question.secret] = error
        result = found[question.secret]
        if isinstance(result, Exception):
            raise result
        return result

    def _read(self, question: Question, model: AskedModel) -> Inputs | None:
        """The rows of a small question; None if they are too many to be joined."""
        question.open(model, self._predictors.get(model))
        if (only := question.encode_only()) is not None:
            return only
        chunks = question.encode(question.notes)
        first = next(chunks, None)
        if first is None:
            raise DataError("there are no rows to predict")
        if next(chunks, None) is not None:
            question.is_long = True
            return None
        return first

    def _run_together(self, group: list[tuple[Question, Inputs]]) -> None:
        started_at = perf_counter()
        predictor = group[0][0].predictor
        if len(group) == 1:
            x_num, x_cat, _ = group[0][1]
        else:
            x_num = np.concatenate([inputs.x_num for _, inputs in group])
            x_cat = np.concatenate([inputs.x_cat for _, inputs in group])
        mean, members = predictor.run(x_num, x_cat)
        run_at = perf_counter()
        # Most have no options: what they are told is worked out once for all.
        shared: Columns = {}
        stop = 0
        for question, inputs in group:
            start, stop = stop, stop + len(inputs.x_num)
            question.seconds["run"] = run_at - started_at
            encoding_at = perf_counter()
            try:
                if len(group) == 1:
                    columns = question.describe(mean, members, inputs.ids)
                elif question.options is not _DEFAULT:
                    part = mean[start:stop], members[start:stop]
                    columns = question.describe(*part, inputs.ids)
                else:
                    shared = shared or question.describe(mean, members, None)
                    columns = {} if inputs.ids is None else {"id": inputs.ids}
                    columns |= {n: each[start:stop] for n, each in shared.items()}
                head = question.head(question.notes)
                question.content = question.start_answer().write_all(head, columns)
                question.seconds["encode"] = perf_counter() - encoding_at
                question.finish(head)
            except _EXPECTED as error:
                question.error = error

    # Large tables

    async def find(self, question: Question) -> None:
        """Refuse a stranger, an unknown model or too much work before the body is
        read."""
        if self._n_tables >= self.settings.table_queue:
            raise Overloaded("many large tables are being answered; ask again later")
        await self._in_thread(find_asked_model, question.secret, question.reference)

    async def stream(self, question: Question) -> AsyncIterator[bytes]:
        """Check the whole table, then give the answer piece by piece."""
        if self._n_tables >= self.settings.table_queue:
            raise Overloaded("many large tables are being answered; ask again later")
        self._n_tables += 1
        try:
            pieces = self._pieces(question, perf_counter())
            first = await self._in_thread(next, pieces)
        finally:
            self._n_tables -= 1
        return self._follow(first, pieces)

    async def _follow(
        self, first: bytes, pieces: Iterator[bytes]
    ) -> AsyncIterator[bytes]:
        yield first
        while piece := await self._in_thread(next, pieces, b""):
            yield piece

    def _pieces(self, question: Question, asked_at: float) -> Iterator[bytes]:
        started_at = perf_counter()
        model = find_asked_model(question.secret, question.reference)
        question.open(model, self._predictors.get(model))
        self._check(question)
        question.seconds = {
            "parse": perf_counter() - started_at,
            "queue": started_at - asked_at,
        }
        head = question.head(question.notes)
        answer = question.start_answer()
        piece = answer.begin(head)
        for inputs in question.encode(Notes()):
            running_at = perf_counter()
            mean, members = question.predictor.run(inputs.x_num, inputs.x_cat)
            encoding_at = perf_counter()
            piece += answer.write(question.describe(mean, members, inputs.ids))
            if not question.headers:  # they tell of the first piece
                question.seconds["run"] = encoding_at - running_at
                question.seconds["encode"] = perf_counter() - encoding_at
                question.finish(head)
            if piece:
                yield piece
            piece = b""
        piece += answer.end()
        if piece:
            yield piece

    def _check(self, question: Question) -> None:
        """Find all that is wrong, and what is worth a warning."""
        most = self.settings.max_predict_rows
        if isinstance(question.rows, ParquetRows) and question.rows.n_rows > most:
            raise _too_many_rows(question.rows.n_rows, most)
        for _ in question.encode(question.notes):
            if question.notes.n_rows > most:
                raise _too_many_rows(question.notes.n_rows, most)
        if question.notes.n_rows == 0:
            raise DataError("there are no rows to predict")

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._tables, function, *arguments)


def _too_many_rows(n_rows: int, most: int) -> TooLarge:
    return TooLarge(
        f"{n_rows} rows or more are beyond the {most} taken in one request; send them "
        "in parts"
    )


@cache
def get_serving() -> Serving:
    return Serving(get_settings(), get_predictors())
