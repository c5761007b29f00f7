"""The commands that train: train, sweep, tune."""

import json
import re
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from app.cli.connection import DataDir, Key, Url, open_client
from app.cli.output import AsJson, note, print_json, print_lines
from app.cli.reports import find_job, print_summary
from lometab.client import Client, Job
from lometab.client.show import open_bar
from lometab.config import PRESETS
from lometab.extras import is_tracked

FilePath = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="CSV, Parquet, Arrow or JSON; or a dataset's id."
    ),
]
Target = Annotated[str, typer.Option("--target", "-t", help="The column to predict.")]


def _check_preset(value: str | None) -> str | None:
    if value is not None and value not in PRESETS:
        raise typer.BadParameter(f"give one of {', '.join(PRESETS)}, however: {value}")
    return value


Preset = Annotated[
    str | None,
    typer.Option(
        callback=_check_preset,
        autocompletion=lambda: [*PRESETS],
        help=f"Where the settings start from: {', '.join(PRESETS)}.",
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(help="So much time: 90s, 10m, 2h. The best so far is kept."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the model or the job, as rank=8 or split.seed=1; again for "
        "each.",
    ),
]
Name = Annotated[
    str | None, typer.Option(help="The model becomes the next version of this name.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Again for each.")]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Only create the job on the service, and do not wait."
    ),
]
N_Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Runs at a time, without a service.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the ONNX file there.")
]


SEARCH_FOR, STOP_AFTER = "time_budget_seconds", "max_runtime_seconds"
"""What a budget is to the service: a search of its own, or the end of what runs."""


def add(cli: typer.Typer) -> None:
    for command in (train, sweep, tune):
        cli.command()(command)


def train(
    file: FilePath,
    target: Target,
    preset: Preset = None,
    budget: Budget = None,
    settings: Set = None,
    name: Name = None,
    tags: Tags = None,
    output: Output = None,
    detach: Detach = False,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on a file: on a service, or here by a worker of our own.

    With --budget it searches for settings for so long, and makes one model of the
    members that answer best together. Ctrl-C once stops and keeps the best so far,
    twice cancels.
    """
    check_detached(detach, url)
    config = _make_config(preset, budget, settings, name, tags, SEARCH_FOR)
    with open_client(url, key, data_dir, workers=1) as client:
        job = client.train(file, target, **config)
        if detach:
            leave(job, as_json)
            return
        follow(job)
        _finish(client, job, output, as_json)


def sweep(
    file: FilePath,
    target: Target,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="NAME=V,V,...",
            help="Values of a setting, as rank=1,4,16; again for each. Without any, "
            "the paper's grid.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell.")] = 1,
    preset: Preset = None,
    budget: Budget = None,
    settings: Set = None,
    name: Name = None,
    tags: Tags = None,
    workers: N_Workers = 1,
    detach: Detach = False,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Train every combination of some settings, and compare them."""
    check_detached(detach, url)
    config = _make_config(preset, budget, settings, name, tags)
    cells = {each.name: each.values for each in map(_read_values, grid or [])}
    with open_client(url, key, data_dir, workers=workers) as client:
        job = client.sweep(file, target, cells or None, seeds=seeds, **config)
        if detach:
            leave(job, as_json)
            return
        follow(job)
        _finish(client, job, None, as_json)


def tune(
    file: FilePath,
    target: Target,
    trials: Annotated[int, typer.Option(min=1, help="Settings that are tried.")] = 50,
    preset: Preset = None,
    budget: Budget = None,
    settings: Set = None,
    name: Name = None,
    tags: Tags = None,
    workers: N_Workers = 1,
    output: Output = None,
    detach: Detach = False,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Search for the best settings, and train a model with them.

    What is given by --set, as k=8, is held and not searched.
    """
    check_detached(detach, url)
    config = _make_config(preset, budget, settings, name, tags)
    with open_client(url, key, data_dir, workers=workers) as client:
        job = client.tune(file, target, n_trials=trials, **config)
        if detach:
            leave(job, as_json)
            return
        follow(job)
        _finish(client, job, output, as_json)


# ----------------------------------------------------------------------------
# Settings


def _make_config(
    preset: str | None,
    budget: str | None,
    settings: list[str] | None,
    name: str | None,
    tags: list[str] | None,
    budget_is: str = STOP_AFTER,
) -> dict[str, Any]:
    config: dict[str, Any] = {"preset": preset, "name": name, "tags": tags}
    if budget is not None:
        config[budget_is] = read_seconds(budget)
    config = {name: value for name, value in config.items() if value is not None}
    for text in settings or []:
        path, value = _read_setting(text)
        place = config
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value
    return config


def read_seconds(text: str) -> int:
    """
    >>> read_seconds("10m")
    600
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|)", text)
    if found is None or float(found[1]) == 0:
        raise typer.BadParameter(
            f"give a time as 90s, 10m or 2h, however: {text}", param_hint="--budget"
        )
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]
    return max(1, round(seconds))


def _read_setting(text: str) -> tuple[list[str], Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(
            f"give NAME=VALUE, as rank=8, however: {text}", param_hint="--set"
        )
    return name.strip().split("."), read_value(value)


class _Values:
    """The values of a setting in a grid."""

    def __init__(self, name: str, values: list[Any]) -> None:
        self.name, self.values = name, values


def _read_values(text: str) -> _Values:
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise typer.BadParameter(
            f"give NAME=V,V,..., as rank=1,4,16, however: {text}", param_hint="--grid"
        )
    return _Values(name, [read_value(each) for each in values.split(",")])


def read_value(text: str) -> Any:
    """A number, true, false, null, or anything else that JSON has; else a text.

    >>> [read_value(each) for each in ("8", "1e-3", "true", "tabm")]
    [8, 0.001, True, 'tabm']
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


# ----------------------------------------------------------------------------
# A job on its way


def check_detached(detach: bool, url: str | None) -> None:
    if detach and url is None:
        raise typer.BadParameter(
            "without a service nobody trains once this ends: name one by --url",
            param_hint="--detach",
        )


def leave(job: Job, as_json: bool) -> None:
    """The job is left to the service."""
    for warning in job.info.get("warnings", []):
        note(f"warning: {warning}")
    if as_json:
        print_json(job.info)
    else:
        print_lines(f"{job.id} is {job.status}", f"next: lometab jobs watch {job.id}")


class _Interrupts:
    """Ctrl-C, counted: one that comes while another is answered is not lost."""

    def __init__(self) -> None:
        self.n, self.is_raised = 0, False

    def __enter__(self) -> "_Interrupts":
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _take(self, *_: object) -> None:
        self.n += 1
        if self.is_raised:
            raise KeyboardInterrupt

    def check(self, n_answered: int) -> None:
        """Raise from now on, and at once if one is not answered yet."""
        self.is_raised = True
        if self.n > n_answered:
            raise KeyboardInterrupt


def follow(job: Job) -> None:
    """Show how a job goes until it has ended; Ctrl-C once stops it, twice cancels."""
    is_tty = Console(stderr=True).is_terminal
    last, n_answered = 0, 0
    with (
        open_bar(is_tty, job.info, stderr=True) as bar,
        _Interrupts() as interrupts,
    ):
        while True:
            try:
                interrupts.check(n_answered)
                for event in job.events(last):
                    last = event["seq"]
                    bar.take(event)
                    if event["type"] == "warning":
                        bar.say(f"warning: {event['data'].get('detail', '')}")
                break
            except KeyboardInterrupt:
                interrupts.is_raised = False
                n_answered += 1
                if n_answered > 2:
                    raise
                _interrupt(job, n_answered, bar)
    if job.refresh().status == "cancelled" and n_answered:
        note(f"{job.id} is cancelled")
        raise KeyboardInterrupt


def _interrupt(job: Job, n: int, bar: Any) -> None:
    from lometab.client import Conflict

    try:
        if n == 1:
            job.stop()
            bar.say("stopping: the best epoch so far is kept; Ctrl-C again cancels")
        else:
            job.cancel()
            bar.say("cancelling: nothing is kept")
    except Conflict as error:  # it has just ended, or has not begun
        if n == 1 and not job.refresh().has_ended:
            job.cancel()
            bar.say("cancelled before it began")
        else:
            bar.say(str(error))


def _finish(client: Client, job: Job, output: Path | None, as_json: bool) -> None:
    job.check()
    if output is not None:
        job.model.download(output)
    if is_tracked() and job.info["kind"] == "train":
        from lometab.mlflow import track_job

        note(f"logged to MLflow as run {track_job(job)}")
    if as_json:
        from app.cli.reports import read_all

        print_json(read_all(job))
        return
    print_summary(job)
    model_id = job.info.get("model_id")
    if model_id is not None and job.info["kind"] == "tune":
        print_lines("")
        print_summary(find_job(client, model_id))
    if output is not None:
        print_lines(f"written to {output}")
    if model_id is not None:
        print_lines(f"next: lometab predict {model_id} ROWS.csv -o answers.csv")
