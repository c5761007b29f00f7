"""What controlled diversity is good for: errors, widths and shifts, found or not.

    python benchmarks/uncertainty.py [--datasets ...] [--arms ...] [--seeds 0 1 2 3 4]
    python benchmarks/uncertainty.py --report

A run trains one arm on one set with one seed and is stored at once; what is stored is
not run again, so processes with other seeds can work at the same time. A run tells
which version of the measures it has (`MEASURES`); others are no part of the study. The
page `docs/diversity.md` is written from the stored runs alone (`uncertainty_page.py`).
The recipe is the default preset's in a smaller network, and at most 5000 training rows
of a set are seen: 16 members and five seeds then take two hours of one core.
"""

import argparse
import math
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from record import ROOT, Runs
from second_signal import compare
from suite_sets import TARGETS, load
from tables import DATA
from uncertainty_page import make_page

from lometab.config import PRESETS, TrainConfig
from lometab.ensemble import Ensemble, answer, prepare
from lometab.evaluation import metrics
from lometab.table import Parts, Split, features, read_numbers, split_rows, target

PAGE = ROOT / "docs" / "diversity.md"
Array = NDArray[Any]
MEASURES = 2
"""The version of what a run measures; one more whenever that changes."""
MAX_TRAIN, MAX_VAL, MAX_TEST = 5000, 2000, 4000
K = 16
STEPS = (0.1, 0.3, 1.0, 3.0, 9.0)
"""Values of sigma_init^2 sqrt(rank), at rank 8: five steps of diversity."""
RANK = 8
NETWORK: dict[str, Any] = {
    **PRESETS["default"],
    "k": K,
    "n_blocks": 2,
    "d_block": 96,
    "n_bins": 32,
    "bin_edges": "quantile",
    "d_embedding": 12,
    "lr": 2e-3,
    "max_epochs": 60,
    "patience": 10,
    "share_batches": True,
}
"""The recipe of the default preset when the runs were made, in a network that costs a
fifth of its own."""

ARMS: dict[str, dict[str, Any]] = {
    **{
        f"lometab {step:g}": {
            "rank": RANK,
            "sigma_init": math.sqrt(step / math.sqrt(RANK)),
        }
        for step in STEPS
    },
    "tabm": {"variant": "tabm"},
    "deep-ensemble": {"variant": "deep-ensemble"},
    "mlp": {"variant": "mlp", "k": 1},
}
CATBOOST = "catboost"
"""Trees with virtual ensembles: prefixes of one model as members."""

SHIFTS: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "bike_sharing_hour": ("instant", lambda x: x > np.quantile(x, 0.7)),
    "california": ("Longitude", lambda x: x > np.quantile(x, 0.7)),
    "adult": ("hours-per-week", lambda x: x > 45),
}
"""Rows that are kept from training by the value of a column, and asked as shifted."""


SEEDS = (0, 1, 2, 3, 4)
N_RUNS = (len(ARMS) + 1) * (len(TARGETS) + len(SHIFTS)) * len(SEEDS)


@cache
def load_parts(
    name: str, is_shifted: bool, data: Path = DATA
) -> tuple[Any, Any, Parts, Array]:
    """Rows of the given split; shifted ones are left out of it and a part of theirs."""
    contents, schema = load(name, data)
    given = split_rows(contents, schema, Split(kind="column", column="part"))
    shifted = np.zeros(len(target(contents, schema)), dtype=bool)
    if is_shifted:
        column, judge = SHIFTS[name]
        shifted = judge(read_numbers(contents[column], column, ()))
    rng = np.random.default_rng(0)
    parts: Parts = {}
    for part, most in (("train", MAX_TRAIN), ("val", MAX_VAL), ("test", MAX_TEST)):
        rows = given[part][~shifted[given[part]]]
        parts[part] = np.sort(rng.permutation(rows)[:most])
    return contents, schema, parts, np.flatnonzero(shifted)[:MAX_TEST]


def measure(
    name: str, arm: str, seed: int, is_shifted: bool, data: Path = DATA
) -> dict[str, Any]:
    contents, schema, parts, shifted = load_parts(name, is_shifted, data)
    x_num, x_cat = features(contents, schema)
    y = target(contents, schema)
    prepared = prepare(contents, schema, parts)
    started_at = time.process_time()
    if arm == CATBOOST:
        ask = train_catboost(schema, x_num, x_cat, y, parts, seed)
    else:
        config = TrainConfig(**{**NETWORK, **ARMS[arm], "seed": seed})
        ensemble = Ensemble(schema, prepared.preprocessor, config, prepared.fit(config))
        ask = lambda rows: answer(ensemble, x_num[rows], x_cat[rows])  # noqa: E731
    found: dict[str, Any] = {"cpu_seconds": round(time.process_time() - started_at, 1)}
    answers = {part: ask(parts[part]) for part in ("val", "test")}
    truth = {part: y[parts[part]] for part in answers}
    found |= (
        judge_numbers(truth, answers)
        if y.dtype.kind == "f"
        else judge_classes(truth, answers)
    )
    if is_shifted:
        fitted = prepared.preprocessor
        assert fitted.novelty_ is not None
        novelty = [
            fitted.novelty_.measure(
                x_num[rows], *fitted.transform(x_num[rows], x_cat[rows])
            )[:, 0]
            for rows in (parts["test"], shifted)
        ]
        found["shift"] = judge_shift(answers["test"], ask(shifted), novelty)
        column, _ = SHIFTS[name]
        found["shifted column"] = column
        found["is a feature"] = column in (*schema.numeric, *schema.categorical)
    found |= {
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    return found


def train_catboost(
    schema: Any, x_num: Array, x_cat: Array, y: Array, parts: Parts, seed: int
) -> Callable[[Array], tuple[Array, Array]]:
    from catboost import CatBoostClassifier, CatBoostRegressor, Pool

    is_regression = schema.classes is None
    kind = CatBoostRegressor if is_regression else CatBoostClassifier
    model = kind(
        random_seed=seed,
        posterior_sampling=True,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
    )
    n_num = x_num.shape[1]

    def pool(rows: Array) -> Any:
        data = np.concatenate([x_num[rows].astype(object), x_cat[rows]], axis=1)
        return Pool(data, y[rows], cat_features=[*range(n_num, data.shape[1])])

    model.fit(pool(parts["train"]), eval_set=pool(parts["val"]))

    def ask(rows: Array) -> tuple[Array, Array]:
        raw = model.virtual_ensembles_predict(
            pool(rows), prediction_type="VirtEnsembles", virtual_ensembles_count=K
        )
        if is_regression:
            members = raw[:, :, 0].astype(np.float64)
            return members.mean(axis=1), members
        p = 1 / (1 + np.exp(-raw[:, :, 0].astype(np.float64)))
        members = np.stack([1 - p, p], axis=2)
        return members.mean(axis=1), members

    return ask


# What is asked of a run


def judge_classes(truth: Any, answers: Any) -> dict[str, Any]:
    y, (mean_, members) = truth["test"], answers["test"]
    wrong = metrics.is_wrong(y, mean_)
    doubts = {"confidence": 1 - mean_.max(axis=1)}
    if members.shape[1] > 1:
        doubts["mutual_information"] = metrics.mutual_information(members)
        doubts["disagreement"] = metrics.disagreement(members)
    found: dict[str, Any] = {"accuracy": metrics.accuracy(y, mean_)}
    for name, doubt in doubts.items():
        found[f"auroc {name}"] = metrics.error_auroc(y, mean_, doubt)
        found[f"aurc {name}"] = metrics.aurc(wrong, doubt)
    if len(doubts) > 1:
        found["signals"] = compare(
            wrong,
            _log_odds(doubts["confidence"]),
            np.log(doubts["mutual_information"] + 1e-9),
        )
        found["diversity"] = metrics.mean_over_pairs(metrics.pairwise_kl(members))
    found["removed"] = _removed(y, members)
    return found


def _log_odds(doubt: Array) -> Array:
    return np.log(doubt + 1e-9) - np.log(1 - doubt + 1e-9)


def judge_numbers(truth: Any, answers: Any) -> dict[str, Any]:
    y, (mean_, members) = truth["test"], answers["test"]
    found: dict[str, Any] = {"rmse": metrics.rmse(y, mean_)}
    spread = metrics.member_std(members)
    if spread is None:
        return found
    val = metrics.member_std(answers["val"][1])
    offset, ratio = metrics.fit_offset(truth["val"], answers["val"][0], val)
    found["removed"] = _removed(y, members)
    found["diversity"] = metrics.ambiguity(members) / float(np.var(y))
    errors = metrics.conformal_scores(y, mean_)
    found["auroc spread"] = metrics.large_error_auroc(y, mean_, spread)
    found["aurc spread"] = metrics.aurc(errors, spread) / float(errors.mean())
    if offset is None:
        return found
    scaled = errors / (spread + offset)
    width = np.quantile(scaled, 0.9) * (spread + offset)
    constant = np.quantile(errors, 0.9)
    hardest = spread >= np.quantile(spread, 0.9)
    return found | {
        "width val": ratio,
        "width": float(width.mean() / constant),
        "worst decile width": float(width[hardest].mean() / constant),
        "worst decile scaled": float(np.mean(errors[hardest] <= width[hardest])),
        "worst decile constant": float(np.mean(errors[hardest] <= constant)),
    }


def _removed(y: Array, members: Array) -> float | None:
    if members.shape[1] < 2:
        return None
    errors = metrics.row_errors(y, members)
    return float(1 - errors.ensemble.mean() / errors.members.mean())


def judge_shift(
    before: Any, after: Any, novelty: list[Array]
) -> dict[str, tuple[float, float]]:
    """How well each measure tells shifted rows from others: AUROC, standard error."""
    doubts: dict[str, list[Array]] = {"novelty": novelty}
    if before[0].ndim == 1:
        if before[1].shape[1] > 1:
            doubts["spread"] = [metrics.member_std(each[1]) for each in (before, after)]
    else:
        doubts["confidence"] = [1 - each[0].max(axis=1) for each in (before, after)]
        if before[1].shape[1] > 1:
            doubts["mutual_information"] = [
                metrics.mutual_information(each[1]) for each in (before, after)
            ]
    return {name: auroc_of(*pair) for name, pair in doubts.items()}


def auroc_of(before: Array, after: Array) -> tuple[float, float]:
    """Of rows after from rows before, with its standard error over rows (DeLong)."""
    shares = [
        (np.searchsorted(ordered, own) + np.searchsorted(ordered, own, side="right"))
        / (2 * len(ordered))
        for own, ordered in ((after, np.sort(before)), (before, np.sort(after)))
    ]
    error = math.sqrt(sum(each.var(ddof=1) / len(each) for each in shares))
    return float(shares[0].mean()), error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*TARGETS]
    arms = [*ARMS, CATBOOST]
    parser.add_argument("--datasets", nargs="+", choices=names, default=names)
    parser.add_argument("--arms", nargs="+", choices=arms, default=arms)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--report", action="store_true", help="write the page only")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = Runs("uncertainty")
    if not arguments.report:
        for seed in arguments.seeds:  # every set and arm once, then again
            for name in arguments.datasets:
                for is_shifted in (False, True)[: 1 + (name in SHIFTS)]:
                    for arm in arguments.arms:
                        run(runs, name, arm, seed, is_shifted, arguments.data)
    stored = Runs("uncertainty")  # those of other processes among them
    own = [(key, result) for key, result in stored if key.get("measures") == MEASURES]
    arguments.page.write_text(make_page(own, N_RUNS, MAX_TRAIN, NETWORK))
    print(f"wrote {arguments.page}")


def run(
    runs: Runs, name: str, arm: str, seed: int, is_shifted: bool, data: Path
) -> None:
    key = {"dataset": name, "arm": arm, "seed": seed, "shifted": is_shifted}
    key["measures"] = MEASURES
    result = runs.get(key, lambda: measure(name, arm, seed, is_shifted, data))
    print(name, arm, seed, is_shifted, result["cpu_seconds"], flush=True)


if __name__ == "__main__":
    main()
