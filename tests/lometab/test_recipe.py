"""Settings of the recipe: averaged weights, starts, the rate, what chooses an epoch."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lometab.checkpoint import Checkpoint, Progress
from lometab.config import TrainConfig
from lometab.estimator import LoMETabClassifier
from lometab.export import to_onnx
from lometab.losses import nll
from lometab.nn import LoMETab
from lometab.optimizer import AdamW
from lometab.parity import check_onnx
from lometab.train import _learning_rate, predict
from tests.support.networks import (
    INPUTS,
    SMALL,
    make_ensemble,
    make_model,
    make_rows,
    random_rows,
)
from tests.support.runs import (
    TASKS,
    VARIANTS,
    assert_same,
    interrupt_after,
    make_part,
    run,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


# The average of the weights


def test_the_average_is_that_of_all_steps_by_the_formula() -> None:
    seen: list[dict[str, torch.Tensor]] = []

    def watch(model: LoMETab) -> None:
        def remember(module: Any, _: Any) -> None:  # before the next step
            if module.training:
                seen.append(
                    {n: p.detach().clone() for n, p in model.named_parameters()}
                )

        model.register_forward_pre_hook(remember)

    checkpoints: list[Checkpoint] = []
    options: dict[str, Any] = {"max_epochs": 3, "checkpoint_seconds": 0}
    run(prepare=watch, ema=0.6, on_checkpoint=checkpoints.append, **options)
    assert len(seen) == 3 * 5  # 300 rows in batches of 64

    last = checkpoints[-1].tensors
    for name, start in seen[0].items():
        average = start.double()
        after = [weights[name] for weights in seen[1:]] + [last[f"model.{name}"]]
        for t, weight in enumerate(after, 1):
            decay = min(0.6, (1 + t) / (10 + t))
            average = decay * average + (1 - decay) * weight.double()
        torch.testing.assert_close(last[f"average.{name}"].double(), average)


def test_the_average_is_what_is_scored_and_kept() -> None:
    plain = run(max_epochs=8, ema=0.0)
    averaged = run(max_epochs=8, ema=0.99)
    # The steps are the same ones: averaging looks on.
    assert [p.train_loss for p in averaged.history] == [
        p.train_loss for p in plain.history
    ]
    assert averaged.best_score != plain.best_score
    val = make_part(150, "regression", seed=1)
    outputs = predict(
        averaged.model, torch.from_numpy(val.x_num), torch.from_numpy(val.x_cat)
    )
    error = outputs.double().mean(1).squeeze(-1) - torch.from_numpy(val.y)
    assert error.square().mean().sqrt().item() == pytest.approx(averaged.best_score)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "settings",
    [
        {"ema": 0.95},
        {"ema": 0.9, "stop_on": "nll", "patience": 2, "lr": 3e-2},
        {"lr_patience": 1, "lr": 3e-2},
        {"stop_on": "nll", "lr": 3e-2},
    ],
)
def test_a_resumed_run_is_bit_identical(task, settings, tmp_path) -> None:
    options = {"dropout": 0.2, "max_epochs": 9, "noise": 2.0, **settings}
    whole = run(task, **options)
    checkpoint = interrupt_after(len(whole.history) - 2, tmp_path, task, **options)
    assert_same(run(task, resume=checkpoint, **options), whole)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_can_be_averaged(variant, tmp_path) -> None:
    options = {"variant": variant, "ema": 0.9, "max_epochs": 4}
    checkpoint = interrupt_after(2, tmp_path, "binary", **options)
    assert_same(run("binary", resume=checkpoint, **options), run("binary", **options))


def test_without_an_average_a_checkpoint_has_none() -> None:
    taken: list[Checkpoint] = []
    run(max_epochs=1, ema=0.0, on_checkpoint=taken.append, checkpoint_seconds=0)
    assert not any(name.startswith("average.") for name in taken[0].tensors)


# The learning rate


def progress(epoch: int, best_epoch: int) -> Progress:
    return Progress(
        epoch=epoch,
        max_epochs=99,
        train_loss=1.0,
        val_score=1.0,
        member_score=1.0,
        diversity=None,
        best_epoch=best_epoch,
        best_score=1.0,
        seconds=0.0,
    )


def test_the_rate_falls_when_the_score_stalls() -> None:
    # The best epoch so far after each epoch: better in 1, 2 and 6.
    history = [progress(i, best) for i, best in enumerate([1, 2, 2, 2, 2, 6, 6, 6], 1)]
    config = TrainConfig(lr=1.0, lr_patience=2)
    rates = [_learning_rate(config, history[:n]) for n in range(len(history) + 1)]
    # It falls after epoch 4 (two without a better one), and after 8.
    assert rates == pytest.approx([1, 1, 1, 1, 0.3, 0.3, 0.3, 0.3, 0.09])
    assert _learning_rate(replace(config, lr_patience=None), history) == 1.0


def test_the_optimizer_takes_the_rate(monkeypatch) -> None:
    rates: list[float] = []
    step = AdamW.step

    def spy(optimizer: Any, *args: Any, **options: Any) -> Any:
        rates.append(optimizer.param_groups[0]["lr"])
        return step(optimizer, *args, **options)

    monkeypatch.setattr(AdamW, "step", spy)
    fit = run(noise=5.0, lr=1e-2, lr_patience=1, max_epochs=12)
    expected = [
        _learning_rate(fit.model.config, fit.history[:epoch])  # type: ignore[arg-type]
        for epoch in range(len(fit.history))
    ]
    assert rates == pytest.approx(np.repeat(expected, 5))
    assert min(rates) < 1e-2


# What chooses the epoch


@pytest.mark.slow
@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_the_epoch_with_the_least_nll_is_kept(task) -> None:
    val = make_part(150, task, seed=1, noise=2.0)
    y = torch.from_numpy(val.y)
    losses: list[float] = []
    models: list[LoMETab] = []

    def measure(_: Progress) -> None:
        outputs = predict(
            models[0], torch.from_numpy(val.x_num), torch.from_numpy(val.x_cat)
        )
        losses.append(nll(outputs, y, None))

    fit = run(
        task,
        noise=2.0,
        lr=1e-2,
        max_epochs=25,
        ema=0.0,
        stop_on="nll",
        prepare=models.append,
        on_epoch=measure,
    )
    assert fit.best_epoch == 1 + int(np.argmin(losses))
    scores = [p.val_score for p in fit.history]
    assert fit.best_score == scores[fit.best_epoch - 1]
    assert fit.best_score < max(scores)  # else this test would show nothing


def test_the_nll_is_that_of_the_mean_of_the_members() -> None:
    outputs, y = torch.randn(40, 3, 5), torch.randint(5, (40,))
    p = outputs.double().softmax(-1).mean(1)
    expected = -p[torch.arange(40), y].log().mean().item()
    assert nll(outputs, y, None) == pytest.approx(expected)


def test_regression_has_no_nll_to_stop_on() -> None:
    one, other = (run(max_epochs=3, stop_on=each) for each in ("score", "nll"))
    assert_same(one, other)


# The start


def test_hes_start_has_six_times_the_variance() -> None:
    torch.manual_seed(0)
    plain = make_model("lometab", d_block=64)
    torch.manual_seed(0)
    larger = make_model("lometab", d_block=64, weight_init="he")
    for one, other in zip(plain.blocks, larger.blocks, strict=True):
        bound = math.sqrt(6 / one.in_features)
        assert 0.98 * bound < other.weight.abs().max().item() <= bound
        torch.testing.assert_close(other.weight, math.sqrt(6) * one.weight)
        torch.testing.assert_close(other.a, one.a)
    torch.testing.assert_close(larger.head.weight, plain.head.weight)


@pytest.mark.parametrize("variant", ["lometab", "additive"])
def test_a_mask_can_start_equal_within_a_feature(variant) -> None:
    model = make_model(variant, mask_init="feature")
    first, second, _ = (block.b for block in model.blocks)
    start = 0
    for width in (5, 5, 5, 2, 4):  # three embeddings, then one-hots
        of_feature = first[:, start : start + width]
        assert torch.equal(of_feature, of_feature[:, :1].expand_as(of_feature))
        start += width
    assert not torch.equal(first[:, 0], first[:, 5])
    assert not torch.equal(first[:, 15], first[:, 17])
    assert not torch.equal(second[:, 0], second[:, 1])


# Decay


def test_masks_need_not_decay() -> None:
    def weights(**settings: Any) -> dict[str, torch.Tensor]:
        fit = run(max_epochs=1, lr=1e-2, weight_decay=1.0, **settings)
        return fit.model.state_dict()

    decayed, kept = weights(), weights(decay_masks=False)
    for name in ("blocks.0.a", "blocks.0.b"):
        assert kept[name].square().sum() > 1.02 * decayed[name].square().sum()


def test_the_estimator_takes_the_settings() -> None:
    estimator = LoMETabClassifier(ema=0.9, lr_patience=3, stop_on="nll")
    config = estimator._config()
    assert (config.ema, config.lr_patience, config.stop_on) == (0.9, 3, "nll")
    assert LoMETabClassifier(lr_patience=math.inf)._config().lr_patience is None


# Deep ensembles


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("cardinalities", [(), (2, 4)])
def test_members_of_a_deep_ensemble_share_nothing(is_shared, cardinalities) -> None:
    model = make_model("deep-ensemble", cardinalities=cardinalities).eval()
    x_num, x_cat = random_rows(6, model)
    if not is_shared:
        rows = torch.stack([torch.randperm(6) for _ in range(4)], dim=1)
        x_num, x_cat = x_num[rows], x_cat[rows]
    before = model(x_num, x_cat)
    before[:, 1].sum().backward()
    for name, parameter in model.named_parameters():
        if name.startswith("embeddings."):
            is_own = name.startswith("embeddings.1.")
            assert (parameter.grad is not None and parameter.grad.any()) == is_own
        else:
            assert parameter.grad is not None
            assert not parameter.grad[[0, 2, 3]].any() and parameter.grad[1].any()


def test_a_member_of_a_deep_ensemble_is_a_single_network() -> None:
    ensemble = make_model("deep-ensemble").eval()
    single = LoMETab(
        bins=ensemble.bins,
        cardinalities=ensemble.cardinalities,
        d_out=2,
        config=replace(ensemble.config, variant="mlp", k=1),
    ).eval()
    state = ensemble.state_dict()
    own = {
        name.replace("embeddings.2.", "embedding."): value
        for name, value in state.items()
        if name.startswith("embeddings.2.")
    }
    layers = {n: v[2:3] for n, v in state.items() if n.startswith(("blocks", "head"))}
    single.load_state_dict({**own, **layers})
    rows = random_rows(6, ensemble)
    torch.testing.assert_close(single(*rows)[:, 0], ensemble(*rows)[:, 2])


@pytest.mark.parametrize("inputs", INPUTS)
def test_a_deep_ensembles_file_answers_as_torch(inputs) -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 200, inputs)
    ensemble = make_ensemble(
        x_num,
        x_cat,
        datetime=(3,) if inputs == "datetime" else (),
        config=replace(SMALL, variant="deep-ensemble"),
    )
    assert check_onnx(ensemble, to_onnx(ensemble), x_num, x_cat) < 1e-5
