"""LoMETab: tabular ensembles whose members differ by low-rank multiplicative masks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lometab.config import PRESETS as PRESETS
    from lometab.config import TrainConfig as TrainConfig
    from lometab.config import from_preset as from_preset
    from lometab.errors import ConfigError as ConfigError
    from lometab.errors import DataError as DataError
    from lometab.errors import ExportMismatch as ExportMismatch
    from lometab.errors import LoMETabError as LoMETabError
    from lometab.errors import ModelFileError as ModelFileError
    from lometab.errors import TrainingDiverged as TrainingDiverged
    from lometab.estimator import LoMETabClassifier as LoMETabClassifier
    from lometab.estimator import LoMETabRegressor as LoMETabRegressor
    from lometab.predictor import Prediction as Prediction
    from lometab.predictor import Predictor as Predictor

__version__ = "0.1.0"

_MODULES = {
    "ConfigError": "errors",
    "DataError": "errors",
    "ExportMismatch": "errors",
    "LoMETabClassifier": "estimator",
    "LoMETabError": "errors",
    "LoMETabRegressor": "estimator",
    "ModelFileError": "errors",
    "PRESETS": "config",
    "Prediction": "predictor",
    "Predictor": "predictor",
    "TrainConfig": "config",
    "TrainingDiverged": "errors",
    "from_preset": "config",
}
"""Where each public name is defined; it is imported when it is asked for, since the
estimators load torch and scikit-learn, and the predictor ONNX Runtime."""

__all__ = [
    "PRESETS",
    "ConfigError",
    "DataError",
    "ExportMismatch",
    "LoMETabClassifier",
    "LoMETabError",
    "LoMETabRegressor",
    "ModelFileError",
    "Prediction",
    "Predictor",
    "TrainConfig",
    "TrainingDiverged",
    "__version__",
    "from_preset",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from lometab.extras import naming_extras

        with naming_extras():
            return getattr(import_module(f"lometab.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
