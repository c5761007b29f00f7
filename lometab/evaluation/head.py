"""What every report begins with."""

from dataclasses import dataclass, field
from typing import Literal

from lometab.evaluation.findings import Sentence

ClassTask = Literal["binary", "multiclass"]
Label = str | int | bool


@dataclass(frozen=True, kw_only=True)
class Head:
    """What every report begins with."""

    summary: list[Sentence] = field(default_factory=list)
    """What to know first, in words, made from the numbers of all reports; in reports
    from before there were summaries, one sentence that says so."""
    version: Literal[1]
    """Of the report's form."""
    job_id: str | None
    """The job whose model this is about; null outside the service."""
    task: Literal["regression", "binary", "multiclass"]
    split: Literal["test"]
    """The part whose rows were measured."""
    n_rows: int
