"""Watching served models."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from app import monitor
from app.access import Reader, Writer
from app.api.bodies.monitor import (
    MonitorRead,
    OutcomesTaken,
    OutcomesWrite,
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
    """By the ids that the rows had when they were predicted (`id_column`). The answers
    are held against the truth once, counted into live scores, and forgotten."""
    monitor.get_collector().flush()
    with db.transaction() as session:
        model = find_model(session, model_id, caller.workspace_id)
        facts = read_facts(model)
        truth = {
            monitor.hash_id(model.id, each.id): _read_value(facts, each.value)
            for each in body.outcomes
        }
        matched = monitor.take_outcomes(session, model, facts, truth)
    return OutcomesTaken(matched=matched, unknown=len(truth) - matched)


def _read_value(facts: dict[str, Any], value: Any) -> float:
    """The target's value, or the number of the class."""
    classes = facts["classes"]
    if classes is None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Invalid(f"an outcome of this model is a number, however: {value!r}")
        return float(value)
    places = {(type(label), label): i for i, label in enumerate(classes)}
    texts = {str(label): i for i, label in enumerate(classes)}
    found = places.get((type(value), value), texts.get(str(value)))
    if found is None:
        raise Invalid(
            f"an outcome of this model is one of {classes[:5]}, however: {value!r}"
        )
    return found
