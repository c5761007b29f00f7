"""Prediction jobs: what is asked, checked against the model and the table."""

from app.predictions.plan import plan_prediction, receive_table
from app.predictions.settings import OnError, PredictionSettings

__all__ = ["OnError", "PredictionSettings", "plan_prediction", "receive_table"]
