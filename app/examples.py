"""Answers as the OpenAPI document shows them; the tests hold them against the types."""

from dataclasses import asdict
from typing import Any

from lometab import comparison
from lometab.comparison import compare_cells
from lometab.metrics import N_BINS
from lometab.outcome import Measures, Outcome
from lometab.report import DEFINITIONS
from lometab.space import PAPER_SPACE

JOB = "job_0123456789ab"


def _head(task: str, n_rows: int, *defined: str) -> dict[str, Any]:
    return {
        "version": 1,
        "job_id": JOB,
        "task": task,
        "split": "test",
        "n_rows": n_rows,
        "definitions": {name: DEFINITIONS[name] for name in defined},
    }


_ADVICE = (
    "the members differ as in the cells where the paper's ensembles do best; compare "
    "neighbouring sigma_init by validation score"
)

DIVERSITY: dict[str, Any] = {
    "classification": {
        "summary": "Two members and two classes",
        "value": {
            **_head("binary", 2000, "pairwise_kl", "disagreement"),
            "k": 2,
            "pairwise_kl": {"mean": 0.031, "matrix": [[0.0, 0.031], [0.031, 0.0]]},
            "disagreement": {"mean": 0.04, "matrix": [[0.0, 0.04], [0.04, 0.0]]},
            "trajectory": [
                {"epoch": 1, "pairwise_kl": 0.012},
                {"epoch": 2, "pairwise_kl": 0.027},
            ],
            "trajectory_split": "val",
            "regime": "active",
            "advice": _ADVICE,
        },
    },
    "regression": {
        "summary": "Two members and a number",
        "value": {
            **_head("regression", 1300, "ambiguity", "squared_difference"),
            "k": 2,
            "ambiguity": {"mean": 0.02, "normalized": 0.026},
            "squared_difference": {
                "mean": 0.08,
                "matrix": [[0.0, 0.08], [0.08, 0.0]],
            },
            "trajectory": [{"epoch": 1, "ambiguity": 0.011}],
            "trajectory_split": "val",
            "regime": "active",
            "advice": _ADVICE,
        },
    },
}


def _bins(confidence: float, accuracy: float) -> list[dict[str, Any]]:
    """All rows in the last bin but one."""
    return [
        {
            "lower": m / N_BINS,
            "upper": (m + 1) / N_BINS,
            "count": 2000 if m == N_BINS - 2 else 0,
            "confidence": confidence if m == N_BINS - 2 else None,
            "accuracy": accuracy if m == N_BINS - 2 else None,
        }
        for m in range(N_BINS)
    ]


CALIBRATION: dict[str, Any] = {
    "classification": {
        "summary": "An ensemble that was a little too sure",
        "value": {
            **_head("binary", 2000, "ece", "temperature", "conformal_sets"),
            "ece": 0.03,
            "n_bins": N_BINS,
            "bins": _bins(0.89, 0.86),
            "brier": 0.212,
            "nll": 0.345,
            "temperature": 1.23,
            "temperature_fit": {
                "split": "val",
                "n_rows": 1600,
                "nll_before": 0.339,
                "nll_after": 0.334,
                "ece_before": 0.028,
                "ece_after": 0.011,
            },
            "calibrated": {
                "ece": 0.01,
                "bins": _bins(0.87, 0.86),
                "brier": 0.209,
                "nll": 0.339,
            },
            "conformal_sets": [
                {
                    "coverage": 0.9,
                    "measured": 0.904,
                    "standard_error": 0.0101,
                    "mean_size": 1.09,
                }
            ],
        },
    },
    "regression": {
        "summary": "Intervals round a number",
        "value": {
            **_head("regression", 1300, "conformal_intervals", "member_intervals"),
            "sharpness": 2.1,
            "conformal_intervals": [
                {
                    "coverage": 0.9,
                    "measured": 0.893,
                    "standard_error": 0.0125,
                    "mean_width": 2.1,
                    "relative_width": 2.4,
                }
            ],
            "member_intervals": [
                {
                    "coverage": 0.9,
                    "measured": 0.31,
                    "standard_error": 0.0083,
                    "mean_width": 0.5,
                    "relative_width": 0.57,
                }
            ],
        },
    },
}

_SCORES = {
    "n_rows": 1300,
    "ensemble": {"rmse": 0.6, "mae": 0.45, "r2": 0.52},
    "members": {"rmse": [0.62, 0.61], "mae": [0.46, 0.46], "r2": [0.49, 0.5]},
}

REPORT: dict[str, Any] = {
    **_head("regression", 1300, "decomposition", "error_detection"),
    "k": 2,
    "n_parameters": 12345,
    "scores": {"train": _SCORES, "val": _SCORES, "test": _SCORES},
    "decomposition": {
        "loss": "squared error",
        "ensemble_error": 0.36,
        "member_error": 0.38,
        "ambiguity": 0.02,
        "residual": 0.0,
        "holds": True,
    },
    "risk_coverage": {
        "uncertainty": "std",
        "loss": "squared error",
        "coverage": [0.01, 0.5, 1.0],
        "risk": [0.12, 0.27, 0.36],
        "area": 0.26,
    },
    "error_detection": [{"uncertainty": "std", "auroc": 0.66, "aurc": 0.26}],
    "confusion": None,
    "by_seed": [],
    "baselines": [
        {
            "name": name,
            "k": 2,
            "n_parameters": n_parameters,
            "seconds": 58.2,
            "n_seeds": 1,
            "metric": "rmse",
            "score": score,
            "std": None,
            "delta_percent": delta,
            "ece": None,
            "diversity": 0.02,
        }
        for name, n_parameters, score, delta in (
            ("lometab", 20432, 0.6, None),
            ("tabm", 19010, 0.612, -2.0),
        )
    ],
    "training": {
        "best_epoch": 31,
        "best_score": 0.61,
        "epochs": 47,
        "seconds": 58.2,
        "stopped_early": False,
    },
    "timings": {
        "preparing": 2.1,
        "training": 58.9,
        "exporting": 1.4,
        "evaluating": 0.8,
    },
    "versions": {"python": "3.11.9", "lometab": "0.1.0", "torch": "2.6.0"},
    "seeds": {"split": 0, "training": 0},
}

ROWS: dict[str, Any] = {
    "rows": {
        "summary": "An object for each row",
        "value": {"rows": [{"alcohol": 9.4, "pH": 3.51}], "coverage": 0.9},
    },
    "matrix": {
        "summary": "The names once",
        "value": {"columns": ["alcohol", "pH"], "data": [[9.4, 3.51], [9.8, None]]},
    },
}

PREDICTIONS: dict[str, Any] = {
    "classification": {
        "summary": "Two members and two classes",
        "value": {
            "model_id": "mdl_0123456789ab",
            "task": "binary",
            "k": 2,
            "classes": ["bad", "good"],
            "calibrated": False,
            "coverage": 0.9,
            "warnings": [],
            "predictions": [
                {
                    "mean": [0.2, 0.8],
                    "label": "good",
                    "members": [[0.25, 0.75], [0.15, 0.85]],
                    "entropy": 0.5,
                    "mutual_information": 0.008,
                    "disagreement": 0.0,
                    "set": ["good"],
                }
            ],
        },
    },
    "regression": {
        "summary": "Two members and a number",
        "value": {
            "model_id": "mdl_0123456789ab",
            "task": "regression",
            "k": 2,
            "classes": None,
            "calibrated": False,
            "coverage": 0.9,
            "warnings": ["columns not used: 'vintage'"],
            "predictions": [
                {
                    "mean": 5.6,
                    "members": [5.5, 5.7],
                    "std": 0.1,
                    "interval": [4.55, 6.65],
                }
            ],
        },
    },
}


def _outcome(score: float, ece: float, diversity: float, seconds: float) -> Outcome:
    part = Measures(score=score, ece=ece, diversity=diversity, disagreement=0.04)
    return Outcome(
        metric="accuracy",
        val=part,
        test=part,
        k=16,
        n_parameters=167184,
        best_epoch=21,
        epochs=37,
        seconds=seconds,
    )


_SUCCEEDED = {"status": "succeeded"}
_OUTCOMES = [_outcome(0.861, 0.021, 0.001, 9.1), _outcome(0.866, 0.014, 0.031, 9.4)]
SWEEP: dict[str, Any] = {
    "job_id": JOB,
    "status": "succeeded",
    "n_runs": 2,
    "counts": {"succeeded": 2},
    "runs": [
        [{"job_id": f"job_{i}123456789ab", "seed": 0, **_SUCCEEDED}] for i in range(2)
    ],
    "comparison": asdict(
        compare_cells(
            [{"sigma_init": 0.1}, {"sigma_init": 1.0}], [[each] for each in _OUTCOMES]
        )
    ),
    "definitions": comparison.DEFINITIONS,
}
TUNE: dict[str, Any] = {
    "job_id": JOB,
    "status": "succeeded",
    "metric": "accuracy",
    "space": {"rank": asdict(PAPER_SPACE["rank"]), "lr": asdict(PAPER_SPACE["lr"])},
    "trials": [
        {
            "trial": i,
            "job_id": f"job_{i}123456789ab",
            "status": "succeeded",
            "is_pruned": False,
            "settings": {"rank": rank, "lr": lr},
            "outcome": asdict(outcome),
        }
        for i, (rank, lr, outcome) in enumerate(
            zip([2, 8], [3e-4, 1e-3], _OUTCOMES, strict=True)
        )
    ],
    "best": 1,
    "best_settings": {"rank": 8, "lr": 1e-3},
    "finalists": [
        {
            "trial": i,
            "runs": [
                {"job_id": f"job_{i + at}123456789ab", "seed": seed, **_SUCCEEDED}
                for seed, at in enumerate([0, 3])
            ],
            "score": {"mean": score, "std": 0.001},
        }
        for i, score in enumerate([0.860, 0.867])
    ],
    "importances": {"lr": 0.8, "rank": 0.2},
    "parallel_coordinates": [
        {"name": "trial", "values": [0, 1]},
        {"name": "rank", "values": [2, 8]},
        {"name": "lr", "values": [3e-4, 1e-3]},
        {"name": "score", "values": [0.861, 0.866]},
    ],
    "refit_job_id": "job_2123456789ab",
    "model_id": "mdl_0123456789ab",
}
RANKS: dict[str, Any] = {
    "jobs": {JOB: "adult.csv"},
    "methods": [
        {"method": "sigma_init=1.0", "mean_rank": 1.0, "ranks": {JOB: 1}},
        {"method": "sigma_init=0.1", "mean_rank": 2.0, "ranks": {JOB: 2}},
    ],
}
