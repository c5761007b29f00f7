"""A model that keeps some of its members: chosen, cut, calibrated and reported anew."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.messages import (
    BASE,
    ONNX,
    Message,
    PhaseBegun,
    Spec,
)
from worker.reports import write_reports
from worker.rows import JobRows, Taken
from worker.steps import Clock

if TYPE_CHECKING:
    from lometab.evaluation import Calibrator, Pruning
    from lometab.predictor import Predictor


def keep_members(
    content: bytes,
    wanted: Any,
    taken: Taken,
    calibrate: "Callable[[Predictor], Calibrator]",
) -> "tuple[bytes, Pruning]":
    """The file with the members that are wanted, by the validation rows."""
    from lometab.evaluation import measure_part
    from lometab.predictor import Predictor
    from lometab.pruning import choose, prune

    def score(predictor: Predictor) -> dict[str, float]:
        found = {}
        for part in ("val", "test"):
            x_num, x_cat, y = taken(part)
            answer = predictor.run(x_num, x_cat)
            found[part] = measure_part(y, *answer, 1.0).score
        return found

    whole = Predictor(content)
    x_num, x_cat, y = taken("val")
    members = choose(y, whole.run(x_num, x_cat)[1], wanted)
    rows = slice(None, 1000)
    pruned, pruning = prune(
        content, members, x_num[rows], x_cat[rows], calibrate=calibrate
    )
    return pruned, replace(
        pruning, score_before=score(whole), score_after=score(Predictor(pruned))
    )


def run(spec: Spec, folder: Path, send: Callable[[Message], None]) -> None:
    """Of a model that was trained before; leave the new one and its reports."""
    from lometab.errors import DataError
    from lometab.export import calibrate_on

    clock = Clock()
    if not (folder / BASE).exists():
        raise DataError(
            "the model whose members were to be chosen was deleted meanwhile"
        )
    opened = JobRows.open(spec, folder)
    taken = Taken.of(opened)
    send(PhaseBegun("exporting"))
    clock.start("exporting")
    calibrate = calibrate_on(
        *taken("val"), own=taken.find("calibration"), by=spec.calibrate_by
    )
    content, pruning = keep_members(
        (folder / BASE).read_bytes(), spec.members, taken, calibrate
    )
    (folder / ONNX).write_bytes(content)
    send(PhaseBegun("evaluating"))
    clock.start("evaluating")
    write_reports(spec, folder, send, opened, taken, clock, pruning=pruning)
