"""What people may change of a row: the words by which they find it."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.jobs import Name, Tag

# Lines and tabs are fine; the database takes no NUL.
Description = Annotated[
    str,
    Field(max_length=10_000, pattern=r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"),
]


class Change(BaseModel):
    """Only what is there is changed; null takes a name or a description away."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"tags": ["checked"], "description": "Without the outliers."}
        },
    )

    name: Name | None = None
    tags: list[Tag] = Field(default_factory=list, max_length=20)
    description: Description | None = None

    def apply(self, row: Any, *, without: str = "") -> None:
        for field in self.model_fields_set - {without}:
            setattr(row, field, getattr(self, field))
