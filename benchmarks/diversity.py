"""The paper's claims on diversity, looked at: its table beside the paper's figures.

    python benchmarks/diversity.py [--parts adult california forms paper]

Pairwise KL on adult over rank and sigma_init; normalised ambiguity on california;
pairwise KL per epoch of the multiplicative and the additive form; and the two grids on
the networks that the paper made them with, which takes hours on a CPU. Finished runs
are stored and not made again.
"""

import argparse
import csv
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import cache
from statistics import mean, stdev
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib import pyplot
from record import ROOT, Runs, former, progress_line, show, table, write_section
from tables import answers, load
from torch import nn

from lometab.config import TrainConfig, from_preset
from lometab.ensemble import train_ensemble
from lometab.evaluation import metrics
from lometab.losses import score
from lometab.nn import LoMETab
from lometab.table import Preprocessor, features
from lometab.train import Part, fit, predict

matplotlib.use("Agg")

PAPER = ROOT.parent / "shared" / "paper"
Cell = tuple[int, float]
"""Rank and sigma_init."""
FIGURE = ROOT / "docs" / "figures" / "diversity_forms.png"

# Small enough for a CPU. Members share batches, so that only their start tells them
# apart.
NETWORK = former(
    k=32,
    n_blocks=2,
    d_block=64,
    n_bins=32,
    d_embedding=8,
    lr=2e-3,
    batch_size=512,
    share_batches=True,
    max_epochs=100,
    patience=8,
)
ADULT_CELLS = [(16, 0.1), (16, 2.0), (1, 1.0), (4, 1.0), (16, 1.0)]
CALIFORNIA_CELLS = [(rank, sigma) for rank in (1, 4, 16) for sigma in (0.1, 1.0, 3.0)]
# The tuned networks of the paper, by its counts of parameters. It does not tell their
# learning rate, dropout and decay: these are those of the preset `paper`.
PAPER_NETWORKS = {
    "adult": from_preset(
        "paper", n_blocks=1, d_block=272, d_embedding=32, n_bins=114, dropout=0.1
    ),
    "california": from_preset("paper"),
}
PAPER_CELLS = {
    "adult": [(rank, s) for rank in (1, 4, 16) for s in (0.1, 0.5, 1.0, 2.0)],
    "california": [(rank, sigma) for rank in (1, 16) for sigma in (0.1, 1.0, 3.0)],
}
PAPER_SEEDS = {"adult": 3, "california": 2}
N_EPOCHS = 20
SHOWN_EPOCHS = (0, 1, 2, 5, 10, 15, 20)
SIGMAS = (0.1, 0.5, 1.0)
RANK = 16


# Runs


def run_cell(name: str, config: TrainConfig) -> dict[str, Any]:
    """Train as any user would, then look at the members on the test part."""
    data = load(name)
    ensemble = train_ensemble(
        data.table,
        data.schema,
        data.parts,
        config,
        on_epoch=progress_line(f"{name}, {show(config)}"),
    )
    members = answers(ensemble, data, "test")
    y = data.y[data.parts["test"]]
    result = {
        "best_epoch": ensemble.fit.best_epoch,
        "epochs": len(ensemble.fit.history),
        "seconds": round(ensemble.fit.seconds, 1),
    }
    if data.schema.task == "regression":
        variance = float(np.var(data.y[data.parts["train"]]))
        return result | {
            "ambiguity": metrics.normalized_ambiguity(members, variance),
            "rmse": metrics.rmse(y, members.mean(1)),
        }
    kl = metrics.pairwise_kl(members)
    differ = metrics.pairwise_disagreement(members)
    return result | {
        "kl": metrics.mean_over_pairs(kl),
        "disagreement": metrics.mean_over_pairs(differ),
        "accuracy": metrics.accuracy(y, members.mean(1)),
    }


@cache
def adult_parts() -> tuple[Part, Part, list[int]]:
    """Train, validation and the cardinalities, ready for `fit`."""
    data = load("adult")
    x_num, x_cat = features(data.table, data.schema)
    train, val = data.parts["train"], data.parts["val"]
    preprocessor = Preprocessor().fit(
        x_num[train], x_cat[train], data.y[train], task=data.schema.task
    )
    scores, codes = preprocessor.transform(x_num, x_cat)
    parts = [Part(scores[rows], codes[rows], data.y[rows]) for rows in (train, val)]
    return parts[0], parts[1], preprocessor.cardinalities_


def zero_b_(model: LoMETab) -> None:
    """The start of LoRA: all members begin as W."""
    for block in model.blocks:
        nn.init.zeros_(block.b)


def match_(model: LoMETab) -> None:
    """Residuals as large beside W as the multiplicative form's are."""
    for block in model.blocks:
        with torch.no_grad():
            block.b.mul_(block.weight.square().mean().sqrt())


# The forms by name: the variant, and what is done to it before the first step.
FORMS: dict[str, tuple[str, Callable[[LoMETab], None]]] = {
    "multiplicative": ("lometab", lambda model: None),
    "additive, N(0, sigma²)": ("additive", lambda model: None),
    "additive, B = 0": ("additive", zero_b_),
    "additive, matched": ("additive", match_),
}


def run_form(form: str, config: TrainConfig) -> dict[str, Any]:
    """Train without early stopping; the KL on validation at the start and per epoch."""
    train, val, cardinalities = adult_parts()
    change = FORMS[form][1]
    start: dict[str, float] = {}

    def prepare(model: LoMETab) -> None:
        change(model)
        x_num, x_cat = torch.from_numpy(val.x_num), torch.from_numpy(val.x_cat)
        outputs = predict(model, x_num, x_cat)
        kl = score(outputs, torch.from_numpy(val.y), task="binary", y_std=1.0)[2]
        assert kl is not None
        start["kl"] = kl
        with torch.no_grad():
            block = model.blocks[0]
            residual = block.effective_weight() - block.weight
            size = residual.square().mean() / block.weight.square().mean()
            start["residual"] = size.sqrt().item()

    result = fit(
        train,
        val,
        task="binary",
        cardinalities=cardinalities,
        config=config,
        prepare=prepare,
        on_epoch=progress_line(f"{form}, {show(config)}"),
    )
    return {
        "residual": start["residual"],
        "kl": [start["kl"], *(p.diversity for p in result.history)],
        "accuracy": [p.val_score for p in result.history],
        "train_loss": [p.train_loss for p in result.history],
        "seconds": round(result.seconds, 1),
    }


# The section


def cell(network: TrainConfig, rank: int, sigma: float, seed: int) -> TrainConfig:
    return replace(network, rank=rank, sigma_init=sigma, seed=seed)


def form_config(form: str, sigma: float) -> TrainConfig:
    return replace(
        NETWORK,
        variant=FORMS[form][0],
        rank=RANK,
        sigma_init=sigma,
        max_epochs=N_EPOCHS,
        patience=None,
    )


def key(what: str, config: TrainConfig) -> dict[str, Any]:
    return {"what": what, "config": asdict(config)}


@cache
def paper(file: str) -> dict[tuple[str, int, float], dict[str, str]]:
    path = PAPER / file
    if not path.exists():
        raise SystemExit(
            f"{file} is not there: the benchmarks read the paper's tables from "
            "../shared/paper, beside the repository"
        )
    with path.open() as lines:
        return {
            (row["dataset"], int(row["rank"]), float(row["sigma_init"])): row
            for row in csv.DictReader(lines)
        }


def collect(
    runs: Runs, name: str, network: TrainConfig, rank: int, sigma: float
) -> list[dict[str, Any]]:
    """The results of a cell, one for each seed there is."""
    configs = (cell(network, rank, sigma, seed) for seed in range(10))
    found = (runs.find(key(name, config)) for config in configs)
    return [result for result in found if result is not None]


def spread(values: list[float], digits: int) -> str:
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}"


def adult_section(runs: Runs, network: TrainConfig, cells: list[Cell]) -> str:
    rows, kl = [], {}
    for rank, sigma in cells:
        results = collect(runs, "adult", network, rank, sigma)
        if not results:
            continue
        theirs = paper("diversity_grid_classification.csv")["adult", rank, sigma]
        kl[rank, sigma] = mean(result["kl"] for result in results)
        rows.append(
            [
                rank,
                sigma,
                len(results),
                spread([result["kl"] for result in results], 5),
                f"{theirs['pairwise_kl']} ± {theirs['pairwise_kl_std']}",
                spread([result["disagreement"] for result in results], 3),
                f"{theirs['disagreement']} ± {theirs['disagreement_std']}",
                spread([result["accuracy"] for result in results], 4),
                f"{theirs['accuracy']} ± {theirs['accuracy_std']}",
            ]
        )
    bars = [
        (f"KL(r={a[0]}, sigma={a[1]}) / KL(r={b[0]}, sigma={b[1]})", a, b, bar)
        for a, b, bar in (
            ((16, 2.0), (16, 0.1), 10),
            ((4, 1.0), (1, 1.0), 2),
            ((16, 1.0), (1, 1.0), 2),
        )
        if a in kl and b in kl
    ]
    claims = [
        [
            text,
            f"{kl[a] / kl[b]:.1f}",
            f"≥ {bar}",
            "yes" if kl[a] >= bar * kl[b] else "no",
        ]
        for text, a, b, bar in bars
    ]
    header = ["rank", "sigma", "seeds", "KL", "paper", "disagreement", "paper"]
    return (
        table([*header, "accuracy", "paper"], rows)
        + "\n"
        + table(["claim", "ratio here", "bar", "met"], claims)
    )


_AMBIGUITY = ("ambiguity", "ambiguity_std")


def california_section(runs: Runs, network: TrainConfig, cells: list[Cell]) -> str:
    rows, ours, published = [], {}, {}
    data = load("california")
    variance = float(np.var(data.y[data.parts["train"]]))
    for rank, sigma in cells:
        results = collect(runs, "california", network, rank, sigma)
        if not results:
            continue
        theirs = paper("diversity_grid_regression.csv")["california", rank, sigma]
        ours[rank, sigma] = mean(result["rmse"] for result in results)
        published[rank, sigma] = float(theirs["rmse"])
        normalised = [float(theirs[n]) / variance for n in _AMBIGUITY]
        rows.append(
            [
                rank,
                sigma,
                len(results),
                spread([result["ambiguity"] for result in results], 4),
                f"{normalised[0]:.4f} ± {normalised[1]:.4f}",
                spread([result["rmse"] for result in results], 4),
                f"{theirs['rmse']} ± {theirs['rmse_std']}",
            ]
        )
    header = ["rank", "sigma", "seeds", "normalised ambiguity", "paper", "RMSE"]
    return (
        f"The paper's table is raw; it is divided by the variance of the training "
        f"targets, {variance:.3f}, as ours is.\n\n"
        + table([*header, "paper"], rows)
        + "\n"
        + compare_trends(ours, published)
    )


Cells = dict[Cell, float]


def compare_trends(ours: Cells, published: Cells) -> str:
    """What the largest sigma does to the RMSE, here and in the paper."""
    if not ours:
        return ""
    low, high = (f({sigma for _, sigma in ours}) for f in (min, max))
    text = ""
    ranks = {rank for rank, _ in ours if {(rank, low), (rank, high)} <= ours.keys()}
    for rank in sorted(ranks):
        change, theirs = (
            100 * (cells[rank, high] / cells[rank, low] - 1)
            for cells in (ours, published)
        )
        verdict = "the same trend" if change * theirs > 0 else "**the reverse**"
        text += (
            f"- rank {rank}, from sigma {low} to {high}: RMSE {change:+.1f} % here, "
            f"{theirs:+.1f} % in the paper: {verdict}.\n"
        )
    return text


def forms_section(runs: Runs) -> str:
    rows = []
    for sigma in SIGMAS:
        for form in FORMS:
            result = runs.find(key(form, form_config(form, sigma)))
            if result is None:
                continue
            rows.append(
                [
                    sigma,
                    form,
                    f"{result['residual']:.3g}",
                    *(f"{result['kl'][epoch]:.4f}" for epoch in SHOWN_EPOCHS),
                    f"{max(result['accuracy']):.4f}",
                ]
            )
    draw_forms(runs)
    header = ["sigma", "form", "residual / W at the start"]
    header += [f"epoch {epoch}" for epoch in SHOWN_EPOCHS]
    return (
        "### Multiplicative and additive, KL on validation per epoch\n\n"
        f"adult, rank {RANK}, one seed, no early stopping. *Residual / W*: root mean "
        "square of W_k - W in the first layer, beside that of W. *Matched*: additive, "
        "with B scaled so that this is what it is in the multiplicative form.\n\n"
        + f"![KL over training](figures/{FIGURE.name})\n\n"
        + table([*header, "best accuracy"], rows)
        + "\n"
        + REASON
    )


def draw_forms(runs: Runs) -> None:
    """KL over training, one panel for each sigma."""
    figure, axes = pyplot.subplots(
        1, len(SIGMAS), figsize=(13, 4.2), sharey=True, layout="constrained"
    )
    for axis, sigma in zip(axes, SIGMAS, strict=True):
        for form in FORMS:
            result = runs.find(key(form, form_config(form, sigma)))
            if result is not None:
                axis.plot(result["kl"], label=form)
        axis.set_yscale("log")
        axis.set_xlabel("epoch")
        axis.set_title(f"sigma_init {sigma}")
    axes[0].set_ylabel("pairwise KL on validation")
    axes[0].legend()
    figure.suptitle(f"LoMETab on adult, rank {RANK}: diversity over training")
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=110)


REASON = """\
The paper has the additive form on a low plateau below the multiplicative one. Here the
multiplicative form is the less diverse one at the end, whatever the additive form
starts with; it is ahead of the start with B = 0 only in the first epochs, and only at
the larger sigma. One reason is measured above, the start: with N(0, sigma²) the
additive residual has entries of size sigma² sqrt(r) whatever W is, while W's own are of
size (3 d_in)^(-1/2), so that even at the smallest sigma here it is nearly as large as
W, and at the larger ones members are in effect networks of their own. It does not
explain why additive members that began alike (B = 0), or at the multiplicative form's
own size of the residual (matched), drift apart faster. A guess, not tested, is steps:
Adam moves A and B by about the learning rate, which the additive form adds to a weight
as it is and the multiplicative form times W, whose entries are small. All members share
their batches, and B = 0 is not without diversity at the start: the heads are random.
"""


def section(runs: Runs) -> str:
    return "\n".join(
        [
            f"## Diversity\n\n`make bench-diversity`. The first three parts have one "
            f"network: {show(NETWORK)} (rank and sigma_init as the tables say). The "
            "paper made its grids on the tuned network of each data set, which is much "
            "larger; so these tables are to be compared by their trends, and a trend "
            "that is the reverse may be the network's.\n",
            "### Pairwise KL on adult, test part\n",
            adult_section(runs, NETWORK, ADULT_CELLS),
            "### Normalised ambiguity on california, test part\n",
            california_section(runs, NETWORK, CALIFORNIA_CELLS),
            forms_section(runs),
            *paper_sections(runs),
        ]
    )


def paper_sections(runs: Runs) -> Iterator[str]:
    """The grids on the paper's own networks, as far as they have been run."""
    make = {"adult": adult_section, "california": california_section}
    for name, network in PAPER_NETWORKS.items():
        cells = PAPER_CELLS[name]
        results = [collect(runs, name, network, *each) for each in cells]
        n_done, n_all = sum(map(len, results)), len(cells) * PAPER_SEEDS[name]
        yield (
            f"### {name} on the paper's network\n\n{show(network)} (by the paper's "
            f"counts of parameters). {n_done} of {n_all} runs are made.\n"
        )
        if n_done:
            yield make[name](runs, network, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ["adult", "california", "forms"]
    parser.add_argument("--parts", nargs="*", choices=[*parts, "paper"], default=parts)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    runs = Runs("diversity")
    if "adult" in arguments.parts:
        for seed in arguments.seeds:
            for rank, sigma in ADULT_CELLS:
                config = cell(NETWORK, rank, sigma, seed)
                runs.get(key("adult", config), lambda c=config: run_cell("adult", c))
                write_section("diversity", section(runs))
    if "california" in arguments.parts:
        for rank, sigma in CALIFORNIA_CELLS:
            config = cell(NETWORK, rank, sigma, 0)
            runs.get(
                key("california", config), lambda c=config: run_cell("california", c)
            )
            write_section("diversity", section(runs))
    if "forms" in arguments.parts:
        for sigma in SIGMAS:
            for form in FORMS:
                config = form_config(form, sigma)
                runs.get(key(form, config), lambda c=config, f=form: run_form(f, c))
                write_section("diversity", section(runs))
    if "paper" in arguments.parts:
        run_paper(runs)
    write_section("diversity", section(runs))


def run_paper(runs: Runs) -> None:
    seeds = range(max(PAPER_SEEDS.values()))
    for wanted in plan_paper(runs, seeds, PAPER_NETWORKS):
        make_paper(runs, wanted)
        write_section("diversity", section(runs))


def plan_paper(
    runs: Runs, seeds: Iterable[int], names: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """Cells that are left: seed by seed, so that what is stopped has all the cells."""
    for seed, name in itertools.product(seeds, names):
        for rank, sigma in PAPER_CELLS[name] if seed < PAPER_SEEDS[name] else ():
            config = cell(PAPER_NETWORKS[name], rank, sigma, seed)
            if runs.find(key(name, config)) is None:
                yield {"dataset": name, "rank": rank, "sigma": sigma, "seed": seed}


def make_paper(runs: Runs, wanted: dict[str, Any]) -> None:
    name, network = wanted["dataset"], PAPER_NETWORKS[wanted["dataset"]]
    config = cell(network, wanted["rank"], wanted["sigma"], wanted["seed"])
    runs.get(key(name, config), lambda: run_cell(name, config))


if __name__ == "__main__":
    main()
