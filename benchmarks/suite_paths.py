"""One training run, many endings: averages of the weights and rules to stop by.

    python benchmarks/suite_paths.py --stage tiny|small|large [--seeds 0] [--runs N]
    python benchmarks/suite_paths.py --report

An average of the weights looks on and changes no step, and neither does the rule that
chooses the epoch. So one run answers for all of them at little more than its own cost:
it goes on until every rule has run out of patience. Stored in `suite_paths.jsonl`;
decided on the suite's decision rows.
"""

import argparse
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

import torch
from contenders import DEEP, Rows, _answers
from record import Runs, former, table
from suite import Paired, _gain, _loss, _scores, interval
from suite_sets import STAGES, TARGETS, StageName, load_rows
from tables import DATA
from torch import Tensor

from lometab.checkpoint import Progress
from lometab.config import TrainConfig
from lometab.errors import TrainingDiverged
from lometab.evaluation import choose_members
from lometab.nn import LoMETab
from lometab.optimizer import AdamW
from lometab.table import target
from lometab.train import _average_, predict

DECAYS = {"last": 0.0, "ema 0.998": 0.998}
RULES = ("score", "nll")
PATIENCE = (16, 8)
BASE = ("default", "last, score, 16")

CALM = {**DEEP, "sigma_init": 1.0}
RECIPES: dict[str, dict[str, Any]] = {
    "default": {},
    "deep": DEEP,
    "deep, sigma 1": CALM,
    "deep, sigma 0.5": {**DEEP, "sigma_init": 0.5},
    "deep, sigma 1, by feature": {**CALM, "mask_init": "feature"},
    "deep, by feature": {**DEEP, "mask_init": "feature"},
    "deep, sigma 1, by feature, lr 2e-3": {**CALM, "mask_init": "feature", "lr": 2e-3},
    "deep, sigma 1, by feature, 16 bins": {
        **CALM,
        "mask_init": "feature",
        "n_bins": 16,
    },
    "deep, sigma 1, by feature, he": {
        **CALM,
        "mask_init": "feature",
        "weight_init": "he",
    },
    "deep, sigma 1, he": {**CALM, "weight_init": "he"},
    "deep, sigma 1, lr 2e-3": {**CALM, "lr": 2e-3},
    "deep, sigma 1, lr 5e-4": {**CALM, "lr": 5e-4},
    "deep, sigma 1, no decay of masks": {**CALM, "decay_masks": False},
    "deep, sigma 1, 192 wide": {**CALM, "d_block": 192},
    "deep, sigma 1, 16 bins": {**CALM, "n_bins": 16},
    "deep, sigma 1, rank 4": {**CALM, "rank": 4},
    "deep, sigma 1, shared batches": {**CALM, "share_batches": True},
    "deep, dropout 0.1": {**DEEP, "dropout": 0.1},
    "deep, dropout 0.2": {**DEEP, "dropout": 0.2},
    "deep, lr 5e-4": {**DEEP, "lr": 5e-4},
    "deep, sigma 1, dropout 0.1": {**DEEP, "sigma_init": 1.0, "dropout": 0.1},
    "tabm": {"variant": "tabm"},
    "tabm, deep": {**DEEP, "variant": "tabm"},
    "sigma 2": {"sigma_init": 2.0},
    "dropout 0.2": {"dropout": 0.2},
    "dropout 0": {"dropout": 0.0},
    "lr 5e-4": {"lr": 5e-4},
    "by feature": {"mask_init": "feature"},
    "he": {"weight_init": "he"},
    "no decay of masks": {"decay_masks": False},
    "decay 0.01": {"weight_decay": 0.01},
    "n_bins 16": {"n_bins": 16},
}


@dataclass
class Ending:
    """A rule and how far it got."""

    decay: str
    rule: str
    patience: int
    best: float = float("inf")
    best_epoch: int = 0
    end: int | None = None
    """The epoch at which patience ran out."""
    weights: dict[str, Tensor] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.decay}, {self.rule}, {self.patience}"

    def see(self, epoch: int, loss: float, model: LoMETab) -> None:
        if self.end is not None:
            return
        if loss < self.best:
            self.best, self.best_epoch = loss, epoch
            self.weights = copy.deepcopy(model.state_dict())
        elif epoch - self.best_epoch >= self.patience:
            self.end = epoch


def follow(rows: Rows, config: TrainConfig) -> dict[str, Any]:
    """Train once, and score what each ending would have kept."""
    prepared = rows.prepared
    is_regression = prepared.schema.task == "regression"
    rules = RULES[:1] if is_regression else RULES
    endings = [Ending(d, r, p) for d in DECAYS for r in rules for p in PATIENCE]
    models: dict[str, LoMETab] = {}
    n_steps = 0

    def watch(model: LoMETab) -> None:
        models.update({d: copy.deepcopy(model) for d in DECAYS if DECAYS[d]})
        models["last"] = model

    def step_and_average(optimizer: AdamW) -> None:
        nonlocal n_steps
        step(optimizer)
        n_steps += 1
        for name, decay in DECAYS.items():
            if decay:
                _average_(models[name], models["last"], n_steps, decay)

    def on_epoch(progress: Progress) -> bool:
        for name, model in models.items():
            own = [e for e in endings if e.decay == name and e.end is None]
            if own:
                answer = _ask(model, prepared, "val").mean(1)
                y = prepared.targets["val"]
                losses = {"nll": _loss(y, answer), "score": _loss(y, answer)}
                if not is_regression:
                    losses["score"] = -_scores(y, answer)["accuracy"]
                for ending in own:
                    ending.see(progress.epoch, losses[ending.rule], model)
        return all(ending.end is not None for ending in endings)

    step = AdamW.step
    with mock.patch.object(AdamW, "step", step_and_average):
        fit = prepared.fit(config, prepare=watch, on_epoch=on_epoch)
    return {
        "epochs": len(fit.history),
        "seconds": round(fit.seconds, 1),
        "n_train": len(rows.parts["train"]),
        "endings": {e.name: _judge(e, fit.model, rows) for e in endings},
    }


def _ask(model: LoMETab, prepared: Any, part: str) -> Any:
    x = prepared.parts[part]
    outputs = predict(model, torch.from_numpy(x.x_num), torch.from_numpy(x.x_cat))
    return _answers(outputs, prepared)


def _judge(ending: Ending, model: LoMETab, rows: Rows) -> dict[str, Any]:
    model.load_state_dict(ending.weights)
    y = target(rows.table, rows.prepared.schema)
    answers = {part: _ask(model, rows.prepared, part) for part in ("val", "decision")}
    chosen = choose_members(y[rows.parts["val"]], answers["val"])
    result: dict[str, Any] = {
        "best_epoch": ending.best_epoch,
        "epochs": ending.end,
        "n_chosen": len(chosen),
    }
    for part, answer in answers.items():
        truth = y[rows.parts[part]]
        result[part] = _scores(truth, answer.mean(1))
        result[f"{part} of chosen"] = _scores(truth, answer[:, chosen].mean(1))
    return result


def plan(
    runs: Runs, stage: StageName, seeds: list[int], recipes: list[str]
) -> Iterator[dict[str, Any]]:
    done = {tuple(sorted(k.items())) for k, _ in runs}
    for seed in seeds:
        for recipe in recipes:
            for name in TARGETS:
                key = {"stage": stage, "dataset": name, "recipe": recipe, "seed": seed}
                if tuple(sorted(key.items())) not in done:
                    yield key


def make(runs: Runs, key: dict[str, Any], data: Path) -> None:
    stage: StageName = key["stage"]
    k = STAGES[stage].k
    config = former(
        **{
            **({} if k is None else {"k": k}),
            **RECIPES[key["recipe"]],
            "seed": key["seed"],
            "patience": None,
            "max_epochs": 120,
        }
    )
    rows = load_rows(key["dataset"], stage, data)
    try:
        result = follow(rows, config)
    except TrainingDiverged as error:
        result = {"failed": str(error)}
    runs.get(key, lambda: result)
    print(*key.values(), result.get("epochs"), result.get("seconds"), "s", flush=True)


# The report


Found = dict[tuple[str, int, str], dict[str, Any]]
"""The endings of each data set, seed and recipe."""


def collect(stage: str) -> Found:
    """Runs of this stage; CatBoost's of the suite are a recipe with one ending."""
    found: Found = {
        (k["dataset"], k["seed"], k["recipe"]): r["endings"]
        for k, r in Runs("suite_paths")
        if k["stage"] == stage and "endings" in r
    }
    for k, r in Runs("suite"):
        if k["stage"] == stage and k["contender"] == "catboost":
            found[k["dataset"], k["seed"], "catboost"] = {BASE[1]: r}
    return found


def paired(
    found: Found, recipe: str, ending: str, part: str, *, soft: bool, base: str
) -> Paired:
    """The recipe and ending against the base as it is: the last weights, by score."""
    gains: Paired = {}
    plain = part.removesuffix(" of chosen")
    for (name, seed, own), endings in sorted(found.items()):
        reference = found.get((name, seed, base))
        if own == recipe and reference is not None:
            result = _ending(endings, ending)[part]
            gain = _gain(result, reference[BASE[1]][plain], soft=soft)
            gains.setdefault(name, []).append(gain)
    return gains


def _ending(endings: dict[str, Any], name: str) -> dict[str, Any]:
    """For regression, a rule by NLL is the rule by score."""
    result: dict[str, Any] = endings[
        name if name in endings else name.replace("nll", "score")
    ]
    return result


def report(found: Found, base: str, patience: int | None) -> str:
    rows = []
    names = [f"{d}, {r}, {p}" for d in DECAYS for r in RULES for p in PATIENCE]
    names = [n for n in names if patience is None or n.endswith(f", {patience}")]
    for recipe in RECIPES:
        for name in names:
            for chosen in ("", " of chosen"):
                part = f"decision{chosen}"
                hard, soft = (
                    paired(found, recipe, name, part, soft=s, base=base)
                    for s in (False, True)
                )
                if hard:
                    val = paired(found, recipe, name, "val", soft=False, base=base)
                    rows.append((soft, [recipe, f"{name}{chosen}"], hard, val))
    rows.sort(key=lambda row: -_mean(row[0]))
    header = [
        f"against {base}",
        "average, rule, patience",
        "n",
        "RMSE, accuracy: % better",
    ]
    header += ["RMSE, NLL: % better", "sets better", "on validation"]
    return table(
        header,
        [
            [
                *name,
                f"{len(hard)} sets, {sum(map(len, hard.values()))} runs",
                _show(hard),
                _show(soft),
                f"{sum(mean(v) > 0 for v in soft.values())}",
                f"{_mean(val):+.2f}",
            ]
            for soft, name, hard, val in rows
        ],
    )


def _mean(gains: Paired) -> float:
    return mean(mean(values) for values in gains.values())


def _show(gains: Paired) -> str:
    low, high = interval(gains, 2000)
    return f"{_mean(gains):+.2f} [{low:+.2f}, {high:+.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", choices=["tiny", "small", "large"], default="small")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=[*RECIPES])
    parser.add_argument("--runs", type=int, help="end after so many runs")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--base", choices=[BASE[0], "catboost"], default=BASE[0])
    parser.add_argument("--patience", type=int, choices=PATIENCE, help="only this one")
    arguments = parser.parse_args()
    runs = Runs("suite_paths")
    if arguments.report:
        found = collect(arguments.stage)
        print(report(found, arguments.base, arguments.patience))
        return
    torch.set_num_threads(1)
    left = [*plan(runs, arguments.stage, arguments.seeds, arguments.recipes)]
    for key in left[: arguments.runs]:
        make(runs, key, arguments.data)


if __name__ == "__main__":
    main()
