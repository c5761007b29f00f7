"""Figures: which there are, that hostile texts stay texts, and that they are drawn."""

import copy
import importlib
import itertools
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from lometab import plots
from lometab.errors import ConfigError
from lometab.evaluation import compare_cells
from lometab.plots import parts
from lometab.plots.members import order_by_similarity
from tests.support.outcomes import outcome
from tests.support.reports import sample

HOSTILE = [
    "a.b[0]",
    "datum.x\\'",
    '"><script>alert(1)</script>',
    "${expr}",
    "{{7*7}}",
    "=1+1",
    "\u202eevil\x00\x1b[31m",
    "x" * 5000,
    "",
]
OF_CLASSES = {"reliability", "confusion"}
OF_NUMBERS = {"predicted"}
ALWAYS = {
    *("coverage", "risk-coverage", "members", "decomposition", "pairs", "training")
}


def drawn(reports: dict[str, Any]) -> set[str]:
    return {each.name for each in plots.list_figures(reports) if not each.why_absent}


def texts(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a spec outside its data, with the key it stands under."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name != "values":
                yield from texts(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value, key)
    elif isinstance(node, str):
        yield key, node


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
def test_each_task_has_its_figures(task: str) -> None:
    reports = sample(task)
    own = OF_NUMBERS if task == "regression" else OF_CLASSES
    assert drawn(reports) >= ALWAYS | own
    others = OF_CLASSES if task == "regression" else OF_NUMBERS
    for each in plots.list_figures(reports):
        assert each.about
        if each.name in others:
            assert each.why_absent
            with pytest.raises(plots.NothingToDraw):
                plots.draw(each.name, reports)
    with pytest.raises(KeyError):
        plots.draw("pareto", reports)


@pytest.mark.parametrize("task", ["regression", "binary"])
def test_one_member_has_no_pairs(task: str) -> None:
    names = drawn(sample(task, k=1))
    assert not names & {"pairs", "decomposition"}
    assert {"members", "training"} <= names


def test_figures_are_pure_and_strict_json() -> None:
    reports = sample("binary")
    before = copy.deepcopy(reports)
    for name in drawn(reports):
        light, dark = (plots.draw(name, reports, theme) for theme in ("light", "dark"))
        assert json.loads(json.dumps(light, allow_nan=False)) == light
        assert light["config"] != dark["config"]
        assert {**light, "config": 0, "background": 0} == {
            **dark,
            "config": 0,
            "background": 0,
        }
    assert reports == before


def test_hostile_classes_are_data_and_nothing_else() -> None:
    reports = copy.deepcopy(sample("multiclass"))
    for text in HOSTILE:
        reports["report"]["confusion"]["classes"] = [text, text, "fine"]
        spec = plots.draw("confusion", reports)
        shown = {row["true"] for row in spec["data"]["values"]}
        assert len(shown) == 3
        assert all(len(each) <= parts.MAX_TEXT + 4 for each in shown)
        for _, found in texts(spec):
            assert not text or text not in found
        fields = {found for key, found in texts(spec) if key == "field"}
        assert fields <= {"true", "predicted", "rows", "share"}


def test_no_figure_names_an_address() -> None:
    for task in ("regression", "binary"):
        reports = sample(task)
        for name in drawn(reports):
            spec = plots.draw(name, reports)
            keys = {key for key, _ in texts(spec)}
            assert not keys & {"url", "href", "expr", "signal", "calculate"}


def test_members_that_are_alike_stand_together() -> None:
    rng = np.random.default_rng(0)
    group = np.array([0, 1, 0, 1, 1, 0, 1, 0])
    distances = 0.1 + 5.0 * (group[:, None] != group)
    distances += 0.01 * rng.random((8, 8))
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0)
    order = order_by_similarity(distances)
    assert sorted(order) == [*range(8)]
    assert sum(group[i] != group[j] for i, j in itertools.pairwise(order)) == 1


def test_many_members_are_thinned_and_told() -> None:
    k = 100
    reports = copy.deepcopy(sample("binary"))
    matrix = np.abs(np.subtract.outer(np.arange(k), np.arange(k))) / k
    reports["diversity"]["pairwise_kl"]["matrix"] = matrix.tolist()
    spec = plots.draw("pairs", reports)
    assert len(spec["data"]["values"]) == 64**2
    assert "64 of 100 members" in spec["title"]["subtitle"]


def make_sweep() -> dict[str, Any]:
    settings = [{"rank": r, "sigma_init": s} for r in (1, 4, 8) for s in (0.5, 1.0)]
    found = [
        [outcome(0.8 + 0.01 * i, 0.1, 0.01 * (5 - i))] for i in range(len(settings))
    ]
    found[3] = []
    return {"sweep": {"comparison": asdict(compare_cells(settings, found))}}


def test_sweeps() -> None:
    sweep = make_sweep()
    assert drawn(sweep) == {"sweep-score", "sweep-diversity", "pareto"}
    spec = plots.draw("sweep-score", sweep)
    cells = spec["data"]["values"]
    assert len(cells) == 5
    assert {cell["x"] for cell in cells} == {"1", "4", "8"}  # of most values
    assert [cell["value"] for cell in cells if cell["best"]] == pytest.approx([0.85])
    pareto = plots.draw("pareto", sweep)["data"]["values"]
    best = sweep["sweep"]["comparison"]["pareto"]
    assert sum(each["is"] == "not beaten" for each in pareto) == len(best)
    empty = {"sweep": {"comparison": asdict(compare_cells([{"k": 2}], [[]]))}}
    assert drawn(empty) == set()


@pytest.mark.slow
def test_tune() -> None:
    trials = [
        {"trial": i, "is_pruned": i == 2, "outcome": asdict(outcome(score))}
        for i, score in enumerate([0.8, 0.7, 0.95, 0.9])
    ]
    trials.append({"trial": 4, "is_pruned": False, "outcome": None})
    tune = {"tune": {"metric": "accuracy", "trials": trials, "importances": {}}}
    assert drawn(tune) == {"tune-history"}
    svg = plots.render(plots.draw("tune-history", tune)).decode()
    places = svg.partition('aria-label="X-axis')[2].partition(">trial<")[0]
    assert re.findall(r">([\d.]+)</text>", places) == ["0", "1", "2", "3"]
    rows = plots.draw("tune-history", tune)["data"]["values"]
    assert [row["best"] for row in rows] == [0.8, 0.8, 0.8, 0.9]
    tune["tune"]["importances"] = {"lr": 0.2, "k": 0.8}
    bars = plots.draw("tune-importances", tune)["data"]["values"]
    assert [bar["setting"] for bar in bars] == ["k", "lr"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "multiclass"])
def test_pictures(task: str) -> None:
    """Each is drawn by the real engine, and no text of a table becomes markup."""
    reports = copy.deepcopy(sample(task))
    if task == "multiclass":
        reports["report"]["confusion"]["classes"] = HOSTILE[2:5]
    for name in sorted(drawn(reports)):
        svg = plots.render(plots.draw(name, reports))
        root = ElementTree.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        tags = {each.tag.split("}")[-1] for each in root.iter()}
        assert not tags & {"script", "foreignObject", "image", "a"}
        assert len(tags & {"path", "rect"})
    png = plots.render(plots.draw("members", reports, "dark"), "png", scale=1)
    assert png.startswith(b"\x89PNG")


def test_sweep_and_tune_pictures() -> None:
    for name in ("sweep-score", "pareto"):
        assert plots.render(plots.draw(name, make_sweep())).startswith(b"<svg")


def test_a_picture_fetches_nothing(tmp_path: Path) -> None:
    """Even if a spec said so, which none of ours does."""
    encoding = {"text": {"field": "secret", "type": "nominal"}}
    for url in ("http://127.0.0.1:9/x.csv", "https://example.org/x.csv", "/x.csv"):
        spec = {"data": {"url": url}, "mark": "text", "encoding": encoding}
        with pytest.raises(ValueError, match="not allowed"):
            plots.render(spec)
    file = tmp_path / "x.csv"
    file.write_text("secret\nSECRET\n")
    spec = {"data": {"url": file.as_uri()}, "mark": "text", "encoding": encoding}
    assert b"SECRET" not in plots.render(spec)


def test_bounds() -> None:
    spec = plots.draw("members", sample("binary"))
    for scale in (0.0, -1.0, 5.0, float("nan")):
        with pytest.raises(ConfigError, match="scale"):
            plots.render(spec, "png", scale=scale)
    large = {**spec, "usermeta": "x" * 5_000_000}
    with pytest.raises(ConfigError, match="at most"):
        plots.render(large)


def test_who_waits_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    began = threading.Event()

    def slow(*_: Any) -> bytes:
        began.set()
        held.wait(30)
        return b""

    module = importlib.import_module("lometab.plots.render")
    monkeypatch.setattr(module, "_render", slow)
    try:
        with pytest.raises(plots.RenderBusy):
            plots.render({}, timeout=0.05)
        assert began.wait(30)
        with pytest.raises(plots.RenderBusy):
            plots.render({}, timeout=0.05)
    finally:
        held.set()
