"""Reports: how diverse and how calibrated a job's model is, and how well it scores."""

import csv
import hashlib
import io
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session

from app.api.deps import JobDep, ReadSessionDep
from app.api.responses import IfNoneMatch, matches, problems
from app.errors import NoReport, ReportNotReady
from app.storage.enums import FINISHED, PARENTS
from app.storage.tables import Job, Report
from lometab.evaluation import Calibration, Diversity, RunReport

router = APIRouter(prefix="/jobs", tags=["jobs"])

Format = Annotated[
    Literal["json", "csv"], Query(description="csv: the numbers of the pairs or bins.")
]


@router.get(
    "/{job_id}/diversity",
    response_model=Diversity,
    summary="How diverse the members are on the test part",
    responses=problems(404, 409, 422),
)
def read_diversity(
    job: JobDep,
    session: ReadSessionDep,
    if_none_match: IfNoneMatch = None,
    format: Format = "json",
) -> Response:
    """Classification: pairwise KL and disagreement, with the K x K matrices.
    Regression: the ambiguity, in target units squared and relative to the target's
    variance, and the squared difference of each pair of members. With one member there
    is no diversity, and the numbers are null. As CSV: a line for each pair."""
    body = _find_report(job, "diversity", session)
    rows = _pairs(body) if format == "csv" else None
    return _serve(body, rows, if_none_match)


@router.get(
    "/{job_id}/calibration",
    response_model=Calibration,
    summary="How far the ensemble's confidence can be trusted",
    responses=problems(404, 409, 422),
)
def read_calibration(
    job: JobDep,
    session: ReadSessionDep,
    if_none_match: IfNoneMatch = None,
    format: Format = "json",
) -> Response:
    """Classification: expected calibration error with its 15 bins, Brier score and
    negative log-likelihood, before and after the temperature, and conformal sets.
    Regression: coverage and width of conformal intervals, and of those between members.
    As CSV: a line for each bin, or for each conformal interval."""
    body = _find_report(job, "calibration", session)
    bins = body.get("bins") or body.get("conformal_intervals")
    return _serve(body, bins if format == "csv" else None, if_none_match)


@router.get(
    "/{job_id}/report",
    response_model=RunReport,
    summary="Scores of the ensemble and of each member",
    responses=problems(404, 409, 422),
)
def read_report(
    job: JobDep, session: ReadSessionDep, if_none_match: IfNoneMatch = None
) -> Response:
    """Scores on train, val and test; what the error is made of; how well the
    uncertainty tells errors; and how the model was made: times, seeds, versions."""
    return _serve(_find_report(job, "report", session), None, if_none_match)


_NAMES = {kind: f"{kind} report" for kind in ("diversity", "calibration")}


def find_reports(job: Job, session: Session) -> dict[str, dict[str, Any]]:
    """All reports of a job, by their kind."""
    kinds = ("report", "diversity", "calibration")
    return {kind: {**_find_report(job, kind, session)} for kind in kinds}


def _find_report(job: Job, kind: str, session: Session) -> dict[str, Any]:
    report = session.get(Report, (job.id, kind))
    if report is not None:
        return report.body if "summary" in report.body else {**_OLD, **report.body}
    if job.kind in PARENTS or job.is_measured:
        raise NoReport(
            "predictions and the runs of a sweep or tune job have no reports; a model "
            "has them, such as that of a run that is promoted",
            job_status=job.status,
        )
    if job.status in FINISHED:
        raise NoReport(
            f"the job ended as {job.status} and has no {_NAMES.get(kind, kind)}",
            job_status=job.status,
        )
    raise ReportNotReady(
        f"the {_NAMES.get(kind, kind)} is not ready: the job is {job.status}",
        headers={"Retry-After": "2"},
        job_status=job.status,
    )


_OLD = {
    "summary": [
        {
            "about": "warning",
            "text": "This report is from before reports had a summary, what drives the "
            "model and where it fails; train the model again to have them.",
            "fields": [],
        }
    ]
}


def _pairs(body: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per pair of members; none if there is one member."""
    names = ("pairwise_kl", "disagreement", "squared_difference")
    matrices = {name: body[name]["matrix"] or [] for name in names if name in body}
    return [
        {"i": i, "j": j, **{name: matrices[name][i][j] for name in matrices}}
        for i in range(body["k"])
        for j in range(i)
    ]


def _serve(
    body: dict[str, Any], rows: list[dict[str, Any]] | None, if_none_match: str | None
) -> Response:
    """The report as JSON, or rows as CSV; 304 if the client has it already."""
    if rows is None:
        content, media_type = orjson.dumps(body), "application/json"
    else:
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, rows[0] if rows else [])
        writer.writeheader()
        writer.writerows(rows)
        content, media_type = file.getvalue().encode(), "text/csv"
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    if matches(etag, if_none_match):
        return Response(status_code=304, headers={"ETag": etag})
    return Response(content, media_type=media_type, headers={"ETag": etag})
