"""The short form of `make chaos`."""

from pathlib import Path

import pytest

from tests.chaos import Battlefield, run


@pytest.mark.slow
def test_no_fault_loses_or_doubles_a_job(tmp_path: Path) -> None:
    field = Battlefield(tmp_path)
    try:
        verdict = run(field, n_jobs=5, seconds=20, pause=2)
    finally:
        field.close()
    assert verdict["succeeded"] == verdict["models"] == 5, verdict
    assert verdict["lost"] == verdict["doubled"] == verdict["stuck"] == 0, verdict
    assert verdict["gaps in events"] == 0, verdict
