"""What `make images` tells its builds, and what it writes about them. The images
themselves take a quarter of an hour: tests/support/images.py."""

from pathlib import Path

import pytest

from benchmarks import record
from lometab import __version__
from tests.support import images
from tests.support.compose import Dockerfile

TARGETS = ("api", "api-gpu", "worker-cpu", "worker-gpu")


@pytest.mark.processes
def test_a_build_is_told_its_version_and_commit() -> None:
    if not (images.ROOT / ".git").exists():
        pytest.skip("this is not a checkout")
    arguments = images.list_build_arguments(None)
    given = dict(each.split("=", 1) for each in arguments if each != "--build-arg")
    assert given["VERSION"] == __version__
    assert given["REVISION"].removesuffix("-dirty").isalnum()
    assert len(given["REVISION"].removesuffix("-dirty")) == 40
    assert "TORCH_INDEX" not in given


@pytest.mark.parametrize("target", TARGETS)
def test_labels_of_the_version_come_last(target: str) -> None:
    """Before packages, another commit would build and move them anew."""
    lines = [line for line in Dockerfile().read(target) if line.strip()]
    *_, copied, version, revision, label = [
        line for line in lines if not line.startswith(("ENV", "#"))
    ]
    assert copied == "COPY --from=code /code /opt/lometab"
    assert [version, revision] == ["ARG VERSION", "ARG REVISION"]
    assert label.startswith("LABEL ")
    assert '.version="${VERSION}"' in label and '.revision="${REVISION}"' in label


def test_sizes_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    runs = record.Runs("images")
    about = {"version": "1.2.3", "revision": "abc"}
    for n_bytes in (1_000_000, 250_400_000):  # the later one takes the place
        runs.put({"image": "api"}, {"bytes": n_bytes, "torch": "", **about})
    text = images.section(record.Runs("images"))
    assert "| api | 250 | - | 1.2.3 | abc |" in text
    assert text.count("| api |") == 1
