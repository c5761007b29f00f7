"""Which rows calibrate a model that was chosen among many: coverage on titanic.

    python benchmarks/calibration.py [--splits 50] [--trials 50]

For each random split: so many small ensembles with settings drawn at random (a search
draws better ones as it goes; what matters here is how many are compared), each with the
epoch that validation rows choose, and the best of the first n by the validation score.
Its smallest sets (`lac`, whose coverage has no ties) of 90 % are calibrated on the
validation rows that chose it, and on rows that chose nothing. Finished splits are kept.
"""

import argparse
import math
import time
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from record import Runs, former, table, write_section
from tables import DATA

from lometab.config import TrainConfig
from lometab.ensemble import Ensemble, answer, prepare
from lometab.evaluation import metrics
from lometab.table import Split, features, infer_schema, read_csv, split_rows, target

COVERAGE = 0.9
COUNTS = (1, 5, 10, 25, 50)
BASE = former(
    k=4,
    rank=2,
    n_blocks=1,
    d_block=32,
    n_bins=8,
    d_embedding=4,
    batch_size=64,
    max_epochs=15,
    patience=5,
    share_batches=True,
)


def draw(seed: int) -> TrainConfig:
    """Settings of a trial; the first are the base's own."""
    if seed == 0:
        return BASE
    rng = np.random.default_rng(seed)
    return replace(
        BASE,
        rank=int(rng.choice([1, 2, 4, 8])),
        sigma_init=float(rng.choice([0.1, 0.3, 0.5, 1.0])),
        d_block=int(rng.choice([16, 32, 64])),
        lr=float(10 ** rng.uniform(-3, -1.7)),
        dropout=float(rng.uniform(0, 0.5)),
        n_bins=int(rng.integers(2, 16)),
        seed=seed,
    )


def measure(split_seed: int, n_trials: int) -> dict[str, Any]:
    rows = read_csv((DATA / "titanic.csv").read_bytes())
    schema = infer_schema(rows, target="Survived")
    split = Split(seed=split_seed, calibration=0.1)
    parts = split_rows(rows, schema, split)
    x_num, x_cat = features(rows, schema)
    y = target(rows, schema)
    prepared = prepare(rows, schema, parts)
    started_at = time.perf_counter()
    trials = []
    for trial in range(n_trials):
        config = draw(trial)
        fit = prepared.fit(config)
        ensemble = Ensemble(schema, prepared.preprocessor, config, fit)
        answers = {
            part: answer(ensemble, x_num[parts[part]], x_cat[parts[part]])[0]
            for part in ("val", "calibration", "test")
        }
        trials.append(_judge(answers, {part: y[parts[part]] for part in answers}))
    return {
        "sizes": {part: len(each) for part, each in parts.items()},
        "trials": trials,
        "seconds": round(time.perf_counter() - started_at, 1),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _judge(answers: Any, truth: Any) -> dict[str, float]:
    """The validation score, and the coverage on test by either calibration."""
    found = {
        "accuracy": metrics.accuracy(truth["val"], answers["val"]),
        "nll": metrics.nll(truth["val"], answers["val"]),
        "test accuracy": metrics.accuracy(truth["test"], answers["test"]),
    }
    for part in ("val", "calibration"):
        scores = metrics.conformal_scores(truth[part], answers[part])
        quantile = metrics.conformal_quantile(scores, round(1 - COVERAGE, 2))
        sets = metrics.conformal_set(answers["test"], quantile)
        found[part] = metrics.set_coverage(truth["test"], sets)
    return found


def choose(trials: list[dict[str, float]], score: str) -> dict[str, float]:
    sign = -1 if score == "accuracy" else 1
    return min(trials, key=lambda trial: sign * trial[score])


def section(results: list[dict[str, Any]]) -> str:
    sizes, last = results[-1]["sizes"], results[-1]
    n_trials = min(len(result["trials"]) for result in results)
    rows = []
    for score in ("accuracy", "nll"):
        for count in (n for n in COUNTS if n <= n_trials):
            chosen = [choose(r["trials"][:count], score) for r in results]
            cells = []
            for part in ("val", "calibration"):
                values = [each[part] for each in chosen]
                error = stdev(values) / math.sqrt(len(values))
                off = (mean(values) - COVERAGE) / error
                cells.append(f"{mean(values):.1%} ± {error:.1%} ({off:+.1f})")
            tested = mean(each["test accuracy"] for each in chosen)
            rows.append([score, count, *cells, f"{tested:.1%}"])
    return "\n".join(
        [
            "## Calibration part\n",
            f"`make bench-calibration`. Titanic, {len(results)} random splits "
            f"({sizes['train']} rows train, {sizes['val']} validate, "
            f"{sizes['calibration']} only calibrate, {sizes['test']} test), "
            f"{n_trials} small ensembles on each with settings drawn at random; the "
            "best of the first n by the validation score is calibrated on the "
            "validation rows that chose it, or on rows that chose nothing. Sets of "
            "90 %, `lac`: mean coverage on test over the splits, its standard error, "
            "and its distance from 90 % in these. n = 1 is a training by itself, "
            "whose epoch alone was chosen.\n",
            table(
                [
                    "chosen by",
                    "best of",
                    "by validation rows",
                    "by rows of their own",
                    "test accuracy",
                ],
                rows,
            ),
            f"Measured {last['date']} with torch {last['torch']}, one thread.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--trials", type=int, default=50)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = Runs("calibration")
    results = []
    for seed in range(arguments.splits):
        key = {"split": seed, "trials": arguments.trials}
        result = runs.get(key, lambda s=seed: measure(s, arguments.trials))
        results.append(result)
        print(seed, result["seconds"], flush=True)
    write_section("calibration", section(results))


if __name__ == "__main__":
    main()
