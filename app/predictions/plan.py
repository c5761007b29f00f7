"""Everything that can be checked before a prediction job is made."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from app import datasets, jobs
from app.answering import (
    PredictOptions,
    check_doubt,
    find_id_column,
    make_columns,
    warn_of_coverage,
)
from app.datasets import Upload
from app.errors import Invalid
from app.predictions.settings import PredictionSettings
from app.serving import StoredRows, find_formats
from app.settings import Settings
from app.storage.tables import Dataset, TrainedModel
from lometab.predictor import Predictor
from lometab.table import Dialect, Expected, ParquetTable

_TEXTS = ("csv", "xlsx", "json")
"""Formats whose tables hold texts that may be numbers or dates."""


def receive_table(
    upload: Upload,
    workspace_id: str,
    body: PredictionSettings,
    predictor: Predictor,
    settings: Settings,
) -> Dataset:
    """The dataset that a file becomes, read as the model's own was where that is not
    told."""
    trained = predictor.metadata.get("reading")
    expected = Expected(
        columns=predictor.columns,
        dialect=Dialect.from_dict(trained) if trained else None,
    )
    return datasets.ingest(upload, workspace_id, body.read_options, settings, expected)


def plan_prediction(
    model: TrainedModel,
    predictor: Predictor,
    dataset: Dataset,
    body: PredictionSettings,
    settings: Settings,
) -> jobs.PredictionPlan:
    """Hold the table and the options against the model; nothing is written."""
    if body.explain:
        raise Invalid(
            "`explain` is for few rows; ask for them by `POST /models/{id}/predict`"
        )
    table = datasets.open_table(dataset)
    names = [*table]
    id_column = find_id_column(body, names)
    notes = predictor.compare(names, missing_columns=body.missing_columns)
    if id_column in notes.extra:
        notes.extra.remove(id_column)
    if not any(name in table for name in predictor.columns):
        raise Invalid("the table has none of the columns that the model takes")
    check_doubt(body, predictor)
    _try_options(predictor, body)
    formats, warnings = _find_formats(table, dataset, predictor, body)
    asked = {*PredictOptions.model_fields} - {"missing_columns", "id_column"}
    return jobs.PredictionPlan(
        model=model,
        dataset=dataset,
        config={
            "output": body.output,
            "on_error": body.on_error,
            "missing_columns": body.missing_columns,
            "id_column": id_column,
            "options": body.model_dump(mode="json", include=asked, exclude_unset=True),
            "formats": formats,
        },
        chunks=table.divide(settings.prediction_chunk_rows),
        warnings=[
            *dataset.reading["warnings"],
            *warnings,
            *notes.warnings(),
            *warn_of_coverage(predictor, body),
        ],
        tags=body.tags,
    )


def _try_options(predictor: Predictor, options: PredictOptions) -> None:
    """Answer a row of missing values: what the model cannot do is told now."""
    x_num = np.full((1, len(predictor.numeric)), np.nan)
    x_cat = np.full((1, len(predictor.categorical)), "", dtype=object)
    answered = predictor.run_all(x_num, x_cat)
    if not make_columns(predictor, options, *answered, x_cat):
        raise Invalid("nothing is left to be answered: see `include` and `exclude`")


def _find_formats(
    table: ParquetTable,
    dataset: Dataset,
    predictor: Predictor,
    options: PredictOptions,
) -> tuple[Mapping[str, str] | None, list[str]]:
    """How its numbers and dates are written, None if as in training; and warnings."""
    reading: Mapping[str, Any] = dataset.reading
    if reading["format"] not in _TEXTS:
        return None, []
    delimiter = None
    if reading["format"] != "json":
        found = reading["delimiter"]
        delimiter = found["value"] if found else ","  # of the sheet as it was read
    rows = StoredRows(table, delimiter)
    return find_formats(rows, predictor.metadata, options.read_options)
