"""A FastAPI route that does nothing: it takes a body and returns as many bytes as ours.

N_BYTES=434 uvicorn nothing:app --workers 2
"""

import os

from fastapi import FastAPI, Request, Response

app = FastAPI()
ANSWER = b'"' + b"x" * (int(os.environ.get("N_BYTES", "434")) - 2) + b'"'


@app.post("/models/{model_id}/predict")
async def predict(model_id: str, request: Request) -> Response:
    await request.body()
    return Response(ANSWER, media_type="application/json")
