"""Counts what is predicted, beside the requests and never in their way.

A request leaves its arrays in a queue; one thread counts them a moment later, and now
and then adds the counts to the database. What comes faster than it can be counted is
left out, and that is counted.
"""

import logging
import secrets
import threading
from collections import deque
from functools import cache
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from sqlalchemy.exc import SQLAlchemyError

from app.monitor import store
from app.monitor.outcomes import hash_id, pack
from app.monitor.tally import Counts, add, count_rows
from app.settings import Settings, get_settings
from app.storage import db
from lometab.prediction import Answered
from lometab.predictor import Predictor

log = logging.getLogger(__name__)

MAX_WAITING = 2**16
"""Rows that wait to be counted; more are left out."""
_PAUSE = 0.5


class _Seen(NamedTuple):
    """Rows of one request."""

    predictor: Predictor
    x_num: Any
    x_cat: Any
    answered: Answered
    ids: Any


class Collector:
    """Of one process. Thread-safe, and started by the first rows."""

    def __init__(self, settings: Settings) -> None:
        self.is_on = settings.monitor
        self._settings = settings
        self._shard = secrets.token_hex(8)
        self._waiting: deque[tuple[str, str, _Seen | int]] = deque()
        """Rows, or how many of them were left out."""
        self._n_waiting = 0
        self._counts: dict[tuple[str, str, str], Counts] = {}
        """By model, workspace and day: what is not in the database yet."""
        self._answers: list[tuple[str, str, int, bytes]] = []
        self._lock = threading.Lock()
        """Held while rows are counted and written."""
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._written_at = monotonic()

    def watch(
        self,
        model_id: str,
        workspace_id: str,
        predictor: Predictor,
        x_num: Any,
        x_cat: Any,
        answered: Answered,
        ids: Any = None,
    ) -> None:
        """Take note of rows that were answered. They must not be changed any more."""
        if self._n_waiting > MAX_WAITING:
            self._waiting.append((model_id, workspace_id, len(x_num)))
            return
        self._n_waiting += len(x_num)
        seen = _Seen(predictor, x_num, x_cat, answered, ids)
        self._waiting.append((model_id, workspace_id, seen))
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="monitor", daemon=True
                )
                self._thread.start()

    def _work(self) -> None:
        while not self._closed.wait(_PAUSE):
            try:
                with self._lock:
                    self._count()
                    if monotonic() - self._written_at > self._settings.monitor_seconds:
                        self._write()
            except Exception:  # monitoring must never end by what it saw
                log.exception("rows could not be counted")

    def flush(self) -> None:
        """Count and write all that is known by now."""
        with self._lock:
            self._count()
            self._write()

    def close(self) -> None:
        """Write what is known, and end the thread."""
        self._closed.set()
        self.flush()

    def _count(self) -> None:
        """Rows of one model together: a call for each request would cost more."""
        groups: dict[tuple[str, str], list[_Seen]] = {}
        for _ in range(len(self._waiting)):
            model_id, workspace_id, seen = self._waiting.popleft()
            if isinstance(seen, int):
                self._add(model_id, workspace_id, {"n_left_out": seen})
                continue
            self._n_waiting -= len(seen.x_num)
            groups.setdefault((model_id, workspace_id), []).append(seen)
        for (model_id, workspace_id), many in groups.items():
            self._count_group(model_id, workspace_id, many)

    def _count_group(self, model_id: str, workspace_id: str, many: list[_Seen]) -> None:
        predictor = many[0].predictor
        answered = _join([each.answered for each in many])
        counts = count_rows(
            predictor,
            np.concatenate([each.x_num for each in many]),
            np.concatenate([each.x_cat for each in many]),
            answered,
        )
        self._add(model_id, workspace_id, counts)
        if self._settings.monitor_answers:
            for each in many:
                self._keep_answers(model_id, workspace_id, each)

    def _keep_answers(self, model_id: str, workspace_id: str, seen: _Seen) -> None:
        if seen.ids is None:
            return
        try:
            ids = seen.ids if isinstance(seen.ids, list) else seen.ids.to_pylist()
        except (pa.ArrowException, ValueError, OverflowError):
            return  # no truth can name them
        hashes = [hash_id(model_id, each) for each in ids]
        n_rows = sum(each != 0 for each in hashes)
        if n_rows:
            packed = pack(hashes, seen.answered)
            self._answers.append((model_id, workspace_id, n_rows, packed))

    def _add(self, model_id: str, workspace_id: str, counts: Counts) -> None:
        key = (model_id, workspace_id, store.today())
        self._counts[key] = add(self._counts.get(key, {}), counts)

    def _write(self) -> None:
        self._written_at = monotonic()
        counts, self._counts = self._counts, {}
        answers, self._answers = self._answers, []
        for (model_id, workspace_id, day), each in counts.items():
            try:
                with db.transaction() as session:
                    store.add_counts(
                        session, model_id, workspace_id, day, self._shard, each
                    )
            except SQLAlchemyError as error:
                log.warning("counts of %s are lost: %s", model_id, type(error).__name__)
        if answers:
            self._write_answers(answers)

    def _write_answers(self, answers: list[tuple[str, str, int, bytes]]) -> None:
        try:
            with db.transaction() as session:
                for model_id, workspace_id, n_rows, packed in answers:
                    store.add_answers(session, model_id, workspace_id, n_rows, packed)
                for model_id in {each[0] for each in answers}:
                    store.drop_surplus(session, model_id, self._settings)
        except SQLAlchemyError as error:
            log.warning("answers that wait are lost: %s", type(error).__name__)


def _join(many: list[Answered]) -> Answered:
    if len(many) == 1:
        return many[0]
    novelty = None
    if many[0].novelty is not None:
        novelty = np.concatenate([a.novelty for a in many if a.novelty is not None])
    return Answered(
        np.concatenate([each.mean for each in many]),
        np.concatenate([each.members for each in many]),
        novelty,
    )


@cache
def get_collector() -> Collector:
    return Collector(get_settings())
