"""Writes a small model file of the present format, and its answers, to tests/old.

    python -m tests.support.old_models

To be run when the format's version changes, before anything else does: what is written
then stays as it is, and tests/test_old_models.py has every later version read it.
"""

import json
from pathlib import Path
from typing import Any

from lometab import LoMETabClassifier, LoMETabRegressor, Predictor
from lometab.onnx_file import FORMAT_VERSION

FOLDER = Path(__file__).parents[1] / "old"
ROWS: list[dict[str, Any]] = [
    {"size": 1.5, "colour": "red", "weight": 2.0},
    {"size": None, "colour": "violet", "weight": 8.5},
    {"size": 9.0, "colour": None, "weight": 0.25},
]
SETTINGS: dict[str, Any] = {
    **{"k": 2, "rank": 1, "n_blocks": 1, "d_block": 8, "n_bins": 4},
    **{"d_embedding": 2, "max_epochs": 2, "batch_size": 32, "random_state": 0},
}


def make_table() -> dict[str, list[Any]]:
    colours = ["red", "green", "blue", None]
    return {
        "size": [i * 37 % 101 / 10 if i % 11 else None for i in range(80)],
        "colour": [colours[i % 7 % 4] for i in range(80)],
        "weight": [i * 53 % 97 / 10 for i in range(80)],
    }


def describe(path: Path) -> dict[str, Any]:
    """What a model file answers of the rows."""
    answer = Predictor(path).predict(ROWS)
    return {"mean": answer.mean.tolist(), "members": answer.members.tolist()}


def main() -> None:
    import pandas as pd

    table = pd.DataFrame(make_table())
    y = [
        (size or 4.0) + weight / 3
        for size, weight in zip(table["size"].fillna(4), table["weight"], strict=True)
    ]
    names = {
        "regression": (LoMETabRegressor, y),
        "classification": (
            LoMETabClassifier,
            ["high" if each > 7 else "low" for each in y],
        ),
    }
    for name, (kind, target) in names.items():
        path = FOLDER / f"v{FORMAT_VERSION}-{name}.onnx"
        kind(**SETTINGS).fit(table, target).export_onnx(path)
        path.with_suffix(".json").write_text(
            json.dumps(describe(path), indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
