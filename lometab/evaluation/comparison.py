"""Many runs side by side: means over seeds, what is best, what collapsed, ranks.

Choices (the best cells, the Pareto set) are made on validation; the test part is shown
beside them and decides nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from lometab.evaluation.diversity import find_regime
from lometab.evaluation.diversity_report import Regime
from lometab.evaluation.noise import Draws, difference_error
from lometab.evaluation.outcome import Measures, Metric, Outcome

COMPARISON_DEFINITIONS = {
    "score": "RMSE in target units (less is better) or accuracy (more is better).",
    "diversity": "Mean pairwise KL of the members, or for regression their ambiguity "
    "over the variance of the training targets.",
    "std": "Sample standard deviation over seeds; null with one seed.",
    "best_score": "The cell with the best mean score on validation. Of many cells, it "
    "is also the luckiest: see `tied`.",
    "best_model": "The same of the cells that a model can be made of: another one, if "
    "a baseline is ahead that is there for comparison alone.",
    "behind": "By how much the mean score on validation is worse than that of "
    "`best_model` (negative: a baseline is ahead of it by so much), and the standard "
    "error of that difference, by drawing validation rows (the same for all cells) and "
    "by the seeds that both have. With one such seed, the luck of the seed is not in "
    "it.",
    "tied": "Cells that a model can be made of and that are behind by no more than one "
    "standard error: nothing shows that the best one is better than these.",
    "recommended": "Of the tied cells the one with the fewest parameters; of equal "
    "ones the fastest.",
    "best_calibration": "The cell with the least mean ECE on validation.",
    "pareto": "Cells that no other is at least as good as on validation in score, NLL "
    "and ECE (regression: score and error_auroc), and better in one of them. Diversity "
    "is no good by itself and does not count.",
    "delta_percent": "By how many percent the mean test score is better than the "
    "reference's; negative is worse.",
    "collapsed": "Settings at which every finished cell's diversity is below the "
    "regime `low`: the members are nearly the same.",
}


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A number over the seeds of a cell."""

    mean: float
    std: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread | None":
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(mean=mean(known), std=stdev(known) if len(known) > 1 else None)


_MEASURED = ("score", "ece", "diversity", "disagreement", "nll", "error_auroc")


@dataclass(frozen=True, kw_only=True)
class PartSummary:
    """A cell on one part: `lometab.evaluation.outcome.Measures`, each over seeds."""

    score: Spread | None
    ece: Spread | None
    diversity: Spread | None
    disagreement: Spread | None
    nll: Spread | None
    error_auroc: Spread | None

    @classmethod
    def of(cls, measures: Sequence[Measures]) -> "PartSummary":
        return cls(
            **{
                name: Spread.of([getattr(each, name) for each in measures])
                for name in _MEASURED
            }
        )


@dataclass(frozen=True, kw_only=True)
class Behind:
    """How much worse than the best cell, on validation."""

    score: float
    """In units of the score; 0 for the best one, negative for a baseline ahead."""
    standard_error: float
    """Of this difference."""

    @property
    def is_tied(self) -> bool:
        return self.score <= self.standard_error


@dataclass(frozen=True, kw_only=True)
class CellSummary:
    """One setting of a sweep, over the seeds that are finished."""

    cell: int
    settings: dict[str, Any]
    """What distinguishes it."""
    n_seeds: int
    val: PartSummary
    test: PartSummary
    seconds: Spread | None
    n_parameters: int | None
    regime: Regime | None
    """Where its diversity on the test part stands."""
    delta_percent: float | None
    behind: Behind | None
    """The best one that can become a model; null where the run kept no draws."""


@dataclass(frozen=True, kw_only=True)
class Collapse:
    """Settings under which the members are nearly the same."""

    setting: str
    values: list[Any]
    cells: list[int]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The cells of a sweep, and what stands out."""

    metric: Metric | None
    """Null while nothing is finished."""
    cells: list[CellSummary]
    best_score: int | None
    best_model: int | None
    """Of the cells that can become a model."""
    tied: list[int]
    """`best_model` included."""
    recommended: int | None
    best_calibration: int | None
    pareto: list[int]
    collapsed: list[Collapse]


def compare_cells(
    settings: Sequence[Mapping[str, Any]],
    outcomes: Sequence[Sequence[Outcome]],
    reference: int | None = None,
    draws: Sequence[Mapping[int, Draws]] | None = None,
    baselines: Collection[int] = (),
) -> Comparison:
    """Set the cells side by side.

    Args:
        settings: of each cell.
        outcomes: of each cell, those of its finished seeds.
        reference: the cell that `delta_percent` is relative to.
        draws: of each cell, those of each seed, from `draw_scores`.
        baselines: cells that are there for comparison and can be no model.
    """
    metric = next((each.metric for cell in outcomes for each in cell), None)
    base = None
    if reference is not None and outcomes[reference]:
        base = mean(each.test.score for each in outcomes[reference])
    cells = [
        _summarise(i, dict(chosen), runs, base)
        for i, (chosen, runs) in enumerate(zip(settings, outcomes, strict=True))
    ]
    sign = -1 if metric == "accuracy" else 1
    best = _least(_find_models(cells, baselines), "score", sign)
    if best is not None and draws is not None:
        cells = [_hold_against(cell, cells[best], draws, sign) for cell in cells]
    finished = [cell for cell in cells if cell.n_seeds]
    models = _find_models(cells, baselines)
    tied = [cell for cell in models if cell.behind and cell.behind.is_tied]
    return Comparison(
        metric=metric,
        cells=cells,
        best_score=_least(finished, "score", sign),
        best_model=best,
        tied=[cell.cell for cell in tied],
        recommended=min(tied, key=_cost).cell if tied else best,
        best_calibration=_least(finished, "ece", 1),
        pareto=_pareto(finished, metric),
        collapsed=_find_collapse(finished),
    )


def _find_models(
    cells: Sequence[CellSummary], baselines: Collection[int]
) -> list[CellSummary]:
    """What has ended and can become a model."""
    return [cell for cell in cells if cell.n_seeds and cell.cell not in baselines]


def _hold_against(
    cell: CellSummary,
    best: CellSummary,
    draws: Sequence[Mapping[int, Draws]],
    sign: int,
) -> CellSummary:
    error = difference_error(draws[cell.cell], draws[best.cell])
    if cell.val.score is None or best.val.score is None or error is None:
        return cell
    score = sign * (cell.val.score.mean - best.val.score.mean)
    return replace(cell, behind=Behind(score=score, standard_error=error))


def _cost(cell: CellSummary) -> tuple[float, float, int]:
    seconds = cell.seconds.mean if cell.seconds else 0.0
    return cell.n_parameters or 0, seconds, cell.cell


def _summarise(
    cell: int, settings: dict[str, Any], runs: Sequence[Outcome], base: float | None
) -> CellSummary:
    test = PartSummary.of([run.test for run in runs])
    delta = None
    if base and test.score is not None:
        delta = delta_percent(test.score.mean, base, runs[0].metric == "rmse")
    return CellSummary(
        cell=cell,
        settings=settings,
        n_seeds=len(runs),
        val=PartSummary.of([run.val for run in runs]),
        test=test,
        seconds=Spread.of([run.seconds for run in runs]),
        n_parameters=(runs[0].n_parameters or None) if runs else None,
        regime=find_regime(test.diversity.mean if test.diversity else None),
        delta_percent=delta,
        behind=None,
    )


def delta_percent(
    score: float, reference: float | None, is_regression: bool
) -> float | None:
    """By how many percent a score is better than the reference; less is worse.

    >>> delta_percent(0.9, 1.0, is_regression=True)
    10.0
    """
    if not reference:
        return None
    change = 100 * (score - reference) / abs(reference)
    return round(-change if is_regression else change, 10)


def _on_validation(cell: CellSummary, name: str) -> float | None:
    spread: Spread | None = getattr(cell.val, name)
    return None if spread is None else spread.mean


def _least(cells: Sequence[CellSummary], name: str, sign: int) -> int | None:
    known = [(_on_validation(cell, name), cell.cell) for cell in cells]
    ranked = [(sign * value, cell) for value, cell in known if value is not None]
    return min(ranked)[1] if ranked else None


def _pareto(cells: Sequence[CellSummary], metric: Metric | None) -> list[int]:
    """Less is better in each of the costs; what is not known is no cost."""
    signs = {"score": -1, "nll": 1, "ece": 1}
    if metric == "rmse":
        signs = {"score": 1, "error_auroc": -1}
    costs = {
        cell.cell: [signs[name] * (_on_validation(cell, name) or 0.0) for name in signs]
        for cell in cells
    }

    def is_beaten(cost: list[float]) -> bool:
        return any(
            other != cost and all(o <= c for o, c in zip(other, cost, strict=True))
            for other in costs.values()
        )

    return [cell for cell, cost in costs.items() if not is_beaten(cost)]


def _find_collapse(cells: Sequence[CellSummary]) -> list[Collapse]:
    """For each setting, the values at which every cell collapsed."""
    found = []
    names = {name for cell in cells for name in cell.settings}
    for name in sorted(names):
        by_value: dict[Any, list[CellSummary]] = {}
        for cell in cells:
            if name in cell.settings and cell.regime is not None:
                by_value.setdefault(cell.settings[name], []).append(cell)
        gone = {
            value: [cell.cell for cell in group]
            for value, group in by_value.items()
            if all(cell.regime == "collapsed" for cell in group)
        }
        if gone:
            numbers = sorted({cell for group in gone.values() for cell in group})
            found.append(Collapse(setting=name, values=[*gone], cells=numbers))
    return found


# ----------------------------------------------------------------------------
# Ranks over data sets


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A method's rank on each data set, 1 being the best, and the mean of them."""

    method: str
    mean_rank: float
    ranks: dict[str, int]


def rank_methods(
    scores: Mapping[str, Mapping[str, float]], is_less_better: Mapping[str, bool]
) -> list[Ranked]:
    """As the paper ranks: by the mean score on each data set, ties by name.

    Args:
        scores: by data set, then by method. Only methods with a score on each data set
            are ranked.
        is_less_better: by data set.
    """
    methods = sorted(set.intersection(*(set(each) for each in scores.values())))
    ranks: dict[str, dict[str, int]] = {method: {} for method in methods}
    for name, by_method in scores.items():
        sign = 1 if is_less_better[name] else -1
        # sorted() is stable and the methods are in alphabetical order
        order = sorted(methods, key=lambda method: sign * by_method[method])
        for rank, method in enumerate(order, start=1):
            ranks[method][name] = rank
    ranked = [
        Ranked(method=method, mean_rank=mean(own.values()), ranks=own)
        for method, own in ranks.items()
    ]
    return sorted(ranked, key=lambda each: (each.mean_rank, each.method))
