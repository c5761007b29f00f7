"""A model that keeps some of its members: chosen, cut, calibrated and reported anew."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.messages import (
    BASE,
    ONNX,
    REPORTS,
    Examined,
    Message,
    PhaseBegun,
    Spec,
)
from worker.rows import JobRows
from worker.steps import Clock, Taken

if TYPE_CHECKING:
    from lometab.evaluation import Calibrator, Pruning
    from lometab.predictor import Predictor


def keep_members(
    content: bytes,
    wanted: Any,
    take: Taken,
    calibrate: "Callable[[Predictor], Calibrator]",
) -> "tuple[bytes, Pruning]":
    """The file with the members that are wanted, by the validation rows."""
    from lometab.evaluation import measure_part
    from lometab.predictor import Predictor
    from lometab.pruning import choose, prune

    def score(predictor: Predictor) -> dict[str, float]:
        found = {}
        for part in ("val", "test"):
            x_num, x_cat, y = take(part)
            answer = predictor.run(x_num, x_cat)
            found[part] = measure_part(y, *answer, 1.0).score
        return found

    whole = Predictor(content)
    x_num, x_cat, y = take("val")
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
    from lometab.config import stored_config
    from lometab.errors import DataError
    from lometab.evaluation import Run, make_reports
    from lometab.explain import Rows, examine, fit_naive
    from lometab.export import calibrate_on
    from lometab.predictor import Predictor
    from lometab.table import features, target

    clock = Clock()
    if not (folder / BASE).exists():
        raise DataError(
            "the model whose members were to be chosen was deleted meanwhile"
        )
    opened = JobRows.open(spec, folder)
    schema, parts = opened.schema, opened.parts
    x_num, x_cat = features(opened.table, schema)
    y = target(opened.table, schema)
    take = Taken(x_num, x_cat, y, parts)
    send(PhaseBegun("exporting"))
    clock.start("exporting")
    calibrate = calibrate_on(
        *take("val"), own=take.find("calibration"), by=spec.calibrate_by
    )
    content, pruning = keep_members(
        (folder / BASE).read_bytes(), spec.members, take, calibrate
    )
    (folder / ONNX).write_bytes(content)
    send(PhaseBegun("evaluating"))
    clock.start("evaluating")
    config = stored_config(spec.hyperparameters)
    predictor = Predictor(content)
    evaluated = Run.of_file(
        predictor,
        x_num,
        x_cat,
        y,
        parts,
        config=config,
        seeds={"split": spec.split["seed"], "training": config.seed},
        pruning=pruning,
        warnings=spec.warnings,
        rows=opened.count(),
        timings=clock.stop,
        job_id=spec.job_id,
        shows_rows=spec.keeps_rows,
    )
    rows = Rows(schema.numeric, schema.categorical, x_num, x_cat, schema.datetime)
    known = rows.take(parts["train"])
    evaluated = examine(
        evaluated,
        predictor.run,
        rows.take(parts["test"]),
        fit_naive(known, y[parts["train"]], schema.task, predictor.classes),
        groups=spec.importance_groups,
        on_step=lambda done, total: send(Examined(done, total)),
    )
    text = json.dumps(make_reports(evaluated).to_json(), allow_nan=False)
    (folder / REPORTS).write_text(text, encoding="utf-8")
