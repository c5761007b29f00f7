"""What bodies of several resources share."""

from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, Field

Id = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_]+$")]
Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """A page of a list, newest first."""

    data: list[Item]
    next_cursor: str | None = Field(
        description="Send it as `cursor` for the next page; null on the last one."
    )


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    code: str
