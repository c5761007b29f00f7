"""Answers as the OpenAPI document shows them; the tests hold them against the types."""

from dataclasses import asdict
from typing import Any

from lometab.evaluation import (
    COMPARISON_DEFINITIONS,
    DEFINITIONS,
    Measures,
    Outcome,
    compare_cells,
    metrics,
)
from lometab.space import PAPER_SPACE

JOB = "job_0123456789ab"
SUMMARY = [
    {
        "about": "quality",
        "text": "On 1300 test rows its answers are off by 0.45 on average, and it "
        "explains 52.0 % of the variance (R²).",
        "fields": [
            "report.scores.test.n_rows",
            "report.scores.test.ensemble.mae",
            "report.scores.test.ensemble.r2",
        ],
    }
]


def _head(task: str, n_rows: int, *defined: str) -> dict[str, Any]:
    return {
        "summary": SUMMARY,
        "version": 1,
        "job_id": JOB,
        "task": task,
        "split": "test",
        "n_rows": n_rows,
        "definitions": {name: DEFINITIONS[name] for name in defined},
    }


_ADVICE = (
    "averaging removes 2.4 % [2.1, 2.7] of the members' error (brier); the ensemble's "
    "error is 3.1 % [2.2, 4] below that of the best single member (1)"
)


def _averaging(loss: str, ensemble: float, members: float) -> dict[str, Any]:
    return {
        "loss": loss,
        "removed": {"value": 0.024, "lower": 0.021, "upper": 0.027},
        "ensemble_error": ensemble,
        "mean_member_error": members,
        "best_member": 1,
        "best_member_chosen_by": "val",
        "best_member_error": members,
        "against_best": {"value": 0.031, "lower": 0.022, "upper": 0.04},
        "close_pairs": [],
    }


def _curve(loss: str, alone: float, together: float) -> dict[str, Any]:
    return {
        "loss": loss,
        "order": [1, 0],
        "points": [
            {"n": 1, "val": alone, "test": alone},
            {"n": 2, "val": together, "test": together},
        ],
        "enough": 2,
        "best": 2,
    }


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
            "averaging": _averaging("brier", 0.205, 0.21),
            "member_curve": _curve("nll", 0.34, 0.33),
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
            "advice": _ADVICE.replace("brier", "squared error"),
            "averaging": _averaging("squared error", 0.36, 0.369),
            "member_curve": _curve("rmse", 0.61, 0.6),
        },
    },
}


def _bins(confidence: float, accuracy: float) -> list[dict[str, Any]]:
    """All rows in the last bin but one."""
    return [
        {
            "lower": m / metrics.N_BINS,
            "upper": (m + 1) / metrics.N_BINS,
            "count": 2000 if m == metrics.N_BINS - 2 else 0,
            "confidence": confidence if m == metrics.N_BINS - 2 else None,
            "accuracy": accuracy if m == metrics.N_BINS - 2 else None,
        }
        for m in range(metrics.N_BINS)
    ]


CALIBRATION: dict[str, Any] = {
    "classification": {
        "summary": "An ensemble that was a little too sure",
        "value": {
            **_head("binary", 2000, "ece", "temperature", "conformal_sets"),
            "ece": 0.03,
            "n_bins": metrics.N_BINS,
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
                    "method": "aps",
                    "empty_share": 0.0,
                    "by_class": [0.88, 0.92],
                }
            ],
            "other_sets": [
                {
                    "coverage": 0.9,
                    "measured": 0.901,
                    "standard_error": 0.0101,
                    "mean_size": 1.07,
                    "method": "lac",
                    "empty_share": 0.02,
                    "by_class": [0.87, 0.92],
                }
            ],
            "calibrated_on": {"part": "calibration", "n_rows": 1000},
            "groups": [],
            "warnings": [],
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
                    "method": "scaled",
                }
            ],
            "member_intervals": [
                {
                    "coverage": 0.9,
                    "measured": 0.31,
                    "standard_error": 0.0083,
                    "mean_width": 0.5,
                    "relative_width": 0.57,
                    "method": "members",
                }
            ],
            "other_intervals": [
                {
                    "coverage": 0.9,
                    "measured": 0.897,
                    "standard_error": 0.0125,
                    "mean_width": 2.3,
                    "relative_width": 2.63,
                    "method": "constant",
                }
            ],
            "interval_choice": {
                "method": "scaled",
                "relative_width_val": 0.92,
                "relative_width_test": 0.913,
                "sentence": "intervals follow the members' spread: at equal coverage "
                "they are 8.0 % narrower than intervals of one width on the rows that "
                "chose (test: -8.7 %)",
            },
            "calibrated_on": {"part": "val", "n_rows": 1040},
            "groups": [],
            "warnings": [],
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
        "uncertainty": "member_std",
        "loss": "squared error",
        "coverage": [0.01, 0.5, 1.0],
        "risk": [0.12, 0.27, 0.36],
        "area": 0.26,
    },
    "error_detection": [{"uncertainty": "member_std", "auroc": 0.66, "aurc": 0.26}],
    "selective": {
        "uncertainty": "member_std",
        "error": "rmse",
        "points": [
            {"abstain": 0.0, "abstained": 0.0, "remaining_error": 0.6, "caught": 0.0},
            {
                "abstain": 0.05,
                "abstained": 0.052,
                "remaining_error": 0.57,
                "caught": 0.14,
            },
        ],
    },
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
    "warnings": ["column 'id' is not used: every value is the same"],
    "timings": {
        "preparing": 2.1,
        "training": 58.9,
        "exporting": 1.4,
        "evaluating": 0.8,
    },
    "versions": {"python": "3.11.9", "lometab": "0.1.0", "torch": "2.6.0"},
    "seeds": {"split": 0, "training": 0},
    "curve": [
        {
            "epoch": 1,
            "train_loss": 0.81,
            "val_score": 0.7,
            "member_score": 0.73,
            "diversity": 0.01,
        }
    ],
    "points": [{"true": 5.0, "mean": 5.2, "lower": 4.15, "upper": 6.25}],
    "naive": [
        {
            "name": "mean",
            "column": None,
            "scores": {"rmse": 0.87, "mae": 0.69, "r2": 0.0},
        }
    ],
    "importance": {
        "metric": "rmse",
        "n_rows": 1300,
        "n_repeats": 5,
        "n_model_rows": 6500,
        "columns": [
            {
                "column": "alcohol",
                "mean": 0.21,
                "std": 0.01,
                "members": [0.2, 0.22],
                "member_std": 0.01,
            }
        ],
        "groups": [],
        "agreement": None,
        "n_skipped": 0,
        "warnings": [],
    },
    "effects": {
        "n_rows": 50,
        "n_model_rows": 100,
        "columns": [
            {
                "column": "alcohol",
                "kind": "numeric",
                "part": None,
                "grid": [9.0, 12.5],
                "outputs": [
                    {
                        "label": None,
                        "mean": [5.4, 6.3],
                        "members": [[5.3, 6.2], [5.5, 6.4]],
                        "ice": [[5.1, 6.0]],
                    }
                ],
            }
        ],
    },
    "slices": {
        "loss": "absolute error",
        "overall": 0.45,
        "n_tested": 40,
        "min_rows": 30,
        "worst": [
            {
                "column": "pH",
                "rows": "3.32 to 4.01",
                "n_rows": 310,
                "loss": 0.52,
                "lower": 0.46,
                "upper": 0.58,
                "p_value": 0.02,
                "is_worse": True,
                "confidence_gap": None,
                "covered": 0.86,
            }
        ],
    },
}

FIGURES: dict[str, Any] = {
    "job_id": JOB,
    "figures": [
        {
            "name": "importance",
            "about": "How much worse the model is without each column.",
            "why_absent": None,
            "links": {
                "svg": f"/jobs/{JOB}/figures/importance.svg",
                "png": f"/jobs/{JOB}/figures/importance.png",
                "spec": f"/jobs/{JOB}/figures/importance.json",
            },
        },
        {
            "name": "confusion",
            "about": "Classification: true classes against predicted ones.",
            "why_absent": "a regression has no classes",
            "links": {},
        },
    ],
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
                    "trust": 0.61,
                    "novelty": 0.32,
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
                    "member_std": 0.1,
                    "interval": [4.55, 6.65],
                    "trust": 0.42,
                    "novelty": 0.88,
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
    "definitions": COMPARISON_DEFINITIONS,
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
    "tied": [0, 1],
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
INFER: dict[str, Any] = {
    "inputs": [
        {"name": "alcohol", "datatype": "FP64", "shape": [1], "data": [9.4]},
        {"name": "pH", "datatype": "FP64", "shape": [1], "data": [3.51]},
    ],
    "outputs": [{"name": "mean"}],
}
INFERRED: dict[str, Any] = {
    "model_name": "wine",
    "outputs": [{"name": "mean", "datatype": "FP32", "shape": [1], "data": [5.6]}],
    "parameters": {"model_id": "mdl_0123456789ab", "warnings": ""},
}
TENSORS: dict[str, Any] = {
    "name": "wine",
    "versions": ["1"],
    "platform": "lometab_onnx",
    "inputs": [{"name": "alcohol", "datatype": "FP64", "shape": [-1]}],
    "outputs": [{"name": "mean", "datatype": "FP32", "shape": [-1]}],
}
INVOCATION: dict[str, Any] = {
    "dataframe_split": {"columns": ["alcohol", "pH"], "data": [[9.4, 3.51]]},
    "params": {"coverage": 0.8},
}
INVOKED: dict[str, Any] = {
    "predictions": [
        {"mean": 5.6, "member_std": 0.1, "interval_lower": 4.9, "interval_upper": 6.3}
    ]
}


_WATCHED = {
    "n_rows": 400,
    "n_left_out": 0,
    "columns": {
        "alcohol": {
            "missing": 0.0,
            "unseen": None,
            "out_of_range": 0.01,
            "psi": 0.24,
            "bound": 0.13,
            "is_drifted": True,
        }
    },
    "drifted": ["alcohol"],
    "is_alarm": True,
    "uncertainty": {
        "mean_trust": 0.44,
        "expected_mean_trust": 0.5,
        "least_certain_share": 0.08,
        "expected_least_certain_share": 0.05,
    },
    "novel_share": 0.01,
    "labels": None,
    "mean": 5.7,
    "outcomes": {
        "n": 50,
        "coverage": 0.9,
        "measured_coverage": 0.88,
        "rmse": 0.63,
        "mae": 0.47,
        "bias": -0.02,
        "accuracy": None,
        "brier": None,
        "nll": None,
        "ece": None,
    },
}
MONITOR = {
    "model_id": "mdl_0123456789abcdef01234567",
    "is_on": True,
    "has_reference": True,
    "n_training_rows": 4157,
    "false_alarm_rate": 0.01,
    "days": [{"day": "2026-11-17", **_WATCHED}],
    "total": _WATCHED,
}

WEBHOOK = {
    "id": "wh_0123456789ab",
    "url": "https://hooks.example.com/lometab",
    "events": ["job.succeeded", "job.failed"],
    "description": "to the team's channel",
    "is_enabled": True,
    "n_failed": 0,
    "not_before": None,
    "created_at": "2026-01-31T12:00:00Z",
}
WEBHOOK_SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
DELIVERY = {
    "id": "msg_0123456789ab",
    "type": "job.succeeded",
    "status": "delivered",
    "attempt": 1,
    "next_at": "2026-01-31T12:00:00Z",
    "attempts": [
        {
            "attempt": 1,
            "at": "2026-01-31T12:00:01Z",
            "status": 204,
            "error": None,
            "seconds": 0.12,
        }
    ],
    "body": {
        "type": "job.succeeded",
        "timestamp": "2026-01-31T12:00:00Z",
        "data": {"workspace_id": "default", "job_id": JOB},
    },
    "created_at": "2026-01-31T12:00:00Z",
    "delivered_at": "2026-01-31T12:00:01Z",
}
