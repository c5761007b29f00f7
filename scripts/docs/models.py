"""reference/hyperparameters.md, and the table of presets: from `lometab.config`."""

from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from app.api.docstrings import read_docstrings
from app.jobs import JobSettings
from lometab.config import PRESET_SEEDS, PRESETS, ModelConfig, TrainConfig
from lometab.table import ReadOptions, Split
from scripts.docs.text import WARNING, code, table


def write() -> str:
    lines = ["# Settings of a model and a job", "", WARNING, ""]
    lines += [
        "`hyperparameters` of a job, `--set` of the command, and parameters of the "
        "estimators and of `client.train` have these names. A preset decides what "
        "you do not set.",
        "",
        "## Presets",
        "",
        *presets(),
        "## Hyperparameters",
        "",
        *_hyperparameters(),
        "## A job",
        "",
        *_job(),
        "## `split`",
        "",
        *_plain(Split),
        "## `read_options`",
        "",
        *_plain(ReadOptions),
    ]
    return "\n".join(lines)


def presets() -> list[str]:
    """Every preset beside the others; what is the same in all is said once."""
    names = [*PRESETS]
    keys = [*dict.fromkeys(key for each in PRESETS.values() for key in each)]
    rows = [(key, [PRESETS[name].get(key) for name in names]) for key in keys]
    rows.append(("n_seeds", [PRESET_SEEDS[name] for name in names]))
    differ = [row for row in rows if any(value != row[1][0] for value in row[1])]
    same = [f"`{key}` {_show(v[0])}" for key, v in rows if (key, v) not in differ]
    lines = table(
        ("setting", *map(code, names)),
        ((code(key), *map(_show, values)) for key, values in differ),
    )
    return [*lines, f"The same in all: {', '.join(same)}.", ""] if same else lines


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _hyperparameters() -> list[str]:
    hints = get_type_hints(TrainConfig, include_extras=True)
    texts = read_docstrings(TrainConfig)
    of_network = {field.name for field in fields(ModelConfig)}
    rows = [
        (
            code(field.name),
            "network" if field.name in of_network else "training",
            _bounds(hints[field.name]),
            _show(field.default),
            texts[field.name],
        )
        for field in fields(TrainConfig)
    ]
    return table(("name", "of the", "allowed", "default", "meaning"), rows)


def _bounds(hint: Any) -> str:
    options = get_args(hint)
    if get_origin(hint) is Annotated:
        kind, bounds = options
        low = (
            f"{bounds.ge:g} to" if bounds.ge is not None else f"above {bounds.gt:g}, to"
        )
        word = "whole, " if kind is int else ""
        return f"{word}{low} {_show(bounds.le)}"
    if hint is bool:
        return "true, false"
    if type(None) in options:
        return f"{_bounds(options[0])}, or null"
    return ", ".join(code(each) for each in options)


def _job() -> list[str]:
    rows = [
        (code(name), _job_default(field), field.description or _LINKS.get(name, ""))
        for name, field in JobSettings.model_fields.items()
    ]
    return table(("name", "default", "meaning"), rows)


_LINKS = {
    "split": "How rows are parted: see [below](#split).",
    "hyperparameters": "See [above](#hyperparameters).",
    "tags": "Words to find it by.",
}


def _job_default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, list | dict) and not value:
        return "none"
    return _show(value) if not hasattr(value, "__dataclass_fields__") else " "


def _plain(kind: type) -> list[str]:
    texts = read_docstrings(kind)
    defaults = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]
    rows = [(code(n), _show(defaults[n]), text) for n, text in texts.items()]
    return table(("name", "default", "meaning"), rows)
