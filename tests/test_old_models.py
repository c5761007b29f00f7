"""Model files of earlier versions go on being read, and answer as they did.

`v1-first-*` were trained and exported by the code of the first tables (revision 0001),
which also gave the answers beside them; the others are written by
tests/support/old_models.py. None of these files is ever written again.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from lometab import Predictor
from lometab.onnx_file import FORMAT_VERSION, read_metadata
from tests.support.old_models import FOLDER, ROWS

FILES = sorted(FOLDER.glob("v*.onnx"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_answers_as_it_did(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    answer = Predictor(path).predict(ROWS)
    for name in ("mean", "members"):
        np.testing.assert_allclose(
            getattr(answer, name), expected[name], rtol=1e-5, atol=1e-6
        )


def test_each_version_of_the_format_is_there() -> None:
    versions = {read_metadata(path.read_bytes())["version"] for path in FILES}
    assert versions == set(range(1, FORMAT_VERSION + 1)), (
        "run `python -m tests.support.old_models` for the new version of the format"
    )
    assert len(FILES) >= 2 * FORMAT_VERSION
