"""LoMETab: tabular ensembles whose members differ by low-rank multiplicative masks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lometab.estimator import LoMETabClassifier, LoMETabRegressor

__version__ = "0.1.0"

__all__ = ["LoMETabClassifier", "LoMETabRegressor", "__version__"]


def __getattr__(name: str) -> Any:
    """The estimators when they are asked for: they import torch and scikit-learn."""
    if name in ("LoMETabClassifier", "LoMETabRegressor"):
        return getattr(import_module("lometab.estimator"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
