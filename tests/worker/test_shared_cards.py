"""Cards of models of real files: what they say is what the reports have.

Pictures of them, light and dark, go to the folder that LOMETAB_PICTURES names.
"""

import gzip
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lometab.card import About, to_html, to_markdown
from lometab.config import from_preset
from lometab.table import ParquetTable, Split, infer_schema, read_file
from tests.support.browser import open_browser
from tests.support.statements import check_statements
from worker import train
from worker.messages import DATA, REPORTS, Spec

SHARED = Path(__file__).parents[3] / "shared" / "data"
TARGETS = {
    "adult.csv.gz": "income",
    "bank_marketing.csv.gz": "y",
    "bike_sharing_hour.csv.gz": "cnt",
    "california.csv.gz": "MedHouseVal",
    "churn.csv": "Exited",
    "diamonds.csv.gz": "price",
    "magic_telescope.csv.gz": "class",
    "phoneme.csv": "Class",
    "titanic.csv": "Survived",
    "wine_quality.csv": "quality",
}
N_ROWS = 1200
CONFIG = from_preset("fast", k=4, d_block=32, n_bins=12, max_epochs=6)
PICTURES = os.environ.get("LOMETAB_PICTURES")


def write_some(name: str, path: Path) -> None:
    """The head of a shared file, and some of its rows."""
    source = SHARED / name
    if not source.exists():
        pytest.skip(f"the shared data set {name} is not here")
    content = source.read_bytes()
    content = gzip.decompress(content) if name.endswith(".gz") else content
    head, *rows = content.splitlines(keepends=True)
    chosen = np.random.default_rng(0).permutation(len(rows))[:N_ROWS]
    path.write_bytes(head + b"".join(rows[i] for i in sorted(chosen)))


def train_on(name: str, folder: Path) -> tuple[dict[str, Any], About]:
    """The reports of a model that the worker's program trained, and the rest of what
    its card tells."""
    write_some(name, folder / "t.csv")
    read_file(folder / "t.csv", folder / DATA)
    schema = infer_schema(ParquetTable(folder / DATA), target=TARGETS[name])
    spec = Spec(
        job_id="job_1",
        attempt=1,
        role="train",
        hyperparameters=asdict(CONFIG),
        schema=schema.to_dict(),
        split=asdict(Split()),
        dataset_sha256="0" * 64,
        device="cpu",
        threads=1,
        checkpoint_seconds=1e9,
        supervisor=0,
    )
    train.run(spec, folder, lambda message: None, set())
    about = About(
        title=f"Model of {name}",
        target=TARGETS[name],
        columns=dict.fromkeys([*schema.numeric, *schema.categorical], "a value"),
        ignored=schema.ignored,
        settings=spec.hyperparameters,
    )
    return json.loads((folder / REPORTS).read_text()), about


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_card_says_what_the_reports_have(name: str, tmp_path: Path) -> None:
    reports, about = train_on(name, tmp_path)
    abouts = check_statements(reports)
    assert abouts[:2] == ["quality", "naive"] and abouts[-1] == "next"
    text = to_markdown(about, reports)
    assert text.startswith("# Model of ")
    for section in ("Summary", "What it uses", "How good it is", "Where it fails"):
        assert f"## {section}" in text, section
    names = {each["column"] for each in reports["report"]["importance"]["columns"]}
    assert names <= about.columns.keys()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(PICTURES is None, reason="LOMETAB_PICTURES names no folder")
@pytest.mark.parametrize("name", TARGETS)
def test_pictures_of_cards(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reports, about = train_on(name, tmp_path)
    path = tmp_path / "card.html"
    path.write_text(to_html(about, reports), encoding="utf-8")
    with open_browser(tmp_path_factory.mktemp("b")) as browser:
        for look in ("light", "dark"):
            context = browser.new_context(
                color_scheme=look, viewport={"width": 1000, "height": 1200}
            )
            page = context.new_page()
            page.goto(path.as_uri())
            picture = Path(str(PICTURES)) / f"card-{name.partition('.')[0]}-{look}.png"
            page.screenshot(path=picture, full_page=True)
            assert picture.stat().st_size > 10_000
            context.close()
