"""Rows that are ready for the model, in memory or in a file, and an epoch's batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lometab.config import Task, TrainConfig
from lometab.row_file import RowFile


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of one part of a split (train or validation), ready for the model."""

    x_num: NDArray[np.float32]
    """Numeric features, transformed, `(N, n_numeric)`."""
    x_cat: NDArray[np.int64]
    """Codes of the categorical features, `(N, n_categorical)`."""
    y: NDArray[Any]
    """The standardised target (float32) or the index of the class (int64), `(N,)`."""
    weight: NDArray[np.float64] | None = None
    """How much each row counts, `(N,)`; None: all alike."""

    @property
    def n_rows(self) -> int:
        return len(self.y)


class Rows(NamedTuple):
    """The same as tensors, on the device."""

    x_num: Tensor
    x_cat: Tensor
    y: Tensor
    weight: Tensor | None
    """One on average over all rows."""

    def take(self, rows: Tensor) -> "Rows":
        weight = None if self.weight is None else self.weight[rows]
        return Rows(self.x_num[rows], self.x_cat[rows], self.y[rows], weight)


class Source:
    """The rows to train on. What is in memory is one buffer, and stays there."""

    def __init__(self, part: Part | RowFile, task: Task, device: torch.device) -> None:
        self.device, self.n_rows = device, part.n_rows
        self._file = part if isinstance(part, RowFile) else None
        self._rows = None if isinstance(part, RowFile) else load(part, task, device)

    @property
    def x_num(self) -> Tensor:
        """Of all rows, or of as many as quantiles need."""
        if self._file is not None:
            return torch.from_numpy(self._file.sample)
        assert self._rows is not None
        return self._rows.x_num.cpu()

    @property
    def y_variance(self) -> float:
        if self._file is not None:
            return self._file.y_variance
        assert self._rows is not None
        return self._rows.y.double().var(correction=0).item()

    def batches(self, config: TrainConfig) -> Iterator[Rows]:
        """An epoch: each row once for each member.

        Batches are shared by all members, `(B, ...)`, or each has its own rows,
        `(B, K, ...)`.
        """
        for rows in self._read_buffers(config.batch_size):
            for chosen in _draw(len(rows.y), config, self.device):
                yield rows.take(chosen)

    def _read_buffers(self, batch_size: int) -> Iterator[Rows]:
        if self._rows is not None:
            yield self._rows
        elif self._file is not None:
            for arrays in self._file.read_buffers(batch_size, _permute):
                x_num, x_cat, y, weight = (
                    None if each is None else torch.from_numpy(each).to(self.device)
                    for each in arrays
                )
                assert x_num is not None and x_cat is not None and y is not None
                yield Rows(x_num, x_cat, y, weight)


def _permute(n: int) -> NDArray[Any]:
    """By torch's random numbers, whose state a checkpoint keeps."""
    order: NDArray[Any] = torch.randperm(n).numpy()
    return order


def _draw(n: int, config: TrainConfig, device: torch.device) -> Iterator[Tensor]:
    """Row numbers of batches: `(B,)` if shared by all members, `(B, K)`."""
    n_orders = 1 if config.share_batches else config.k
    orders = torch.empty(n_orders, n, dtype=torch.int32, device=device)
    for order in orders:
        torch.randperm(n, dtype=torch.int32, device=device, out=order)
    order = orders[0] if config.share_batches else orders.T  # (N,) or (N, K)
    yield from torch.split(order, config.batch_size)


def load(
    part: Part, task: Task, device: torch.device, *, weight: Any = np.float32
) -> Rows:
    """A part as tensors.

    Args:
        weight: the type of the weights.
    """
    y_dtype = np.float32 if task == "regression" else np.int64
    return Rows(
        _to_tensor(part.x_num, np.float32, device),
        _to_tensor(part.x_cat, np.int64, device),
        _to_tensor(part.y, y_dtype, device),
        _weigh(part, weight, device),
    )


def _to_tensor(array: NDArray[Any], dtype: Any, device: torch.device) -> Tensor:
    # Torch warns about arrays that it could not write to; only those are copied.
    return torch.from_numpy(np.require(array, dtype, ["C", "W"])).to(device)


def _weigh(part: Part, dtype: Any, device: torch.device) -> Tensor | None:
    """How much each row counts, one on average."""
    if part.weight is None or not part.weight.any():
        return None
    return _to_tensor(part.weight / part.weight.mean(), dtype, device)
