"""The reports of a model that a job has made."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker.messages import ONNX, REPORTS, Examined, Message, Spec
from worker.rows import JobRows, Taken
from worker.steps import Clock


def write_reports(
    spec: Spec,
    folder: Path,
    send: Callable[[Message], None],
    opened: JobRows,
    taken: Taken,
    clock: Clock,
    **about: Any,
) -> None:
    """Evaluate the file that lies in the folder, and leave its reports beside it.

    Args:
        about: how the model came to be: what `Run.of_file` takes.
    """
    from lometab.config import stored_config
    from lometab.evaluation import Run, make_reports
    from lometab.explain import examine, fit_naive
    from lometab.predictor import Predictor

    config = stored_config(spec.hyperparameters)
    predictor = Predictor((folder / ONNX).read_bytes())
    evaluated = Run.of_file(
        predictor,
        taken.rows.x_num,
        taken.rows.x_cat,
        taken.y,
        opened.parts,
        config=config,
        seeds={"split": spec.split["seed"], "training": config.seed},
        warnings=spec.warnings,
        rows=opened.count(),
        timings=clock.stop,
        job_id=spec.job_id,
        shows_rows=spec.keeps_rows,
        **about,
    )
    train, test = (opened.parts[part] for part in ("train", "test"))
    known = taken.rows.take(train)
    evaluated = examine(
        evaluated,
        predictor.run,
        taken.rows.take(test),
        fit_naive(known, taken.y[train], opened.schema.task, predictor.classes),
        groups=spec.importance_groups,
        on_step=lambda done, total: send(Examined(done, total)),
    )
    text = json.dumps(make_reports(evaluated).to_json(), allow_nan=False)
    (folder / REPORTS).write_text(text, encoding="utf-8")
