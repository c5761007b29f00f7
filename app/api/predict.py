"""Predict as the OpenAPI document has it. `app.serving` answers the requests."""

from fastapi import APIRouter

from app.access import bearer
from app.api import examples
from app.api.bodies.predict import PredictResponse
from app.api.deps import ModelId
from app.api.responses import path_parameter, problems, query_parameters
from app.serving import PredictOptions

router = APIRouter(tags=["models"])
MODEL_ID = path_parameter("model_id", ModelId)
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
BINARY = {"type": "string", "format": "binary"}


@router.post(
    "/models/{model_id}/predict",
    operation_id="predict",
    response_model=PredictResponse,
    summary="Mean, members and uncertainty for each row",
    responses={
        **problems(404, 406, 413, 415, 422),
        200: {"content": {ARROW: {"schema": BINARY}}},
    },
    openapi_extra={
        "security": [{bearer.scheme_name: []}],
        "parameters": [MODEL_ID, *query_parameters(PredictOptions)],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "anyOf": [
                            {"$ref": "#/components/schemas/PredictRows"},
                            {"$ref": "#/components/schemas/PredictMatrix"},
                        ]
                    },
                    "examples": examples.ROWS,
                },
                "text/csv": {
                    "schema": {"type": "string"},
                    "example": "alcohol,pH\n9.4,3.51\n",
                },
                ARROW: {"schema": BINARY, "example": "(a stream of record batches)"},
                PARQUET: {"schema": BINARY, "example": "(a Parquet file)"},
                EXCEL: {"schema": BINARY, "example": "(an .xlsx workbook)"},
            },
        },
    },
)
def predict() -> None:
    """Rows come as JSON, as a CSV with a header, as an Arrow stream, as Parquet or as
    an Excel workbook (`sheet`), and predictions go, by `Accept`, as JSON, CSV or Arrow;
    with the latter two, the head of the answer is in the header `Lometab-Head`. Large
    tables are answered in a stream.

    Cells that are null or mean missing are fine; columns that the model does not
    know are ignored with a warning; a column absent from every row is an error unless
    `missing_columns` is `fill`. Intervals and sets hold the truth with the probability
    `coverage`, however good the model is, if the rows are exchangeable with those that
    it was calibrated on (`calibrated_on` in its calibration report): drawn as they
    were, with nothing chosen by them. `Server-Timing` tells the milliseconds it took to
    parse the rows, wait in the queue, run the model and encode the answer; of a stream,
    its beginning."""
