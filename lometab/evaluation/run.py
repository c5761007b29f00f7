"""What the reports on one run are made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation.calibrator import Calibrator, Rows, calibrate_rows, group_rows
from lometab.evaluation.findings import Findings
from lometab.evaluation.head import Label
from lometab.evaluation.report import Baseline, Pruning, SeedOutcome, Training

if TYPE_CHECKING:  # they load more than reports need
    from lometab.config import ModelConfig, Task
    from lometab.predictor import Predictor
    from lometab.table import Parts

Answer = tuple[NDArray[Any], NDArray[Any]]
"""`mean` and `members` of some rows: (N,) and (N, K), or (N, C) and (N, K, C)."""


class Epoch(Protocol):
    """What the reports tell of an epoch of training."""

    @property
    def epoch(self) -> int: ...

    @property
    def train_loss(self) -> float: ...

    @property
    def val_score(self) -> float: ...

    @property
    def member_score(self) -> float: ...

    @property
    def diversity(self) -> float | None: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """One trained ensemble, its answers, and how it was made."""

    task: "Task"
    targets: Mapping[str, NDArray[Any]]
    """By part; `test` must be there."""
    answers: Mapping[str, Answer]
    """By part, of the same rows."""
    train_variance: float
    """Of the training targets, which normalises the ambiguity."""
    calibrator: Calibrator
    """Fitted on the part `calibration`, or on `val` if there is none."""
    config: "ModelConfig"
    groups: Mapping[str, NDArray[Any] | None] = field(default_factory=dict)
    """By part: the value of each row by which it is calibrated apart, if any."""
    is_by_class: bool = False
    """Whether these groups are the classes."""
    history: Sequence[Epoch] = ()
    classes: Sequence[Label] | None = None
    """The labels in the order of the probabilities; None: their numbers."""
    n_parameters: int | None = None
    training: Training | None = None
    seeds: Mapping[str, int] | None = None
    """Of the split and of the training."""
    by_seed: Sequence[SeedOutcome] = ()
    """If there are several, or baselines."""
    baselines: Sequence[Baseline] = ()
    warnings: Sequence[str] = ()
    """What was decided about the data, and what looks wrong in it."""
    rows: Mapping[str, Any] | None = None
    """What was used of the table: the fields of `UsedRows`."""
    pruning: Pruning | None = None
    """If some members were left out."""
    timings: Callable[[], Mapping[str, float]] = dict
    """Gives the seconds of each phase; called when all else is computed."""
    job_id: str | None = None
    shows_rows: bool = True
    """Whether the reports may tell of single rows."""
    findings: Findings | None = None
    """What drives the model and where it fails; None if that was not looked at."""

    @classmethod
    def of_file(
        cls,
        predictor: "Predictor",
        x_num: NDArray[np.float64],
        x_cat: NDArray[np.object_],
        y: NDArray[Any],
        parts: "Parts",
        **how: Any,
    ) -> "Run":
        """The run that made a file, by the answers that the file gives.

        Args:
            x_num, x_cat, y: all rows, as `lometab.table` gives them.
            how: `config` and the fields after it, but for `classes`.
        """
        targets = {str(part): y[rows] for part, rows in parts.items()}
        answers: dict[str, Answer] = {
            part: predictor.run(x_num[rows], x_cat[rows])
            for part, rows in parts.items()
        }
        by = predictor.metadata.get("conformal", {}).get("by")
        groups = {
            str(part): group_rows(
                by, predictor.target, predictor.categorical, x_cat[rows], y[rows]
            )
            for part, rows in parts.items()
        }
        answered = [
            Rows(targets[part], *answers[part], groups[part])
            for part in ("val", "calibration")
            if part in answers
        ]
        return cls(
            task=cast("Task", predictor.task),
            targets=targets,
            answers=answers,
            train_variance=float(np.var(targets["train"])),
            calibrator=replace(
                calibrate_rows(*answered, by=by),
                temperature=predictor.metadata.get("temperature"),
            ),
            classes=predictor.classes,
            groups=groups,
            is_by_class=by == predictor.target,
            **how,
        )

    def warn_of_calibration(self) -> list[str]:
        return self.calibrator.warnings(is_pruned=self.pruning is not None)

    def head(self) -> dict[str, Any]:
        """What every report begins with."""
        return {
            "version": 1,
            "job_id": self.job_id,
            "task": self.task,
            "split": "test",
            "n_rows": len(self.targets["test"]),
        }
