"""README, Start and Do are followed line by line: every block runs, and what the pages
show is what was printed. `scripts/follow_docs.py` is the same by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import follow_clone, follow_docs

PAGES = follow_docs.list_pages()
# One service for all pages, and pages one after the other.
pytestmark = pytest.mark.xdist_group("docs")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with follow_docs.serve(tmp_path_factory.mktemp("service")) as address:
        yield address


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    "page", PAGES, ids=lambda p: str(p.relative_to(follow_docs.ROOT))
)
def test_a_page_does_what_it_says(
    page: Path, url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    blocks = follow_docs.follow_apart(page, url, tmp_path / "empty")
    left_out = [block.reason for block in blocks if block.reason is not None]
    record_property("not run", left_out)
    assert [
        (block.line, block.printed) for block in blocks if not block.is_as_shown
    ] == []
    assert any(block.printed is not None for block in blocks) or not blocks
    if follow_docs.NO_NODE in left_out:
        pytest.skip(f"all but its JavaScript ran: {follow_docs.NO_NODE}")


def test_every_block_of_these_pages_is_run_or_says_why_not() -> None:
    left_out = {
        f"{page.stem}: {block.reason}"
        for page in PAGES
        for block in follow_docs.read_blocks(page.read_text(encoding="utf-8"))
        if block.reason not in (None, follow_docs.NO_NODE)
    }
    assert left_out == {
        "README: they set up a virtual environment; `make follow-clone` runs them in a "
        "clone",
        "client: `make follow-clone` does, in an environment of its own",
        "install: `make follow-clone` does, in an environment of its own",
        "install: one runs beside this page; `make follow-clone` does",
        "install: it needs Docker; `make follow-clone` checks what it refers to",
        "languages: `make onnx-node` has installed it, or the next blocks are left out",
        "tune: it takes as long as it says",
    }


def test_the_long_form_finds_its_parts() -> None:
    """What is left out here because `make follow-clone` runs it, that finds."""
    start = follow_docs.ROOT / "docs" / "start"
    install = (start / "install.md").read_text(encoding="utf-8")
    texts = [follow_clone.cut(install, each) for each in follow_clone.SECTIONS.values()]
    codes = [follow_clone.list_lines(text) for text in texts]
    assert [part.count("pip install") for part in codes] == [2, 2, 1]
    assert follow_clone.part(codes[2])[1] == "lometab serve\n"
    following = [follow_clone.list_next(text) for text in texts]
    assert {f"{page}" for pages in following for page in pages} | {"install.md"} == {
        path.name for path in start.glob("*.md")
    }
    readme = (follow_docs.ROOT / "README.md").read_text(encoding="utf-8")
    before, serve = follow_clone.part(follow_clone.list_lines(readme))
    assert before.startswith("make demo") and serve.startswith("make serve")


def test_blocks_of_other_languages_are_known() -> None:
    """What is in a fence that nothing runs is for reading: no line of a shell."""
    known = {"sh", "python", "js", "text", "json", "csharp", "java", "rust"}
    for page in PAGES:
        lines = page.read_text(encoding="utf-8").splitlines()
        fences = [line[3:] for line in lines if line.startswith("```")][::2]
        assert {*fences} <= known, page
        n_run = sum(each in ("sh", "python") for each in fences)
        found = follow_docs.read_blocks(page.read_text(encoding="utf-8"))
        assert n_run == sum(block.language != "js" for block in found), page


@pytest.mark.parametrize(
    ("shown", "printed", "alike"),
    [
        ("job_0a1  rmse 0.52", "job_77f rmse 0.53", True),
        ("job_0a1 rmse 0.52", "job_77f mae 0.52", False),
        ("rmse 0.52", "rmse 0.62", False),
        ("rmse 0.52", "rmse 0.52\nand more", False),
        ("diversity 0.00341", "diversity 0.00343", True),
        ("diversity 0.00341", "diversity 0.00351", False),
        ("by -0.64", "by +0.64", False),
        ("12 of 1,299 rows", "12 of 1,299 rows", True),
        ("12 of 1,299 rows", "12 of 1,300 rows", False),
        ("lr 3e-05", "lr 3e-04", False),
        ("at 2026-01-02T03:04:05Z", "at 2027-11-12T13:14:15.5Z", True),
        ("███|··  0.501", "██|···  0.499", True),
        ("╞═══╡\n│ 5.02 │", "╞═════╡\n│ 5.022 │", True),
        ("[0.65 0.69]", "[0.65 0.09]", False),
        ("[0.65 0.69]", "[0.65]", False),
        ('"revision":"0013"', '"revision":"0014"', False),
    ],
)
def test_figures_may_differ_a_little_and_ids_at_all(
    shown: str, printed: str, alike: bool
) -> None:
    assert follow_docs.is_alike(shown, printed) is alike


@pytest.mark.processes
def test_a_page_that_is_wrong_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "# P\n\n```sh\necho one\n```\n\n```text\ntwo\n```\n"
    page.write_text(text)
    (block,) = follow_docs.follow_apart(page, "http://127.0.0.1:9", tmp_path / "a")
    assert block.printed == "one\n" and not block.is_as_shown
    follow_docs.write_outputs(page, [block])
    assert page.read_text() == text.replace("two", "one")
    page.write_text("# P\n\n```python\n1 / 0\n```\n")
    with pytest.raises(RuntimeError, match="line 3: division by zero"):
        follow_docs.follow_apart(page, "http://127.0.0.1:9", tmp_path / "b")
