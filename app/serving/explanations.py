"""Why rows have their answers: what each column adds, for `explain` in a request.

One explained row takes about as many model rows as `lometab.explain.MODEL_ROWS` says,
so a request may ask for a few rows only, and no longer than some seconds.
"""

from typing import Any, NoReturn

import numpy as np

from app.serving.opened import Inputs, Opened
from lometab.errors import DataError
from lometab.explain import MODEL_ROWS, Rows, explain_row
from lometab.predictor import Predictor

MAX_ROWS = 20
MAX_SECONDS = 10.0
"""Of all rows of a request together: then fewer orders are tried, and told."""
MAX_COLUMNS = 2000


def check_explained(opened: Opened) -> None:
    """Refuse what cannot be explained before anything is spent on it."""
    if opened.request.media_type != "application/json":
        raise DataError("explain is answered as JSON; ask with `Accept` for that")
    predictor = opened.predictor
    if predictor.background is None:
        raise DataError(
            "this model has no training rows with it to explain answers by: it was "
            "trained with `keep_rows` false, exported by an estimator, or is from "
            "before such rows were kept; train it again, or leave out `explain`"
        )
    if len(predictor.columns) > MAX_COLUMNS:
        raise DataError(f"explain is for models of at most {MAX_COLUMNS} columns")


def refuse_large() -> NoReturn:
    raise DataError(
        f"explain is for at most {MAX_ROWS} rows in a request; send them in parts"
    )


def explain(opened: Opened, inputs: Inputs, mean: Any, members: Any) -> list[Any]:
    """For each row what its columns add to the answer, or to the probability of the
    most probable class; before any temperature."""
    predictor = opened.predictor
    if len(mean) > MAX_ROWS:
        refuse_large()
    return [
        _explain_row(predictor, inputs, i, mean[i], members[i], len(mean))
        for i in range(len(mean))
    ]


def _explain_row(
    predictor: Predictor, inputs: Inputs, i: int, mean: Any, members: Any, n_rows: int
) -> dict[str, Any]:
    background = predictor.background
    assert background is not None
    output = None if predictor.classes is None else int(np.argmax(mean))
    row = Rows(
        predictor.numeric,
        predictor.categorical,
        inputs.x_num[i : i + 1],
        inputs.x_cat[i : i + 1],
        predictor.datetime,
    )
    found = explain_row(
        predictor.run,
        row,
        background,
        float(mean if output is None else mean[output]),
        members if output is None else members[:, output],
        output=output,
        model_rows=MODEL_ROWS,
        seconds=MAX_SECONDS / n_rows,
    )
    label = None if predictor.classes is None else predictor.classes[output or 0]
    return {"label": label, **vars(found)}
