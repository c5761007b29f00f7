"""Pictures of the ensemble, by models trained here: `python -m scripts.docs.draw`.

docs/learn/ensemble.md shows them.
"""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from lometab import LoMETabRegressor

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
SIGMAS = (0.1, 1.0, 3.0)
GAP = (0.1, 0.9)
"""Where the curve has no rows."""


def draw_masks() -> None:
    """A shared matrix, and what masks of rank 1 make of it for three members."""
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(10, 14))
    figure, axes = plt.subplots(1, 4, figsize=(9, 2), layout="constrained")
    _show_matrix(axes[0], weight, "W, shared")
    for k, axis in enumerate(axes[1:]):
        a, b = rng.normal(size=(10, 1)), rng.normal(size=(14, 1))
        _show_matrix(axis, weight * (1 + a @ b.T), f"member {k}: W * (1 + a b$^T$)")
    _save(figure, "ensemble-masks")


def _show_matrix(axis: Any, matrix: Any, title: str) -> None:
    axis.imshow(matrix, cmap="RdBu", vmin=-3, vmax=3)
    axis.set_title(title, fontsize=9)
    axis.set_xticks([])
    axis.set_yticks([])


def draw_members() -> None:
    """Members on a curve with a gap, at three values of sigma_init."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=700)
    x = x[(x < GAP[0]) | (x > GAP[1])]
    y = np.sin(3 * x) + rng.normal(scale=0.15, size=len(x))
    grid = np.linspace(-2.4, 2.4, 241)
    figure, axes = plt.subplots(
        1, 3, figsize=(9, 2.7), sharey=True, layout="constrained"
    )
    for axis, sigma in zip(axes, SIGMAS, strict=True):
        model = LoMETabRegressor(
            preset="fast",
            k=16,
            rank=4,
            sigma_init=sigma,
            max_epochs=60,
            random_state=0,
            n_jobs=1,
        )
        members = model.fit(x[:, None], y).predict_members(grid[:, None])
        axis.axvspan(*GAP, color="0.9")
        axis.plot(x, y, ".", color="0.6", markersize=2)
        axis.plot(grid, members, color="teal", linewidth=0.6, alpha=0.6)
        axis.plot(grid, members.mean(axis=1), color="black", linewidth=1.2)
        axis.set_title(f"sigma_init {sigma:g}", fontsize=9)
        axis.set_ylim(-2, 2)
    _save(figure, "ensemble-members")


def _save(figure: Any, name: str) -> None:
    figure.savefig(
        FOLDER / f"{name}.png",
        dpi=110,
        bbox_inches="tight",
        pad_inches=0.12,
        metadata={"Software": None},
    )
    plt.close(figure)


if __name__ == "__main__":
    draw_masks()
    draw_members()
