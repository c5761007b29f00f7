"""How jobs, models and datasets look: in a line, in a notebook, and while they run."""

import html
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from lometab.extras import naming_extras

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SHOWN = (
    *("status", "phase", "kind", "name", "version", "aliases", "task", "target", "k"),
    *("model_id", "filename", "n_rows", "n_columns", "metrics", "tags", "description"),
    *("url", "events", "is_enabled", "n_failed"),
)


def describe(kind: str, info: Mapping[str, Any]) -> str:
    """One line: the id, and what is known.

    >>> describe("Job", {"id": "job_1", "status": "running", "name": None})
    "<Job job_1 status='running'>"
    """
    known = " ".join(f"{name}={value!r}" for name, value in _list(info))
    return f"<{kind} {info['id']}{' ' if known else ''}{known}>"


def describe_html(kind: str, info: Mapping[str, Any]) -> str:
    """A small table, for a notebook."""
    lines = [("id", info["id"]), *_list(info)]
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(_text(value))}</td></tr>"
        for name, value in lines
    )
    return f"<table><caption>{html.escape(kind)}</caption>{rows}</table>"


def _list(info: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found = [(name, info[name]) for name in _SHOWN if info.get(name)]
    progress = info.get("progress") or {}
    if info.get("status") == "running" and progress.get("epoch"):
        found.append(("epoch", progress["epoch"]))
    error = info.get("error")
    if error:
        found.append(("error", error["code"]))
    return found


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


NARROW = 95
"""A terminal of fewer columns has no room for the time that went by."""
_WORDS = (
    *("running", "lost", "released", "stopping", "cancelling", "repeating"),
    *("refitting", "succeeded", "failed", "cancelled"),
)
"""Events that say what a job does from now on."""


class Bar(Protocol):
    """What shows the events of a job."""

    def take(self, event: Mapping[str, Any]) -> None: ...

    def say(self, text: str) -> None:
        """A line of its own, beside the bar."""


class NoBar:
    """Shows nothing."""

    def take(self, event: Mapping[str, Any]) -> None: ...

    def say(self, text: str) -> None: ...


class ProgressBar:
    """Epochs of a training, or runs of a sweep or a search, with the best score."""

    def __init__(
        self, progress: "Progress", task: "TaskID", n_runs: int | None
    ) -> None:
        self._progress, self._task = progress, task
        self._n_runs, self._n_done = n_runs, 0

    def take(self, event: Mapping[str, Any]) -> None:
        data = event["data"]
        if event["type"] == "phase":
            self._progress.update(self._task, description=data["phase"])
        elif event["type"] == "epoch":
            self._show(data["epoch"], data["max_epochs"], "epoch", data)
        elif event["type"] == "child" and "rows_done" in data:
            self._show(data["rows_done"], data["n_rows"], "row", data)
        elif event["type"] == "child":
            self._n_done += 1
            n_runs = max(self._n_runs or 0, self._n_done)  # repeats come on top
            self._show(self._n_done, n_runs, "run", data)
        elif event["type"] in _WORDS:
            self._progress.update(self._task, description=event["type"], eta="")

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def _show(self, done: int, total: int, word: str, data: Mapping[str, Any]) -> None:
        self._progress.update(
            self._task,
            completed=done,
            total=total,
            count=f"{word} {done}/{total}",
            score=describe_score(data),
            eta=describe_eta(data.get("eta_seconds")),
        )


def describe_score(data: Mapping[str, Any]) -> str:
    """The best score so far, and how far apart the members are."""
    parts = []
    if data.get("best_score") is not None:
        parts.append(f"best {data['best_score']:.4f}")
    diversity = data.get("diversity")
    if isinstance(diversity, int | float):
        parts.append(f"diversity {diversity:.3g}")
    return "  ".join(parts)


def describe_eta(seconds: float | None) -> str:
    """
    >>> describe_eta(75.0)
    '1:15 left'
    """
    if seconds is None or not math.isfinite(seconds):
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} left"


@contextmanager
def open_bar(
    is_wanted: bool, job: Mapping[str, Any], *, stderr: bool = False
) -> Iterator[Bar]:
    """A bar in the terminal or notebook, or nothing."""
    if not is_wanted:
        yield NoBar()
        return
    with naming_extras():
        from rich import get_console
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True) if stderr else get_console()
    columns = [
        TextColumn("{task.description:>10}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[score]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[eta]}"),
    ]
    if console.width < NARROW:
        del columns[4]
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("queued", total=None, count="", score="", eta="")
        n_runs = (job.get("progress") or {}).get("n_runs")
        yield ProgressBar(progress, task, n_runs)
