"""Watching served models."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from app import monitor
from app.access import Reader, Writer
from app.api.bodies.monitor import (
    MonitorRead,
    OutcomesTaken,
    OutcomesWrite,
    OutcomeWrite,
    Watched,
    WatchedDay,
)
from app.api.deps import ModelId
from app.api.model_facts import read_facts
from app.api.responses import problems
from app.errors import Invalid
from app.serving import find_model
from app.storage import db
from lometab.drift import FALSE_ALARM_RATE

router = APIRouter(prefix="/models", tags=["models"])

MAX_OUTCOME = 1e100
"""Errors are squared and summed, over all days that are kept."""


@router.get(
    "/{model_id}/monitor",
    response_model=MonitorRead,
    summary="What a model is asked, against what it was trained on",
    responses=problems(404, 422),
)
def read_monitor(
    caller: Reader,
    model_id: ModelId,
    days: Annotated[int, Query(ge=1, le=366, description="So many, with today.")] = 30,
) -> MonitorRead:
    """By day, and for all these days together: rows, missing and unseen values, numbers
    out of range, drift of each column with an alarm, how certain the answers are beside
    the calibration rows, the labels, and what posted outcomes say. Aggregates only: no
    row is kept."""
    collector = monitor.get_collector()
    collector.flush()
    with db.reading() as session:
        model = find_model(session, model_id, caller.workspace_id)
        counted = monitor.read_counts(session, model.id, days)
    facts = read_facts(model)
    total: dict[str, Any] = {}
    for each in counted.values():
        total = monitor.add(total, each)
    reference = facts.get("reference")
    return MonitorRead(
        model_id=model.id,
        is_on=collector.is_on,
        has_reference=reference is not None,
        n_training_rows=None if reference is None else reference["n_rows"],
        false_alarm_rate=FALSE_ALARM_RATE,
        days=[
            WatchedDay(day=day, **monitor.describe_day(facts, each))
            for day, each in counted.items()
        ],
        total=Watched(**monitor.describe_day(facts, total)),
    )


@router.post(
    "/{model_id}/outcomes",
    response_model=OutcomesTaken,
    summary="Tell what predicted rows turned out to be",
    responses=problems(400, 404, 422),
)
def write_outcomes(
    caller: Writer, model_id: ModelId, body: OutcomesWrite
) -> OutcomesTaken:
    """By the ids that the rows had when they were predicted (`id_column`). Of each id
    the latest answer is held against the truth, once, and counted into live scores; all
    its answers are forgotten. Rows of prediction jobs have no answers that wait."""
    monitor.get_collector().flush()
    with db.transaction() as session:
        model = find_model(session, model_id, caller.workspace_id)
        facts = read_facts(model)
        truth = _read_truth(model.id, facts, body.outcomes)
        matched = monitor.take_outcomes(session, model, facts, truth)
    return OutcomesTaken(matched=matched, unknown=len(truth) - matched)


def _read_truth(
    model_id: str, facts: dict[str, Any], outcomes: list[OutcomeWrite]
) -> dict[int, float]:
    """The truth by the hash of its id."""
    truth: dict[int, float] = {}
    for i, each in enumerate(outcomes):
        key = monitor.hash_id(model_id, each.id)
        if not key:
            raise _refuse(i, "id", "an id must not be empty")
        try:
            value = _read_value(facts, each.value)
        except ValueError as error:
            raise _refuse(i, "value", str(error)) from None
        if truth.setdefault(key, value) != value:
            raise _refuse(i, "id", f"{each.id!r:.60} has another value before")
    return truth


def _refuse(i: int, name: str, message: str) -> Invalid:
    fault = {"pointer": f"/outcomes/{i}/{name}", "message": message}
    return Invalid(f"outcomes.{i}.{name}: {message}", errors=[fault])


def _read_value(facts: dict[str, Any], value: Any) -> float:
    """The target's value, or the number of the class."""
    classes = facts["classes"]
    if classes is None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(
                f"an outcome of this model is a number, however: {value!r:.60}"
            )
        if not abs(value) <= MAX_OUTCOME:  # NaN is not, either
            raise ValueError(
                f"a number must lie within ±{MAX_OUTCOME:g}, so that its square can be "
                f"summed, however: {value!r:.40}"
            )
        return float(value)
    places = {(type(label), label): i for i, label in enumerate(classes)}
    texts = {str(label): i for i, label in enumerate(classes)}
    found = places.get((type(value), value), texts.get(str(value)))
    if found is None:
        raise ValueError(
            f"an outcome of this model is one of {classes[:5]}, however: {value!r:.60}"
        )
    return found
