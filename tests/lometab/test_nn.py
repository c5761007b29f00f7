"""Identities of the layers, parity with the `tabm` package, sizes, bad input."""

import doctest
import math
import warnings

import pytest
import rtdl_num_embeddings
import tabm
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import lometab.nn
from lometab import kernels
from lometab.config import ModelConfig, from_preset
from lometab.embedding import PiecewiseLinearEmbedding, compute_bins
from lometab.nn import (
    AdditiveLinear,
    BatchEnsembleLinear,
    LoMETab,
    LoMETabLinear,
    MemberLinear,
    from_batch_ensemble,
    hidden_layer,
    relu_dropout,
)
from tests.support.networks import make_model, random_rows

VARIANTS = ["lometab", "additive", "tabm", "deep-ensemble", "mlp"]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def make_layer(name: str, d_in: int = 6, d_out: int = 5, k: int = 3) -> nn.Module:
    if name == "lometab":
        return LoMETabLinear(d_in, d_out, k=k, rank=2, sigma_init=1.0)
    if name == "additive":
        return AdditiveLinear(d_in, d_out, k=k, rank=2, sigma_init=1.0)
    if name == "tabm":
        layer = BatchEnsembleLinear(d_in, d_out, k=k, r_init="normal")
        nn.init.normal_(layer.s)
        nn.init.normal_(layer.bias)
        return layer
    return MemberLinear(d_in, d_out, k=k)


# The layers


@pytest.mark.parametrize("layer_class", [LoMETabLinear, AdditiveLinear])
def test_zeroed_adapters_give_the_plain_linear_layer(layer_class) -> None:
    layer = layer_class(6, 5, k=3, rank=2, sigma_init=0.0)
    x = torch.randn(7, 6)
    expected = F.linear(x, layer.weight, layer.bias[0])
    torch.testing.assert_close(layer(x), expected[:, None].expand(7, 3, 5))


def slow_effective_weight(layer: nn.Module, k: int, i: int, j: int) -> float:
    """One number of a member's weight, from the formula."""
    w = layer.weight[i, j].item()
    if isinstance(layer, BatchEnsembleLinear):
        return w * layer.s[k, i].item() * layer.r[k, j].item()
    a, b = layer.a[k, i].tolist(), layer.b[k, j].tolist()
    residual = sum(x * y for x, y in zip(a, b, strict=True))
    return w + residual if isinstance(layer, AdditiveLinear) else w * (1 + residual)


@settings(max_examples=25, deadline=None)
@given(
    d_in=st.integers(1, 5),
    d_out=st.integers(1, 5),
    k=st.integers(1, 4),
    rank=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_effective_weights_follow_the_formula(d_in, d_out, k, rank, seed) -> None:
    torch.manual_seed(seed)
    layers = [
        LoMETabLinear(d_in, d_out, k=k, rank=rank, sigma_init=1.5),
        AdditiveLinear(d_in, d_out, k=k, rank=rank, sigma_init=1.5),
        make_layer("tabm", d_in, d_out, k),
    ]
    for layer in layers:
        expected = [
            [
                [slow_effective_weight(layer.double(), m, i, j) for j in range(d_in)]
                for i in range(d_out)
            ]
            for m in range(k)
        ]
        torch.testing.assert_close(
            layer.effective_weight().detach(),
            torch.tensor(expected, dtype=torch.float64),
        )


@pytest.mark.parametrize("name", ["lometab", "additive", "tabm", "member"])
def test_each_member_applies_its_own_weight_and_bias(name) -> None:
    layer = make_layer(name)
    nn.init.normal_(layer.bias)
    x = torch.randn(7, 3, 6)
    weight = layer.effective_weight()
    expected = [F.linear(x[:, k], weight[k], layer.bias[k]) for k in range(3)]
    torch.testing.assert_close(layer(x), torch.stack(expected, dim=1))


@pytest.mark.parametrize("name", ["lometab", "additive", "tabm", "member"])
def test_shared_rows_are_every_members_rows(name) -> None:
    layer = make_layer(name)
    x = torch.randn(7, 6)
    torch.testing.assert_close(layer(x), layer(x[:, None].expand(7, 3, 6)))
    assert layer(x[:0]).shape == (0, 3, 5)


def test_additive_layer_starts_as_the_shared_weight_when_b_is_zero() -> None:
    layer = AdditiveLinear(6, 5, k=3, rank=2, sigma_init=1.0)
    nn.init.zeros_(layer.b)
    x = torch.randn(7, 6)
    expected = F.linear(x, layer.weight, layer.bias[0])
    torch.testing.assert_close(layer(x), expected[:, None].expand(7, 3, 5))


@pytest.mark.parametrize("layer_class", [LoMETabLinear, AdditiveLinear])
def test_start_of_the_low_rank_layers(layer_class) -> None:
    layer = layer_class(100, 50, k=20, rank=4, sigma_init=0.3)
    assert layer.weight.abs().max() <= 0.1
    assert layer.weight.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    for adapter in (layer.a, layer.b):
        assert adapter.std().item() == pytest.approx(0.3, rel=0.05)
        assert adapter.mean().item() == pytest.approx(0.0, abs=0.02)
    assert (layer.bias == layer.bias[0]).all()
    assert layer.bias[0].unique().numel() == 50
    assert layer.bias.abs().max() <= 0.1


def test_start_of_the_member_layer_is_that_of_linear_layers() -> None:
    layer = MemberLinear(100, 50, k=20)
    for parameter in (layer.weight, layer.bias):
        assert parameter.abs().max() <= 0.1
        assert parameter.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.1)
    assert not torch.equal(layer.weight[0], layer.weight[1])
    assert not torch.equal(layer.bias[0], layer.bias[1])


def test_start_of_the_batch_ensemble_layer() -> None:
    layer = BatchEnsembleLinear(6, 5, k=40, r_init="normal", sections=[1, 2, 3])
    assert (layer.s == 1).all()
    assert (layer.bias == layer.bias[0]).all()
    assert torch.equal(layer.r[:, 1], layer.r[:, 2])
    assert torch.equal(layer.r[:, 3], layer.r[:, 5])
    assert layer.r[:, [0, 1, 3]].unique().numel() == 120
    signs = BatchEnsembleLinear(6, 5, k=40, r_init="signs").r
    assert signs.unique().tolist() == [-1.0, 1.0]
    assert (BatchEnsembleLinear(6, 5, k=4).r == 1).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_layer_shows_what_was_built(variant) -> None:
    shown = repr(make_model(variant))
    assert "in_features=21, out_features=8, k=" in shown
    assert ("rank=2, sigma_init=1.0" in shown) == (variant in ("lometab", "additive"))


# Proposition 1


@pytest.mark.parametrize("seed", range(5))
def test_every_batch_ensemble_layer_is_a_lometab_layer_of_rank_two(seed) -> None:
    torch.manual_seed(seed)
    layer = BatchEnsembleLinear(12, 9, k=4, r_init="normal")
    nn.init.normal_(layer.s)
    nn.init.normal_(layer.bias)
    equal = from_batch_ensemble(layer)
    assert equal.rank == 2
    torch.testing.assert_close(
        equal.effective_weight(), layer.effective_weight(), rtol=0, atol=1e-6
    )
    x = torch.randn(7, 4, 12)
    torch.testing.assert_close(equal(x), layer(x), rtol=1e-5, atol=1e-5)
    double = from_batch_ensemble(layer.double())
    torch.testing.assert_close(
        double.effective_weight(), layer.effective_weight(), rtol=0, atol=1e-14
    )


def test_a_lometab_layer_that_batch_ensemble_cannot_express() -> None:
    def rank_of_ratio(weight: Tensor) -> int:
        return int(torch.linalg.matrix_rank(weight[0] / weight[1], rtol=1e-8))

    layer = LoMETabLinear(4, 3, k=2, rank=2, sigma_init=0.0).double()
    with torch.no_grad():  # member 1: A B^T = e_1 f_1^T + e_2 f_2^T; member 2: zero
        layer.a[0, :2] = torch.eye(2)
        layer.b[0, :2] = torch.eye(2)
    ratio = layer.effective_weight()[0] / layer.effective_weight()[1]
    expected = torch.ones(3, 4).double()
    expected[0, 0] = expected[1, 1] = 2
    torch.testing.assert_close(ratio, expected)
    assert rank_of_ratio(layer.effective_weight()) >= 2

    # The ratio of any two members of a BatchEnsemble layer has rank one.
    other = BatchEnsembleLinear(4, 3, k=2, r_init="normal").double()
    nn.init.normal_(other.s)
    assert rank_of_ratio(other.effective_weight()) == 1


# The model


@pytest.mark.parametrize(
    ("n_numeric", "cardinalities"), [(3, (2, 4)), (3, ()), (0, (2, 4))]
)
def test_tabm_variant_answers_as_the_tabm_package(n_numeric, cardinalities) -> None:
    ours = make_model(
        "tabm", n_numeric=n_numeric, cardinalities=cardinalities, dropout=0.0
    )
    theirs = tabm.TabM.make(
        n_num_features=n_numeric,
        cat_cardinalities=list(cardinalities),
        d_out=2,
        num_embeddings=rtdl_num_embeddings.PiecewiseLinearEmbeddings(
            ours.bins, 5, activation=False, version="B"
        )
        if n_numeric
        else None,
        n_blocks=3,
        d_block=8,
        dropout=0.0,
        k=4,
    )
    for parameter in theirs.parameters():  # the embedding starts at zero
        nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        if n_numeric:
            ours.embedding.load_state_dict(theirs.num_module.state_dict())
        for block, (linear, *_) in zip(
            ours.blocks, theirs.backbone.blocks, strict=True
        ):
            block.load_state_dict(linear.state_dict())
        ours.head.weight.copy_(theirs.output.weight.transpose(1, 2))
        ours.head.bias.copy_(theirs.output.bias)
    x_num, x_cat = random_rows(11, ours)
    their_rows = [x if x.shape[1] else None for x in (x_num, x_cat)]
    torch.testing.assert_close(ours(x_num, x_cat), theirs(*their_rows))
    assert ours.n_parameters == sum(p.numel() for p in theirs.parameters())

    x_num, x_cat = random_rows(44, ours)
    x_num, x_cat = x_num.view(11, 4, -1), x_cat.view(11, 4, -1)
    their_rows = [x if x.shape[2] else None for x in (x_num, x_cat)]
    torch.testing.assert_close(ours(x_num, x_cat), theirs(*their_rows))


@pytest.mark.parametrize(("n_numeric", "first"), [(3, "normal"), (0, "signs")])
def test_only_the_first_adapter_of_tabm_starts_at_random(n_numeric, first) -> None:
    model = make_model("tabm", n_numeric=n_numeric)
    start, *rest = model.blocks
    assert start.r_init == first
    assert start.sections == [5] * n_numeric + [2, 4]
    for block in rest:
        assert (block.r == 1).all()
        assert (block.s == 1).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_number_of_parameters(variant) -> None:
    model = make_model(variant)
    k, rank = model.config.k, 2
    assert k == (1 if variant == "mlp" else 4)
    d_in, d_block, d_out = 3 * 5 + 2 + 4, 8, 2
    n_embeddings = k if variant == "deep-ensemble" else 1
    expected = n_embeddings * 3 * (7 * 5 + 2 * 5) + k * (d_block + 1) * d_out
    for d in (d_in, d_block, d_block):
        if variant in ("mlp", "deep-ensemble"):
            expected += k * d * d_block
        else:
            adapters = 1 if variant == "tabm" else rank
            expected += d * d_block + k * adapters * (d + d_block)
        expected += k * d_block
    assert model.n_parameters == expected


def test_names_and_shapes_of_the_weights() -> None:
    model = make_model("lometab", n_blocks=1)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert shapes == {
        "embedding.linear0.weight": (3, 5),
        "embedding.linear0.bias": (3, 5),
        "embedding.impl.weight": (3, 7),
        "embedding.impl.bias": (3, 7),
        "embedding.linear.weight": (3, 7, 5),
        "blocks.0.weight": (8, 21),
        "blocks.0.a": (4, 8, 2),
        "blocks.0.b": (4, 21, 2),
        "blocks.0.bias": (4, 8),
        "head.weight": (4, 2, 8),
        "head.bias": (4, 2),
    }


def flat_input(model: LoMETab, *rows: Tensor) -> Tensor:
    """What the first layer is given."""
    seen = []
    handle = model.blocks[0].register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    model.eval()(*rows)
    handle.remove()
    return seen[0]


def test_flat_input_is_embeddings_then_one_hots() -> None:
    model = make_model("lometab")
    nn.init.normal_(model.embedding.linear.weight)
    x_num = torch.randn(3, 3)
    x_cat = torch.tensor([[0, 3], [1, 0], [0, 2]])
    flat = flat_input(model, x_num, x_cat)
    embedded = model.embedding(x_num)
    for feature in range(3):
        columns = flat[:, 5 * feature : 5 * (feature + 1)]
        torch.testing.assert_close(columns, embedded[:, feature])
    expected = [[1, 0, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0], [1, 0, 0, 0, 1, 0]]
    assert flat[:, 15:].tolist() == expected


def test_an_unseen_level_is_all_zeros() -> None:
    model = make_model("lometab")
    x_num, _ = random_rows(2, model)
    flat = flat_input(model, x_num, torch.tensor([[2, 1], [0, 4]]))
    assert flat[:, 15:].tolist() == [[0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_own_rows_that_are_the_same_give_what_shared_rows_give(variant) -> None:
    model = make_model(variant).eval()
    k = model.config.k
    x_num, x_cat = random_rows(9, model)
    own = model(x_num[:, None].expand(-1, k, -1), x_cat[:, None].expand(-1, k, -1))
    assert own.shape == (9, k, 2)
    torch.testing.assert_close(own, model(x_num, x_cat), rtol=1e-5, atol=1e-5)


def test_members_with_own_rows_do_not_see_each_others() -> None:
    model = make_model("lometab").eval()
    x_num, x_cat = random_rows(36, model)
    x_num, x_cat = x_num.view(9, 4, -1), x_cat.view(9, 4, -1)
    outputs = model(x_num, x_cat)
    for k in range(4):
        shared = model(x_num[:, k], x_cat[:, k])
        torch.testing.assert_close(outputs[:, k], shared[:, k])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("n_numeric", "cardinalities"), [(2, ()), (0, (3,))])
def test_either_kind_of_feature_may_be_absent(
    variant, n_numeric, cardinalities
) -> None:
    model = make_model(variant, n_numeric=n_numeric, cardinalities=cardinalities).eval()
    embedded = model.embeddings if variant == "deep-ensemble" else model.embedding
    assert bool(embedded) == (n_numeric > 0)
    x_num, x_cat = random_rows(9, model)
    outputs = model(x_num, x_cat)
    as_none = [x if x.shape[1] else None for x in (x_num, x_cat)]
    assert torch.equal(outputs, model(*as_none))


def test_dropout_acts_in_training_only() -> None:
    model = make_model("lometab", dropout=0.5)
    rows = random_rows(9, model)
    assert not torch.equal(model(*rows), model(*rows))
    model.eval()
    assert torch.equal(model(*rows), model(*rows))


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.003, 0.1, 1 / 3, 0.5, 0.9])
def test_dropout_drops_the_share_it_is_told(p) -> None:
    x = torch.rand(1000, 8, 500) + 0.1
    y = relu_dropout(x, p, training=True)
    is_kept = (y > 0).double()
    n = x.numel()
    assert abs(is_kept.mean() - (1 - p)) < 5 * (p * (1 - p) / n) ** 0.5
    torch.testing.assert_close(y, x * is_kept.float() / (1 - p), rtol=1e-3, atol=0)
    # Nor does it depend on where a unit is: in the word of random bits, say.
    for dim in range(3):
        by_place = is_kept.movedim(dim, 0).flatten(1).mean(1)
        spread = (p * (1 - p) / (n / len(by_place))) ** 0.5
        assert (by_place - (1 - p)).abs().max() < 5.5 * spread
    by_lane = is_kept.view(-1, 4).mean(0)
    assert (by_lane - (1 - p)).abs().max() < 5 * (p * (1 - p) / (n / 4)) ** 0.5


def test_dropped_units_are_independent() -> None:
    is_kept = (relu_dropout(torch.ones(4_000_000), 0.5, training=True) > 0).double()
    for distance in (1, 2, 3, 4, 8, 192, 2**20):
        both = (is_kept[:-distance] * is_kept[distance:]).mean()
        assert abs(both - 0.25) < 5 * 0.5 / len(is_kept) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropped_units_are_independent_of_each_other_over_many_steps(p) -> None:
    # All units come of one table of words: any two must differ as if drawn anew.
    n_steps, n_units = 10_000, 100
    x = torch.ones(n_units)
    steps = [relu_dropout(x, p, training=True) > 0 for _ in range(n_steps)]
    is_kept = torch.stack(steps).double()  # (steps, units)
    spread = (p * (1 - p) / n_steps) ** 0.5
    assert (is_kept.mean(0) - (1 - p)).abs().max() < 5 * spread
    correlation = torch.corrcoef(is_kept.T).triu(1)
    assert correlation.abs().max() < 5.5 * n_steps**-0.5
    assert correlation[correlation != 0].std() == pytest.approx(n_steps**-0.5, rel=0.05)
    # Nor does a step know of the one before it, and shares of a step are binomial.
    next_step = ((is_kept[1:] - 1 + p) * (is_kept[:-1] - 1 + p)).mean(0)
    assert next_step.abs().max() < 5 * p * (1 - p) * n_steps**-0.5
    by_step = is_kept.sum(1).var().item()
    assert by_step == pytest.approx(n_units * p * (1 - p), rel=5 * (2 / n_steps) ** 0.5)


def plain_hidden_layer(layer: LoMETabLinear, x: Tensor, is_kept: Tensor) -> Tensor:
    """By the formula, member by member; autograd gives its gradient."""
    members = []
    for k in range(layer.k):
        weight = layer.weight * (1 + layer.a[k] @ layer.b[k].T)
        own = x if x.ndim == 2 else x[:, k]
        members.append(F.relu(F.linear(own, weight, layer.bias[k])))
    return torch.stack(members, dim=1) * is_kept


@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("cached", [64, 160, 2**20])
def test_gradient_of_a_hidden_layer_is_that_of_the_formula(
    p, is_shared, k, cached, monkeypatch
) -> None:
    monkeypatch.setattr(kernels, "_CACHED", cached)  # how many members at a time
    kernels._random_words.cache_clear()
    layer = LoMETabLinear(6, 5, k=k, rank=2, sigma_init=1.0).double()
    nn.init.normal_(layer.bias)
    x = torch.randn(7, 6) if is_shared else torch.randn(7, k, 6)
    x = x.double().requires_grad_()
    y = hidden_layer(layer, x, p, training=True)
    with torch.no_grad():
        is_kept = (y > 0).double() / (1 - p)
        if p == 0:
            assert torch.equal(is_kept == 0, layer(x) <= 0)
    expected = plain_hidden_layer(layer, x, is_kept)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-14)
    grad = torch.randn_like(y)
    inputs = [x, *layer.parameters()]
    for actual, wanted in zip(
        torch.autograd.grad(y, inputs, grad),
        torch.autograd.grad(expected, inputs, grad),
        strict=True,
    ):
        assert actual.shape == wanted.shape
        torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-12)
    kernels._random_words.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize("is_shared", [True, False])
def test_gradcheck_of_a_hidden_layer(p, is_shared) -> None:
    layer = LoMETabLinear(4, 3, k=2, rank=2, sigma_init=1.0).double()
    x = (torch.randn(5, 4) if is_shared else torch.randn(5, 2, 4)).double()

    def seeded(x: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(3)
        return hidden_layer(layer, x, p, training=True)

    assert torch.autograd.gradcheck(
        seeded, (x.requires_grad_(), *layer.parameters()), atol=1e-6
    )


@pytest.mark.parametrize("d_out", [1, 3])
@pytest.mark.parametrize("is_shared", [True, False])
def test_gradcheck_of_the_member_layer(d_out, is_shared) -> None:
    layer = MemberLinear(4, d_out, k=2).double()
    x = (torch.randn(5, 4) if is_shared else torch.randn(5, 2, 4)).double()
    inputs = (x.requires_grad_(), *layer.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), inputs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_on_a_cpu_computes_what_other_devices_do(variant) -> None:
    model = make_model(variant, dropout=0.0)
    rows = random_rows(9, model)
    ours = model(*rows)
    grads = torch.autograd.grad(ours.square().sum(), [*model.parameters()])
    with kernels.use_kernels(False):
        plain = model(*rows)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    expected = torch.autograd.grad(plain.square().sum(), [*model.parameters()])
    for actual, wanted in zip(grads, expected, strict=True):
        scale = wanted.abs().max().item()
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("shape", [(7,), (5, 3), (6, 3, 5)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_gradient_of_dropout_is_that_of_its_mask(shape, is_transposed) -> None:
    x = torch.randn(*shape)
    if is_transposed and x.ndim > 1:
        x = x.transpose(0, 1)
    x.requires_grad_()
    y = relu_dropout(x, 0.4, training=True)
    assert y.shape == x.shape
    with torch.no_grad():
        scale = torch.where(y > 0, 1 / 0.6, 0.0)
        torch.testing.assert_close(y, x * scale, rtol=1e-4, atol=0)
    grad = torch.randn_like(y)
    (actual,) = torch.autograd.grad(y, x, grad)
    torch.testing.assert_close(actual, grad * scale, rtol=1e-4, atol=0)


def test_dropout_is_seeded_and_lets_no_nan_pass_unseen() -> None:
    x = torch.randn(100, 3, 10)
    torch.manual_seed(1)
    one = relu_dropout(x, 0.3, training=True)
    other = relu_dropout(x, 0.3, training=True)
    torch.manual_seed(1)
    assert torch.equal(relu_dropout(x, 0.3, training=True), one)
    assert not torch.equal(one, other)
    y = relu_dropout(torch.full((50,), math.nan), 0.5, training=True)
    assert 10 < y.isnan().sum() < 40  # those that were kept


@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True), (0.0, False)])
def test_no_dropout_is_the_relu_and_draws_nothing(p, training) -> None:
    x = torch.randn(10, 3, 4)
    state = torch.get_rng_state()
    assert torch.equal(relu_dropout(x, p, training=training), x.relu())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("variant", VARIANTS)
def test_half_precision_stays_close(variant) -> None:
    model = make_model(variant).eval()
    rows = random_rows(9, model)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(*rows).float()
    torch.testing.assert_close(outputs, model(*rows), rtol=0.1, atol=0.1)


def test_float64_model() -> None:
    model = make_model("lometab").eval()
    x_num, x_cat = random_rows(9, model)
    expected = model(x_num, x_cat).double()
    actual = model.double()(x_num.double(), x_cat)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_bins", [2, 7])
def test_embedding_in_one_product_is_that_of_the_authors_package(n_bins) -> None:
    x = torch.randn(200, 4)
    x[:, 1] = (x[:, 1] > 0).float()  # one bin
    x[:, 2] = x[:, 2].clamp_min(0)  # fewer bins than others
    for columns in ([0, 1, 2, 3], [0, 3], [1]):
        embedding = LoMETab(
            bins=compute_bins(x[:, columns], n_bins),
            cardinalities=[],
            d_out=1,
            config=ModelConfig(d_embedding=5),
        ).embedding
        nn.init.normal_(embedding.linear.weight)
        rows = 3 * torch.randn(50, len(columns))  # beyond the first and the last edge
        expected = embedding(rows).flatten(1)
        actual = kernels.embed(embedding, rows)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
        grad = torch.randn_like(expected)
        parameters = [*embedding.parameters()]
        for ours, theirs in zip(
            torch.autograd.grad(actual, parameters, grad),
            torch.autograd.grad(expected, parameters, grad),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


# The embedding


@pytest.mark.parametrize("n_edges", [(5, 2, 9), (2, 2), (3,)])
def test_the_embedding_is_that_of_the_authors_package(n_edges) -> None:
    bins = [torch.rand(n).sort().values for n in n_edges]
    with warnings.catch_warnings(action="ignore"):  # of features with a single bin
        theirs = rtdl_num_embeddings.PiecewiseLinearEmbeddings(
            bins, 4, activation=False, version="B"
        ).double()
    nn.init.normal_(theirs.linear.weight)
    ours = PiecewiseLinearEmbedding(bins, 4).double()
    ours.load_state_dict(theirs.state_dict(), strict=False)
    x = torch.randn(200, len(bins), dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x))
    assert {name for name, _ in ours.named_parameters()} == {
        name for name, _ in theirs.named_parameters()
    }


def test_the_embedding_starts_linear() -> None:
    embedding = PiecewiseLinearEmbedding([torch.linspace(0, 1, 9)], 64)
    assert not embedding.linear.weight.any()
    for parameter in embedding.linear0.parameters():
        assert 0.1 < parameter.abs().max() <= 64**-0.5


@pytest.mark.parametrize("edges", [[0.0], [0.0, 0.0, 1.0], [1.0, 0.0]])
def test_edges_must_ascend(edges) -> None:
    with pytest.raises(ValueError, match="feature 1 has"):
        PiecewiseLinearEmbedding([torch.tensor([0.0, 1.0]), torch.tensor(edges)], 4)


# Bins


def test_bins_are_those_of_the_authors_package() -> None:
    x = torch.randn(500, 3)
    for ours, theirs in zip(
        compute_bins(x, 16), rtdl_num_embeddings.compute_bins(x, 16), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_bins_of_awkward_columns() -> None:
    x = torch.randn(500, 3)
    x[:, 1] = (x[:, 1] > 0).float()
    x[:, 2] = x[:, 2].clamp_min(0) + 1e-9 * torch.rand(500)
    _, two_values, close = compute_bins(x, 48)
    assert two_values.tolist() == [0.0, 1.0]
    assert close[0] == x[:, 2].min()
    assert close[-1] == x[:, 2].max()
    assert close.diff().min() > 1e-6
    assert len(close) < 30
    model = LoMETab(
        bins=[two_values, close], cardinalities=[], d_out=1, config=ModelConfig(k=2)
    )
    assert model(x[:, 1:]).isfinite().all()


def test_fewer_rows_give_fewer_bins() -> None:
    assert [len(edges) for edges in compute_bins(torch.randn(5, 2), 48)] == [5, 5]
    assert compute_bins(torch.empty(5, 0), 48) == []


def test_bins_of_more_rows_than_quantile_takes(monkeypatch) -> None:
    monkeypatch.setattr("lometab.embedding._MAX_QUANTILE_ROWS", 100)
    (edges,) = compute_bins(torch.arange(1000.0)[:, None], 4)
    assert edges.tolist() == pytest.approx([0, 250, 500, 750, 1000], abs=11)


def test_refined_bins_are_quantiles_where_these_are_not_few() -> None:
    x = torch.randn(5000, 3)
    x[:, 1] = (20 * x[:, 1]).round()  # some values repeat
    x[::3, 2] = 0
    for refined, quantile in zip(
        compute_bins(x, 16, "refined"), compute_bins(x, 16), strict=True
    ):
        assert torch.equal(refined, quantile)


def test_refined_bins_set_frequent_values_apart() -> None:
    """Like a capital gain: nine of ten rows are zero, a few amounts are frequent."""
    gains = (1000 * torch.randn(5000).exp()).round()
    gains[torch.randperm(5000)[:2000]] = 7688.0
    column = torch.where(torch.arange(5000) % 10 > 0, 0.0, gains)
    (few,) = compute_bins(column[:, None], 48)
    (many,) = compute_bins(column[:, None], 48, "refined")
    assert len(few) < 8
    assert {*few.tolist()} <= {*many.tolist()}
    values = column.unique().tolist()
    at = values.index(7688.0)
    assert {*values[at - 1 : at + 2], *values[:2]} <= {*many.tolist()}
    assert len(many) < 12  # amounts that a row or two have are not frequent


def test_refined_bins_have_an_edge_at_each_of_few_values() -> None:
    hours = torch.cat([torch.zeros(1000), torch.arange(24.0).repeat(10)])
    (edges,) = compute_bins(hours[:, None], 48, "refined")
    assert {*range(24)} <= {*edges.tolist()}
    assert len(compute_bins(hours[:, None], 12, "refined")[0]) <= 13


@given(
    counts=st.lists(st.integers(1, 1000), min_size=2, max_size=60),
    n_bins=st.integers(2, 70),
)
def test_refined_bins_of_any_counts(counts: list[int], n_bins: int) -> None:
    values = torch.arange(float(len(counts)))
    column = values.repeat_interleave(torch.tensor(counts))[:, None]
    (edges,) = compute_bins(column, n_bins, "refined")
    (quantiles,) = compute_bins(column, n_bins)
    assert (edges.diff() > 0).all()
    assert {*quantiles.tolist()} <= {*edges.tolist()}
    assert len(edges) <= n_bins + 1


def test_bins_of_columns_that_cannot_have_any() -> None:
    x = torch.randn(10, 2)
    x[:, 1] = 3
    with pytest.raises(ValueError, match="column 1 is constant"):
        compute_bins(x, 4)
    x[2, 1] = math.nan
    with pytest.raises(ValueError, match="must be finite, however: column 1"):
        compute_bins(x, 4)


# Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank must be positive, however: rank=0"),
        ({"k": 0}, "k must be positive, however: k=0"),
        ({"in_features": -1}, "in_features must be positive, however"),
        ({"out_features": 0}, "out_features must be positive, however"),
        ({"sigma_init": -0.1}, "sigma_init must be 0 or more, however"),
        ({"sigma_init": math.nan}, "sigma_init must be 0 or more, however"),
    ],
)
def test_impossible_sizes(change, message) -> None:
    sizes = {"in_features": 4, "out_features": 3, "k": 2, "rank": 1, "sigma_init": 1.0}
    with pytest.raises(ValueError, match=message):
        LoMETabLinear(**sizes | change)


def test_impossible_start_of_batch_ensemble() -> None:
    with pytest.raises(ValueError, match="r_init must be"):
        BatchEnsembleLinear(4, 3, k=2, r_init="zeros")
    with pytest.raises(ValueError, match="sections must add up to in_features=4"):
        BatchEnsembleLinear(4, 3, k=2, sections=[1, 2])


@pytest.mark.parametrize("name", ["lometab", "tabm", "member"])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((6,), "two or three dimensions"),
        ((7, 2, 6), "second of three input dimensions must be k=3"),
        ((7, 3, 5), "last input dimension must be in_features=6"),
        ((7, 5), "last input dimension must be in_features=6"),
    ],
)
def test_input_of_another_shape(name, shape, message) -> None:
    with pytest.raises(ValueError, match=message):
        make_layer(name)(torch.randn(shape))


def test_rows_of_another_width() -> None:
    model = make_model("lometab")
    x_num, x_cat = random_rows(2, model)
    with pytest.raises(ValueError, match="x_num must have 3 columns, however: 2"):
        model(x_num[:, :2], x_cat)
    with pytest.raises(ValueError, match="x_cat must have 2 columns, however: 0"):
        model(x_num)


def test_a_model_needs_a_feature() -> None:
    with pytest.raises(ValueError, match="There must be a feature"):
        LoMETab(bins=[], cardinalities=[], d_out=1, config=ModelConfig())
    with pytest.raises(ValueError, match=r"cardinalities\[1\] must be positive"):
        LoMETab(bins=[], cardinalities=[2, 0], d_out=1, config=ModelConfig())


def test_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(lometab.nn)
    assert result.attempted > 10
    assert result.failed == 0


def test_the_paper_preset_is_the_network_of_its_california() -> None:
    bins = [torch.linspace(0, 1, 129) for _ in range(8)]
    model = LoMETab(bins=bins, cardinalities=[], d_out=1, config=from_preset("paper"))
    assert round(model.n_parameters / 1e6, 2) == 1.02
