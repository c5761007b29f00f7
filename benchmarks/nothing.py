"""A FastAPI route that does nothing: it takes a body and returns as many bytes as ours.

N_BYTES=434 uvicorn nothing:app --workers 2

With MODEL, the path of an ONNX file, it also runs that for a row that is encoded
already, and does nothing with what comes out.
"""

import os
from pathlib import Path

from fastapi import FastAPI, Request, Response

app = FastAPI()
MODEL = os.environ.get("MODEL")
if MODEL is None:

    def run() -> None:
        """Nothing."""

else:
    from serving import bare_run, one_row

    from lometab.predictor import Predictor

    row = one_row(os.environ["SHAPE"])
    run = bare_run(
        Predictor(Path(MODEL)), {name: [value] for name, value in row.items()}
    )
ANSWER = b'"' + b"x" * (int(os.environ.get("N_BYTES", "434")) - 2) + b'"'


@app.post("/models/{model_id}/predict")
async def predict(model_id: str, request: Request) -> Response:
    await request.body()
    run()
    return Response(ANSWER, media_type="application/json")
