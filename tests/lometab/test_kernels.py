"""The hand-written kernels compute what plain torch does: the switch on and off."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lometab import kernels
from lometab.config import TrainConfig
from lometab.embedding import PiecewiseLinearEmbedding, compute_bins, embed
from lometab.nn import LoMETabLinear, MemberLinear, hidden_layer
from lometab.train import Part, fit


def with_and_without(
    compute: Callable[[], Tensor], inputs: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The output and the gradients with the kernels, and by plain torch."""
    found = []
    for is_on in (True, False):
        with kernels.use_kernels(is_on):
            out = compute()
        weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
        found.append([out, *torch.autograd.grad(out, inputs, weights)])
    return found[0], found[1]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were used."""
    used: list[str] = []

    def watch(name: str) -> None:
        kernel = getattr(kernels, name)

        def watched(*args: object) -> Tensor:
            used.append(name)
            return kernel(*args)

        monkeypatch.setattr(kernels, name, watched)

    for name in ("hidden_layer", "member_linear", "relu_dropout", "embed"):
        watch(name)
    return used


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False])
def test_layers_are_the_same_without_kernels(is_shared: bool, calls: list[str]) -> None:
    torch.manual_seed(0)
    x = torch.randn(9, 6) if is_shared else torch.randn(9, 3, 6)
    x = x.double().requires_grad_()
    masked = LoMETabLinear(6, 5, k=3, rank=2, sigma_init=1.0).double()
    member = MemberLinear(6, 5, k=3).double()
    for layer in (masked, member):
        ours, plain = with_and_without(
            lambda layer=layer: hidden_layer(layer, x, 0.0, training=True),
            [x, *layer.parameters()],
        )
        for actual, expected in zip(ours, plain, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    assert calls == ["hidden_layer", "member_linear"]  # once each: never when off


def test_the_embedding_is_the_same_without_kernels(calls: list[str]) -> None:
    torch.manual_seed(0)
    x = torch.randn(50, 3)
    embedding = PiecewiseLinearEmbedding(compute_bins(x, 5), 4)
    nn.init.normal_(embedding.linear.weight)
    ours, plain = with_and_without(
        lambda: embed(embedding, x), [*embedding.parameters()]
    )
    for actual, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    assert calls == ["embed"]


def test_training_is_the_same_without_kernels(calls: list[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    codes = rng.integers(3, size=(200, 1))
    y = (x[:, 0] + codes[:, 0] + 0.1 * rng.normal(size=200)).astype(np.float32)
    part = Part(x, codes, y)
    config = TrainConfig(
        k=4, d_block=16, rank=2, dropout=0.0, max_epochs=5, batch_size=32
    )
    scores = []
    for is_on in (True, False):
        calls.clear()
        with kernels.use_kernels(is_on):
            fitted = fit(
                part, part, task="regression", cardinalities=[3], config=config
            )
        scores.append([each.val_score for each in fitted.history])
        assert bool(calls) == is_on
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)


def test_the_switch_is_back_after_an_error() -> None:
    x = torch.zeros(1)
    with pytest.raises(KeyError), kernels.use_kernels(False):
        assert not kernels.are_for(x)
        raise KeyError
    assert kernels.are_for(x)
