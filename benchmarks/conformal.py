"""How honest intervals, sets and probabilities are: coverage, NLL and ECE.

    python benchmarks/conformal.py [--datasets california churn ...] [--seeds 0 1]

Small ensembles are trained, exported and asked as the service asks them. What was
fitted on validation rows is measured on test rows. Finished runs are stored.
"""

import argparse
import math
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from record import Runs, former, progress_line, show, table, write_section
from tables import DATA, Data, load

from lometab.config import TrainConfig
from lometab.ensemble import train_ensemble
from lometab.evaluation import metrics
from lometab.export import calibrate_on, export
from lometab.predictor import Predictor
from lometab.table import Split, features, infer_schema, read_csv, split_rows, target

COVERAGES = (0.5, 0.8, 0.9, 0.95)
CALIBRATION = ("NLL, val", "ECE, val", "NLL, test", "ECE, test")
DATASETS = ("california", "churn", "adult", "wine_quality")
CONFIG = former(
    k=8,
    rank=4,
    n_blocks=2,
    d_block=64,
    n_bins=16,
    d_embedding=8,
    dropout=0.0,
    lr=2e-3,
    max_epochs=25,
    patience=8,
    share_batches=True,
)


def load_any(name: str) -> Data:
    """The sets of the other benchmarks, and wine ratings as seven classes."""
    if name != "wine_quality":
        return load(name)
    rows = read_csv((DATA / f"{name}.csv").read_bytes())
    schema = infer_schema(rows, target="quality", task="multiclass")
    parts = split_rows(rows, schema, Split(val=0.2, test=0.3))
    return Data(name, rows, schema, parts, target(rows, schema))


def measure(name: str, config: TrainConfig) -> dict[str, Any]:
    data = load_any(name)
    line = progress_line(name)
    ensemble = train_ensemble(
        data.table, data.schema, data.parts, config, on_epoch=line
    )
    x_num, x_cat = features(data.table, data.schema)
    train, val = data.parts["train"][:1000], data.parts["val"]
    content = export(
        ensemble,
        x_num[train],
        x_cat[train],
        calibrate=calibrate_on(x_num[val], x_cat[val], data.y[val]),
    )
    predictor = Predictor(content)
    answers = {
        part: predictor.run(x_num[data.parts[part]], x_cat[data.parts[part]])
        for part in ("val", "test")
    }
    truth = {part: data.y[data.parts[part]] for part in answers}
    return {
        "task": data.schema.task,
        "n_val": len(truth["val"]),
        "n_test": len(truth["test"]),
        "coverages": [
            cover(predictor, truth["test"], answers["test"], coverage)
            for coverage in COVERAGES
        ],
        "calibration": None
        if data.schema.classes is None
        else calibrate(predictor, truth, answers),
        "seconds": round(ensemble.fit.seconds, 1),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def cover(
    predictor: Predictor, y: Any, answers: tuple[Any, Any], coverage: float
) -> dict[str, float]:
    """Share of rows whose interval or set, as it is served, holds the truth."""
    prediction = predictor.describe(*answers, coverage=coverage)
    if prediction.interval is not None:
        lower, upper = prediction.interval.T
        measured = np.mean((lower <= y) & (y <= upper))
        size = np.mean(upper - lower)
    else:
        assert prediction.set is not None and predictor.classes is not None
        labels = [predictor.classes[c] for c in y]
        pairs = zip(labels, prediction.set, strict=True)
        measured = np.mean([label in chosen for label, chosen in pairs])
        size = np.mean([len(chosen) for chosen in prediction.set])
    return {"coverage": coverage, "measured": float(measured), "size": float(size)}


def calibrate(predictor: Predictor, truth: Any, answers: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"temperature": predictor.metadata["temperature"]}
    for part, y in truth.items():
        mean = answers[part][0]
        tempered = predictor.describe(*answers[part], calibrated=True).mean
        for name, score in (("nll", metrics.nll), ("ece", metrics.ece)):
            found[f"{name}_{part}"] = [score(y, mean), score(y, tempered)]
    return found


def standard_error(coverage: float, result: dict[str, Any]) -> float:
    sizes = 1 / result["n_val"] + 1 / result["n_test"]
    return math.sqrt(coverage * (1 - coverage) * sizes)


def section(results: list[tuple[str, int, dict[str, Any]]]) -> str:
    covered, calibrated, off = [], [], []
    for name, seed, result in results:
        cells = []
        for each in result["coverages"]:
            error = standard_error(each["coverage"], result)
            distance = (each["measured"] - each["coverage"]) / error
            off.append(abs(distance))
            cells.append(f"{each['measured']:.1%} ({distance:+.1f}) {each['size']:.2f}")
        kind = "intervals" if result["calibration"] is None else "sets"
        sizes = f"{result['n_val']} / {result['n_test']}"
        covered.append([name, seed, kind, sizes, *cells])
        if (fit := result["calibration"]) is not None:
            pairs = [fit[f"{s}_{p}"] for p in ("val", "test") for s in ("nll", "ece")]
            cells = [f"{before:.4f} → {after:.4f}" for before, after in pairs]
            is_worse = fit["nll_val"][1] > fit["nll_val"][0]
            verdict = "no" if is_worse else "yes"
            row = [name, seed, f"{fit['temperature']:.3f}", *cells, verdict]
            calibrated.append(row)
    n_met = sum(each <= 3 for each in off)
    setting = results[-1][2]
    return "\n".join(
        [
            "## Intervals, sets and temperature\n",
            "`make bench-conformal`. Small ensembles, exported and asked as the "
            "service asks them; what was fitted on validation rows is measured on "
            "test rows. In each cell: the share of test rows whose interval or set "
            "holds the truth, its distance from nominal in standard errors "
            "sqrt(c(1-c)(1/n_val + 1/n_test)), and the mean width (in target units) "
            "or number of classes. The bar is 3 standard errors: "
            f"{n_met} of {len(off)} cells meet it, the farthest is {max(off):.1f} "
            "away.\n",
            table(
                ["data set", "seed", "kind", "rows, val / test"]
                + [f"{coverage:.0%}" for coverage in COVERAGES],
                covered,
            ),
            "Temperature, fitted on validation; before → after. *Met*: the NLL on "
            "validation is not worse.\n",
            table(
                ("data set", "seed", "T", *CALIBRATION, "met"),
                calibrated,
            ),
            f"Settings: {show(CONFIG)}. Measured {setting['date']} with torch "
            f"{setting['torch']}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = Runs("conformal")
    results = []
    for name in arguments.datasets:
        for seed in arguments.seeds:
            config = former(**{**asdict(CONFIG), "seed": seed})
            key = {"dataset": name, "config": asdict(config)}
            result = runs.get(key, lambda n=name, c=config: measure(n, c))
            results.append((name, seed, result))
            print(name, seed, result)
    write_section("conformal", section(results))


if __name__ == "__main__":
    main()
