"""Predict requests as the ASGI app reads them."""

from time import perf_counter

from app.serving.requests import PredictRequest


def make_request(model_id: str) -> PredictRequest:
    return PredictRequest(
        secret=None,
        reference=model_id,
        kind="json",
        charset="",
        media_type="application/json",
        query={},
        length=100,
        received_at=perf_counter(),
    )
