"""The check that an exported file answers as torch does."""

import copy

import numpy as np
from numpy.typing import NDArray

from lometab.ensemble import Ensemble, answer_scores
from lometab.errors import ExportMismatch
from lometab.evaluation import Answer
from lometab.predictor import Predictor
from lometab.table import Float, Preprocessor

NOVELTY_TOLERANCE = np.array([0.0101, 1e-5, 1e-5])


def check_onnx(
    ensemble: Ensemble, content: bytes, x_num: Float, x_cat: NDArray[np.object_]
) -> float:
    """Run the file against torch in float64; ExportMismatch if it answers otherwise.

    The rows are those given and rows of nothing but missing values, of unseen
    categories and of huge numbers, in batches of 1, 2, 7 and 1000. The reference is
    float64 from the raw value to the answer: scores that are never rounded to float32,
    then the model in double. An error is the distance of probabilities, or that of
    regression's answers over the standard deviation of the training target. The file
    may be off by 1e-5, or by ten times what torch in float32 is off on these rows.

    Returns: the worst error of the file.
    """
    return check(ensemble, Predictor(content), x_num, x_cat)


def check(
    ensemble: Ensemble,
    predictor: Predictor,
    x_num: Float,
    x_cat: NDArray[np.object_],
) -> float:
    """`check_onnx` of a file that is loaded."""
    x_num, x_cat = _gate_rows(x_num, x_cat)
    exact, rounded = _references(ensemble, x_num, x_cat)
    unit = ensemble.preprocessor.y_std_  # 1 for classification
    tolerance = max(1e-5, 10 * _distance(rounded, exact) / unit)
    worst = 0.0
    for size in (1, 2, 7, 1000):
        for start in range(0, max(size, 14), size):
            rows = slice(start, start + size)
            answer = predictor.run(x_num[rows], x_cat[rows])
            error = _distance(answer, (exact[0][rows], exact[1][rows])) / unit
            if not error <= tolerance:  # NaN is no match either
                raise ExportMismatch(
                    f"the exported file is off by {error:.2g} in a batch of {size} rows"
                    f" where at most {tolerance:.2g} is allowed"
                )
            worst = max(worst, error)
    _check_novelty(ensemble.preprocessor, predictor, x_num, x_cat)
    return worst


def _check_novelty(
    preprocessor: Preprocessor,
    predictor: Predictor,
    x_num: Float,
    x_cat: NDArray[np.object_],
) -> None:
    """Novelty may be off by two of its steps, where rounding passes a level."""
    found = predictor.run_all(x_num, x_cat).novelty
    if preprocessor.novelty_ is None or found is None:
        return
    scores, codes = preprocessor.transform(x_num, x_cat)
    off = np.abs(found - preprocessor.novelty_.measure(x_num, scores, codes))
    worst = off.max(axis=0)
    if not (worst <= NOVELTY_TOLERANCE).all():
        raise ExportMismatch(
            f"the exported file is off by {worst.max():.2g} in novelty or its shares"
        )


def _gate_rows(
    x_num: Float, x_cat: NDArray[np.object_]
) -> tuple[Float, NDArray[np.object_]]:
    """1000 rows: first the strange ones, then the given ones as often as they fit."""
    number, text = x_num[:1], x_cat[:1]
    unseen = np.full_like(text, "\N{REPLACEMENT CHARACTER} unseen")
    strange_num = [
        np.full_like(number, np.nan),
        number,
        np.full_like(number, 1e30),
        np.full_like(number, -1e30),
    ]
    strange_cat = [np.full_like(text, ""), unseen, text, text]
    rows = np.resize(np.arange(len(x_num)), 1000 - len(strange_num))
    return (
        np.concatenate([*strange_num, x_num[rows]]),
        np.concatenate([*strange_cat, x_cat[rows]]),
    )


def _references(
    ensemble: Ensemble, x_num: Float, x_cat: NDArray[np.object_]
) -> tuple[Answer, Answer]:
    """What torch answers in float64, and in float32."""
    preprocessor, models = ensemble.preprocessor, ensemble.models
    scores, codes = preprocessor.transform(x_num, x_cat)
    exact_scores = _exact_scores(preprocessor, x_num)
    exact_models = [copy.deepcopy(model).double() for model in models]
    exact = answer_scores(ensemble, exact_models, exact_scores, codes)
    return exact, answer_scores(ensemble, models, scores, codes)


def _exact_scores(preprocessor: Preprocessor, x_num: Float) -> Float:
    """The scores of `Preprocessor.transform` before they are rounded to float32."""
    scores = np.empty((len(x_num), len(preprocessor.features_)))
    for i, feature in enumerate(preprocessor.features_):
        x = feature.of(x_num)
        x = np.where(np.isnan(x), preprocessor.medians_[i], x)
        scores[:, i] = np.interp(x, preprocessor.quantiles_[i], preprocessor.scores_[i])
    return scores


def _distance(answer: Answer, exact: Answer) -> float:
    return max(float(np.max(np.abs(a - e))) for a, e in zip(answer, exact, strict=True))


def example_rows(ensemble: Ensemble) -> tuple[Float, NDArray[np.object_]]:
    """A thousand rows to try a file with, from what preprocessing learned."""
    rng = np.random.default_rng(0)
    schema, preprocessor = ensemble.schema, ensemble.preprocessor
    x_num = np.full((1000, len(schema.numeric)), np.nan)
    for feature, quantiles in zip(
        preprocessor.features_, preprocessor.quantiles_, strict=True
    ):
        if feature.wave is None:
            x_num[:, feature.column] = rng.choice(quantiles, size=1000)
    x_cat = np.empty((1000, len(schema.categorical)), dtype=object)
    for i, levels in enumerate(preprocessor.categories_):
        x_cat[:, i] = rng.choice(np.array(levels or [""], dtype=object), size=1000)
    return x_num, x_cat
