"""Bodies of prediction jobs."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.api.bodies.common import Id
from app.predictions import PredictionSettings

_OF_FILES = (
    *("encoding", "delimiter", "quote", "header", "skip_lines", "skip_footer"),
    "sheet",
)


class PredictionCreate(PredictionSettings):
    """The same, for a file that comes with it."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"output": "parquet", "exclude": ["members"]}}
    )


class PredictionOnDataset(PredictionSettings):
    """The same, for a dataset that was uploaded before."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"dataset_id": "ds_0123456789ab", "output": "parquet"}
        }
    )

    dataset_id: Id = Field(examples=["ds_0123456789ab"])

    @model_validator(mode="after")
    def check_reading(self) -> Self:
        told = [name for name in _OF_FILES if getattr(self, name) is not None]
        if told:
            raise ValueError(
                f"`{told[0]}` is of a file, and a dataset is read when it is uploaded; "
                "set it there"
            )
        return self


class FaultRead(BaseModel):
    """A row that has no answer."""

    row: int = Field(description="Of the table, counted from 1.")
    column: str | None = Field(description="Where the fault is, if in one column.")
    detail: str


class FaultPage(BaseModel):
    """Rows that have no answer, in their order. Of each chunk the first 1000."""

    data: list[FaultRead]
    next_after: int | None = Field(
        description="Send it as `after` for the next page; null on the last one."
    )
