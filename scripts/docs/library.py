"""reference/library.md: what `lometab` and `lometab.client` show, from docstrings."""

import inspect
import re
from typing import Any

import lometab
import lometab.client
import lometab.mlflow
import lometab.plots
from scripts.docs.text import WARNING, plain

SHOWN: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    (
        "lometab",
        lometab,
        (
            *("LoMETabClassifier", "LoMETabRegressor", "Predictor", "Prediction"),
            *("TrainConfig", "from_preset", "LoMETabError", "ConfigError"),
            *("DataError", "ExportMismatch", "ModelFileError", "TrainingDiverged"),
        ),
    ),
    (
        "lometab.client",
        lometab.client,
        ("Client", "Dataset", "Job", "Model", "Retries", "ClientError", "ServiceError"),
    ),
    ("lometab.plots", lometab.plots, ("draw", "render", "list_figures")),
    ("lometab.mlflow", lometab.mlflow, ("log_model", "load_model", "track_job")),
)


def write() -> str:
    lines = ["# Library", "", WARNING, ""]
    lines += [
        "The estimators follow scikit-learn. `lometab.client` has the same classes "
        "with `await`, under names that begin with `Async`; "
        "[the client](../client.md) shows all of it at work.",
        "",
    ]
    for title, module, names in SHOWN:
        lines += [f"## `{title}`", "", plain(module.__doc__ or ""), ""]
        for name in names:
            lines += _describe(name, getattr(module, name))
    return "\n".join(lines)


def _describe(name: str, thing: Any) -> list[str]:
    lines = [f"### `{name}`", ""]
    if inspect.isclass(thing):
        return [*lines, *_class(name, thing)]
    return [*lines, *_signature(name, thing), plain(thing.__doc__ or ""), ""]


def _class(name: str, kind: type) -> list[str]:
    lines = [] if issubclass(kind, Exception) else _signature(name, kind)
    lines += [plain(kind.__doc__ or ""), ""]
    init = kind.__init__.__doc__ or ""  # type: ignore[misc]
    if "Args:" in init:
        lines += [plain(init), ""]
    for method in _methods(kind):
        place = f"{name}-{method}".lower()  # methods of two classes have one name
        lines += [f"#### `{method}` {{ #{place} }}", ""]
        member = inspect.getattr_static(kind, method)
        text = inspect.getdoc(getattr(kind, method, None) or member) or ""
        if callable(getattr(kind, method)):
            lines += _signature(method, getattr(kind, method))
        lines += [plain(text), ""]
    return lines


def _methods(kind: type) -> list[str]:
    """Names that are documented in our own classes, in their order."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("lometab")]
    names = [name for base in ours for name in vars(base) if not name.startswith("_")]
    return [
        name
        for name in dict.fromkeys(names)
        if isinstance(inspect.getattr_static(kind, name), property | classmethod)
        or inspect.isfunction(inspect.getattr_static(kind, name))
    ]


def _signature(name: str, thing: Any) -> list[str]:
    text = re.sub(r"<factory>", "...", str(inspect.signature(thing)))
    text = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=\w)", "", text.replace("self, ", ""))
    text = re.sub(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[[^\]]*\]\]", "ndarray", text)
    text = text.replace("(self)", "()")
    if len(text) > 80:
        text = re.sub(r", (?=\*|\w+: )", ",\n    ", text)
        text = text.replace("(", "(\n    ", 1)
    return ["```python", f"{name}{text}", "```", ""]
