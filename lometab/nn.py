"""The layers of the paper, its baselines, and the model they make up.

Read top to bottom: checks and initialisers, linear layers, bins, model. Shapes in
comments are `(B, K, D)`: rows of a batch, members of the ensemble, width.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import rtdl_num_embeddings
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lometab.config import ModelConfig

# torch.quantile refuses more elements than this.
_MAX_QUANTILE_ROWS = 2**24
# Edges closer than this share of the column's range are one edge: a narrower bin
# would be a step that float32 cannot place.
_MIN_BIN_WIDTH = 1e-6
# Numbers in the arrays of a few members that stay in the cache together: 4 MiB.
_CACHED = 2**20


# Checks and initialisers


def _check_positive(name: str, value: int) -> None:
    if value <= 0:
        raise ValueError(f"{name} must be positive, however: {name}={value}")


def _check_input(x: Tensor, *, k: int, in_features: int) -> None:
    if x.ndim not in (2, 3):
        raise ValueError(
            f"The input must have two or three dimensions, however: {x.ndim=}"
        )
    if x.ndim == 3 and x.shape[1] != k:
        raise ValueError(
            f"The second of three input dimensions must be {k=},"
            f" however: {tuple(x.shape)=}"
        )
    if x.shape[-1] != in_features:
        raise ValueError(
            f"The last input dimension must be {in_features=},"
            f" however: {tuple(x.shape)=}"
        )


def _check_columns(name: str, x: Tensor | None, n_columns: int) -> None:
    width = 0 if x is None else x.shape[-1]
    if width != n_columns:
        raise ValueError(f"{name} must have {n_columns} columns, however: {width}")


def _init_uniform_(tensor: Tensor, d_in: int) -> None:
    """Fill with U(-d_in^-1/2, d_in^-1/2), as `nn.Linear` starts."""
    bound = d_in**-0.5
    nn.init.uniform_(tensor, -bound, bound)


def _init_shared_bias_(bias: Tensor, d_in: int) -> None:
    """Give all members the same random vector."""
    start = torch.empty_like(bias[0])
    _init_uniform_(start, d_in)
    with torch.no_grad():
        bias.copy_(start)  # (D_out) -> (K, D_out)


# Linear layers


def _by_member(x: Tensor, k: int) -> Tensor:
    """Rows with the members first, `(K, B, D)`: one's own, or those that all share.

    Between layers the memory is in this order too; only the view is `(B, K, D)`.
    """
    return x.expand(k, *x.shape) if x.ndim == 2 else x.transpose(0, 1)


def _member_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply each member's weight `(K, D_out, D_in)` to its own or to shared rows."""
    if _is_for_cpu(x):
        out: Tensor = _MemberLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out
    x = _by_member(x, len(weight))
    x = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
    return x.transpose(0, 1)  # (B, K, D_in) -> (B, K, D_out)


class LoMETabLinear(nn.Module):
    """K linear layers that are low-rank masks on one shared weight.

    Member k uses `W * (1 + A_k @ B_k.T)`. `W` starts as `nn.Linear` does, `A` and `B`
    from N(0, sigma_init^2), and the biases from one random vector for all members.

    **Shape**

    - Input: `(B, K, in_features)`, or `(B, in_features)` for rows all members share
    - Output: `(B, K, out_features)`

    **Examples**

    >>> m = LoMETabLinear(4, 5, k=3, rank=2, sigma_init=1.0)
    >>> m(torch.randn(2, 3, 4)).shape
    torch.Size([2, 3, 5])
    >>> m(torch.randn(2, 4)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        k: int,
        rank: int,
        sigma_init: float,
    ) -> None:
        """
        Args:
            in_features: the input width of each member.
            out_features: the output width of each member.
            k: the number of members.
            rank: the rank of each member's mask.
            sigma_init: the standard deviation with which `A` and `B` start.
        """
        _check_positive("in_features", in_features)
        _check_positive("out_features", out_features)
        _check_positive("k", k)
        _check_positive("rank", rank)
        if not 0 <= sigma_init < math.inf:
            raise ValueError(f"sigma_init must be 0 or more, however: {sigma_init=}")
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.k = k
        self.rank = rank
        self.sigma_init = sigma_init
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.a = nn.Parameter(torch.empty(k, out_features, rank))
        self.b = nn.Parameter(torch.empty(k, in_features, rank))
        self.bias = nn.Parameter(torch.empty(k, out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _init_uniform_(self.weight, self.in_features)
        nn.init.normal_(self.a, std=self.sigma_init)
        nn.init.normal_(self.b, std=self.sigma_init)
        _init_shared_bias_(self.bias, self.in_features)

    def effective_weight(self) -> Tensor:
        """Every member's own weight, `(K, out_features, in_features)`."""
        # >>> Equation (1) of the paper: W * (1 + A_k B_k^T).
        residual = torch.bmm(self.a, self.b.transpose(1, 2))  # (K, D_out, D_in)
        return torch.addcmul(self.weight, self.weight, residual)
        # <<<

    def forward(self, x: Tensor) -> Tensor:
        _check_input(x, k=self.k, in_features=self.in_features)
        return _member_linear(x, self.effective_weight(), self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features},"
            f" k={self.k}, rank={self.rank}, sigma_init={self.sigma_init}"
        )


class AdditiveLinear(LoMETabLinear):
    """The paper's ablation: member k uses `W + A_k @ B_k.T`.

    Parameters and their start are those of `LoMETabLinear`. For the start of LoRA,
    where all members begin as `W`, zero `b` after construction.

    **Shape**

    - Input: `(B, K, in_features)`, or `(B, in_features)` for rows all members share
    - Output: `(B, K, out_features)`

    **Examples**

    >>> m = AdditiveLinear(4, 5, k=3, rank=2, sigma_init=1.0)
    >>> _ = nn.init.zeros_(m.b)
    >>> torch.equal(m.effective_weight()[0], m.weight)
    True
    """

    def effective_weight(self) -> Tensor:
        """Every member's own weight, `(K, out_features, in_features)`."""
        return torch.baddbmm(self.weight, self.a, self.b.transpose(1, 2))


class BatchEnsembleLinear(nn.Module):
    """K linear layers that are rank-1 masks on one shared weight, as in TabM.

    Member k uses `W * (s_k @ r_k.T)`. `s` starts at one, and so does `r` unless told
    otherwise: TabM draws the `r` of its first layer at random, one number for all
    columns of a feature.

    **Shape**

    - Input: `(B, K, in_features)`, or `(B, in_features)` for rows all members share
    - Output: `(B, K, out_features)`

    **Examples**

    >>> m = BatchEnsembleLinear(4, 5, k=3, r_init="normal", sections=[1, 3])
    >>> m(torch.randn(2, 3, 4)).shape
    torch.Size([2, 3, 5])
    >>> torch.equal(m.r[:, 1], m.r[:, 3])
    True
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        k: int,
        r_init: Literal["ones", "normal", "signs"] = "ones",
        sections: Sequence[int] | None = None,
    ) -> None:
        """
        Args:
            in_features: the input width of each member.
            out_features: the output width of each member.
            k: the number of members.
            r_init: how `r` starts: at one, from N(0, 1), or from {-1, 1}.
            sections: widths of neighbouring columns whose `r` starts with one value;
                None: every column has its own.
        """
        _check_positive("in_features", in_features)
        _check_positive("out_features", out_features)
        _check_positive("k", k)
        if r_init not in ("ones", "normal", "signs"):
            raise ValueError(
                f"r_init must be ones, normal or signs, however: {r_init=}"
            )
        sections = [1] * in_features if sections is None else [*sections]
        if sum(sections) != in_features:
            raise ValueError(
                f"sections must add up to {in_features=}, however: {sum(sections)=}"
            )
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.k = k
        self.r_init = r_init
        self.sections = sections
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.r = nn.Parameter(torch.empty(k, in_features))
        self.s = nn.Parameter(torch.empty(k, out_features))
        self.bias = nn.Parameter(torch.empty(k, out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _init_uniform_(self.weight, self.in_features)
        start = torch.ones(self.k, len(self.sections))
        if self.r_init == "normal":
            start.normal_()
        elif self.r_init == "signs":
            start.bernoulli_(0.5).mul_(2).sub_(1)
        with torch.no_grad():
            sections = torch.tensor(self.sections)
            width = self.in_features  # told, so that it works on the meta device too
            self.r.copy_(start.repeat_interleave(sections, dim=1, output_size=width))
        nn.init.ones_(self.s)
        _init_shared_bias_(self.bias, self.in_features)

    def effective_weight(self) -> Tensor:
        """Every member's own weight, `(K, out_features, in_features)`."""
        return self.weight * self.s[:, :, None] * self.r[:, None, :]

    def forward(self, x: Tensor) -> Tensor:
        _check_input(x, k=self.k, in_features=self.in_features)
        if x.ndim == 2:
            x = x[:, None]  # (B, D_in) -> (B, 1, D_in)
        # >>> Equation (5) of the BatchEnsemble paper.
        x = F.linear(x * self.r, self.weight)  # (B, K, D_in) -> (B, K, D_out)
        return torch.addcmul(self.bias, x, self.s)
        # <<<

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features},"
            f" k={self.k}, r_init={self.r_init!r}"
        )


class MemberLinear(nn.Module):
    """K independent linear layers: the head, and the layers of a deep ensemble.

    **Shape**

    - Input: `(B, K, in_features)`, or `(B, in_features)` for rows all members share
    - Output: `(B, K, out_features)`

    **Examples**

    >>> m = MemberLinear(4, 5, k=3)
    >>> m(torch.randn(2, 3, 4)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(self, in_features: int, out_features: int, *, k: int) -> None:
        """
        Args:
            in_features: the input width of each member.
            out_features: the output width of each member.
            k: the number of members.
        """
        _check_positive("in_features", in_features)
        _check_positive("out_features", out_features)
        _check_positive("k", k)
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.k = k
        self.weight = nn.Parameter(torch.empty(k, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(k, out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _init_uniform_(self.weight, self.in_features)
        _init_uniform_(self.bias, self.in_features)

    def effective_weight(self) -> Tensor:
        """Every member's own weight, `(K, out_features, in_features)`."""
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        _check_input(x, k=self.k, in_features=self.in_features)
        return _member_linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features},"
            f" k={self.k}"
        )


def from_batch_ensemble(layer: BatchEnsembleLinear) -> LoMETabLinear:
    """The LoMETab layer of rank 2 with the same effective weights (Proposition 1).

    `s_k r_k^T - 1` is the product of `A_k = [s_k, 1]` and `B_k = [r_k, -1]`.
    """
    equal = LoMETabLinear(
        layer.in_features, layer.out_features, k=layer.k, rank=2, sigma_init=0.0
    ).to(layer.weight)
    with torch.no_grad():
        equal.weight.copy_(layer.weight)
        equal.bias.copy_(layer.bias)
        equal.a.copy_(torch.stack([layer.s, torch.ones_like(layer.s)], dim=-1))
        equal.b.copy_(torch.stack([layer.r, -torch.ones_like(layer.r)], dim=-1))
    return equal


# Hidden layers


def hidden_layer(layer: nn.Module, x: Tensor, p: float, *, training: bool) -> Tensor:
    """`dropout(relu(layer(x)), p)`: a block of the network.

    For training on a CPU the gradients of LoMETab are written out below: the same
    numbers as autograd's in half of the time and less.
    """
    if training and type(layer) is LoMETabLinear and _is_for_cpu(x):
        _check_input(x, k=layer.k, in_features=layer.in_features)
        weights = (layer.weight, layer.a, layer.b, layer.bias)
        out: Tensor = _LoMETabHidden.apply(x, *weights, p)  # type: ignore[no-untyped-call]
        return out
    return relu_dropout(layer(x), p, training=training)


def relu_dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """`dropout(relu(x), p)`, with masks that cost little in training on a CPU."""
    if training and p > 0 and _is_for_cpu(x):
        out: Tensor = _ReLUDropout.apply(x, p)  # type: ignore[no-untyped-call]
        return out
    return F.dropout(F.relu(x), p, training)


def _is_for_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


class _LoMETabHidden(torch.autograd.Function):
    """A hidden layer of LoMETab, linear layer to dropout, a few members at a time.

    The arrays of a few members are still in the cache when the next operation comes to
    them; those of all would be walked through memory ten times. Going back, masks are
    computed again unless they are small: that is cheaper than to keep them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        a: Tensor,
        b: Tensor,
        bias: Tensor,
        p: float,
    ) -> Tensor:
        k, d_out, _ = a.shape
        ctx.is_shared = x.ndim == 2
        x = _by_member(x, k)
        scale = _dropout_scale(p)
        weight, bias = weight * scale, bias * scale  # fewer numbers than activations
        b_t = b.transpose(1, 2).contiguous()  # products with it take half the time
        y = x.new_empty(k, x.shape[1], d_out)
        few = _few_members(k, weight, y[0])
        for of in few:
            mask = torch.bmm(a[of], b_t[of]).add_(1)
            torch.bmm(x[of], (mask * weight).transpose(1, 2), out=y[of])
            _relu_dropout_(y[of].add_(bias[of, None]), p)
        ctx.save_for_backward(x, weight, a, b_t, y)
        ctx.scale, ctx.few = scale, few
        ctx.mask = mask if len(few) == 1 else None
        return y.transpose(0, 1)  # (B, K, D_in) -> (B, K, D_out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, a, b_t, y = ctx.saved_tensors  # the weight times the scale
        k, d_out, rank = a.shape
        grad = grad.transpose(0, 1)
        grad_weight = torch.zeros_like(weight)
        grad_a, grad_b = a.new_empty(k, rank, d_out), torch.empty_like(b_t)
        grad_bias = a.new_empty(k, d_out)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.zeros_like(x[0]) if ctx.is_shared else x.new_empty(x.shape)
        for of in ctx.few:
            # y is positive exactly where a unit was kept and not cut by ReLU.
            g = torch.ops.aten.threshold_backward(grad[of], y[of], 0)
            torch.sum(g, 1, out=grad_bias[of])
            grad_w = torch.bmm(g.transpose(1, 2), x[of])  # of each member's own weight
            mask = ctx.mask
            if mask is None:
                mask = torch.bmm(a[of], b_t[of]).add_(1)
            grad_weight += (grad_w * mask).sum(0)
            grad_w *= weight
            torch.bmm(b_t[of], grad_w.transpose(1, 2), out=grad_a[of])
            torch.bmm(a[of].transpose(1, 2), grad_w, out=grad_b[of])
            if grad_x is not None:
                w = mask * weight
                if ctx.is_shared:
                    grad_x += torch.bmm(g, w).sum(0)
                else:
                    torch.bmm(g, w, out=grad_x[of])
        if grad_x is not None and not ctx.is_shared:
            grad_x = grad_x.transpose(0, 1)
        return (
            grad_x,
            grad_weight.mul_(ctx.scale),
            grad_a.transpose(1, 2),
            grad_b.transpose(1, 2),
            grad_bias.mul_(ctx.scale),
            None,
        )


def _few_members(k: int, *arrays: Tensor) -> list[slice]:
    """Members to take at a time, where each has arrays of these sizes."""
    size = max(array.numel() for array in arrays)
    n = 2 ** int(math.log2(max(_CACHED // size, 2)))  # even: there are several threads
    return [slice(start, start + n) for start in range(0, k, n)]


class _MemberLinear(torch.autograd.Function):
    """`baddbmm` with a gradient of the weight that is quick for few outputs too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.is_shared = x.ndim == 2
        x = _by_member(x, len(weight))
        ctx.save_for_backward(x, weight)
        y = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
        return y.transpose(0, 1)  # (B, K, D_in) -> (B, K, D_out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.transpose(0, 1)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad * weight if weight.shape[1] == 1 else torch.bmm(grad, weight)
            grad_x = grad_x.sum(0) if ctx.is_shared else grad_x.transpose(0, 1)
        return grad_x, torch.bmm(grad.transpose(1, 2), x), grad.sum(1)


class _ReLUDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.scale = _dropout_scale(p)
        y: Tensor = x * ctx.scale  # laid out as x is, whose memory may be (K, B, D)
        _relu_dropout_(y.as_strided((y.numel(),), (1,)), p)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, y, 0)  # 0 where y is 0
        return grad.mul_(ctx.scale), None


def _dropout_scale(p: float) -> float:
    """What kept units are multiplied with, for the probability that p comes to."""
    return 2**16 / (2**16 - round(p * 2**16))


def _relu_dropout_(x: Tensor, p: float) -> None:
    """ReLU and dropout of contiguous units, in place; the scale is left to the caller.

    Sixteen bits decide each unit, so p is honoured to 1/131072. Torch's own draw of a
    Bernoulli number for each unit takes half of a training step.
    """
    n_dropped = round(p * 2**16)  # of the 2^16 values of the bits
    if n_dropped:
        for units in torch.split(x.view(-1), _CACHED):
            bits = _random_bits(len(units)).to(x.dtype)
            torch.ops.aten.threshold_backward.grad_input(  # 0 where the bits are below
                units, bits, n_dropped - 2**15 - 0.5, grad_input=units
            )
    x.clamp_min_(0)


def _random_bits(n: int) -> Tensor:
    """At most `_CACHED` random int16, for two draws of torch's generator.

    Two tables of random words, each from a place of its own, combined word by word:
    there are 2^36 pairs of places, and any two units come out as independent draws do,
    in one step and over many. Tests hold this against the binomial distribution.
    """
    one, other = _random_words()
    i, j = torch.randint(len(one) // 2, (2,)).tolist()
    n_words = -(-n // 4)
    words: Tensor = one[i : i + n_words] ^ other[j : j + n_words]
    return words.view(torch.int16)[:n]


@cache
def _random_words() -> Tensor:
    source = torch.Generator().manual_seed(0)
    words = torch.empty(2, _CACHED // 2, dtype=torch.int64)
    return words.random_(-(2**63), None, generator=source)


# The model


def compute_bins(x_num: Tensor, n_bins: int) -> list[Tensor]:
    """Quantile edges of the piecewise-linear embedding, for each column of `x_num`.

    Columns go one by one to the authors' function. There are fewer bins where there
    are fewer rows or where quantiles coincide.
    """
    step = math.ceil(len(x_num) / _MAX_QUANTILE_ROWS)
    bins = []
    for i, column in enumerate(x_num[:: max(step, 1)].unbind(1)):
        if not column.isfinite().all():
            raise ValueError(f"x_num must be finite, however: column {i} is not")
        if (column == column[0]).all():
            raise ValueError(f"x_num must vary, however: column {i} is constant")
        with _single_bins_allowed():
            (edges,) = rtdl_num_embeddings.compute_bins(
                column[:, None], n_bins=min(n_bins, len(column) - 1)
            )
        bins.append(_merge_close(edges))
    return bins


def _merge_close(edges: Tensor) -> Tensor:
    """Drop inner edges that lie almost on the one before them or on the last."""
    width = _MIN_BIN_WIDTH * (edges[-1] - edges[0])
    inner = edges[1:-1]
    is_apart = (inner - edges[:-2] > width) & (edges[-1] - inner > width)
    return torch.cat([edges[:1], inner[is_apart], edges[-1:]])


@contextmanager
def _single_bins_allowed() -> Iterator[None]:
    """Silence the embedding's warning about features with one bin (say, 0 and 1)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* has just two bin edges")
        yield


Block = LoMETabLinear | BatchEnsembleLinear | MemberLinear


class LoMETab(nn.Module):
    """An ensemble of K multilayer perceptrons over a shared embedding of a row.

    Numeric features pass a piecewise-linear embedding, categorical ones become
    one-hots; then come `n_blocks` of linear layer, ReLU and dropout, and a head for
    each member. `config.variant` says which linear layer.

    **Shape**

    - Input: `x_num` `(B, n_numeric)`, `x_cat` `(B, n_categorical)`; both may have the
      members as second dimension, `(B, K, ...)`, when each has rows of its own
    - Output: `(B, K, d_out)`, logits or the standardised target

    **Examples**

    >>> x_num = torch.randn(100, 2)
    >>> x_cat = torch.randint(3, (100, 1))
    >>> m = LoMETab(
    ...     bins=compute_bins(x_num, 8),
    ...     cardinalities=[3],
    ...     d_out=1,
    ...     config=ModelConfig(k=4),
    ... )
    >>> m(x_num, x_cat).shape
    torch.Size([100, 4, 1])
    """

    def __init__(
        self,
        *,
        bins: list[Tensor],
        cardinalities: Sequence[int],
        d_out: int,
        config: ModelConfig,
    ) -> None:
        """
        Args:
            bins: the edges of each numeric feature's bins, from `compute_bins`.
            cardinalities: the number of levels of each categorical feature.
            d_out: the width of a member's output.
            config: the variant and the sizes.
        """
        for i, cardinality in enumerate(cardinalities):
            _check_positive(f"cardinalities[{i}]", cardinality)
        _check_positive("d_out", d_out)
        if not bins and not cardinalities:
            raise ValueError("There must be a feature, however: no bins, no levels")
        super().__init__()
        self.config = config
        self.bins = [*bins]
        self.cardinalities = [*cardinalities]
        self.embedding = None
        if bins:
            with _single_bins_allowed():
                self.embedding = rtdl_num_embeddings.PiecewiseLinearEmbeddings(
                    bins, config.d_embedding, activation=False, version="B"
                )
        # The columns of each feature in the flat input, side by side.
        sections = [config.d_embedding] * len(bins) + self.cardinalities
        self.d_in = sum(sections)
        d_in = [self.d_in] + [config.d_block] * (config.n_blocks - 1)
        self.blocks = nn.ModuleList(
            _make_block(
                d, config, sections=sections if i == 0 else None, has_numeric=bool(bins)
            )
            for i, d in enumerate(d_in)
        )
        self.head = MemberLinear(config.d_block, d_out, k=config.k)

    @property
    def n_parameters(self) -> int:
        """The number of trained numbers."""
        return sum(p.numel() for p in self.parameters())

    def forward(
        self, x_num: Tensor | None = None, x_cat: Tensor | None = None
    ) -> Tensor:
        """
        Args:
            x_num: the numeric features; None where there are none.
            x_cat: the codes of the categorical features; None where there are none.
                A code that equals the cardinality gives zeros in all its columns.
        """
        x = self._flat_input(x_num, x_cat)  # (B, D) or (B, K, D)
        for block in self.blocks:
            # (B, D) or (B, K, D) -> (B, K, D_block)
            x = hidden_layer(block, x, self.config.dropout, training=self.training)
        out: Tensor = self.head(x)  # (B, K, D_out)
        return out

    def _flat_input(self, x_num: Tensor | None, x_cat: Tensor | None) -> Tensor:
        """Embeddings feature by feature, then one-hots feature by feature."""
        _check_columns("x_num", x_num, len(self.bins))
        _check_columns("x_cat", x_cat, len(self.cardinalities))
        parts = []
        if self.embedding is not None:
            assert x_num is not None
            x = _embed(self.embedding, x_num.flatten(0, -2))  # (B or B * K, D_in)
            parts.append(x.view(*x_num.shape[:-1], -1))
        if self.cardinalities:
            assert x_cat is not None
            parts += [
                (codes[..., None] == torch.arange(n, device=codes.device)).to(
                    self.head.weight.dtype
                )
                for codes, n in zip(x_cat.unbind(-1), self.cardinalities, strict=True)
            ]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


def _embed(
    embedding: rtdl_num_embeddings.PiecewiseLinearEmbeddings, x: Tensor
) -> Tensor:
    """What the embedding gives, flat: `(N, F) -> (N, F * D)`.

    On a CPU all of it is one product: the number itself and a one stand beside its
    encoding, and what the linear term has learned beside the weight of the bins.
    """
    if not _is_for_cpu(x):
        flat: Tensor = embedding(x).flatten(1)
        return flat
    encoding, linear = embedding.impl, embedding.linear0
    slope, shift = F.pad(encoding.weight, (0, 2)), F.pad(encoding.bias, (0, 2))
    slope[:, -2] = 1
    shift[:, -1] = 1
    lower, upper = torch.zeros_like(slope), torch.ones_like(slope)
    # The first bin is open below, the last one above, and a single one on both sides.
    lower[:, [0, -2]] = -math.inf
    upper[:, [-3, -2]] = math.inf
    if encoding.single_bin_mask is not None:
        lower[encoding.single_bin_mask, -3] = -math.inf
    x = torch.addcmul(shift[:, None], slope[:, None], x.T[:, :, None])
    x = x.clamp_(lower[:, None], upper[:, None])  # (F, N, bins + 2)
    weight = [embedding.linear.weight, linear.weight[:, None], linear.bias[:, None]]
    x = torch.bmm(x, torch.cat(weight, dim=1))  # (F, N, D)
    return x.transpose(0, 1).flatten(1)


def _make_block(
    d_in: int, config: ModelConfig, *, sections: list[int] | None, has_numeric: bool
) -> Block:
    d_out, k = config.d_block, config.k
    if config.variant == "tabm":
        if sections is None:
            return BatchEnsembleLinear(d_in, d_out, k=k)
        return BatchEnsembleLinear(
            d_in,
            d_out,
            k=k,
            r_init="normal" if has_numeric else "signs",
            sections=sections,
        )
    if config.variant in ("mlp", "deep-ensemble"):
        return MemberLinear(d_in, d_out, k=k)
    layer = AdditiveLinear if config.variant == "additive" else LoMETabLinear
    return layer(d_in, d_out, k=k, rank=config.rank, sigma_init=config.sigma_init)
