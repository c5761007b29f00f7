"""What a job would be: everything is checked and estimated, and nothing is made."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app import jobs
from app.access import Writer
from app.api.bodies.jobs import EstimateRead, JobCreateOnDataset, name_kinds
from app.api.deps import SettingsDep, get_or_404
from app.api.responses import problems
from app.storage import db
from app.storage.tables import Dataset
from lometab.config import Task, TrainConfig
from lometab.space import PAPER_SPACE, near_space

router = APIRouter(prefix="/jobs", tags=["jobs"])


class PlanRead(BaseModel):
    """What a job would do, as far as can be told before it is made."""

    task: Task
    columns: dict[str, str] = Field(
        description="The kind of each column as it would be used, or why it is ignored."
    )
    hyperparameters: TrainConfig = Field(description="With the preset spelled out.")
    n_runs: int = Field(description="Of a sweep or tune job: its runs; else 1.")
    estimate: EstimateRead = Field(description="Of the largest of its runs.")
    spaces: dict[str, dict[str, jobs.ChoiceOrRange]] = Field(
        description="What a search (`tune`) may draw from: `paper`, the paper's space, "
        "which `space` departs from; `near`, the neighbourhood of `hyperparameters`."
    )
    warnings: list[str]


@router.post(
    "/plan",
    response_model=PlanRead,
    summary="Check a job and estimate what it takes, without making it",
    responses=problems(400, 404, 422),
)
def plan_job(
    body: JobCreateOnDataset, caller: Writer, settings: SettingsDep
) -> PlanRead:
    """The body is that of `POST /jobs` with a `dataset_id`, and so are the faults that
    are told. Nothing is written."""
    with db.reading() as session:
        dataset = get_or_404(session, Dataset, body.dataset_id, caller.workspace_id)
    plan = jobs.plan_job(body, dataset)
    with db.reading() as session:
        _, estimate, warnings = jobs.estimate_job(session, plan, settings)
    return PlanRead(
        task=plan.schema.task,
        columns=name_kinds(plan.schema.to_dict()),
        hyperparameters=body.hyperparameters,
        n_runs=jobs.count_runs(body),
        estimate=EstimateRead(**estimate),
        spaces={"paper": PAPER_SPACE, "near": near_space(body.hyperparameters)},
        warnings=warnings,
    )
