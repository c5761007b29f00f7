"""Whether every kind of interval and set holds the truth as often as it says: of
adaptive sets, which are never empty, at least as often.

    OMP_NUM_THREADS=1 python benchmarks/coverage.py [--datasets ...] [--splits 20]

For each set and random split a small ensemble is trained; its intervals or sets are
calibrated on validation rows, which also chose its epoch, and on rows that chose
nothing, and measured on test rows: of one width and scaled by the members' spread,
adaptive and smallest, all rows together and by class or by a column. Given the table,
calibration and test rows of a random split are exchangeable, so splits of one table are
fair draws. Finished splits are stored, and with all of them stored the section alone
is written.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import cache
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from record import Runs, former, show, table, write_section
from suite_sets import load
from tables import DATA

from lometab.ensemble import Ensemble, answer, prepare
from lometab.evaluation import Conformal, Rows, calibrate_rows, group_rows, metrics
from lometab.table import (
    Parts,
    Schema,
    Table,
    features,
    infer_schema,
    read_csv,
    target,
)

Array = NDArray[Any]
DATASETS = ("california", "diamonds", "titanic", "churn", "wine_quality")
BY = {"diamonds": "cut"}
"""The column by which intervals are calibrated apart; classes are by the class."""
MIN_GROUP = 20
"""Calibration rows that a group needs to be calibrated by itself."""
COVERAGES = (0.8, 0.9, 0.95)
SHOWN = 0.9
"""The coverage whose classes and groups are shown one by one."""
SIZES = {"test": 1000, "calibration": 500, "val": 500, "train": 1500}
SHARES = {"test": 0.25, "calibration": 0.15, "val": 0.15}
CONFIG = former(
    k=8,
    rank=4,
    n_blocks=1,
    d_block=64,
    n_bins=12,
    d_embedding=6,
    batch_size=128,
    lr=3e-3,
    max_epochs=25,
    patience=6,
    share_batches=True,
)


@cache
def load_any(name: str) -> tuple[Table, Schema]:
    """The sets of the suite, and wine ratings as seven classes."""
    if name != "wine_quality":
        return load(name, DATA)
    rows = read_csv((DATA / f"{name}.csv").read_bytes())
    return rows, infer_schema(rows, target="quality", task="multiclass")


@cache
def load_arrays(name: str) -> tuple[Array, Array, Array]:
    contents, schema = load_any(name)
    return *features(contents, schema), target(contents, schema)


def draw_parts(n_rows: int, seed: int) -> Parts:
    """Four parts at random; what is beyond their sizes is left out."""
    order = np.random.default_rng(seed).permutation(n_rows)
    parts: Parts = {}
    for part, most in SIZES.items():
        size = min(most, round(SHARES.get(part, 1.0) * n_rows))
        parts[part], order = np.sort(order[:size]), order[size:]  # type: ignore[index]
    return parts


def measure(name: str, seed: int) -> dict[str, Any]:
    contents, schema = load_any(name)
    x_num, x_cat, y = load_arrays(name)
    parts = draw_parts(len(y), seed)
    started_at = time.perf_counter()
    prepared = prepare(contents, schema, parts)
    ensemble = Ensemble(schema, prepared.preprocessor, CONFIG, prepared.fit(CONFIG))
    by = BY.get(name, None if schema.classes is None else schema.target)
    rows = {}
    for part in ("val", "calibration", "test"):
        own = parts[part]
        groups = group_rows(by, schema.target, schema.categorical, x_cat[own], y[own])
        rows[part] = Rows(y[own], *answer(ensemble, x_num[own], x_cat[own]), groups)
    return {
        "task": schema.task,
        "classes": schema.classes,
        "sizes": {part: len(each) for part, each in parts.items()},
        "cells": [*measure_all(rows, schema, by)],
        "seconds": round(time.perf_counter() - started_at, 1),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def measure_all(
    rows: dict[str, Rows], schema: Schema, by: str | None
) -> Iterator[dict[str, Any]]:
    """A cell for each way to calibrate, method and coverage."""
    about = {"task": schema.task, "target": schema.target, "classes": schema.classes}
    methods = ("constant", "scaled") if schema.classes is None else ("aps", "lac")
    for part in ("val", "calibration"):
        own = rows["calibration"] if part == "calibration" else None
        for apart in (None, by) if by is not None else (None,):
            calibrator = calibrate_rows(
                _grouped(rows["val"], apart), _grouped(own, apart), by=apart
            )
            conformal = Conformal({**about, **calibrator.to_metadata()})
            for method in methods:
                for coverage in COVERAGES:
                    inside, size = ask(conformal, rows["test"], method, coverage)
                    yield {
                        "calibrated on": part,
                        "by": apart,
                        "method": method,
                        "coverage": coverage,
                        "measured": float(inside.mean()),
                        "size": size,
                        "groups": count_groups(rows[part], rows["test"], inside),
                    }


def _grouped(rows: Rows | None, by: str | None) -> Any:
    return rows if rows is None or by is not None else rows._replace(groups=None)


def ask(
    conformal: Conformal, test: Rows, method: Any, coverage: float
) -> tuple[Array, float]:
    """Which rows are covered, and the mean width or number of classes."""
    by_column = conformal.by is not None and not conformal.is_by_class
    choice = conformal.choose(coverage, method, test.groups if by_column else None)
    if test.mean.ndim == 1:
        spread = metrics.member_std(test.members)
        lower, upper = conformal.interval(test.mean, spread, choice).T
        return (lower <= test.y) & (test.y <= upper), float(np.mean(upper - lower))
    sets = conformal.sets(test.mean, choice)
    return sets[np.arange(len(test.y)), test.y], float(sets.sum(axis=1).mean())


def count_groups(own: Rows, test: Rows, inside: Array) -> dict[str, list[int]] | None:
    """Of each group: rows that calibrate it, test rows, and how many are covered."""
    if own.groups is None or test.groups is None:
        return None
    return {
        str(group): [
            int((own.groups == group).sum()),
            int((test.groups == group).sum()),
            int(inside[test.groups == group].sum()),
        ]
        for group in np.unique(test.groups)
    }


# The section


Expect = Callable[[float, int], float]
"""What should be measured: of the coverage asked for and the calibration rows."""


def pool(splits: list[dict[str, Any]], expect: Expect) -> Iterator[dict[str, Any]]:
    """Each cell over the splits, with its distance in standard errors."""
    sizes = splits[0]["sizes"]
    for cells in zip(*(split["cells"] for split in splits), strict=True):
        first = cells[0]
        n_cal, coverage = sizes[first["calibrated on"]], first["coverage"]
        error = standard_error(coverage, n_cal, sizes["test"], len(cells))
        measured = mean(cell["measured"] for cell in cells)
        expected = mean(expect_all(cell, n_cal, expect) for cell in cells)
        yield {
            **first,
            "measured": measured,
            "size": mean(cell["size"] for cell in cells),
            "off": (measured - expected) / error,
            "groups": pool_groups(cells, coverage, expect),
        }


def pool_groups(
    cells: Any, coverage: float, expect: Expect
) -> dict[str, tuple[float, float, float]]:
    """Of each group with 20 rows in every split: coverage, distance, rows to calibrate.

    Smaller ones share their quantiles, and nothing is promised of each alone.
    """
    found = {}
    for group in {name for cell in cells for name in cell["groups"] or ()}:
        counts = [cell["groups"].get(group, [0, 0, 0]) for cell in cells]
        n_cal, n_test = (mean(c[i] for c in counts) for i in (0, 1))
        if min(c[0] for c in counts) < MIN_GROUP or min(c[1] for c in counts) < 1:
            continue
        measured = mean(inside / n for _, n, inside in counts)
        expected = mean(expect(coverage, c[0]) for c in counts)
        error = standard_error(coverage, n_cal, n_test, len(counts))
        found[group] = measured, (measured - expected) / error, n_cal
    return dict(sorted(found.items()))


def expect_exactly(coverage: float, n_cal: int) -> float:
    """What so many calibration rows give on average, if no two scores are equal: the
    quantile is one of them, so it is a little more than asked."""
    return min(1.0, math.ceil(round((n_cal + 1) * coverage, 9)) / (n_cal + 1))


def expect_as_asked(coverage: float, n_cal: int) -> float:
    return coverage


def expect_all(cell: dict[str, Any], n_cal: int, expect: Expect) -> float:
    """The same of a cell, whose groups may be calibrated apart."""
    if cell["by"] is None:
        return expect(cell["coverage"], n_cal)
    known = [(n, rows) for n, rows, _ in cell["groups"].values() if n >= MIN_GROUP]
    n_known = sum(rows for _, rows in known)
    n_test = sum(rows for _, rows, _ in cell["groups"].values())
    inside = sum(expect(cell["coverage"], n) * rows for n, rows in known)
    return (inside + cell["coverage"] * (n_test - n_known)) / n_test


def standard_error(coverage: float, n_cal: float, n_test: float, n: int) -> float:
    return math.sqrt(coverage * (1 - coverage) * (1 / n_cal + 1 / n_test) / n)


def is_met(cell: dict[str, Any], off: float) -> bool:
    """Within 3 standard errors; adaptive sets may hold more, as none is empty."""
    return off >= -3 and (is_one_sided(cell) or off <= 3)


def is_one_sided(cell: dict[str, Any]) -> bool:
    """Whether only a lower bound is promised of it."""
    return bool(cell["method"] == "aps")


def section(results: dict[str, list[dict[str, Any]]]) -> str:
    pooled, as_asked = (
        {name: [*pool(splits, expect)] for name, splits in results.items()}
        for expect in (expect_exactly, expect_as_asked)
    )
    last = [*results.values()][-1][-1]
    n_splits = min(len(splits) for splits in results.values())
    text = [
        "## Coverage of every kind of interval and set\n",
        f"`make bench-coverage`. Small ensembles on {n_splits} random splits of each "
        f"set (at most {SIZES['train']} rows train, {SIZES['val']} validate, "
        f"{SIZES['calibration']} only calibrate, {SIZES['test']} test). In each cell: "
        "the mean share of test rows whose interval or set holds the truth, its "
        "distance in standard errors sqrt(c(1-c)(1/n_cal + 1/n_test) / splits) from "
        "what so many calibration rows give, ceil((n_cal + 1) c) / (n_cal + 1), and "
        "the mean width or number of classes. The bar is 3 standard errors, to both "
        "sides for intervals and smallest sets (`lac`), and from below alone for "
        "adaptive sets (`aps`): these promise at least what was asked, and as none is "
        "empty they hold more where the model is surer than that. Rows with equal "
        "features, of which titanic has many, have equal scores, which can only add to "
        "coverage.\n",
        count_met(pooled),
        count_more(pooled),
        "Measured from the coverage that was asked for, which leaves out that a "
        f"quantile is one of the calibration rows: {count_met(as_asked)}",
        table(
            ["data set", "kind", "by", *(f"{coverage:.0%}" for coverage in COVERAGES)],
            list_rows(pooled, "calibration"),
        ),
        "The same calibrated on the validation rows, which chose the epoch too:\n",
        table(
            ["data set", "kind", "by", *(f"{coverage:.0%}" for coverage in COVERAGES)],
            list_rows(pooled, "val"),
        ),
        f"Classes and groups one by one at {SHOWN:.0%}, of those with 20 rows to "
        "calibrate in every split: coverage and distance of sets or intervals that are "
        "calibrated for all rows together, which promise nothing of a single class, "
        "and by class or column, which do.\n",
        table(
            ["data set", "class or group", "rows", "kind", "together", "apart"],
            list_groups(pooled, results),
        ),
        f"Settings: {show(CONFIG)}. Measured {last['date']} with torch "
        f"{last['torch']}, one thread.",
    ]
    return "\n".join(text)


def count_met(pooled: Any) -> str:
    lines = []
    for part, words in (("calibration", "rows of their own"), ("val", "validation")):
        cells = [c for each in pooled.values() for c in each if _is_on(c, part)]
        offs = [(cell, cell["off"]) for cell in cells]
        inner = [
            (cell, off)
            for cell in cells
            if cell["by"] is not None
            for _, off, _ in cell["groups"].values()
        ]
        missed = [off for cell, off in (*offs, *inner) if not is_met(cell, off)]
        met, met_inner = (sum(is_met(*each) for each in all_) for all_ in (offs, inner))
        lines.append(
            f"Calibrated on {words}, {met} of {len(offs)} cells meet the bar, and "
            f"{met_inner} of {len(inner)} single classes and groups calibrated apart"
            + describe_missed(missed)
        )
    return " ".join(lines) + "\n"


def count_more(pooled: Any) -> str:
    """Cells with two bounds and with one, and how much more the latter hold."""
    cells = [c for each in pooled.values() for c in each if _is_on(c, "calibration")]
    sides: dict[bool, list[Any]] = {False: [], True: []}
    for cell in cells:
        sides[is_one_sided(cell)].append(cell)
    met = [sum(is_met(c, c["off"]) for c in sides[side]) for side in (False, True)]
    more = [cell for cell in sides[True] if cell["off"] > 3]
    said = (
        f"Of these on rows of their own, {met[0]} of {len(sides[False])} of intervals "
        f"and smallest sets are within 3 standard errors to both sides, and {met[1]} "
        f"of {len(sides[True])} of adaptive sets hold at least what was asked"
    )
    if not more:
        return f"{said}.\n"
    most = max(more, key=lambda cell: cell["measured"] - cell["coverage"])
    return (
        f"{said}: {len(more)} hold more by over 3 standard errors, at most "
        f"{most['measured']:.1%} where {most['coverage']:.0%} was asked.\n"
    )


def describe_missed(offs: list[float]) -> str:
    if not offs:
        return "."
    n_below = sum(off < 0 for off in offs)
    if not n_below:
        return f"; the {len(offs)} others hold more than asked."
    return f"; of the {len(offs)} others, {n_below} hold less than asked."


def _is_on(cell: dict[str, Any], part: str) -> bool:
    return bool(cell["calibrated on"] == part)


def list_rows(pooled: Any, part: str) -> Iterator[list[str]]:
    for name, cells in pooled.items():
        own = [cell for cell in cells if _is_on(cell, part)]
        for start in range(0, len(own), len(COVERAGES)):
            row = own[start : start + len(COVERAGES)]
            shown = [
                f"{c['measured']:.1%} ({c['off']:+.1f}) {_short(c['size'])}"
                for c in row
            ]
            yield [name, row[0]["method"], row[0]["by"] or "-", *shown]


def _short(size: float) -> str:
    return f"{size:.0f}" if size >= 100 else f"{size:.2f}"


def list_groups(pooled: Any, results: Any) -> Iterator[list[str]]:
    for name, cells in pooled.items():
        classes = results[name][0]["classes"]
        own = [
            cell
            for cell in cells
            if _is_on(cell, "calibration") and cell["coverage"] == SHOWN
        ]
        apart = {cell["method"]: cell for cell in own if cell["by"] is not None}
        for cell in own:
            if cell["by"] is not None or cell["method"] not in apart:
                continue
            for group, (measured, off, n) in cell["groups"].items():
                its, its_off, _ = apart[cell["method"]]["groups"][group]
                yield [
                    name,
                    group if classes is None else str(classes[int(group)]),
                    f"{n:.0f}",
                    cell["method"],
                    f"{measured:.1%} ({off:+.1f})",
                    f"{its:.1%} ({its_off:+.1f})",
                ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--dry", action="store_true", help="write no section")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = Runs("coverage")
    results: dict[str, list[dict[str, Any]]] = {}
    for name in arguments.datasets:
        for seed in range(arguments.splits):
            key = {"dataset": name, "split": seed}
            result = runs.get(key, lambda n=name, s=seed: measure(n, s))
            results.setdefault(name, []).append(result)
            print(name, seed, result["seconds"], flush=True)
    text = section(results)
    print(text) if arguments.dry else write_section("coverage", text)


if __name__ == "__main__":
    main()
