"""Reports and jobs, and what the page says of them."""

VERDICTS = [
    (2.5, "naive", "bad", "Not worth using"),
    (1.95, "naive", "other", "barely better"),
    (1.5, "naive", "good", "clearly better"),
    (1.5, "warning", "other", "one thing to look at first"),
    (0.5, "next", "good", "far better"),
]
"""The mean absolute error, beside 2.0 of a guess, and what the summary warns of: how it
is marked, and the words."""

PARTS = {"n_finished": 2, "n_runs": 8, "n_rows": 800, "rows_done": 200}
LEFT = [
    ("predict", {"eta_seconds": 300}, "200 of 800 rows answered, about 5 min to go"),
    ("predict", {"eta_seconds": None}, "200 of 800 rows answered"),
    ("sweep", {"eta_seconds": 40}, "2 of 8 runs, about 40 s to go"),
    (
        "tune",
        {"eta_seconds": 0.2, "best_score": 0.51234},
        "2 of 8 runs, the best run with RMSE 0.5123 on validation",
    ),
    (
        "train",
        {"epoch": 3, "max_epochs": 9, "eta_seconds": 7},
        "Epoch 3 of at most 9, at most 7 s to go",
    ),
]
"""Of each kind: how far it is beyond `PARTS`, and the words."""
