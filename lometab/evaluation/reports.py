"""From one run to all of its reports."""

from dataclasses import replace

from lometab.evaluation.calibration import report_calibration
from lometab.evaluation.diversity import report_diversity
from lometab.evaluation.report import Reports
from lometab.evaluation.run import Run
from lometab.evaluation.scores import report_run
from lometab.evaluation.summary import summarise


def make_reports(run: Run) -> Reports:
    """The reports on a run, complete: each begins with the same summary."""
    diversity, calibration = report_diversity(run), report_calibration(run)
    report = report_run(run)
    summary = summarise(report, diversity, calibration)
    return Reports(
        diversity=replace(diversity, summary=summary),
        calibration=replace(calibration, summary=summary),
        report=replace(report, summary=summary),
    )
