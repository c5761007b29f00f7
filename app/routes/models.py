"""Models: what a job made, and what it answers."""

import base64
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from app import blobs
from app.deps import ModelDep, PredictorsDep, SettingsDep
from app.errors import TooLarge
from app.schemas import ModelRead, PredictRequest, Problem
from lometab.predictor import Prediction, Predictor

router = APIRouter(prefix="/models", tags=["models"])

NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "There is no such model."}
}


@router.get(
    "/{model_id}",
    response_model=ModelRead,
    summary="What a model takes and answers",
    responses=NOT_FOUND,
)
def read_model(model: ModelDep, predictors: PredictorsDep) -> ModelRead:
    predictor = predictors.get(model)
    return ModelRead(
        id=model.id,
        job_id=model.job_id,
        task=predictor.task,
        target=predictor.target,
        classes=None if predictor.classes is None else list(predictor.classes),
        k=predictor.k,
        numeric=list(predictor.numeric),
        categorical=list(predictor.categorical),
        datetime=list(predictor.datetime),
        onnx_sha256=model.onnx_sha256,
        created_at=model.created_at,
        links={
            "self": f"/models/{model.id}",
            "job": f"/jobs/{model.job_id}",
            "onnx": f"/models/{model.id}/onnx",
            "predict": f"/models/{model.id}/predict",
        },
    )


@router.get(
    "/{model_id}/onnx",
    summary="The self-contained ONNX file",
    response_class=StreamingResponse,
    responses={**NOT_FOUND, 200: {"content": {"application/octet-stream": {}}}},
)
def read_onnx(model: ModelDep) -> StreamingResponse:
    """Raw rows in, mean and members out; it needs nothing but ONNX Runtime."""
    return StreamingResponse(
        blobs.chunks(model.workspace_id, model.onnx_sha256),
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f'attachment; filename="{model.id}.onnx"',
            "Repr-Digest": f"sha-256=:{_base64(model.onnx_sha256)}:",
        },
    )


def _base64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


@router.post(
    "/{model_id}/predict",
    summary="Mean, members and uncertainty for each row",
    responses={
        **NOT_FOUND,
        413: {"model": Problem, "description": "There are too many rows."},
        422: {"model": Problem, "description": "The rows do not fit the model."},
    },
)
def predict(
    model: ModelDep,
    body: PredictRequest,
    predictors: PredictorsDep,
    settings: SettingsDep,
) -> Response:
    """Cells that are null or mean missing are fine; columns that the model does not
    know are ignored with a warning; a column absent from every row is an error unless
    `missing_columns` is `fill`."""
    if len(body.rows) > settings.max_predict_rows:
        raise TooLarge(
            f"{len(body.rows)} rows are more than the {settings.max_predict_rows} "
            "taken in one request; send them in parts"
        )
    predictor = predictors.get(model)
    prediction = predictor.predict(body.rows, missing_columns=body.missing_columns)
    return Response(
        orjson.dumps(
            _answer(model.id, predictor, prediction),
            option=orjson.OPT_SERIALIZE_NUMPY,
        ),
        media_type="application/json",
    )


def _answer(
    model_id: str, predictor: Predictor, prediction: Prediction
) -> dict[str, Any]:
    """Columns of numbers to one object per row."""
    columns = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name in _PER_ROW
        if (value := getattr(prediction, name)) is not None
    }
    rows = zip(*columns.values(), strict=True)
    return {
        "model_id": model_id,
        "task": predictor.task,
        "k": predictor.k,
        "classes": predictor.classes,
        "warnings": prediction.warnings,
        "predictions": [dict(zip(columns, row, strict=True)) for row in rows],
    }


_PER_ROW = (
    "mean",
    "label",
    "members",
    "std",
    "entropy",
    "mutual_information",
    "disagreement",
    "interval",
    "set",
)
