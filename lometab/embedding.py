"""The embedding of numeric features: bins and a piecewise-linear encoding.

Quantile bins and the encoding are those of the authors' package `rtdl_num_embeddings`,
version "B", and tests compare them. That package is not loaded here, because it loads
scikit-learn, which takes as long as torch (docs/decisions/0025-own-embedding.md).
Refined bins are ours (docs/decisions/0036-bins.md).
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from lometab import kernels
from lometab.config import BinEdges

# torch.quantile refuses more elements than this.
_MAX_QUANTILE_ROWS = 2**24
# Edges closer than this share of the column's range are one edge: a narrower bin
# would be a step that float32 cannot resolve.
_MIN_BIN_WIDTH = 1e-6
# What makes a value frequent enough to be set apart.
_MIN_FREQUENT_SHARE = 0.001
_MIN_FREQUENT_ROWS = 5


def compute_bins(
    x_num: Tensor, n_bins: int, edges: BinEdges = "quantile"
) -> list[Tensor]:
    """Edges of the piecewise-linear embedding, for each column of `x_num`.

    There are fewer bins where there are fewer rows or values, or where quantiles
    coincide.

    Args:
        edges: `quantile`: as many rows in each bin. `refined`: where less than half of
            these are left, because many rows share a value, the bins that are missing
            set the most frequent values apart from their neighbours.
    """
    step = math.ceil(len(x_num) / _MAX_QUANTILE_ROWS)
    bins = []
    for i, column in enumerate(x_num[:: max(step, 1)].unbind(1)):
        if not column.isfinite().all():
            raise ValueError(f"x_num must be finite, however: column {i} is not")
        if (column == column[0]).all():
            raise ValueError(f"x_num must vary, however: column {i} is constant")
        shares = torch.linspace(0, 1, min(n_bins, len(column) - 1) + 1).to(column)
        found: Tensor = column.quantile(shares).unique()  # type: ignore[no-untyped-call]
        if edges == "refined" and len(found) - 1 < n_bins / 2:
            found = _set_apart(column, found, n_bins)
        bins.append(_merge_close(found))
    return bins


def _set_apart(column: Tensor, edges: Tensor, n_bins: int) -> Tensor:
    """The edges, and more at the most frequent values and at those beside them.

    Between edges the encoding is linear: a value that has an edge, as the next values
    on both sides have, can have an answer that tells nothing of theirs.
    """
    values, counts = np.unique(column.numpy(), return_counts=True)
    n_least = max(_MIN_FREQUENT_ROWS, _MIN_FREQUENT_SHARE * len(column))
    found = {*edges.tolist()}
    for i in np.argsort(-counts, kind="stable"):
        added = {*values[max(i - 1, 0) : i + 2].tolist()} - found
        if counts[i] < n_least or len(found) + len(added) > n_bins + 1:
            break
        found |= added
    return torch.tensor(sorted(found)).to(edges)


def _merge_close(edges: Tensor) -> Tensor:
    """Drop inner edges that lie almost on the one before them or on the last."""
    width = _MIN_BIN_WIDTH * (edges[-1] - edges[0])
    inner = edges[1:-1]
    is_apart = (inner - edges[:-2] > width) & (edges[-1] - inner > width)
    return torch.cat([edges[:1], inner[is_apart], edges[-1:]])


class PiecewiseLinearEncoding(nn.Module):
    """`[1, .., 1, (x - left edge) / width of x's bin, 0, .., 0]` for each feature.

    The last bin of a feature is always the last component; components between it and
    the others stay zero where another feature has more bins.

    Args:
        bins: the edges of each feature, ascending, two at least.

    Shape:
        - Input: `(N, F)`
        - Output: `(N, F, the largest number of bins)`
    """

    weight: Tensor
    bias: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(self, bins: list[Tensor]) -> None:
        super().__init__()
        _check_bins(bins)
        shape = len(bins), max(len(edges) for edges in bins) - 1
        self.register_buffer("weight", torch.zeros(shape))
        self.register_buffer("bias", torch.zeros(shape))
        # The first bin is open below, the last one above, a single one on both sides.
        self.register_buffer("lower", torch.zeros(shape), persistent=False)
        self.register_buffer("upper", torch.ones(shape), persistent=False)
        for i, edges in enumerate(bins):
            n_inner = len(edges) - 2
            at = [*range(n_inner), -1]  # where the feature's bins stand
            self.weight[i, at] = (1 / edges.diff()).to(self.weight)
            self.bias[i, at] = (-edges[:-1] / edges.diff()).to(self.bias)
            self.lower[i, at[0]] = -math.inf
            self.upper[i, -1] = math.inf

    def forward(self, x: Tensor) -> Tensor:
        x = torch.addcmul(self.bias, self.weight, x[..., None])
        return x.clamp(self.lower, self.upper)


class PiecewiseLinearEmbedding(nn.Module):
    """A linear term plus a product of the encoding that starts at zero.

    Args:
        bins: the edges of each feature, as `compute_bins` gives them.
        d_embedding: how many numbers each feature becomes.

    Shape:
        - Input: `(N, F)`
        - Output: `(N, F, d_embedding)`

    >>> embedding = PiecewiseLinearEmbedding([torch.linspace(0, 1, 5)] * 3, 8)
    >>> embedding(torch.rand(7, 3)).shape
    torch.Size([7, 3, 8])
    """

    def __init__(self, bins: list[Tensor], d_embedding: int) -> None:
        super().__init__()
        if d_embedding <= 0:
            raise ValueError(f"d_embedding must be positive, however: {d_embedding=}")
        self.impl = PiecewiseLinearEncoding(bins)
        # The names are those of the authors' package, whose weights can be loaded.
        self.linear0 = _Parameters(
            weight=torch.empty(len(bins), d_embedding),
            bias=torch.empty(len(bins), d_embedding),
        )
        self.linear = _Parameters(
            weight=torch.empty(*self.impl.weight.shape, d_embedding)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = self.linear0.weight.shape[1] ** -0.5
        nn.init.uniform_(self.linear0.weight, -bound, bound)
        nn.init.uniform_(self.linear0.bias, -bound, bound)
        # Drawn and dropped, as in the authors' module: so a seed gives the same start.
        nn.init.uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        linear = torch.addcmul(self.linear0.bias, self.linear0.weight, x[..., None])
        encoded = self.impl(x).transpose(0, 1)  # (F, N, bins)
        # (F, N, bins) -> (F, N, D) -> (N, F, D)
        return linear + torch.bmm(encoded, self.linear.weight).transpose(0, 1)


class _Parameters(nn.Module):
    """Parameters under a name of their own."""

    weight: Tensor
    bias: Tensor

    def __init__(self, **values: Tensor) -> None:
        super().__init__()
        for name, value in values.items():
            self.register_parameter(name, nn.Parameter(value))


def _check_bins(bins: list[Tensor]) -> None:
    if not bins:
        raise ValueError("bins must not be empty, however there are none")
    for i, edges in enumerate(bins):
        if edges.ndim != 1 or len(edges) < 2 or not (edges.diff() > 0).all():
            raise ValueError(
                f"bins must be two or more ascending edges, however: feature {i} has "
                f"{edges.tolist()[:5]}"
            )


def embed(embedding: PiecewiseLinearEmbedding, x: Tensor) -> Tensor:
    """What the embedding gives, flat: `(N, F) -> (N, F * D)`."""
    if kernels.are_for(x):
        return kernels.embed(embedding, x)
    flat: Tensor = embedding(x).flatten(1)
    return flat
