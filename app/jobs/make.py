"""The one place where a job's row is made."""

from collections.abc import Mapping
from typing import Any

from app.storage.enums import PARENTS, JobKind, JobRole
from app.storage.tables import Job, new_id


def make_job(*, role: JobRole, config: Mapping[str, Any], **values: Any) -> Job:
    """A job that is not stored yet.

    Args:
        values: further columns; see `Job`.
    """
    parents = {JobRole(kind): kind for kind in PARENTS}
    if "progress" not in values:
        max_epochs = config["hyperparameters"]["max_epochs"]
        values["progress"] = {"epoch": 0, "max_epochs": max_epochs}
    return Job(
        id=new_id("job"),
        kind=parents.get(role, JobKind.TRAIN),
        role=role,
        config=dict(config),
        **values,
    )


def make_like(
    other: Job, *, role: JobRole, config: Mapping[str, Any], **values: Any
) -> Job:
    """The same on the data and the queue of another job."""
    return make_job(
        role=role,
        config=config,
        workspace_id=other.workspace_id,
        dataset_id=other.dataset_id,
        queue=other.queue,
        schema=other.schema,
        estimate=other.estimate,
        **values,
    )
