"""The parts of a prediction: rows are answered, and answers become one file.

ONNX Runtime alone computes here. No more is held than a batch for each thread, and the
session stays for the next chunk of the same job.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.answering import (
    Columns,
    PartFile,
    PredictOptions,
    encode_rows,
    join_parts,
    make_columns,
    with_ids,
)
from lometab.errors import DataError, TrainingCancelled
from lometab.predictor import Notes, Predictor
from lometab.table import ParquetTable
from worker.messages import (
    ANSWERS,
    BASE,
    FAULTS,
    OUTCOME,
    PARTS,
    ROWS,
    Message,
    PhaseBegun,
    RowsDone,
    Spec,
)

MAX_BATCH = 8192
MAX_NUMBERS = 2**22
"""Of a batch, in or out."""
MAX_DETAIL = 300
Send = Callable[[Message], None]


class Encoded(NamedTuple):
    """A batch as the model takes it."""

    x_num: NDArray[np.float64]
    x_cat: NDArray[np.object_]
    skipped: NDArray[np.bool_]


class Answered(NamedTuple):
    """A batch as it is written."""

    columns: Columns
    skipped: NDArray[np.bool_]
    novelty: NDArray[np.float32] | None


class Prediction:
    """Part after part of one job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._predictor: Predictor | None = None

    def run(self, spec: Spec, send: Send, orders: set[str]) -> None:
        """Leave the answers, the faults and what was counted in the folder."""
        assert spec.prediction is not None
        if spec.role == "assemble":
            outcome, faults = self._assemble(spec.prediction, send), []
        else:
            self._predictor = self._predictor or Predictor(self.folder / BASE)
            chunk = Chunk(spec, self.folder, self._predictor)
            chunk.answer(send, orders)
            outcome, faults = chunk.outcome, chunk.faults
        (self.folder / FAULTS).write_text(json.dumps(faults), encoding="utf-8")
        (self.folder / OUTCOME).write_text(json.dumps(outcome), encoding="utf-8")

    def _assemble(self, about: Mapping[str, Any], send: Send) -> dict[str, Any]:
        send(PhaseBegun("assembling"))
        if about["output"] == "parquet":
            parts = sorted((self.folder / PARTS).iterdir())
            join_parts(parts, self.folder / ANSWERS)
        send(RowsDone(about["n_rows"]))
        return {"output": about["output"], "n_rows": about["n_rows"]}


class Chunk:
    """Some rows of a table."""

    def __init__(self, spec: Spec, folder: Path, predictor: Predictor) -> None:
        assert spec.prediction is not None
        self.about, self.folder, self.threads = spec.prediction, folder, spec.threads
        self.predictor = predictor
        self.options = PredictOptions.model_validate(self.about["options"])
        self.notes = Notes()
        self.faults: list[tuple[int, str | None, str]] = []
        self.n_faults = 0

    @property
    def outcome(self) -> dict[str, Any]:
        return {
            "n_rows": self.notes.n_rows + self.n_faults,
            "n_faults": self.n_faults,
            "notes": self.notes.to_dict(),
        }

    def answer(self, send: Send, orders: set[str]) -> None:
        send(PhaseBegun("predicting"))
        classes = self.predictor.classes
        head = {
            "model_id": self.about["model_id"],
            "task": self.predictor.task,
            "k": self.predictor.k,
            "classes": classes,
            "calibrated": self.options.calibrated,
            "coverage": self.options.coverage,
        }
        part = PartFile(
            self.folder / ANSWERS,
            self.about["output"],
            classes,
            head,
            is_first=self.about["is_first"],
            is_last=self.about["is_last"],
            is_spreadsheet_safe=self.options.spreadsheet_safe,
        )
        n_done = 0
        with part, ThreadPoolExecutor(self.threads) as threads:
            for columns, skipped, novelty in self._run_ahead(threads):
                if "leave" in orders:  # another worker does the chunk again
                    raise TrainingCancelled
                part.write(columns, skipped if skipped.any() else None)
                if novelty is not None:
                    self.notes.see_novel(novelty[~skipped, 0])
                n_done += len(skipped)
                send(RowsDone(n_done))

    def _run_ahead(self, threads: ThreadPoolExecutor) -> Iterator[Answered]:
        """Answers in the order of rows, of which each thread has one under way."""
        waiting: deque[Future[Answered]] = deque()
        try:
            for encoded, ids in self._encode_all():
                waiting.append(threads.submit(self._run, encoded, ids))
                if len(waiting) > self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _run(self, encoded: Encoded, ids: Any) -> Answered:
        x_num, x_cat, skipped = encoded
        mean, members, novelty = self.predictor.run_all(x_num, x_cat)
        columns = make_columns(
            self.predictor, self.options, mean, members, novelty, x_cat
        )
        return Answered(with_ids(columns, ids), skipped, novelty)

    def _encode_all(self) -> Iterator[tuple[Encoded, Any]]:
        table = ParquetTable(self.folder / ROWS)
        start, id_column = self.about["first_row"], self.about["id_column"]
        wanted = {*self.predictor.columns, id_column}
        names = [name for name in table if name in wanted]
        n_rows, size = self.about["n_rows"], self._find_batch_rows()
        for batch in table.rows(start, n_rows, names, size):
            columns = dict(zip(names, batch.columns, strict=True))
            ids = None if id_column is None else columns[id_column]
            yield self._encode(columns, start, batch.num_rows), ids
            start += batch.num_rows

    def _find_batch_rows(self) -> int:
        n_answers = self.predictor.k * len(self.predictor.classes or (0,))
        widest = max(len(self.predictor.columns), n_answers, 1)
        return max(1, min(MAX_BATCH, MAX_NUMBERS // widest))

    def _encode(self, columns: Mapping[str, Any], start: int, n_rows: int) -> Encoded:
        """A batch; of one with faults, the halves, down to the rows that have them.

        Args:
            start: the number of the first row in the whole table.
        """
        formats = self.about["formats"]
        notes = self.predictor.compare(self.predictor.columns)
        notes.n_rows = start
        try:
            inputs = encode_rows(self.predictor, columns, n_rows, notes, formats)
        except DataError as error:
            if self.about["on_error"] == "fail":
                raise
            if n_rows == 1:
                return self._skip(start + 1, error)
            half = n_rows // 2
            halves = [
                self._encode(_slice(columns, first, n), start + first, n)
                for first, n in ((0, half), (half, n_rows - half))
            ]
            return Encoded(*map(np.concatenate, zip(*halves, strict=True)))
        notes.n_rows -= start
        self.notes.add(notes)
        return Encoded(*inputs, np.zeros(n_rows, dtype=bool))

    def _skip(self, row: int, error: DataError) -> Encoded:
        self.n_faults += 1
        if len(self.faults) < self.about["max_faults"]:
            self.faults.append((row, error.column, str(error)[:MAX_DETAIL]))
        return Encoded(
            np.full((1, len(self.predictor.numeric)), np.nan),
            np.full((1, len(self.predictor.categorical)), "", dtype=object),
            np.ones(1, dtype=bool),
        )


def _slice(columns: Mapping[str, Any], first: int, n_rows: int) -> dict[str, Any]:
    return {name: column.slice(first, n_rows) for name, column in columns.items()}
