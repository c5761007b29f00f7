"""The short form of `make chaos`."""

from pathlib import Path

import pytest

from tests.support.chaos.examination import examine
from tests.support.chaos.field import Battlefield
from tests.support.chaos.random_faults import run


@pytest.mark.slow
@pytest.mark.processes
def test_no_fault_loses_or_doubles_a_job(tmp_path: Path) -> None:
    field = Battlefield(tmp_path)
    try:
        verdict = run(field, n_jobs=5, seconds=12, pause=1)
        examine(field.stack)
    finally:
        field.close()
    assert verdict["succeeded"] == verdict["models"] == 5, verdict
    assert verdict["lost"] == verdict["doubled"] == verdict["stuck"] == 0, verdict
    assert verdict["gaps in events"] == 0, verdict
