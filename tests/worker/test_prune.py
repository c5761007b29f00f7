"""A model of some of a model's members: what is told of the rows that chose them."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from lometab.config import TrainConfig
from lometab.predictor import Predictor
from lometab.table import ParquetTable, Split, infer_schema, read_file
from tests.support.tables import make_csv
from worker import prune, train
from worker.messages import BASE, DATA, ONNX, REPORTS, Spec

CONFIG = TrainConfig(
    **{"k": 3, "rank": 1, "n_blocks": 1, "d_block": 8, "n_bins": 4, "d_embedding": 4},
    **{"max_epochs": 1, "batch_size": 64},
)


def make_spec(folder: Path, split: Split) -> Spec:
    (folder / "t.csv").write_text(make_csv(300))
    read_file(folder / "t.csv", folder / DATA)
    schema = infer_schema(ParquetTable(folder / DATA), target="label")
    return Spec(
        job_id="job_1",
        attempt=1,
        role="train",
        hyperparameters=asdict(CONFIG),
        schema=schema.to_dict(),
        split=asdict(split),
        dataset_sha256="0" * 64,
        warnings=("something else",),
        device="cpu",
        threads=1,
        checkpoint_seconds=0.0,
        supervisor=0,
    )


def find_warnings(folder: Path) -> dict[str, Any]:
    """What is told of choosing members by rows that calibrate, and where."""
    reports = json.loads((folder / REPORTS).read_text())
    places = {
        "model": Predictor(folder / ONNX).metadata["warnings"],
        "report": reports["report"]["warnings"],
        "calibration": reports["calibration"]["warnings"],
    }
    return {
        name: [w for w in warnings if "choose the members" in w]
        for name, warnings in places.items()
    }


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_rows_that_chose_and_calibrate_are_told(share: float, tmp_path: Path) -> None:
    spec = make_spec(tmp_path, Split(calibration=share))
    train.run(spec, tmp_path, lambda _: None, set())
    assert not any(find_warnings(tmp_path).values())
    shutil.copy(tmp_path / ONNX, tmp_path / BASE)
    pruned = replace(spec, members=2, base_sha256="0" * 64)
    prune.run(pruned, tmp_path, lambda _: None)
    found = find_warnings(tmp_path)
    assert {len(each) for each in found.values()} == {0 if share else 1}
    train.run(replace(spec, members=2), tmp_path, lambda _: None, set())
    assert find_warnings(tmp_path) == found
    assert Predictor(tmp_path / ONNX).metadata["warnings"][0] == "something else"
