"""Which rows of its table a job uses, and where they are: all of it is told."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lometab import cost, ensemble
from lometab.config import TRAINING_ENVIRONMENT, TrainConfig
from lometab.errors import TrainingCancelled
from lometab.predictor import Predictor
from lometab.table import (
    ParquetTable,
    Split,
    infer_schema,
    read_file,
    sampling,
    write_table,
)
from tests.support.tables import make_csv
from worker import prune, train
from worker.messages import (
    BASE,
    CHECKPOINT,
    DATA,
    ONNX,
    OUTCOME,
    REPORTS,
    TRAIN_ROWS,
    CheckpointWritten,
    Message,
    Spec,
)

CONFIG = TrainConfig(
    **{"k": 2, "rank": 1, "n_blocks": 1, "d_block": 8, "n_bins": 4, "d_embedding": 4},
    **{"max_epochs": 3, "batch_size": 64},
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("source")
    (folder / "t.csv").write_text(make_csv(600))
    read_file(folder / "t.csv", folder / DATA)
    schema = infer_schema(ParquetTable(folder / DATA), target="label")
    return folder / DATA, schema.to_dict()


@pytest.fixture
def spec(source: tuple[Path, dict[str, Any]], tmp_path: Path) -> Spec:
    shutil.copy(source[0], tmp_path / DATA)
    return Spec(
        job_id="job_1",
        attempt=1,
        role="train",
        hyperparameters=asdict(CONFIG),
        schema=source[1],
        split=asdict(Split(calibration=0.1)),
        dataset_sha256="0" * 64,
        device="cpu",
        threads=1,
        checkpoint_seconds=0.0,
        supervisor=0,
    )


def run(spec: Spec, folder: Path, orders: set[str] | None = None) -> list[Message]:
    sent: list[Message] = []
    train.run(spec, folder, sent.append, orders or set())
    return sent


def read_reports(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / REPORTS).read_text())
    return found


def test_max_rows_is_told_by_report_and_model(spec: Spec, tmp_path: Path) -> None:
    warning = "trained on 200 of 600 rows"
    run(replace(spec, max_rows=200, warnings=(warning,)), tmp_path)
    report = read_reports(tmp_path)["report"]
    told = report["rows"]
    assert (told["table"], told["used"], told["storage"]) == (600, 200, "memory")
    assert (
        told["train"]
        == told["reported"]["train"]
        == report["scores"]["train"]["n_rows"]
    )
    assert sum(told["reported"].values()) == 200
    assert report["warnings"] == [warning]
    metadata = Predictor((tmp_path / ONNX).read_bytes()).metadata
    assert metadata["rows"] == told and metadata["warnings"] == [warning]
    assert metadata["reference"]["n_rows"] == told["train"]


def test_of_moments_the_file_keeps_no_histogram(spec: Spec, tmp_path: Path) -> None:
    """Whatever is asked later would be drift."""
    head, *lines = make_csv(300).splitlines()
    dated = [f"{line},2026-01-{1 + i % 28:02}" for i, line in enumerate(lines)]
    (tmp_path / "t.csv").write_text("\n".join([f"{head},when", *dated]))
    read_file(tmp_path / "t.csv", tmp_path / DATA)
    schema = infer_schema(ParquetTable(tmp_path / DATA), target="label")
    assert schema.datetime == ("when",)
    run(replace(spec, schema=schema.to_dict()), tmp_path)
    metadata = Predictor((tmp_path / ONNX).read_bytes()).metadata
    columns = metadata["reference"]["columns"]
    assert columns["when"]["edges"] == [] and columns["when"]["counts"][1] == 0
    assert len(columns["size"]["edges"]) > 1


def test_all_rows_are_told_too(spec: Spec, tmp_path: Path) -> None:
    run(spec, tmp_path)
    told = read_reports(tmp_path)["report"]["rows"]
    assert told["table"] == told["used"] == 600


@pytest.mark.slow
def test_rows_in_a_file_make_the_same_model(spec: Spec, tmp_path: Path) -> None:
    """As long as one buffer takes them all."""
    spec = replace(spec, max_rows=500, baselines=("mlp",), n_seeds=2)
    run(spec, tmp_path)
    memory = read_reports(tmp_path)
    run(replace(spec, storage="file"), tmp_path)
    file = read_reports(tmp_path)
    assert (tmp_path / TRAIN_ROWS).exists()
    assert memory["report"]["rows"]["storage"] == "memory"
    assert file["report"]["rows"] == {**memory["report"]["rows"], "storage": "file"}
    for name in ("scores", "decomposition", "importance"):
        assert file["report"][name] == memory["report"][name]
    assert file["calibration"] == memory["calibration"]
    baselines = [
        [(each["name"], each["score"]) for each in found["report"]["baselines"]]
        for found in (memory, file)
    ]
    assert baselines[0] == baselines[1]


def test_reports_on_a_file_are_of_some_rows(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "HELD_ROWS", 50)
    run(replace(spec, storage="file"), tmp_path)
    report = read_reports(tmp_path)["report"]
    told = report["rows"]
    assert told["used"] == 600 and told["train"] > 300
    assert told["reported"] == dict.fromkeys(told["reported"], 50)
    assert {each["n_rows"] for each in report["scores"].values()} == {50}
    rows = np.fromfile(tmp_path / TRAIN_ROWS, np.uint8)
    assert len(rows) % told["train"] == 0

    shutil.copy(tmp_path / ONNX, tmp_path / BASE)
    pruned = replace(spec, storage="file", members=1, base_sha256="0" * 64)
    prune.run(pruned, tmp_path, lambda _: None)
    assert read_reports(tmp_path)["report"]["rows"] == told


def test_cells_take_the_file_that_is_there(spec: Spec, tmp_path: Path) -> None:
    spec = replace(spec, role="cell", storage="file")
    cells = train.Cells(spec, tmp_path)
    written = (tmp_path / TRAIN_ROWS).stat().st_mtime_ns
    outcomes = []
    for _ in range(2):
        cells.run(spec, lambda _: None, set())
        outcomes.append(json.loads((tmp_path / OUTCOME).read_text())["test"])
    assert outcomes[0] == outcomes[1]
    assert (tmp_path / TRAIN_ROWS).stat().st_mtime_ns == written


def test_an_attempt_goes_on_as_if_nothing_had_happened(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With blocks in an order drawn by lot; the file itself is written anew."""
    small = partial(ensemble.prepare_file, buffer_bytes=2000)
    monkeypatch.setattr(ensemble, "prepare_file", small)
    spec = replace(spec, storage="file")
    run(spec, tmp_path)
    whole = read_reports(tmp_path)["report"]["scores"]

    sent: list[Message] = []
    with pytest.raises(TrainingCancelled):
        train.run(spec, tmp_path, sent.append, {"leave"})
    (written,) = [each for each in sent if isinstance(each, CheckpointWritten)]
    shutil.move(tmp_path / written.folder, tmp_path / CHECKPOINT)
    (tmp_path / TRAIN_ROWS).unlink()
    run(spec, tmp_path)
    assert read_reports(tmp_path)["report"]["scores"] == whole


# What it is for


def write_numbers(path: Path, n_rows: int, n_columns: int) -> None:
    rng = np.random.default_rng(0)
    keys = [f"c{i}" for i in range(n_columns + 1)]

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(0, n_rows, 10_000):
            x = rng.normal(size=(n_columns, 10_000)).astype(np.float32)
            columns = [pa.array(each) for each in (*x, x[0] * x[1])]
            yield pa.record_batch(columns, names=keys)

    names = [*(f"x{i}" for i in range(n_columns)), "y"]
    write_table(path, names, batches(), compression="none")


CHILD = """
import sys
from functools import partial
from pathlib import Path
from worker.messages import Spec
from worker.train import Cells
import lometab.baselines  # all that is loaded before there are rows
from lometab import ensemble, row_file
from lometab.table import sampling

sampling.HELD_ROWS = int(sys.argv[1])
row_file.SAMPLE_BYTES = int(sys.argv[2])
ensemble.prepare_file = partial(ensemble.prepare_file, buffer_bytes=int(sys.argv[2]))

def read(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return 1024 * int(line.split()[1])

level = read("VmRSS")
spec = Spec.from_json(sys.stdin.readline())
Cells(spec, Path.cwd()).run(spec, lambda _: None, set())
print(read("VmHWM") - level)
"""
HELD, BUFFER = 10_000, 4 * 2**20
"""A tenth of what they are, so that a table of a tenth shows the same."""


def measure_peak(spec: Spec, folder: Path) -> int:
    """Memory of a child process, as its supervisor counts it, above its imports."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(HELD), str(BUFFER)],
        cwd=folder,
        env={**TRAINING_ENVIRONMENT, "OMP_NUM_THREADS": "1"},
        input=spec.to_json() + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.processes
def test_what_does_not_fit_in_memory_is_trained_from_a_file(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate tells the two apart, and a limit between them is kept."""
    monkeypatch.setattr(cost, "HELD_ROWS", HELD)
    monkeypatch.setattr(cost, "BUFFER_BYTES", BUFFER)
    monkeypatch.setattr(cost, "SAMPLE_BYTES", BUFFER)
    n_rows, n_columns = 400_000, 60
    write_numbers(tmp_path / DATA, n_rows, n_columns)
    sample = ParquetTable(tmp_path / DATA).sample(2000)
    schema = infer_schema(sample, target="y", task="regression")
    config = replace(CONFIG, max_epochs=1, batch_size=8192, share_batches=True)
    peaks, estimates = {}, {}
    for storage in ("memory", "file"):
        job = replace(
            spec,
            role="cell",
            storage=storage,
            split=asdict(Split()),
            schema=schema.to_dict(),
            hyperparameters=asdict(config),
        )
        peaks[storage] = measure_peak(job, tmp_path)
        estimates[storage] = cost.cost_of(
            schema, n_rows, config, is_file=True, storage=storage
        ).training_bytes
    limit = sum(estimates.values()) // 2
    assert estimates["file"] < limit < estimates["memory"]
    assert peaks["file"] < limit < peaks["memory"], (peaks, estimates)
