"""What a prediction job can be told: as predict, and what becomes of it all."""

from typing import Literal

from pydantic import Field

from app import jobs
from app.answering import Output, PredictOptions

OnError = Literal["fail", "skip"]


class PredictionSettings(PredictOptions):
    """What to answer, in which format, and what to do about rows that cannot be."""

    output: Output = Field(
        default="csv",
        description="The format of the result. csv and parquet: a column for each "
        "number; arrow: a stream, with lists for members and classes.",
    )
    on_error: OnError = Field(
        default="fail",
        description="A row with a value that cannot be read fails the job, or (skip) "
        "keeps its place with nulls and is told in the faults.",
    )
    tags: list[jobs.Tag] = Field(
        default_factory=list, max_length=20, description="Words to find the job by."
    )
