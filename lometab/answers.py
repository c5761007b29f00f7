"""An answer of the service by columns, one for each number."""

from collections.abc import Mapping, Sequence
from typing import Any


def flatten(answer: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The predictions of an answer by column, one for each number: `mean_yes`,
    `member_0`, `interval_lower`."""
    columns: dict[str, list[Any]] = {}
    predictions, classes = answer["predictions"], answer["classes"]
    for name in dict.fromkeys(name for row in predictions for name in row):
        values = [row.get(name) for row in predictions]
        if name == "interval":
            columns["interval_lower"] = [value[0] for value in values]
            columns["interval_upper"] = [value[1] for value in values]
        elif name == "mean" and classes is not None:
            columns |= _by_class("mean", values, classes)
        elif name == "members":
            for k in range(answer["k"]):
                member = [value[k] for value in values]
                if classes is None:
                    columns[f"member_{k}"] = member
                else:
                    columns |= _by_class(f"member_{k}", member, classes)
        else:
            columns[name] = values
    return columns


def _by_class(
    name: str, values: Sequence[Any], classes: Sequence[Any]
) -> dict[str, list[Any]]:
    return {
        f"{name}_{label}": [value[c] for value in values]
        for c, label in enumerate(classes)
    }
