"""What every report begins with."""

from dataclasses import dataclass, field
from typing import Any, Literal

from lometab.evaluation.findings import Sentence

ClassTask = Literal["binary", "multiclass"]
Label = str | int | bool

DOCUMENTED = {"use_attribute_docstrings": True}  # read by pydantic, for OpenAPI


def _document_head(schema: dict[str, Any]) -> None:
    """Inherited docstrings, which pydantic does not read."""
    for name, text in _HEAD.items():
        schema["properties"][name].setdefault("description", text)


_HEAD = {
    "summary": "What to know first, in words, made from the numbers of all reports; in "
    "reports from before there were summaries, one sentence that says so.",
    "version": "Of the report's form.",
    "job_id": "The job whose model this is about; null outside the service.",
    "split": "The part whose rows were measured.",
}


@dataclass(frozen=True, kw_only=True)
class Head:
    """What every report begins with."""

    __pydantic_config__ = {  # noqa: RUF012
        **DOCUMENTED,
        "json_schema_extra": _document_head,
    }

    summary: list[Sentence] = field(default_factory=list)
    version: Literal[1]
    job_id: str | None
    task: Literal["regression", "binary", "multiclass"]
    split: Literal["test"]
    n_rows: int
