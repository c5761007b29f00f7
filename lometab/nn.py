"""The layers of the paper, its baselines, and the model they make up.

Read top to bottom: checks and initialisers, linear layers, hidden layers, model. Shapes
in comments are `(B, K, D)`: rows of a batch, members of the ensemble, width. What is
behind `kernels.are_for(x)` computes the same on a CPU in less time.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lometab import kernels
from lometab.config import ModelConfig
from lometab.embedding import PiecewiseLinearEmbedding, embed

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


def _member_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply each member's weight `(K, D_out, D_in)` to its own or to shared rows."""
    if kernels.are_for(x):
        return kernels.member_linear(x, weight, bias)
    # Members first, (K, B, D), in memory too; what goes on is a view of (B, K, D).
    x = x.expand(len(weight), *x.shape) if x.ndim == 2 else x.transpose(0, 1)
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
    """`dropout(relu(layer(x)), p)`: a block of the network."""
    if training and type(layer) is LoMETabLinear and kernels.are_for(x):
        _check_input(x, k=layer.k, in_features=layer.in_features)
        weights = (layer.weight, layer.a, layer.b, layer.bias)
        return kernels.hidden_layer(x, *weights, p)
    return relu_dropout(layer(x), p, training=training)


def relu_dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """`dropout(relu(x), p)`."""
    if training and p > 0 and kernels.are_for(x):
        return kernels.relu_dropout(x, p)
    return F.dropout(F.relu(x), p, training)


# The model


Block = LoMETabLinear | BatchEnsembleLinear | MemberLinear


class LoMETab(nn.Module):
    """An ensemble of K multilayer perceptrons over a shared embedding of a row.

    The members of a deep ensemble share nothing: each has an embedding of its own.

    Numeric features pass a piecewise-linear embedding, categorical ones become
    one-hots; then come `n_blocks` of linear layer, ReLU and dropout, and a head for
    each member. `config.variant` says which linear layer.

    **Shape**

    - Input: `x_num` `(B, n_numeric)`, `x_cat` `(B, n_categorical)`; both may have the
      members as second dimension, `(B, K, ...)`, when each has rows of its own
    - Output: `(B, K, d_out)`, logits or the standardised target

    **Examples**

    >>> from lometab.embedding import compute_bins
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
        self.embeddings = nn.ModuleList()  # in place of it, one for each member
        if bins and config.variant == "deep-ensemble":
            self.embeddings.extend(
                PiecewiseLinearEmbedding(self.bins, config.d_embedding)
                for _ in range(config.k)
            )
        elif bins:
            self.embedding = PiecewiseLinearEmbedding(self.bins, config.d_embedding)
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
            x = embed(self.embedding, x_num.flatten(0, -2))  # (B or B * K, D_in)
            parts.append(x.view(*x_num.shape[:-1], -1))
        elif self.embeddings:
            assert x_num is not None
            parts.append(_embed_members(self.embeddings, x_num))  # (B, K, D)
            if x_cat is not None and x_cat.ndim == 2:
                x_cat = x_cat[:, None].expand(-1, self.config.k, -1)
        if self.cardinalities:
            assert x_cat is not None
            parts += [
                (codes[..., None] == torch.arange(n, device=codes.device)).to(
                    self.head.weight.dtype
                )
                for codes, n in zip(x_cat.unbind(-1), self.cardinalities, strict=True)
            ]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


def _embed_members(embeddings: nn.ModuleList, x: Tensor) -> Tensor:
    """Each member's own embedding of its own or of shared rows: `(B, K, F * D)`."""
    rows = kernels.by_member(x, len(embeddings))
    parts = []
    for embedding, own in zip(embeddings, rows, strict=True):
        assert isinstance(embedding, PiecewiseLinearEmbedding)
        parts.append(embed(embedding, own))
    return torch.stack(parts).transpose(0, 1)


def _make_block(
    d_in: int, config: ModelConfig, *, sections: list[int] | None, has_numeric: bool
) -> Block:
    layer = _make_layer(d_in, config, sections=sections, has_numeric=has_numeric)
    with torch.no_grad():
        if config.weight_init == "he":  # U(-(6 / d_in)^1/2, (6 / d_in)^1/2)
            layer.weight.mul_(math.sqrt(6))
        if config.mask_init == "feature" and isinstance(layer, LoMETabLinear):
            _share_within_(layer.b, sections or [1] * d_in)
    return layer


def _share_within_(b: Tensor, sections: list[int]) -> None:
    """Give neighbouring columns of `(K, D_in, r)` the row of the first of them."""
    widths = torch.tensor(sections)
    first = b[:, widths.cumsum(0) - widths]  # (K, F, r)
    b.copy_(first.repeat_interleave(widths, dim=1, output_size=b.shape[1]))


def _make_layer(
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
