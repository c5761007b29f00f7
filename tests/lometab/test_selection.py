"""Members that are chosen, and what is made of them: networks, files, answers."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lometab.config import TrainConfig
from lometab.ensemble import Ensemble, answer
from lometab.evaluation import (
    Run,
    choose_members,
    choose_networks,
    make_reports,
    metrics,
    order_members,
)
from lometab.export import to_onnx
from lometab.parity import check_onnx
from lometab.predictor import Predictor
from lometab.selection import find_least, keep_members, select_members
from lometab.table import Parts
from tests.support.networks import (
    SMALL,
    make_ensemble,
    make_model,
    make_rows,
    random_rows,
)

VARIANTS = ["lometab", "additive", "tabm", "deep-ensemble"]

# Which members


def test_the_best_prefix_is_chosen() -> None:
    y = np.zeros(4)
    # The second is best by itself, and almost cancels out with the first.
    members = np.array([[1.0, -0.9, 5.0]] * 4)
    assert choose_members(y, members) == [1, 0]
    # Alone, no second one helps; two more do.
    members = np.array([[1.0, 2.5, -2.5, -1.1]] * 4)
    assert choose_members(y, members[:, :2]) == [0]
    assert choose_members(y, members) == [0, 3, 1, 2]
    assert choose_members(y, members, most=3) == [0, 3]
    assert choose_members(y, members, most=3, least=3) == [0, 3, 1]
    assert choose_members(y, members, least=9) == [0, 3, 1, 2]


@settings(max_examples=40, deadline=None)
@given(
    n_classes=st.sampled_from([None, 3]),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    least=st.integers(1, 6),
    most=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_whole_networks_are_chosen_by_the_mean_of_all_their_members(
    n_classes: int | None, sizes: list[int], least: int, most: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    k, ends = sum(sizes), np.cumsum(sizes)
    if n_classes is None:
        y, members = rng.normal(size=30), rng.normal(size=(30, k))
    else:
        y = rng.integers(n_classes, size=30)
        members = rng.dirichlet(np.ones(n_classes), (30, k))
    loss = metrics.rmse if n_classes is None else metrics.nll

    def loss_of(networks: list[int]) -> float:
        own = [m for n in networks for m in range(ends[n] - sizes[n], ends[n])]
        return float(loss(y, members[:, own].mean(1)))

    chosen = choose_networks(y, members, sizes, least=least, most=most)
    assert min(least, most, len(sizes)) <= len(chosen) <= most
    expected: list[int] = []
    for _ in chosen:
        left = [n for n in range(len(sizes)) if n not in expected]
        expected.append(min(left, key=lambda n: loss_of([*expected, n])))
    # Where two do equally well, either may come first.
    assert loss_of(chosen) == pytest.approx(loss_of(expected), abs=1e-9)
    for n in range(min(least, len(chosen)), len(chosen)):
        assert loss_of(chosen) <= loss_of(chosen[:n]) + 1e-9


@settings(max_examples=40, deadline=None)
@given(
    n_classes=st.sampled_from([None, 2, 3]),
    k=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_losses_are_those_of_the_metrics(
    n_classes: int | None, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    if n_classes is None:
        y, members = rng.normal(size=30), rng.normal(size=(30, k)).astype(np.float32)
    else:
        y = rng.integers(n_classes, size=30)
        members = rng.dirichlet(np.ones(n_classes), (30, k)).astype(np.float32)
    loss = metrics.rmse if n_classes is None else metrics.nll
    order, losses = order_members(y, members)
    assert sorted(order) == [*range(k)]
    for n in range(1, k + 1):
        mean = members[:, order[:n]].astype(np.float64).mean(1)
        assert losses[n - 1] == pytest.approx(loss(y, mean), abs=1e-9)
    chosen = choose_members(y, members)
    assert chosen == order[: len(chosen)]
    alone = min(loss(y, members[:, i]) for i in range(k))
    assert losses[len(chosen) - 1] == min(losses) <= alone + 1e-6


def test_few_rows_choose_no_few_members() -> None:
    assert [find_least(n) for n in (80, 999, 1000, 50_000)] == [16, 16, 8, 8]


# Networks with some of their members


@pytest.mark.parametrize("variant", VARIANTS)
def test_kept_members_answer_as_before(variant: str) -> None:
    torch.manual_seed(0)
    model = make_model(variant).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    rows = random_rows(20, model)
    kept = keep_members(model, [3, 1])
    assert kept.config.k == 2 and model.config.k == 4
    assert kept.n_parameters < model.n_parameters
    torch.testing.assert_close(kept(*rows), model(*rows)[:, [3, 1]])


# Ensembles of several networks, as one file


def make_mixed(
    configs: list[TrainConfig], n_classes: int | None, inputs: str = "missing"
) -> tuple[Ensemble, np.ndarray, np.ndarray]:
    x_num, x_cat = make_rows(np.random.default_rng(0), 60, inputs)
    made = [make_ensemble(x_num, x_cat, n_classes=n_classes, config=c) for c in configs]
    fits = [replace(each.fit, trial=10 + i) for i, each in enumerate(made)]
    return replace(made[0], fit=fits[0], others=tuple(fits[1:])), x_num, x_cat


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    n_classes=st.sampled_from([None, 2, 4]),
    networks=st.lists(
        st.tuples(
            st.sampled_from([*VARIANTS, "mlp"]),
            st.integers(1, 4),
            st.sampled_from([0.0, 0.9, 0.998]),
        ),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_chosen_members_of_any_networks_are_one_file(
    n_classes: int | None,
    networks: list[tuple[str, int, float]],
    seed: int,
    data: st.DataObject,
) -> None:
    torch.manual_seed(seed)
    configs = [
        replace(
            SMALL,
            variant=variant,
            k=k,
            rank=k,
            d_block=8 + 4 * k,
            n_blocks=1 + k % 2,
            ema=ema,
        )
        for variant, k, ema in networks
    ]
    mixed, x_num, x_cat = make_mixed(configs, n_classes)
    chosen = data.draw(
        st.lists(st.integers(0, mixed.k - 1), min_size=1, unique=True), label="chosen"
    )
    selected = select_members(mixed, chosen)
    assert selected.k == len(chosen)
    content = to_onnx(selected)
    check_onnx(selected, content, x_num, x_cat)

    chosen = sorted(chosen)
    predictor = Predictor(content)
    mean, members = predictor.run(x_num, x_cat)
    _, before = answer(mixed, x_num, x_cat)
    scale = mixed.preprocessor.y_std_
    np.testing.assert_allclose(members, before[:, chosen], atol=2e-5 * scale)
    np.testing.assert_allclose(mean, before[:, chosen].mean(1), atol=2e-5 * scale)

    # Every member is where it says.
    origins = predictor.metadata["members"]
    trials = [each["trial"] for each in predictor.metadata["networks"]]
    found = [(trials[o["network"]] - 10, o["member"]) for o in origins]
    first = np.cumsum([0, *(c.k for c in configs)])
    assert [first[network] + member for network, member in found] == chosen
    check_reports(selected, predictor, x_num, x_cat)


def check_reports(
    selected: Ensemble, predictor: Predictor, x_num: np.ndarray, x_cat: np.ndarray
) -> None:
    """They are of the chosen members, and what they say is what the file answers."""
    n_classes = len(selected.schema.classes or ())
    rows = np.arange(len(x_num))
    y = rows % n_classes if n_classes else 5 + 0.1 * rows
    parts: Parts = {"train": rows[:30], "val": rows[30:45], "test": rows[45:]}
    run = Run.of_file(
        predictor,
        x_num,
        x_cat,
        y,
        parts,
        config=selected.config,
        n_parameters=selected.n_parameters,
        training=selected.training,
    )
    reports = make_reports(run).to_json()
    json.dumps(reports, allow_nan=False)
    diversity, report = reports["diversity"], reports["report"]
    k = selected.k
    assert diversity["k"] == report["k"] == k
    assert report["n_parameters"] == sum(f.model.n_parameters for f in selected.fits)
    mean, members = predictor.run(x_num[45:], x_cat[45:])
    name = "accuracy" if n_classes else "rmse"
    score = getattr(metrics, name)
    scores = report["scores"]["test"]
    assert scores["ensemble"][name] == pytest.approx(score(y[45:], mean), rel=1e-6)
    alone = [score(y[45:], members[:, m]) for m in range(k)]
    assert scores["members"][name] == pytest.approx(alone, rel=1e-6)
    calibration = reports["calibration"]
    if n_classes:
        assert sum(each["count"] for each in calibration["bins"]) == 15
    else:
        spread = float(np.mean(members.astype(float).var(axis=1)))
        expected = pytest.approx(spread, rel=1e-5, abs=1e-9) if k > 1 else None
        assert diversity["ambiguity"]["mean"] == expected
        assert calibration["conformal_intervals"]
    curve = diversity["member_curve"]
    assert (curve is None) == (k == 1)
    if curve is not None:
        assert sorted(curve["order"]) == [*range(k)]


def test_members_of_no_network_are_refused() -> None:
    mixed, _, _ = make_mixed([SMALL, SMALL], None)
    for members in ([], [6], [-1, 0]):
        with pytest.raises(ValueError, match="one or more of 0 to 5"):
            select_members(mixed, members)


def test_a_choice_of_a_choice_knows_its_origins() -> None:
    mixed, _, _ = make_mixed([SMALL, replace(SMALL, k=4)], 2)
    once = select_members(mixed, [1, 2, 4, 6])
    assert [(o.network, o.member) for o in once.origins] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 3),
    ]
    twice = select_members(once, [3])
    assert [(o.network, o.member) for o in twice.origins] == [(0, 3)]
    assert twice.fit.trial == 11 and twice.config.k == 1
