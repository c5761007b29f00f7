"""What the repository keeps of its documentation: generated parts are of today, links
lead to files, notebooks are small and whole, and the spelling is one."""

import json
import re
from pathlib import Path

import pytest

from scripts.docs.diagram import draw
from scripts.docs.figures import write_readme
from scripts.docs.notebooks import to_markdown
from scripts.docs.pages import DOCS, GENERATED
from scripts.docs.text import plain

ROOT = Path(__file__).parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
WRITTEN = [*TOP, *(p for p in sorted(DOCS.rglob("*.md")) if "site" not in p.parts)]
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
AMERICAN = re.compile(
    r"\b(behaviors?|colors?|favors?|labeled|labeling|"
    r"modeling|centers?|analyze\w*|catalogs?|canceled|canceling|"
    r"(?:normal|optim|standard|visual|initial|regular|summar|organ|real|recogn|"
    r"general|minim|maxim|util|categor)iz(?:e[ds]?|ing|ation|er))\b",
    re.IGNORECASE,
)


def test_figures_of_the_readme_are_those_of_the_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert write_readme(text) == text, "run `make docs`"


def test_links_lead_to_files() -> None:
    """In the repository itself, where generated pages are not."""
    generated = {DOCS / name for name in GENERATED}
    wrong = [
        f"{path.relative_to(ROOT)}: {address}"
        for path in WRITTEN
        for address in re.findall(r"\]\(([^)\s]+)\)", _read_prose(path))
        if not re.match(r"https://|mailto:|#", address)
        and not (target := (path.parent / address.partition("#")[0]).resolve()).exists()
        and target not in generated
    ]
    assert wrong == []


def test_the_spelling_is_british() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {word[0]}"
        for path in WRITTEN
        for word in AMERICAN.finditer(re.sub(r"\]\([^)]*\)", "", _read_prose(path)))
    }
    assert found == set()


def _read_prose(path: Path) -> str:
    """A page without code."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"`[^`]*`|<[^>]*>", "", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_run_and_is_small(path: Path, tmp_path: Path) -> None:
    assert path.stat().st_size < 300_000
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    numbers = [cell["execution_count"] for cell in cells]
    assert numbers == [*range(1, len(cells) + 1)], "run `make notebooks`"
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    text = to_markdown(path, tmp_path / "pictures")
    pictures = re.findall(r"\(pictures/([^)]+)\)", text)
    assert len(pictures) >= 3
    for name in pictures:
        assert (tmp_path / "pictures" / name).read_bytes().startswith(b"\x89PNG")
    assert "site-packages" not in text and str(ROOT) not in text


def test_versions_are_one() -> None:
    from lometab import __version__

    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in citation
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{__version__}] - " in changes


def test_a_chart_is_drawn_without_scripts() -> None:
    svg = draw(
        "flowchart TB\n  subgraph a\n    X[one] --> Y[two & three]\n"
        "    Y -- says --> Z[four]\n  end\n"
    )
    assert svg.count("<rect") == 3 and svg.count("<path") == 2
    assert "two &amp; three" in svg and "<title>says</title>" in svg
    assert "<script" not in svg and " style=" not in svg


def test_docstrings_become_lists() -> None:
    text = plain("Does it.\n\n    Args:\n        x: what\n            it is.\n")
    assert text == "Does it.\n\n\n**Args**\n\n- `x`: what\n  it is."
