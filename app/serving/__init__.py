"""Predict: from the body of a request to its answer."""

from app.answering import PredictField, PredictOptions
from app.serving.asgi import PredictApp, get_predict
from app.serving.bodies import choose_media_type
from app.serving.formats import find_formats
from app.serving.invocations import Invocation
from app.serving.models import ServedModel, find_model, find_newest
from app.serving.neighbours import answer, check_length
from app.serving.open_inference import OpenInference, describe_model
from app.serving.opened import HEAD
from app.serving.predictors import Predictors, get_predictors
from app.serving.rows import StoredRows

__all__ = [
    "HEAD",
    "Invocation",
    "OpenInference",
    "PredictApp",
    "PredictField",
    "PredictOptions",
    "Predictors",
    "ServedModel",
    "StoredRows",
    "answer",
    "check_length",
    "choose_media_type",
    "describe_model",
    "find_formats",
    "find_model",
    "find_newest",
    "get_predict",
    "get_predictors",
]
