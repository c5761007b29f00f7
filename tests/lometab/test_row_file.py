"""Training rows in a file: every row once an epoch, and the same model as in memory."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from lometab.batches import Source
from lometab.checkpoint import Checkpoint
from lometab.config import TrainConfig
from lometab.ensemble import Prepared, prepare, prepare_file
from lometab.errors import TrainingCancelled
from lometab.row_file import BUFFER_BLOCKS, RowFile, record_of, write_rows
from lometab.table import ParquetTable, Split, infer_schema, split_rows, write_table
from tests.support.runs import assert_same

CONFIG = TrainConfig(
    **{"k": 3, "rank": 2, "n_blocks": 1, "d_block": 16, "n_bins": 8, "d_embedding": 4},
    **{"batch_size": 64, "max_epochs": 4, "dropout": 0.1},
)
SMALL = 8000
"""Bytes of a buffer, of which an epoch of the table takes several."""


def number_rows(path: Path, n_rows: int, buffer_bytes: int) -> RowFile:
    """A file whose numbers are those of its rows."""
    numbers = np.arange(n_rows, dtype=np.float32)[:, None]
    record = record_of(1, 1, is_regression=False, has_weight=True)
    batches = (
        (
            numbers[rows],
            numbers[rows].astype(np.int64),
            numbers[rows, 0],
            numbers[rows, 0],
        )
        for rows in np.array_split(np.arange(n_rows), 3)
    )
    return write_rows(
        path, record, n_rows, batches, y_variance=1.0, buffer_bytes=buffer_bytes
    )


@pytest.mark.slow
@pytest.mark.parametrize("share_batches", [True, False])
@pytest.mark.parametrize("batch_size", [1, 7, 64, 255])
@pytest.mark.parametrize("n_rows", [1, 300, 5003])
def test_each_row_once_an_epoch(
    n_rows: int, batch_size: int, share_batches: bool, tmp_path: Path
) -> None:
    file = number_rows(tmp_path / "rows", n_rows, 8192)
    config = TrainConfig(k=2, batch_size=batch_size, share_batches=share_batches)
    source = Source(file, "multiclass", torch.device("cpu"))
    batches = [*source.batches(config)]
    assert len(batches) == math.ceil(n_rows / batch_size)
    assert all(len(batch.y) == batch_size for batch in batches[:-1])
    for batch in batches:
        for each in (batch.x_num[..., 0], batch.x_cat[..., 0], batch.weight):
            assert torch.equal(each.long(), batch.y)  # type: ignore[union-attr]
    rows = torch.cat([batch.y for batch in batches])
    for column in rows.reshape(n_rows, -1).T:
        assert Counter(column.tolist()) == Counter(range(n_rows))


def test_rows_of_a_batch_come_from_all_over(tmp_path: Path) -> None:
    """However the table is sorted: blocks are small, and a buffer has many of them."""
    n_rows = 100_000
    file = number_rows(tmp_path / "rows", n_rows, 2**17)
    assert n_rows // file.count_block_rows(64) > 2 * BUFFER_BLOCKS
    source = Source(file, "multiclass", torch.device("cpu"))
    config = TrainConfig(k=1, batch_size=64, share_batches=True)
    epochs = []
    torch.manual_seed(0)
    for _ in range(2):
        rows = torch.cat([batch.y for batch in source.batches(config)])
        means = rows[: n_rows // 64 * 64].reshape(-1, 64).double().mean(1) / n_rows
        # That of 64 rows of a fair draw is off by 0.036 as a rule.
        assert (means - 0.5).abs().max() < 0.25 and (means - 0.5).abs().mean() < 0.06
        epochs.append(rows)
    assert not torch.equal(*epochs)
    torch.manual_seed(0)
    again = torch.cat([batch.y for batch in source.batches(config)])
    assert torch.equal(again, epochs[0])


def test_the_sample_has_the_ends_of_rare_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lometab.row_file.MAX_SAMPLE_ROWS", 100)
    x_num = np.zeros((1000, 2), dtype=np.float32)
    x_num[:, 0] = np.arange(1000)
    x_num[777, 1] = 5.0
    record = record_of(2, 0, is_regression=True, has_weight=False)
    codes = np.empty((1000, 0), dtype=np.int64)
    batches = [
        (x_num[i : i + 130], codes[i : i + 130], x_num[i : i + 130, 0], None)
        for i in range(0, 1000, 130)
    ]
    file = write_rows(tmp_path / "rows", record, 1000, batches, y_variance=1.0)
    assert file.sample[:-2, 0].tolist() == [*range(0, 1000, 10)]
    assert file.sample[-2:].tolist() == [[0.0, 0.0], [999.0, 5.0]]


def test_a_file_that_was_cut_is_no_shorter_epoch(tmp_path: Path) -> None:
    file = number_rows(tmp_path / "rows", 100, 8192)
    file.path.write_bytes(file.path.read_bytes()[:-1])
    with pytest.raises(OSError, match="fewer rows"):
        [*Source(file, "multiclass", torch.device("cpu")).batches(CONFIG)]
    with pytest.raises(ValueError, match="however 0 came"):
        write_rows(tmp_path / "none", file.record, 5, [], y_variance=1.0)


# The way from a table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ParquetTable:
    rng = np.random.default_rng(0)
    n_rows = 1500
    columns: dict[str, Any] = {f"x{i}": rng.normal(size=n_rows) for i in range(3)}
    columns["x1"][::7] = np.nan
    columns["colour"] = rng.choice(["red", "green", "blue", "odd"], size=n_rows)
    columns["day"] = np.array([f"2020-03-{1 + i % 28:02}" for i in range(n_rows)])
    columns["y"] = columns["x0"] * columns["x2"] + 0.1 * rng.normal(size=n_rows)
    columns["label"] = np.digitize(columns["y"], [-0.5, 0.5]).astype(str)
    path = tmp_path_factory.mktemp("rows") / "table.parquet"
    keys = [f"c{i}" for i in range(len(columns))]
    whole = pa.record_batch([pa.array(each) for each in columns.values()], names=keys)
    batches = [whole.slice(start, 400) for start in range(0, n_rows, 400)]
    write_table(path, [*columns], batches)
    return ParquetTable(path)


def prepare_both(
    table: ParquetTable, target: str, path: Path, **options: Any
) -> tuple[Prepared, Prepared]:
    other = {"y": "label", "label": "y"}[target]
    schema = infer_schema(table, target=target, columns={other: "ignore"})
    parts = split_rows(table, schema, Split(), max_rows=1200)
    weight = np.random.default_rng(1).random(table.n_rows)
    names = ("train", "val", "test")
    return (
        prepare(table, schema, parts, names, weight=weight),
        prepare_file(table, schema, parts, names[1:], path, weight=weight, **options),
    )


@pytest.mark.parametrize("target", ["y", "label"])
def test_what_is_prepared_is_the_same(
    table: ParquetTable, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, file = prepare_both(table, target, tmp_path / "rows")
    assert memory.preprocessor.to_dict() == file.preprocessor.to_dict()
    assert file.file is not None and "train" not in file.parts
    rows = np.fromfile(file.file.path, file.file.record)
    train = memory.parts["train"]
    assert (rows["x_num"] == train.x_num).all() and (rows["y"] == train.y).all()
    assert (rows["x_cat"] == train.x_cat).all()
    for name in ("val", "test"):
        one, other = memory.parts[name], file.parts[name]
        assert (one.x_num == other.x_num).all() and (one.x_cat == other.x_cat).all()
        assert (one.y == other.y).all() and (one.weight == other.weight).all()  # type: ignore[union-attr]
        assert (memory.targets[name] == file.targets[name]).all()


@pytest.mark.parametrize("target", ["y", "label"])
def test_one_buffer_is_training_in_memory(
    table: ParquetTable, target: str, tmp_path: Path
) -> None:
    """The order is the same then, and so is every weight."""
    memory, file = prepare_both(table, target, tmp_path / "rows")
    assert_same(memory.fit(CONFIG), file.fit(CONFIG))


@pytest.mark.slow
@pytest.mark.parametrize("share_batches", [True, False])
def test_a_resumed_run_is_bit_identical(
    table: ParquetTable, share_batches: bool, tmp_path: Path
) -> None:
    config = replace(CONFIG, share_batches=share_batches)
    _, prepared = prepare_both(table, "y", tmp_path / "rows", buffer_bytes=SMALL)
    assert prepared.file is not None
    size = prepared.file.count_block_rows(config.batch_size)
    assert prepared.file.n_rows // size > 2 * BUFFER_BLOCKS
    whole = prepared.fit(config)
    kept: list[Checkpoint] = []

    def keep(checkpoint: Checkpoint) -> None:
        kept.append(checkpoint)
        if checkpoint.epoch == 2:
            raise TrainingCancelled

    with pytest.raises(TrainingCancelled):
        prepared.fit(config, on_checkpoint=keep, checkpoint_seconds=0.0)
    # As the next attempt does, in a folder of its own.
    _, anew = prepare_both(table, "y", tmp_path / "anew", buffer_bytes=SMALL)
    assert_same(whole, anew.fit(config, resume=kept[-1]))


@pytest.mark.slow
def test_many_buffers_learn_too(table: ParquetTable, tmp_path: Path) -> None:
    memory, file = prepare_both(table, "y", tmp_path / "rows", buffer_bytes=SMALL)
    config = replace(CONFIG, max_epochs=20, lr=5e-3)
    one, other = memory.fit(config), file.fit(config)
    assert other.best_score == pytest.approx(one.best_score, rel=0.15)
    assert other.best_score < 0.7 * float(np.std(memory.targets["val"]))
