"""Who takes part in the suite: recipes of our own, CatBoost, and the `tabm` package."""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from record import former
from torch import Tensor

from lometab.config import Task, TrainConfig
from lometab.embedding import compute_bins
from lometab.ensemble import Prepared
from lometab.losses import member_loss, score
from lometab.table import features, target
from lometab.train import Part, predict

Answers = dict[str, NDArray[np.float64]]
"""Of each part: targets `(N, K)`, or probabilities `(N, K, C)`."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What a contender learns from: the table as it is, and as our networks see it."""

    table: dict[str, Any]
    parts: dict[str, NDArray[np.intp]]
    prepared: Prepared


@dataclass(frozen=True, eq=False)
class Trained:
    """What training came to, before anything is scored."""

    answers: Answers
    cpu_seconds: float
    seconds: float
    epochs: int
    best_epoch: int
    n_parameters: int
    settings: dict[str, Any]
    longest_wait: int | None = None
    """Epochs between one best epoch and the next: less patience changes nothing."""


Train = Callable[[Rows, int, int | None], Trained]


@dataclass(frozen=True)
class Contender:
    """A way to train; `reason` says in one line why it might be better."""

    reason: str
    train: Train
    n_fits: int = 1
    """How many runs of the default it costs, before one has been made."""
    twin: str | None = None
    """A contender with all the same settings but the edges of bins: where these are the
    same too, its runs are."""
    networks: Sequence[dict[str, Any]] = ()
    """The settings of each network of our own, where they differ from the former
    default."""


def own(
    reason: str, *, cost: int = 1, twin: str | None = None, **settings: Any
) -> Contender:
    """Settings that differ from the former default."""

    def train(rows: Rows, seed: int, k: int | None) -> Trained:
        return _train_own(rows, _config(settings, seed, k))

    return Contender(reason, train, cost, twin, [settings])


def several(reason: str, n: int, *, by_folds: bool, **settings: Any) -> Contender:
    """The members of several networks, which start from seeds of their own.

    Args:
        by_folds: each network learns from all rows of train and val but for a fold of
            its own, by which it is stopped; else all of them from the same.
    """
    return _join(reason, [settings] * n, by_folds=by_folds)


def mixed(reason: str, *networks: dict[str, Any]) -> Contender:
    """The members of several networks, each with settings and a seed of its own."""
    return _join(reason, networks, by_folds=False)


def _join(
    reason: str, networks: Sequence[dict[str, Any]], *, by_folds: bool
) -> Contender:
    n = len(networks)

    def train(rows: Rows, seed: int, k: int | None) -> Trained:
        folds = _fold(rows.prepared, n, seed) if by_folds else [rows.prepared] * n
        trained = [
            _train_own(rows, _config(settings, n * seed + i, k), fold)
            for i, (settings, fold) in enumerate(zip(networks, folds, strict=True))
        ]
        first = trained[0]
        return replace(
            first,
            answers={
                part: np.concatenate([each.answers[part] for each in trained], 1)
                for part in first.answers
            },
            cpu_seconds=sum(each.cpu_seconds for each in trained),
            seconds=sum(each.seconds for each in trained),
            epochs=round(np.mean([each.epochs for each in trained])),
            best_epoch=round(np.mean([each.best_epoch for each in trained])),
            n_parameters=sum(each.n_parameters for each in trained),
        )

    return Contender(reason, train, n, networks=networks)


def _fold(prepared: Prepared, n: int, seed: int) -> list[Prepared]:
    """Train and val put together and parted anew, once for each fold.

    All keep the preprocessing that was fitted on the train rows. The part `val` of the
    suite is no fair one for them: some have learned from it.
    """
    old = [prepared.parts["train"], prepared.parts["val"]]
    x_num, x_cat, y = (
        np.concatenate([getattr(part, name) for part in old])
        for name in ("x_num", "x_cat", "y")
    )
    fold = np.random.default_rng(seed).permutation(len(y)) % n
    found = []
    for i in range(n):
        train, val = (
            Part(x_num[rows], x_cat[rows], y[rows]) for rows in (fold != i, fold == i)
        )
        parts = {**prepared.parts, "train": train, "val": val}
        found.append(replace(prepared, parts=parts))
    return found


def _config(settings: dict[str, Any], seed: int, k: int | None) -> TrainConfig:
    config = former(**{**({} if k is None else {"k": k}), **settings})
    return replace(config, seed=seed)


def _train_own(
    rows: Rows, config: TrainConfig, prepared: Prepared | None = None
) -> Trained:
    """`prepared` is what to learn from, if that is parted otherwise."""
    started, wall = time.process_time(), time.perf_counter()
    fit = (prepared or rows.prepared).fit(config)
    cpu, wall = time.process_time() - started, time.perf_counter() - wall
    answers = {
        name: _answers(
            predict(fit.model, torch.from_numpy(x.x_num), torch.from_numpy(x.x_cat)),
            rows.prepared,
        )
        for name, x in rows.prepared.parts.items()
        if name != "train"
    }
    return Trained(
        answers,
        cpu,
        wall,
        len(fit.history),
        fit.best_epoch,
        fit.model.n_parameters,
        asdict(config),
        max(np.diff([0, *dict.fromkeys(p.best_epoch for p in fit.history)]).tolist()),
    )


def _answers(outputs: Tensor, prepared: Prepared) -> NDArray[np.float64]:
    outputs = outputs.double()
    if prepared.schema.task == "regression":
        scaler = prepared.preprocessor
        return outputs.squeeze(-1).numpy() * scaler.y_std_ + scaler.y_mean_
    if prepared.schema.task == "multiclass":
        return outputs.softmax(-1).numpy()
    return torch.cat([-outputs, outputs], dim=-1).sigmoid().numpy()


def _train_catboost(rows: Rows, seed: int, _: int | None, *, n_rounds: int) -> Trained:
    """Its defaults, stopped after 50 rounds without a better score."""
    import catboost

    schema = rows.prepared.schema
    x_num, x_cat = features(rows.table, schema)
    y = target(rows.table, schema)

    def pool(part: NDArray[np.intp]) -> Any:
        numbers = np.ascontiguousarray(x_num[part], np.float32)
        texts = [[text.encode() for text in row] for row in x_cat[part]]
        data = catboost.FeaturesData(
            num_feature_data=numbers if x_num.shape[1] else None,
            cat_feature_data=np.array(texts, object) if x_cat.shape[1] else None,
        )
        return catboost.Pool(data, y[part])

    is_regression = schema.classes is None
    kind = catboost.CatBoostRegressor if is_regression else catboost.CatBoostClassifier
    settings = {"iterations": n_rounds, "early_stopping_rounds": 50}
    model = kind(
        random_seed=seed,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
        **settings,
    )
    started, wall = time.process_time(), time.perf_counter()
    model.fit(pool(rows.parts["train"]), eval_set=pool(rows.parts["val"]))
    cpu, wall = time.process_time() - started, time.perf_counter() - wall
    ask = model.predict if is_regression else model.predict_proba
    answers = {
        name: ask(pool(part))[:, None]
        for name, part in rows.parts.items()
        if name != "train"
    }
    best = int(model.get_best_iteration() or 0) + 1
    # Trees after the best one are cut off, so that their count tells no early stop.
    (scores,) = model.get_evals_result()["validation"].values()
    settings["learning_rate"] = round(float(model.learning_rate_), 6)
    return Trained(answers, cpu, wall, len(scores), best, 0, settings)


def _train_tabm_package(rows: Rows, seed: int, k: int | None) -> Trained:
    """The authors' network at its defaults, trained as their example does.

    Piecewise-linear embeddings with our number of bins and width; lr 2e-3, decay 3e-4,
    batches of 256 of each member's own, patience 16.
    """
    import rtdl_num_embeddings
    import tabm

    prepared = rows.prepared
    task: Task = prepared.schema.task
    train, val = prepared.parts["train"], prepared.parts["val"]
    torch.manual_seed(seed)
    embeddings = None
    if train.x_num.shape[1]:
        embeddings = rtdl_num_embeddings.PiecewiseLinearEmbeddings(
            compute_bins(torch.from_numpy(train.x_num), 48),
            d_embedding=16,
            activation=False,
            version="B",
        )
    model = tabm.TabM.make(
        n_num_features=train.x_num.shape[1],
        # An unseen level is a code of its own here: the package knows no zeros.
        cat_cardinalities=[n + 1 for n in prepared.preprocessor.cardinalities_],
        d_out=len(prepared.schema.classes or ()) if task == "multiclass" else 1,
        num_embeddings=embeddings,
        **({} if k is None else {"k": k}),
    )
    started, wall = time.process_time(), time.perf_counter()
    best_epoch, epochs = _fit_package(model, train, val, task)
    cpu, wall = time.process_time() - started, time.perf_counter() - wall
    answers = {
        name: _answers(_ask_package(model, x), prepared)
        for name, x in prepared.parts.items()
        if name != "train"
    }
    n_parameters = sum(p.numel() for p in model.parameters())
    settings = {"lr": 2e-3, "weight_decay": 3e-4, "k": model.k}
    return Trained(answers, cpu, wall, epochs, best_epoch, n_parameters, settings)


def _fit_package(
    model: Any, train: Part, val: Part, task: Task, patience: int = 16
) -> tuple[int, int]:
    """Leaves the best epoch's weights in the model; that epoch, and how many ran."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=3e-4)
    y, y_val = torch.from_numpy(train.y), torch.from_numpy(val.y)
    x_num, x_cat = torch.from_numpy(train.x_num), torch.from_numpy(train.x_cat)
    sign = -1 if task == "regression" else 1
    best, best_epoch, weights = -math.inf, 0, copy.deepcopy(model.state_dict())
    for epoch in range(1, 301):
        model.train()
        orders = torch.stack([torch.randperm(len(y)) for _ in range(model.k)], 1)
        for batch in orders.split(256):
            outputs = model(
                x_num[batch] if x_num.shape[1] else None,
                x_cat[batch] if x_cat.shape[1] else None,
            )
            optimizer.zero_grad()
            member_loss(outputs, y[batch], task).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        reached, _, _ = score(_ask_package(model, val), y_val, task=task, y_std=1.0)
        if sign * reached > best:
            best, best_epoch = sign * reached, epoch
            weights = copy.deepcopy(model.state_dict())
        if epoch - best_epoch >= patience:
            break
    model.load_state_dict(weights)
    return best_epoch, epoch


def _ask_package(model: Any, part: Part) -> Tensor:
    model.eval()
    with torch.inference_mode():
        batches = zip(
            torch.from_numpy(part.x_num).split(1024),
            torch.from_numpy(part.x_cat).split(1024),
            strict=True,
        )
        return torch.cat(
            [
                model(n if n.shape[1] else None, c if c.shape[1] else None)
                for n, c in batches
            ]
        )


DEEP = {"n_blocks": 3, "d_block": 128, "dropout": 0.0, "sigma_init": 2.0}
ENDING = {"ema": 0.998, "stop_on": "nll"}
CALM = {**DEEP, "sigma_init": 1.0, **ENDING}
FEATURE = {**CALM, "mask_init": "feature"}
REFINED = {**FEATURE, "bin_edges": "refined"}

BASE = "default"
CONTENDERS: dict[str, Contender] = {
    BASE: own("the default preset before this suite"),
    "calm-feature": own("calm; a mask starts as one of features", **FEATURE),
    "refined": own(
        "a value that many rows share takes no bins from others",
        twin="calm-feature",
        **REFINED,
    ),
    "catboost": Contender(
        "CatBoost's defaults with early stopping, at most 2000 rounds",
        partial(_train_catboost, n_rounds=2000),
    ),
    "catboost-10000": Contender(
        "the same with at most 10 000 rounds and so smaller steps: never cut off, and "
        "+0.07 % [-0.47, +0.65] on validation rows of the full stage (n 50)",
        partial(_train_catboost, n_rounds=10_000),
    ),
    "tabm-calm": own("TabM with the recipe of calm", variant="tabm", **CALM),
    "tabm-refined": own(
        "TabM with the recipe of refined",
        twin="tabm-calm",
        variant="tabm",
        **{**CALM, "bin_edges": "refined"},
    ),
    "best": own(
        "calm-feature with twice the members, half wider, and more patience",
        cost=4,
        k=32,
        d_block=192,
        patience=32,
        **{name: value for name, value in FEATURE.items() if name != "d_block"},
    ),
    "networks-4-refined": several("refined four times", 4, by_folds=False, **REFINED),
    "networks-4": several(
        "calm-feature four times: errors of networks differ more than those of members",
        4,
        by_folds=False,
        **FEATURE,
    ),
    "folds-4": several(
        "the same, each on another three quarters of train and validation rows",
        4,
        by_folds=True,
        **FEATURE,
    ),
    "tabm": own("rank-1 masks that start at one", variant="tabm"),
    "calm": own("3 x 128, sigma 1, no dropout, averaged, stopped on NLL", **CALM),
    "deep-ema-nll": own(
        "the same with sigma 2: members start further apart", **DEEP, **ENDING
    ),
    "default-ema-nll": own(
        "the default's size; accuracy is coarse, and weights jump", **ENDING
    ),
    "calm-feature-lr": own(
        "smaller steps once the score stalls", lr_patience=5, **FEATURE
    ),
    "calm-feature-nodecay": own(
        "decay pulls members together", decay_masks=False, **FEATURE
    ),
    "calm-feature-he": own(
        "a larger start of W falls faster", weight_init="he", **FEATURE
    ),
    "calm-feature-lr2e-3": own("averaging allows larger steps", lr=2e-3, **FEATURE),
    "calm-feature-share": own(
        "shared batches: the embedding is computed once", share_batches=True, **FEATURE
    ),
    "refined-lr2": own(
        "smaller steps after two epochs without a better score",
        **{**REFINED, "lr_patience": 2},
    ),
    "refined-bins-24": own("fewer bins overfit less", **{**REFINED, "n_bins": 24}),
    "refined-bins-96": own(
        "the paper's networks have twice the bins or more", **{**REFINED, "n_bins": 96}
    ),
    "refined-embedding-24": own(
        "a wider embedding of each number", **{**REFINED, "d_embedding": 24}
    ),
    "refined-rank-16": own(
        "members that can differ in more ways", **{**REFINED, "rank": 16}
    ),
    "refined-rank-4": own("members that share more", **{**REFINED, "rank": 4}),
    "refined-batch-128": own(
        "twice the steps an epoch: few rows have few", **{**REFINED, "batch_size": 128}
    ),
    "refined-dropout": own("dropout, as TabM has it", **{**REFINED, "dropout": 0.1}),
    "refined-wide": own(
        "two layers of 256 in place of three of 128",
        **{**REFINED, "n_blocks": 2, "d_block": 256},
    ),
    "mixed-4": mixed(
        "networks with other settings err otherwise",
        REFINED,
        {**REFINED, "n_bins": 96},
        {**REFINED, "variant": "tabm", "mask_init": "column"},
        {**REFINED, "n_blocks": 2, "d_block": 256},
    ),
    "mixed-start": mixed(
        "a larger start and finer bins are better on some sets and worse on others",
        REFINED,
        {**REFINED, "weight_init": "he"},
        {**REFINED, "n_bins": 96},
        {**REFINED, "weight_init": "he", "n_bins": 96},
    ),
    "mlp": own("one member", variant="mlp"),
    "additive": own("W + AB instead of W * (1 + AB)", variant="additive"),
    "deep-ensemble": own("members that share nothing", variant="deep-ensemble", cost=2),
    "mlp-calm": own("one member, with the recipe", variant="mlp", **CALM),
    "additive-calm": own("W + AB, with the recipe", variant="additive", **CALM),
    "deep-ensemble-calm": own(
        "members that share nothing, with the recipe",
        variant="deep-ensemble",
        cost=2,
        **CALM,
    ),
    "tabm-package": Contender(
        "the authors' package at its default size", _train_tabm_package, n_fits=6
    ),
    "deep": own("3 x 128, sigma 2, no dropout", **DEEP),
    "deep-ema": own("the same, averaged", ema=0.998, **DEEP),
}

DROPPED: dict[str, str] = {
    "deep": "tiny, small: sigma 2 overfits; on few rows worse than the default",
    "deep-ema": "tiny, small: as deep; validation says better, decision rows worse",
    "calm-feature-lr": "small: no effect, as no score that got better waited 5 epochs",
    "best": "large: not better than calm-feature, which costs a fraction of it",
}
"""Clearly worse on the decision rows of a stage: no further runs, with the reason."""
