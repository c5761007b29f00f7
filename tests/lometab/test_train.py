"""The loop: what it learns, when it ends, what it keeps, and that it repeats itself."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lometab.config import TrainConfig
from lometab.embedding import compute_bins
from lometab.errors import ModelFileError, TrainingCancelled, TrainingDiverged
from lometab.losses import member_loss, score
from lometab.nn import LoMETab
from lometab.optimizer import AdamW
from lometab.train import (
    Checkpoint,
    Part,
    Progress,
    fit,
    predict,
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


# Loss, scores and diversity, against loops written from the formulas


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("is_shared", [True, False])
def test_loss_is_the_mean_of_the_members_losses(task, is_shared) -> None:
    part = make_part(20, task, seed=0)
    x_num, x_cat = torch.from_numpy(part.x_num), torch.from_numpy(part.x_cat)
    y = torch.from_numpy(part.y)
    model = LoMETab(
        bins=compute_bins(x_num, 8),
        cardinalities=[3],
        d_out=3 if task == "multiclass" else 1,
        config=TrainConfig(k=4, d_block=8, dropout=0.0),
    )
    if not is_shared:
        rows = torch.stack([torch.randperm(20) for _ in range(4)], dim=1)
        x_num, x_cat, y = x_num[rows], x_cat[rows], y[rows]

    def one_loss(outputs: Tensor, y: Tensor) -> Tensor:  # (B, D_out), (B,)
        if task == "regression":
            return ((outputs[:, 0] - y) ** 2).mean()
        if task == "binary":
            return F.binary_cross_entropy(outputs[:, 0].sigmoid(), y.float())
        return -outputs.log_softmax(1)[torch.arange(len(y)), y].mean()

    outputs = model(x_num, x_cat)
    losses = [one_loss(outputs[:, k], y if is_shared else y[:, k]) for k in range(4)]
    expected = torch.stack(losses).mean()
    actual = member_loss(outputs, y, task)
    torch.testing.assert_close(actual, expected)

    parameters = list(model.parameters())
    expected_grads = torch.autograd.grad(expected, parameters, retain_graph=True)
    actual_grads = torch.autograd.grad(actual, parameters)
    torch.testing.assert_close(actual_grads, expected_grads, rtol=1e-4, atol=1e-6)


def test_scores_of_regression() -> None:
    outputs, y = torch.randn(50, 4, 1), torch.randn(50)
    f, t = 2.5 * outputs.double().numpy()[..., 0], 2.5 * y.double().numpy()
    ensemble, members, ambiguity = score(outputs, y, task="regression", y_std=2.5)
    assert ensemble == pytest.approx(np.sqrt(np.mean((f.mean(1) - t) ** 2)))
    own = [np.sqrt(np.mean((f[:, k] - t) ** 2)) for k in range(4)]
    assert members == pytest.approx(np.mean(own))
    assert ambiguity == pytest.approx(np.mean((f - f.mean(1, keepdims=True)) ** 2))


@pytest.mark.parametrize(("task", "n_classes"), [("binary", 2), ("multiclass", 5)])
def test_scores_of_classification(task, n_classes) -> None:
    outputs = 3 * torch.randn(40, 4, 1 if task == "binary" else n_classes)
    y = torch.randint(n_classes, (40,))
    if task == "binary":
        p = torch.cat([(-outputs.double()).sigmoid(), outputs.double().sigmoid()], -1)
    else:
        p = outputs.double().softmax(-1)
    p, target = p.numpy(), y.numpy()
    ensemble, members, divergence = score(outputs, y, task=task, y_std=1.0)
    assert ensemble == pytest.approx(np.mean(p.mean(1).argmax(1) == target))
    own = [np.mean(p[:, k].argmax(1) == target) for k in range(4)]
    assert members == pytest.approx(np.mean(own))

    def kl(p: np.ndarray, q: np.ndarray) -> float:
        return float(np.sum(p * np.log(p / q)))

    pairs = [
        0.5 * kl(row[i], row[j]) + 0.5 * kl(row[j], row[i])
        for row in p
        for i, j in combinations(range(4), 2)
    ]
    assert divergence == pytest.approx(np.mean(pairs), rel=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_diversity_of_one_and_of_equal_members(task) -> None:
    d_out = 3 if task == "multiclass" else 1
    outputs, y = torch.randn(40, 1, d_out), torch.zeros(40, dtype=torch.long)
    assert score(outputs, y, task=task, y_std=1.0)[2] is None
    twins = score(outputs.expand(-1, 5, -1), y, task=task, y_std=1.0)
    assert twins[2] == pytest.approx(0, abs=1e-12)
    assert twins[0] == pytest.approx(twins[1])


def test_certain_members_have_finite_diversity() -> None:
    outputs = torch.tensor([200.0, -200.0]).view(1, 2, 1).expand(30, 2, 1)
    y = torch.ones(30, dtype=torch.long)
    _, members, divergence = score(outputs, y, task="binary", y_std=1.0)
    assert members == 0.5
    assert divergence == pytest.approx(-math.log(1e-12), rel=1e-6)


def test_predict_goes_in_batches_and_leaves_the_mode(monkeypatch) -> None:
    x_num = torch.randn(100, 2)
    model = LoMETab(
        bins=compute_bins(x_num, 8),
        cardinalities=[],
        d_out=1,
        config=TrainConfig(k=4, d_block=8),
    )
    no_codes = torch.empty(100, 0, dtype=torch.long)
    whole = predict(model, x_num, no_codes)
    assert model.training
    monkeypatch.setattr("lometab.train._MAX_ACTIVATION", 7 * 96)
    assert whole.shape == (100, 4, 1)
    torch.testing.assert_close(predict(model, x_num, no_codes), whole)


# Learning


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("share_batches", [True, False])
def test_training_beats_the_constant_answer(task, share_batches) -> None:
    result = run(task, max_epochs=25, share_batches=share_batches)
    y = make_part(150, task, seed=1).y
    if task == "regression":
        assert result.best_score < 0.5 * y.std()
    else:
        assert result.best_score > np.bincount(y).max() / len(y) + 0.2
    assert result.history[-1].train_loss < 0.7 * result.history[0].train_loss


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_learns(variant) -> None:
    result = run("binary", variant=variant, max_epochs=25, lr=1e-2)
    y = make_part(150, "binary", seed=1).y
    assert result.best_score > np.bincount(y).max() / len(y) + 0.1
    assert result.model.config.variant == variant
    has_diversity = [p.diversity is not None for p in result.history]
    assert has_diversity == [variant != "mlp"] * len(result.history)


@pytest.mark.parametrize("absent", ["x_num", "x_cat"])
def test_training_on_one_kind_of_feature(absent) -> None:
    def without(part: Part) -> Part:
        return replace(part, **{absent: getattr(part, absent)[:, :0]})

    train, val = (without(make_part(200, "binary", seed=s)) for s in (0, 1))
    result = fit(
        train,
        val,
        task="binary",
        cardinalities=[] if absent == "x_cat" else [3],
        config=TrainConfig(k=3, d_block=16, max_epochs=10, batch_size=32),
    )
    assert result.best_score > np.bincount(val.y).max() / len(val.y)


def test_read_only_and_strided_arrays_are_fine() -> None:
    train, val = (make_part(100, "regression", seed=s) for s in (0, 1))
    train.x_num.setflags(write=False)
    val = replace(val, x_num=np.asfortranarray(val.x_num), y=val.y[::-1])
    config = TrainConfig(k=2, d_block=8, max_epochs=1)
    result = fit(train, val, task="regression", cardinalities=[3], config=config)
    assert math.isfinite(result.best_score)


def test_biases_and_linear_embeddings_do_not_decay(monkeypatch) -> None:
    decays: dict[int, float] = {}
    names: dict[int, str] = {}

    def spy(groups: list[dict[str, Any]], **options: Any) -> AdamW:
        decays.update((id(p), g["weight_decay"]) for g in groups for p in g["params"])
        return AdamW(groups, **options)

    def remember(model: LoMETab) -> None:
        names.update((id(p), name) for name, p in model.named_parameters())

    monkeypatch.setattr("lometab.train.AdamW", spy)
    run(weight_decay=0.01, max_epochs=1, n_blocks=1, prepare=remember)
    assert {names[key]: decay for key, decay in decays.items()} == {
        "embedding.linear0.weight": 0.0,
        "embedding.linear0.bias": 0.0,
        "embedding.linear.weight": 0.01,
        "blocks.0.weight": 0.01,
        "blocks.0.a": 0.01,
        "blocks.0.b": 0.01,
        "blocks.0.bias": 0.0,
        "head.weight": 0.01,
        "head.bias": 0.0,
    }


def test_a_new_model_can_be_changed_before_the_first_step() -> None:
    """As the ablation does that starts the additive form with B = 0."""

    def zero_b(model: LoMETab) -> None:
        for block in model.blocks:
            torch.nn.init.zeros_(block.b)

    kept = run(variant="additive", lr=1e-9, max_epochs=1, prepare=zero_b)
    assert all(block.b.abs().max() < 1e-6 for block in kept.model.blocks)
    assert all(block.a.abs().max() > 0.5 for block in kept.model.blocks)


def test_members_see_the_same_or_their_own_batches() -> None:
    shapes: dict[bool, set[tuple[int, ...]]] = {True: set(), False: set()}

    def watch(model: LoMETab) -> None:
        def note(module: LoMETab, rows: tuple[Tensor, ...]) -> None:
            if module.training:
                shapes[module.config.share_batches].add(tuple(rows[0].shape))

        model.register_forward_pre_hook(note)

    for share_batches in (True, False):
        run(share_batches=share_batches, max_epochs=1, prepare=watch)
    # 300 rows in batches of 64: the last has 44.
    assert shapes[True] == {(64, 3), (44, 3)}
    assert shapes[False] == {(64, 3, 3), (44, 3, 3)}


# When it ends and what it keeps


def test_the_best_epoch_is_kept() -> None:
    result = run(noise=5.0, max_epochs=30, patience=None, lr=1e-2)
    assert len(result.history) == 30
    best = min(result.history, key=lambda p: p.val_score)
    assert best.epoch < 30
    assert result.best_epoch == best.epoch
    assert result.best_score == best.val_score
    assert result.history[-1].best_epoch == best.epoch

    part = make_part(150, "regression", seed=1, noise=5.0)
    outputs = predict(
        result.model, torch.from_numpy(part.x_num), torch.from_numpy(part.x_cat)
    )
    y = torch.from_numpy(part.y)
    again = score(outputs, y, task="regression", y_std=1.0)
    assert again == (best.val_score, best.member_score, best.diversity)
    assert not result.model.training


def test_patience() -> None:
    result = run(noise=5.0, max_epochs=100, patience=3, lr=1e-2)
    assert len(result.history) == result.best_epoch + 3
    assert len(result.history) < 100
    assert not result.stopped_early


def test_progress_of_each_epoch() -> None:
    seen: list[Progress] = []
    result = run(on_epoch=seen.append, y_std=10.0)
    assert seen == result.history
    assert [p.epoch for p in seen] == [1, 2, 3, 4, 5, 6]
    assert {p.max_epochs for p in seen} == {6}
    assert all(a.seconds < b.seconds for a, b in pairwise(seen))
    for number, progress in enumerate(seen, start=1):
        assert progress.best_score == min(p.val_score for p in seen[:number])
    assert result.seconds >= seen[-1].seconds
    plain = run()
    for scaled, own in zip(seen, plain.history, strict=True):
        assert scaled.val_score == pytest.approx(10 * own.val_score)
        assert scaled.member_score == pytest.approx(10 * own.member_score)
        assert scaled.diversity == pytest.approx(100 * own.diversity)
        assert scaled.train_loss == own.train_loss


def test_the_caller_can_stop_and_keep_the_best() -> None:
    result = run(on_epoch=lambda progress: progress.epoch == 2)
    assert result.stopped_early
    assert len(result.history) == 2
    whole = run(max_epochs=2)
    assert not whole.stopped_early
    assert result.best_epoch == whole.best_epoch
    assert torch.equal(result.model.head.weight, whole.model.head.weight)


@pytest.mark.parametrize(("n_asked", "n_epochs"), [(1, 1), (7, 2)])
def test_a_stop_does_not_wait_for_the_end_of_an_epoch(
    n_asked: int, n_epochs: int
) -> None:
    """On a large table the first epoch alone may be longer than the time there is."""
    asked: list[bool] = []

    def is_stop_wanted() -> bool:  # after each of the five steps of an epoch
        asked.append(True)
        return len(asked) == n_asked

    result = run(is_stop_wanted=is_stop_wanted)
    assert result.stopped_early
    assert (len(asked), len(result.history)) == (n_asked, n_epochs)
    last = result.history[-1]
    assert math.isfinite(last.val_score) and 0.1 < last.train_loss < 10
    assert_same(run(is_stop_wanted=lambda: False), run())


def test_the_caller_can_cancel() -> None:
    def cancel(progress: Progress) -> None:
        raise TrainingCancelled(f"at {progress.epoch}")

    with pytest.raises(TrainingCancelled, match="at 1"):
        run(on_epoch=cancel)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (
            {"n_blocks": 2, "d_block": 96, "k": 8, "rank": 8},
            "The loss still was [0-9.e+]+",
        ),
        ({"n_blocks": 8, "sigma_init": 10.0}, "The gradient became inf"),
    ],
)
def test_divergence_is_an_error_that_names_epoch_and_rate(task, settings, what) -> None:
    end = r" in epoch \d+ at learning rate 1: .* Try a smaller lr \(such as 0.1\)"
    with pytest.raises(TrainingDiverged, match=what + end):
        run(task, lr=1.0, **settings)


def test_a_loss_that_is_no_number_is_divergence() -> None:
    with pytest.raises(TrainingDiverged, match=r"The loss became (nan|inf) in epoch 1"):
        run(n_blocks=8, sigma_init=10.0, rank=64)


def test_infinite_outputs_are_divergence_even_if_the_loss_was_finite() -> None:
    val = make_part(50, "regression", seed=1)
    val.x_num[0, 0] = np.inf
    with pytest.raises(TrainingDiverged, match="outputs stopped being finite"):
        fit(
            make_part(50, "regression", seed=0),
            val,
            task="regression",
            cardinalities=[3],
            config=TrainConfig(k=2, d_block=8, max_epochs=2),
        )


def test_impossible_arguments() -> None:
    part = make_part(50, "multiclass", seed=0)
    empty = Part(part.x_num[:0], part.x_cat[:0], part.y[:0])
    config = TrainConfig(k=2, d_block=8)
    with pytest.raises(ValueError, match=r"must have rows, however: .*val.n_rows=0"):
        fit(part, empty, task="multiclass", cardinalities=[3], config=config)
    with pytest.raises(ValueError, match="needs n_classes"):
        fit(part, part, task="multiclass", cardinalities=[3], config=config)


# Repeating and resuming


@pytest.mark.slow
@pytest.mark.parametrize("share_batches", [True, False])
def test_the_same_seed_gives_the_same_weights(share_batches) -> None:
    one = run(dropout=0.2, share_batches=share_batches)
    torch.rand(7)
    other = run(dropout=0.2, share_batches=share_batches)
    assert_same(one, other)
    third = run(dropout=0.2, share_batches=share_batches, seed=1)
    assert not torch.equal(third.model.head.weight, one.model.head.weight)


def test_the_callers_random_numbers_are_left_alone() -> None:
    before = torch.get_rng_state()
    run(max_epochs=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_finished_run_is_given_again_without_training(tmp_path) -> None:
    whole = run("regression")
    whole.to_checkpoint(whole.model.config).save(tmp_path)
    checkpoint = Checkpoint.load(tmp_path)
    assert checkpoint.is_finished
    epochs: list[Progress] = []
    again = run("regression", resume=checkpoint, on_epoch=epochs.append)
    assert_same(again, whole)
    assert epochs == [] and not again.model.training


@pytest.mark.slow
@pytest.mark.parametrize("share_batches", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_a_resumed_run_is_bit_identical(task, share_batches, tmp_path) -> None:
    options = {"dropout": 0.2, "share_batches": share_batches, "max_epochs": 7}
    checkpoint = interrupt_after(4, tmp_path, task, **options)
    assert checkpoint.epoch == 4
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "checkpoint.json",
        "epoch-4.safetensors",
    ]
    torch.rand(7)
    resumed = run(task, resume=checkpoint, **options)
    assert_same(resumed, run(task, **options))
    seconds = [p.seconds for p in resumed.history]
    assert seconds == sorted(seconds)


def test_the_best_epoch_before_the_interruption_survives(tmp_path) -> None:
    options = {"noise": 5.0, "lr": 1e-2, "patience": 6, "max_epochs": 40}
    whole = run(**options)
    assert whole.best_epoch + 6 == len(whole.history) < 40
    checkpoint = interrupt_after(
        whole.best_epoch + 3, tmp_path, "regression", **options
    )
    assert_same(run(resume=checkpoint, **options), whole)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["additive", "tabm", "deep-ensemble", "mlp"])
def test_every_variant_resumes(variant, tmp_path) -> None:
    checkpoint = interrupt_after(2, tmp_path, "binary", variant=variant, max_epochs=4)
    resumed = run("binary", variant=variant, resume=checkpoint, max_epochs=4)
    assert_same(resumed, run("binary", variant=variant, max_epochs=4))


def test_taking_checkpoints_changes_nothing(tmp_path) -> None:
    taken: list[Checkpoint] = []
    result = run(on_checkpoint=taken.append, checkpoint_seconds=0)
    assert_same(result, run())
    assert [c.epoch for c in taken] == [1, 2, 3, 4, 5, 6]
    # A checkpoint is a copy: later epochs leave it as it was.
    assert not torch.equal(
        taken[0].tensors["model.head.weight"], taken[1].tensors["model.head.weight"]
    )
    assert_same(run(resume=taken[0]), result)
    assert_same(run(resume=taken[0]), result)


def test_checkpoints_keep_their_distance() -> None:
    taken: list[Checkpoint] = []
    run(on_checkpoint=taken.append, checkpoint_seconds=1000)
    assert taken == []


def test_a_finished_run_resumes_to_its_result() -> None:
    taken: list[Checkpoint] = []
    whole = run(on_checkpoint=taken.append, checkpoint_seconds=0)
    assert_same(run(resume=taken[-1]), whole)


def test_resume_refuses_other_settings(tmp_path) -> None:
    checkpoint = interrupt_after(1, tmp_path, "regression")
    with pytest.raises(ValueError, match="checkpoint of a run with the same config"):
        run(resume=checkpoint, lr=1e-4)


def test_a_checkpoint_of_a_version_without_edges_of_bins_resumes(tmp_path) -> None:
    interrupt_after(2, tmp_path, "regression", bin_edges="quantile", max_epochs=4)
    file = tmp_path / "checkpoint.json"
    state = json.loads(file.read_text())
    del state["config"]["bin_edges"]
    file.write_text(json.dumps(state))
    resumed = run(resume=Checkpoint.load(tmp_path), bin_edges="quantile", max_epochs=4)
    assert_same(resumed, run(bin_edges="quantile", max_epochs=4))


def test_checkpoint_files_hold_plain_data(tmp_path) -> None:
    checkpoint = interrupt_after(1, tmp_path, "regression")
    state = json.loads((tmp_path / "checkpoint.json").read_text())
    assert state["config"] == asdict(checkpoint.config)
    assert state["history"] == [asdict(p) for p in checkpoint.history]
    assert {name.split(".")[0] for name in checkpoint.tensors} == {
        "model",
        "average",
        "best",
        "optimizer",
        "rng",
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: (d / "checkpoint.json").write_text("{"),
        lambda d: (d / "checkpoint.json").write_text('{"version": 99}'),
        lambda d: (d / "epoch-1.safetensors").write_bytes(b"nothing"),
        lambda d: (d / "epoch-1.safetensors").unlink(),
    ],
)
def test_a_damaged_checkpoint_says_so(damage: Callable[[Any], Any], tmp_path) -> None:
    interrupt_after(1, tmp_path, "regression")
    damage(tmp_path)
    with pytest.raises(ModelFileError, match="no checkpoint that can be resumed"):
        Checkpoint.load(tmp_path)


def test_no_checkpoint(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        Checkpoint.load(tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("task", TASKS)
def test_training_on_a_gpu(task, tmp_path) -> None:
    taken: list[Checkpoint] = []
    result = run(
        task,
        max_epochs=25,
        device="cuda",
        on_checkpoint=taken.append,
        checkpoint_seconds=0,
    )
    assert result.model.head.weight.device.type == "cpu"
    assert result.history[-1].train_loss < 0.7 * result.history[0].train_loss
    resumed = run(task, max_epochs=25, device="cuda", resume=taken[10])
    assert len(resumed.history) == len(result.history)
