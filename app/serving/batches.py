"""Small requests: those of one caller for one model are answered by one run."""

from collections.abc import Iterator
from enum import Enum, auto
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from app.answering import DEFAULT, Columns, with_ids
from app.monitor import get_collector
from app.observe import metrics
from app.serving.explanations import check_explained, explain
from app.serving.models import ServedModel, find_served
from app.serving.opened import Inputs, Opened, open_request
from app.serving.predictors import Predictors
from app.serving.requests import PredictRequest
from lometab.errors import DataError
from lometab.prediction import Answered
from lometab.predictor import Predictor


class SmallRequest(NamedTuple):
    """A request whose body is in memory."""

    request: PredictRequest
    body: bytes


class Answer(NamedTuple):
    """The last stage: what is sent, whole."""

    content: bytes
    headers: dict[str, str]


class Elsewhere(Enum):
    """Why a request has no answer yet: others need not wait for it."""

    AS_TABLE = auto()
    """It has more rows than go into one run."""
    EXPLAINED = auto()
    """Explaining takes up to some seconds."""


Result = Answer | Elsewhere
Seconds = dict[str, float]


class _Encoded(NamedTuple):
    """A request whose rows are ready to be run, and how long that took."""

    opened: Opened
    inputs: Inputs
    seconds: Seconds


def answer_together(
    requests: list[SmallRequest],
    predictors: Predictors,
    max_rows: int,
    *,
    explains: bool = False,
) -> list[Result | Exception]:
    """What comes of the first of them, up to a number of rows.

    All are of one caller and name one model, so they share the query for both. What is
    wrong with one of them is told to that one.

    Args:
        explains: otherwise those that ask for explanations are answered elsewhere.
    """
    started_at = perf_counter()
    first = requests[0].request
    try:
        model = find_served(first.secret, first.reference)
        predictor = predictors.get(model)
    except Exception as error:  # they all asked the same
        return [error] * len(requests)
    found: list[_Encoded | Exception | Elsewhere] = []
    n_rows = 0
    parsing_at = started_at
    for each in requests:
        if n_rows >= max(1, max_rows):
            break
        queued = started_at - each.request.received_at
        try:
            encoded = _encode(each, model, predictor, explains)
        except Exception as error:
            found.append(error)
            continue
        parsed_at = perf_counter()
        if isinstance(encoded, Elsewhere):
            found.append(encoded)
        else:
            n_rows += len(encoded[1].x_num)
            seconds = {"parse": parsed_at - parsing_at, "queue": queued}
            found.append(_Encoded(*encoded, seconds))
        parsing_at = parsed_at
    answers = _run([each for each in found if isinstance(each, _Encoded)], predictor)
    return [next(answers) if isinstance(e, _Encoded) else e for e in found]


def _encode(
    small: SmallRequest, model: ServedModel, predictor: Predictor, explains: bool
) -> tuple[Opened, Inputs] | Elsewhere:
    """The rows of a request, if it is answered here."""
    opened = open_request(small.request, small.body, model, predictor)
    if opened.options.explain:
        check_explained(opened)
        if not explains:
            return Elsewhere.EXPLAINED
    if (only := opened.encode_only()) is not None:
        return opened, only
    chunks = opened.encode(opened.notes)
    first = next(chunks, None)
    if first is None:
        raise DataError("there are no rows to predict")
    if next(chunks, None) is not None:
        return Elsewhere.AS_TABLE
    return opened, first


def _run(group: list[_Encoded], predictor: Predictor) -> Iterator[Answer | Exception]:
    """An answer for each. If the run fails, each has one of its own."""
    if not group:
        return
    started_at = perf_counter()
    try:
        x_num, x_cat = _join(group)
        answered = predictor.run_all(x_num, x_cat)
    except Exception as error:
        if len(group) == 1:
            yield error
            return
        for each in group:
            yield from _run([each], predictor)
        return
    spent = perf_counter() - started_at
    metrics.PREDICT_REQUESTS.observe(len(group))
    metrics.PREDICT_ROWS.observe(len(x_num))
    parts = _split(group, answered)
    _watch(group, predictor, x_num, x_cat, answered, parts)
    # Most have no options: what they are told is worked out once for all.
    shared: Columns = {}
    stop = 0
    for each, part in zip(group, parts, strict=True):
        start, stop = stop, stop + len(each.inputs.x_num)
        opened = each.opened
        each.seconds["run"] = spent
        if part.novelty is not None:
            opened.notes.see_novel(part.novelty[:, 0])
        writing_at = perf_counter()
        try:
            if len(group) > 1 and opened.options is DEFAULT:
                shared = shared or opened.make_columns(answered, x_cat)
                columns = {name: all_[start:stop] for name, all_ in shared.items()}
            else:
                columns = opened.make_columns(part, each.inputs.x_cat)
                if opened.options.explain:
                    columns["explanation"] = explain(
                        opened, each.inputs, part.mean, part.members
                    )
                    each.seconds["explain"] = perf_counter() - writing_at
            yield _write(each, columns, writing_at)
        except Exception as error:
            yield error


def _split(group: list[_Encoded], answered: Answered) -> list[Answered]:
    """What the model said of the rows of each request."""
    if len(group) == 1:
        return [answered]
    mean, members, novelty = answered
    parts = []
    stop = 0
    for each in group:
        start, stop = stop, stop + len(each.inputs.x_num)
        part = None if novelty is None else novelty[start:stop]
        parts.append(Answered(mean[start:stop], members[start:stop], part))
    return parts


def _watch(
    group: list[_Encoded],
    predictor: Predictor,
    x_num: Any,
    x_cat: Any,
    answered: Answered,
    parts: list[Answered],
) -> None:
    """Rows without ids are noted together, others by their requests."""
    collector = get_collector()
    if not collector.is_on:
        return
    id_, workspace_id, _ = group[0].opened.model
    if len(group) == 1 or all(each.inputs.ids is None for each in group):
        ids = group[0].inputs.ids
        collector.watch(id_, workspace_id, predictor, x_num, x_cat, answered, ids)
        return
    for each, part in zip(group, parts, strict=True):
        collector.watch(
            id_, workspace_id, predictor, *each.inputs[:2], part, each.inputs.ids
        )


def _join(group: list[_Encoded]) -> tuple[Any, Any]:
    if len(group) == 1:
        return group[0].inputs[:2]
    return (
        np.concatenate([each.inputs.x_num for each in group]),
        np.concatenate([each.inputs.x_cat for each in group]),
    )


def _write(encoded: _Encoded, columns: Columns, started_at: float) -> Answer:
    opened, inputs, seconds = encoded
    head = opened.head()
    writer = opened.make_writer()
    content = writer.write_all(head, with_ids(columns, inputs.ids))
    seconds["encode"] = perf_counter() - started_at
    return Answer(content, opened.make_headers(head, seconds))
