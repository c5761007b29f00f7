"""Bodies of predictions."""

from typing import Annotated, Any, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic takes typing's from 3.12 on

from app.serving import PredictOptions
from lometab.config import Task

Cell = str | int | float | bool | None
Label = str | int | bool


class PredictRows(PredictOptions):
    """Rows to answer, each an object from column name to value."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"rows": [{"alcohol": 9.4, "pH": 3.51}], "coverage": 0.9}
        },
    )

    rows: list[dict[str, Any]] = Field(min_length=1)


class PredictMatrix(PredictOptions):
    """The same with the names once."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"columns": ["alcohol", "pH"], "data": [[9.4, 3.51]]}
        },
    )

    columns: list[str]
    data: list[list[Any]] = Field(
        min_length=1, description="For each row, a value for each column."
    )


class RowExplanation(TypedDict):
    """What each column adds to the answer to a row."""

    label: Annotated[
        Label | None,
        Field(description="Classes: whose probability is explained, the most probable"),
    ]
    base: Annotated[
        float, Field(description="The mean answer to the training rows that are kept.")
    ]
    values: Annotated[
        dict[str, float],
        Field(
            description="By column. Their sum is the answer minus `base`; the answer "
            "is `mean`, or the probability of `label` before any temperature."
        ),
    ]
    standard_error: Annotated[
        dict[str, float], Field(description="Of the values, from sampling.")
    ]
    member_std: Annotated[
        dict[str, float] | None,
        Field(description="Deviation of the members' own values; null if k is 1."),
    ]
    n_background: Annotated[int, Field(description="Training rows that were used.")]
    n_orders: Annotated[int, Field(description="Orders of the columns.")]
    n_model_rows: Annotated[int, Field(description="Rows that the model answered.")]
    seconds: float


class RowPrediction(TypedDict):
    """The answer for one row. What does not apply, or is not wanted, is not there."""

    id: NotRequired[Annotated[Cell, Field(description="That of the row.")]]
    mean: NotRequired[
        Annotated[
            float | list[float],
            Field(description="A number, or the probability of each class."),
        ]
    ]
    members: NotRequired[
        Annotated[
            list[float] | list[list[float]],
            Field(description="The same of each of the k members."),
        ]
    ]
    label: NotRequired[
        Annotated[Label, Field(description="Classes: the most probable one.")]
    ]
    member_std: NotRequired[
        Annotated[
            float,
            Field(
                description="Numbers, k > 1: standard deviation of the members. No "
                "error bar, as members agree more than they are right: `interval` is."
            ),
        ]
    ]
    std: NotRequired[
        Annotated[float, Field(description="If asked for: the same by its old name.")]
    ]
    entropy: NotRequired[
        Annotated[float, Field(description="Classes: of the mean, in nats.")]
    ]
    mutual_information: NotRequired[
        Annotated[
            float,
            Field(description="Classes, k > 1: entropy that members do not share."),
        ]
    ]
    disagreement: NotRequired[
        Annotated[
            float,
            Field(description="Classes, k > 1: share of pairs with different labels."),
        ]
    ]
    interval: NotRequired[
        Annotated[
            tuple[float | None, float | None],
            Field(description="Numbers: its ends, null where there is none."),
        ]
    ]
    set: NotRequired[
        Annotated[
            list[Label],
            Field(description="Classes: one or more; with `lac` perhaps none."),
        ]
    ]
    trust: NotRequired[
        Annotated[
            float,
            Field(
                description="Share of calibration rows that were less certain: 0.03 is "
                "among the 3 % least certain ones. Those as certain count half."
            ),
        ]
    ]
    novelty: NotRequired[
        Annotated[
            float,
            Field(
                description="Share of training rows that are nearer to the others than "
                "this row: 1 is farther than all. Members cannot disagree about what "
                "training did not show them."
            ),
        ]
    ]
    out_of_range: NotRequired[
        Annotated[
            float,
            Field(
                description="If asked for: share of its numbers that are beyond the "
                "range of training by more than a twentieth of it."
            ),
        ]
    ]
    unseen: NotRequired[
        Annotated[
            float,
            Field(
                description="If asked for: share of its categories that training did "
                "not have."
            ),
        ]
    ]
    abstain: NotRequired[
        Annotated[
            bool, Field(description="Too uncertain, by `abstain` or `abstain_above`.")
        ]
    ]
    explanation: NotRequired[
        Annotated[RowExplanation, Field(description="If `explain` was asked for.")]
    ]


class PredictResponse(BaseModel):
    """Answers in the order of the rows."""

    model_id: str
    task: Task
    k: int
    classes: list[Label] | None
    calibrated: bool
    coverage: float
    warnings: list[str] = Field(
        description="Unseen categories, numbers beyond the range of training, values "
        "missing that training had in every row, rows unlike the training rows, "
        "columns filled as missing, columns not used."
    )
    predictions: list[RowPrediction]
