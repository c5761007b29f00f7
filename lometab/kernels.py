"""The same numbers as torch's own operations in less time, on a CPU.

Nothing here is part of the method: `lometab.nn` computes all of it without this file,
and does so on other devices and where `use_kernels(False)` switches it off.
Read top to bottom: the switch, the layers, dropout, the embedding.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from lometab.embedding import PiecewiseLinearEmbedding

# Numbers in the arrays of a few members that stay in the cache together: 4 MiB.
_CACHED = 2**20

# The switch

_is_on = ContextVar("lometab_kernels", default=True)


@contextmanager
def use_kernels(is_on: bool) -> Iterator[None]:
    """Switch these kernels on or off inside a `with` block."""
    token = _is_on.set(is_on)
    try:
        yield
    finally:
        _is_on.reset(token)


def are_for(x: Tensor) -> bool:
    """Whether the kernels are to be used for this input."""
    return (
        _is_on.get() and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    )


# Layers


def hidden_layer(
    x: Tensor, weight: Tensor, a: Tensor, b: Tensor, bias: Tensor, p: float
) -> Tensor:
    """A hidden layer of LoMETab in training, from its input to dropout."""
    out: Tensor = _LoMETabHidden.apply(x, weight, a, b, bias, p)  # type: ignore[no-untyped-call]
    return out


def member_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Each member's weight `(K, D_out, D_in)` applied to its own or to shared rows."""
    out: Tensor = _MemberLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out


def relu_dropout(x: Tensor, p: float) -> Tensor:
    """`dropout(relu(x), p)` in training, for `p` above 0."""
    out: Tensor = _ReLUDropout.apply(x, p)  # type: ignore[no-untyped-call]
    return out


def by_member(x: Tensor, k: int) -> Tensor:
    """Rows with the members first, `(K, B, D)`: one's own, or those that all share.

    Between layers the memory is in this order too; only the view is `(B, K, D)`.
    """
    return x.expand(k, *x.shape) if x.ndim == 2 else x.transpose(0, 1)


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
        x = by_member(x, k)
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
        x = by_member(x, len(weight))
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


# Dropout


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

    Two tables of random words, each from an offset of its own, combined word by
    word: there are 2^36 pairs of offsets, and any two units come out as independent
    draws do, in one step and over many. Tests compare this with the binomial
    distribution.
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


# Embedding


def embed(embedding: "PiecewiseLinearEmbedding", x: Tensor) -> Tensor:
    """What the embedding gives, flat: `(N, F) -> (N, F * D)`.

    All of it is one product: the number itself and a one stand beside its
    encoding, and what the linear term has learned beside the weight of the bins.
    """
    encoding, linear = embedding.impl, embedding.linear0
    slope, shift = F.pad(encoding.weight, (0, 2)), F.pad(encoding.bias, (0, 2))
    slope[:, -2] = 1
    shift[:, -1] = 1
    lower = F.pad(encoding.lower, (0, 2), value=-math.inf)
    upper = F.pad(encoding.upper, (0, 2), value=math.inf)
    x = torch.addcmul(shift[:, None], slope[:, None], x.T[:, :, None])
    x = x.clamp_(lower[:, None], upper[:, None])  # (F, N, bins + 2)
    weight = [embedding.linear.weight, linear.weight[:, None], linear.bias[:, None]]
    x = torch.bmm(x, torch.cat(weight, dim=1))  # (F, N, D)
    return x.transpose(0, 1).flatten(1)
