"""LoMETab models in MLflow: kept as their ONNX file, loaded as a pyfunc.

    import lometab.mlflow

    lometab.mlflow.log_model("model.onnx", name="churn", input_example=frame)
    model = lometab.mlflow.load_model("models:/churn/1")
    model.predict(frame)                             # a frame: mean, label, std ...
    model.predict(frame, params={"coverage": 0.8, "members": True})

A plain frame works: names and values are read as the service reads them. Nothing is
pickled. It needs the extra `mlflow`. MLflow before 3.17 takes the index off a frame, so
answers are numbered then.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lometab import __version__
from lometab.answers import flatten
from lometab.extras import naming_extras
from lometab.predictor import Prediction, Predictor

with naming_extras():
    import mlflow
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, ParamSchema, ParamSpec, Schema

if TYPE_CHECKING:
    from lometab.client import Job

Source = str | Path | bytes
FIELDS = (
    *("mean", "label", "members", "member_std", "entropy", "mutual_information"),
    *("disagreement", "interval", "set"),
)
PARAMETERS: dict[str, tuple[str, Any]] = {
    "coverage": ("double", 0.9),
    "calibrated": ("boolean", False),
    "missing_columns": ("string", "error"),
    "members": ("boolean", False),
}
"""What `params` of predict may have, with the type and the default of each."""


def make_signature(predictor: Predictor) -> ModelSignature:
    """The columns that a model takes and gives.

    Inputs are of any type: whole numbers where training had fractions, texts that are
    numbers, dates and gaps are read as everywhere.
    """
    inputs = Schema([ColSpec(AnyType(), name) for name in predictor.columns])
    numbers = [*_list_numbers(predictor)]
    outputs = [ColSpec("double", name) for name in numbers]
    if predictor.classes is not None:
        outputs += [ColSpec(AnyType(), "label"), ColSpec(AnyType(), "set")]
    params = ParamSchema(
        [ParamSpec(name, kind, default) for name, (kind, default) in PARAMETERS.items()]
    )
    return ModelSignature(inputs, Schema(outputs), params)


def _list_numbers(predictor: Predictor) -> list[str]:
    has_members = predictor.k > 1
    if predictor.classes is None:
        ends = ["interval_lower", "interval_upper"]
        return ["mean", *(["member_std"] if has_members else []), *ends]
    names = [f"mean_{label}" for label in predictor.classes]
    between = ["mutual_information", "disagreement"] if has_members else []
    return [*names, "entropy", *between]


def save_model(
    source: Source, path: str | Path, *, input_example: Any = None, **options: Any
) -> None:
    """Write a model in MLflow's form.

    Args:
        source: an ONNX file of ours, or its bytes.
        path: the folder to make.
        input_example: rows to keep with it, such as the first of a frame.
        options: those of `mlflow.pyfunc.save_model`.
    """
    with _as_file(source) as file:
        mlflow.pyfunc.save_model(str(path), **_describe(file, input_example), **options)


def log_model(
    source: Source, name: str = "model", *, input_example: Any = None, **options: Any
) -> Any:
    """Log a model to the run that is active; `registered_model_name` registers it.

    The arguments are those of `save_model`; what MLflow says of it is returned.
    """
    with _as_file(source) as file:
        return mlflow.pyfunc.log_model(
            name=name, **_describe(file, input_example), **options
        )


def load_model(uri: str) -> Any:
    """A pyfunc of a model that `log_model` or `save_model` kept."""
    return mlflow.pyfunc.load_model(uri)


def _describe(file: Path, input_example: Any) -> dict[str, Any]:
    predictor = Predictor(file)
    return {
        "loader_module": "lometab.mlflow",
        "data_path": str(file),
        "signature": make_signature(predictor),
        "input_example": input_example,
        "pip_requirements": [f"lometab=={__version__}", "pandas"],
    }


class _as_file:
    """A file with the model, which is gone afterwards if it was made for this."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Path:
        if not isinstance(self._source, bytes):
            return Path(self._source)
        self._folder = tempfile.TemporaryDirectory(prefix="lometab-")
        path = Path(self._folder.name) / "model.onnx"
        path.write_bytes(self._source)
        return path

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()


# What MLflow loads


def _load_pyfunc(path: str) -> "PyfuncModel":
    return PyfuncModel(Predictor(path))


class PyfuncModel:
    """A predictor as MLflow asks it: a frame in, a frame out."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def predict(
        self, model_input: Any, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        options = {name: default for name, (_, default) in PARAMETERS.items()}
        options |= dict(params or {})
        has_members = options.pop("members")
        found = self.predictor.predict(model_input, **options)
        columns = flatten(_to_answer(self.predictor, found, has_members))
        index = getattr(model_input, "index", None)
        return pd.DataFrame(columns, index=index)


def _to_answer(
    predictor: Predictor, found: Prediction, has_members: bool
) -> dict[str, Any]:
    columns = {}
    for name in FIELDS:
        value = getattr(found, name)
        if value is not None and (name != "members" or has_members):
            columns[name] = value.tolist() if hasattr(value, "tolist") else value
    rows = zip(*columns.values(), strict=True)
    return {
        "classes": predictor.classes,
        "k": predictor.k,
        "predictions": [dict(zip(columns, row, strict=True)) for row in rows],
    }


# Jobs


def track_job(job: "Job", *, experiment: str | None = None) -> str:
    """Log a job of a service that succeeded to MLflow's tracking: settings, every
    epoch, the scores, the reports and the model.

    Where to is `MLFLOW_TRACKING_URI`'s to say. `lometab train` does it by itself when
    that is set.

    Returns:
        The id of the run.
    """
    info = job.refresh().check().info
    if experiment is not None:
        mlflow.set_experiment(experiment)
    with mlflow.start_run(run_name=info["name"] or info["id"]) as run:
        mlflow.set_tags({"lometab.job": info["id"], "lometab.model": info["model_id"]})
        mlflow.log_params(info["config"]["hyperparameters"])
        mlflow.log_params({n: info["config"][n] for n in ("target", "task", "preset")})
        for event in job.events():
            if event["type"] == "epoch":
                mlflow.log_metrics(_list_metrics(event["data"]), event["data"]["epoch"])
        report = job.report
        scores = report["scores"]["test"]["ensemble"]
        mlflow.log_metrics({f"test_{n}": v for n, v in scores.items() if v is not None})
        for name, body in (
            ("report", report),
            ("diversity", job.diversity),
            ("calibration", job.calibration),
        ):
            mlflow.log_dict(body, f"{name}.json")
        with tempfile.TemporaryDirectory(prefix="lometab-") as folder:
            log_model(job.model.download(Path(folder) / "model.onnx"))
        return str(run.info.run_id)


def _list_metrics(progress: Mapping[str, Any]) -> dict[str, float]:
    names = ("train_loss", "val_score", "member_score", "diversity", "best_score")
    found = {name: progress.get(name) for name in names}
    return {name: float(value) for name, value in found.items() if value is not None}


__all__ = [
    "PyfuncModel",
    "load_model",
    "log_model",
    "make_signature",
    "save_model",
    "track_job",
]
