"""Model cards: one page on a model, for people."""

import hashlib
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Header, Query, Response

from app.api.deps import ModelDep
from app.api.model_facts import read_facts
from app.api.reports import find_reports
from app.api.responses import IfNoneMatch, matches, problems
from app.errors import Overloaded
from app.serving import choose_media_type
from app.storage import db
from app.storage.tables import Dataset, Job, TrainedModel
from lometab import __version__
from lometab.card import About, to_html, to_markdown
from lometab.plots import RenderBusy

router = APIRouter(prefix="/models", tags=["models"])

CardFormat = Literal["html", "md"]
MEDIA_TYPES: dict[CardFormat, str] = {"html": "text/html", "md": "text/markdown"}
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox"
"""It shows its own pictures, and loads and runs nothing."""


@router.get(
    "/{model_id}/card",
    summary="What to know of a model, on one page",
    response_class=Response,
    responses={
        **problems(404, 406, 409, 422),
        200: {
            "content": {
                media_type: {"schema": {"type": "string"}}
                for media_type in MEDIA_TYPES.values()
            }
        },
    },
)
def read_card(
    model: ModelDep,
    format: Annotated[
        CardFormat | None, Query(description="By default what `Accept` asks for.")
    ] = None,
    accept: Annotated[str, Header()] = "*/*",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Summary, what it uses, scores, where it fails, figures, data, settings, limits,
    and how to ask it. The HTML needs nothing else, can be printed, and is light or dark
    as the reader's screen is."""
    chosen = format or _choose_format(accept)
    with db.reading() as session:  # which must not stand open while pictures are drawn
        job = session.get_one(Job, model.job_id)
        reports = find_reports(job, session)
        about = _describe(model, job, session.get_one(Dataset, job.dataset_id))
    seen = orjson.dumps([chosen, __version__, vars(about), reports], default=dict)
    headers = {
        "ETag": f'"{hashlib.sha256(seen).hexdigest()[:32]}"',
        "Vary": "Accept",
        "Content-Security-Policy": _POLICY,
    }
    if matches(headers["ETag"], if_none_match):
        return Response(status_code=304, headers=headers)
    try:
        write = to_html if chosen == "html" else to_markdown
        content = write(about, reports)
    except RenderBusy:
        raise Overloaded() from None
    media_type = f"{MEDIA_TYPES[chosen]}; charset=utf-8"
    return Response(content, media_type=media_type, headers=headers)


def _choose_format(accept: str) -> CardFormat:
    names = {media_type: each for each, media_type in MEDIA_TYPES.items()}
    return names[choose_media_type(accept, [*names])]


def _describe(model: TrainedModel, job: Job, dataset: Dataset) -> About:
    facts = read_facts(model)
    name = f"{model.name}, version {model.version}" if model.name else model.id
    return About(
        title=f"Model {name}",
        made_at=f"made {model.created_at:%Y-%m-%d %H:%M} UTC",
        target=facts["target"],
        columns={each: _take(facts, each) for each in _columns(facts)},
        ignored=job.schema["ignored"],
        data={
            "file": dataset.filename,
            "rows": dataset.n_rows,
            "SHA-256 of the file": facts.get("dataset_sha256") or dataset.sha256,
        },
        split=job.config["split"],
        settings=job.config["hyperparameters"],
        identity={
            "model": model.id,
            "job": job.id,
            "SHA-256 of the ONNX file": model.onnx_sha256,
        },
        address=f"/models/{model.id}/predict",
        figures=f"/jobs/{job.id}/figures",
        example={each: _exemplify(facts, each) for each in _columns(facts)},
    )


def _columns(facts: dict[str, Any]) -> list[str]:
    return [*facts["numeric"], *facts["categorical"]]


def _take(facts: dict[str, Any], name: str) -> str:
    """What the model takes in a column, in words."""
    if name in facts["categorical"]:
        levels = facts["levels"][name]
        shown = ", ".join(repr(level) for level in levels[:5])
        return f"a category: {shown}" + (
            f" and {len(levels) - 5} more" if len(levels) > 5 else ""
        )
    ends = facts["ranges"].get(name)
    if name in facts["datetime"]:
        days = [f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d}" for end in ends or ()]
        return " to ".join(["a moment", *days]).replace(" to ", " from ", 1)
    return "a number" + (f" from {ends[0]:g} to {ends[1]:g}" if ends else "")


def _exemplify(facts: dict[str, Any], name: str) -> Any:
    """A value that the column could have, which is of no row."""
    if name in facts["categorical"]:
        return next(iter(facts["levels"][name]), None)
    if name in facts["datetime"]:
        return "2024-01-31"
    ends = facts["ranges"].get(name)
    return None if not ends else float(f"{(ends[0] + ends[1]) / 2:.3g}")
