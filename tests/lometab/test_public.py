"""The public names: each is there, and importing the package stays cheap."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lometab
import lometab.evaluation


def test_every_public_name_is_there() -> None:
    for name in lometab.__all__:
        assert getattr(lometab, name) is not None
        assert name in dir(lometab)
    assert {*lometab._MODULES, "__version__"} == {*lometab.__all__}
    for name in ("LoMETabClassifier", "LoMETabRegressor", "Predictor"):
        assert getattr(lometab, name).__name__ == name
    for name in lometab.evaluation.__all__:
        assert getattr(lometab.evaluation, name) is not None


@pytest.mark.processes
def test_importing_the_package_loads_no_other() -> None:
    code = (
        "import sys; before = set(sys.modules); import lometab; "
        "found = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "sys.exit(bool(found - sys.stdlib_module_names - {'lometab'}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nobody_reaches_past_the_surface_of_evaluation() -> None:
    root = Path(__file__).parents[2]
    inside = root / "lometab" / "evaluation"
    for package in ("lometab", "app", "worker"):
        for path in (root / package).rglob("*.py"):
            if inside not in path.parents:
                text = path.read_text(encoding="utf-8")
                assert not re.search(r"(from|import) lometab\.evaluation\.", text), path
