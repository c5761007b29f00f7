"""What is learned from the training rows before the network is."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lometab.config import Task
from lometab.table.kinds import Float
from lometab.table.novelty import MAX_ROWS, Novelty

Rows = NDArray[np.int64] | slice
ALL: Rows = slice(None)

DAY = 86400.0
PERIODS: dict[str, float] = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}
"""Periods of a datetime column, in seconds; each gives a sine and a cosine."""


@dataclass(frozen=True)
class Feature:
    """One number the network sees: a numeric column itself, or a phase of its moment.

    `wave` is None, or ("sin" | "cos", period in seconds).
    """

    column: int
    wave: tuple[str, float] | None = None

    @property
    def resolution(self) -> float:
        """What spread is no spread: sines differ in their last bits between engines,
        and the quantile transform would blow that up."""
        return 0.0 if self.wave is None else 1e-6

    def of(self, x_num: Float, rows: Rows = ALL) -> Float:
        return self.see(x_num[rows, self.column])

    def see(self, x: Float) -> Float:
        """What it makes of its column."""
        if self.wave is None:
            return x
        function = np.sin if self.wave[0] == "sin" else np.cos
        angle = 2 * np.pi * (np.mod(x, self.wave[1]) / self.wave[1])
        return np.asarray(function(angle), dtype=np.float64)


class Preprocessor:
    """What is learned from the training rows before the network is.

    Numbers become normal scores by a quantile transform, *defined* as float64 linear
    interpolation between the scores of the fitted quantiles with the ends clipped, so
    that the ONNX graph can repeat it to the bit. Categories become codes.

    Attributes:
        features_: the numbers the network sees, those constant in train left out.
        medians_: what stands in for a missing number, one per feature.
        quantiles_: for each feature, its fitted quantiles, strictly rising.
        scores_: for each feature, the normal scores at its quantiles.
        indicators_: numeric columns with missing values in train; each gives one
            0/1 input, a category of one level.
        categories_: for each categorical column, its levels; "" is missing.
        n_rare_: for each, how many more it had that are too rare to be levels. They
            share one, as whatever else is no level does; if there are none, such a
            category is none of the inputs.
        cardinalities_: the widths of the one-hot inputs, the categorical columns
            first, then the indicators.
        y_mean_, y_std_: of the training target; 0 and 1 unless it is regression.
        novelty_: tells rows that are unlike the training rows.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def fit(
        self,
        x_num: Float,
        x_cat: NDArray[np.object_],
        y: NDArray[Any],
        *,
        task: Task,
        datetime: Collection[int] = (),
        min_frequency: int = 1,
        rows: Rows = ALL,
    ) -> Self:
        """Learn from training rows: `x_num`, `x_cat` as `features` gives them.

        Args:
            datetime: which columns of `x_num` hold moments.
            min_frequency: in how many rows a category must be to be a level.
            rows: which rows to learn from. They are picked column by column: a large
                table is not copied.
        """
        return self.fit_columns(
            (x_num[rows, i] for i in range(x_num.shape[1])),
            (x_cat[rows, i] for i in range(x_cat.shape[1])),
            y[rows],
            task=task,
            datetime=datetime,
            min_frequency=min_frequency,
        )

    def fit_columns(
        self,
        numbers: Iterable[Float],
        texts: Iterable[NDArray[np.object_]],
        y: NDArray[Any],
        *,
        task: Task,
        datetime: Collection[int] = (),
        min_frequency: int = 1,
    ) -> Self:
        """The same from columns of training rows, of which one at a time is needed."""
        rng = np.random.default_rng(self.seed)
        self.features_: list[Feature] = []
        self.medians_: list[float] = []
        self.quantiles_: list[Float] = []
        self.scores_: list[Float] = []
        self.indicators_: list[int] = []
        self.categories_: list[list[str]] = []
        self.n_rare_: list[int] = []
        spread = slice(None, None, max(1, -(-len(y) // MAX_ROWS)))
        some_numbers: list[Float] = []
        some_texts: list[NDArray[np.object_]] = []
        for i, column in enumerate(numbers):
            self._fit_number(i, column, i in datetime, rng)
            some_numbers.append(column[spread].copy())
        for texts_of_column in texts:
            counts = Counter(texts_of_column.tolist())
            levels = [t for t, n in counts.items() if n >= min_frequency or t == ""]
            self.categories_.append(sorted(levels))
            self.n_rare_.append(len(counts) - len(levels))
            some_texts.append(texts_of_column[spread].copy())
        self.y_mean_ = float(np.mean(y)) if task == "regression" else 0.0
        self.y_std_ = float(np.std(y)) if task == "regression" else 1.0
        n_some = len(y[spread])
        self.novelty_: Novelty | None = None
        if len(y) >= 4:
            self.novelty_ = self._fit_novelty(
                np.array(some_numbers).reshape(-1, n_some).T,
                np.array(some_texts, dtype=object).reshape(-1, n_some).T,
                datetime,
            )
        return self

    def _fit_number(
        self, i: int, column: Float, is_datetime: bool, rng: np.random.Generator
    ) -> None:
        """The features of a column: itself, and of moments the waves of periods."""
        for feature in _expand(i, is_datetime):
            x = feature.see(column)
            present = x[~np.isnan(x)]
            if len(present) == 0 or np.ptp(present) <= feature.resolution:
                continue
            quantiles, scores = _fit_quantiles(present, len(x), rng)
            self.features_.append(feature)
            self.medians_.append(float(np.median(present)))
            self.quantiles_.append(quantiles)
            self.scores_.append(scores)
        if np.isnan(column).any():
            self.indicators_.append(i)

    def _fit_novelty(
        self, x_num: Float, x_cat: NDArray[np.object_], datetime: Collection[int]
    ) -> Novelty:
        """From all training rows, or as many of them as are enough, evenly spread."""
        scores, codes = self.transform(x_num, x_cat)
        columns = [
            i
            for i, feature in enumerate(self.features_)
            if feature.wave is None and feature.column not in datetime
        ]
        waves = [i for i, feature in enumerate(self.features_) if feature.wave]
        n_cat = len(self.categories_)
        return Novelty.fit(
            x_num,
            scores,
            codes[:, :n_cat],
            features=[*columns, *waves],
            columns=[self.features_[i].column for i in columns],
            ranges=[
                (float(self.quantiles_[i][0]), float(self.quantiles_[i][-1]))
                for i in columns
            ],
            cardinalities=self.cardinalities_[:n_cat],
        )

    @property
    def cardinalities_(self) -> list[int]:
        widths = [
            len(levels) + (n_rare > 0)
            for levels, n_rare in zip(self.categories_, self.n_rare_, strict=True)
        ]
        return widths + [1] * len(self.indicators_)

    def transform(
        self, x_num: Float, x_cat: NDArray[np.object_], *, rows: Rows = ALL
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Normal scores (N, n_features), and codes (N, n_cat + n_indicators).

        What is no level has the code after the last one: that of the level which rare
        categories share, or else the cardinality, which means all zeros.

        Args:
            rows: which rows to transform.
        """
        n_rows = len(np.arange(len(x_num))[rows])
        scores = np.empty((n_rows, len(self.features_)), dtype=np.float32)
        for i, feature in enumerate(self.features_):
            x = feature.of(x_num, rows)
            x = np.where(np.isnan(x), self.medians_[i], x)
            scores[:, i] = np.interp(x, self.quantiles_[i], self.scores_[i])
        n_cat = len(self.categories_)
        codes = np.empty((n_rows, n_cat + len(self.indicators_)), dtype=np.int64)
        for i, levels in enumerate(self.categories_):
            code = {level: j for j, level in enumerate(levels)}
            codes[:, i] = [code.get(text, len(levels)) for text in x_cat[rows, i]]
        for i, column in enumerate(self.indicators_):
            codes[:, n_cat + i] = np.where(np.isnan(x_num[rows, column]), 0, 1)
        return scores, codes

    def scale_target(self, y: NDArray[Any], task: Task) -> NDArray[Any]:
        """What the network learns: standardised float32, or class indices as given."""
        if task != "regression":
            return y
        return ((y - self.y_mean_) / self.y_std_).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """The fitted state as plain data, fit for JSON."""
        return {
            "seed": self.seed,
            "features": [[f.column, f.wave] for f in self.features_],
            "medians": self.medians_,
            "quantiles": [q.tolist() for q in self.quantiles_],
            "scores": [s.tolist() for s in self.scores_],
            "indicators": self.indicators_,
            "categories": self.categories_,
            "n_rare": self.n_rare_,
            "y_mean": self.y_mean_,
            "y_std": self.y_std_,
            "novelty": None if self.novelty_ is None else self.novelty_.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        fitted = cls(seed=state["seed"])
        fitted.features_ = [
            Feature(column, tuple(wave) if wave else None)
            for column, wave in state["features"]
        ]
        fitted.medians_ = list(state["medians"])
        fitted.quantiles_ = [np.array(q, dtype=np.float64) for q in state["quantiles"]]
        fitted.scores_ = [np.array(s, dtype=np.float64) for s in state["scores"]]
        fitted.indicators_ = list(state["indicators"])
        fitted.categories_ = [list(levels) for levels in state["categories"]]
        # Before there was a least frequency, none was rare.
        fitted.n_rare_ = list(state.get("n_rare", [0] * len(fitted.categories_)))
        fitted.y_mean_, fitted.y_std_ = state["y_mean"], state["y_std"]
        novelty = state.get("novelty")  # not in states of before
        fitted.novelty_ = None if novelty is None else Novelty.from_dict(novelty)
        return fitted


def _expand(column: int, is_datetime: bool) -> list[Feature]:
    """The column as itself, and the waves of its periods if it is a datetime one."""
    periods = PERIODS.values() if is_datetime else ()
    waves = [
        Feature(column, (wave, period)) for period in periods for wave in ("sin", "cos")
    ]
    return [Feature(column), *waves]


def _fit_quantiles(
    present: Float, n_rows: int, rng: np.random.Generator
) -> tuple[Float, Float]:
    """Quantiles of the noisy values, each once, and their normal scores."""
    n_quantiles = max(min(n_rows // 30, 1000), 10)
    noisy = present + rng.normal(0.0, 1e-5 * np.std(present), size=len(present))
    levels = np.linspace(0.0, 1.0, n_quantiles)
    normal = NormalDist()
    # The ends would be infinite; scikit-learn clips at this probability too.
    clipped = np.clip(levels, 1e-7, 1 - 1e-7)
    scores = np.array([normal.inv_cdf(level) for level in clipped])
    quantiles, first, counts = np.unique(
        np.quantile(noisy, levels), return_index=True, return_counts=True
    )
    # Equal quantiles (huge numbers, little spread) share the middle of their scores.
    return quantiles, (scores[first] + scores[first + counts - 1]) / 2
