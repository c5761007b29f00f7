"""What a loaded model takes in memory is about what its predictor says."""

import subprocess
import sys
from pathlib import Path

import pytest

from lometab.export import to_onnx
from tests.support.ensembles import train

PROGRAM = """
import gc, sys
from pathlib import Path
import psutil
from lometab.predictor import Predictor

content = Path(sys.argv[1]).read_bytes()
first = Predictor(content)
row = {name: None for name in first.columns}
first.predict([row])
gc.collect()
before = psutil.Process().memory_info().rss
loaded = [Predictor(content) for _ in range(int(sys.argv[2]))]
for each in loaded:
    each.predict([row])
gc.collect()
taken = psutil.Process().memory_info().rss - before
print(taken / sum(each.loaded_bytes for each in loaded))
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    "settings",
    [{"k": 2, "d_block": 8}, {"k": 16, "n_blocks": 3, "d_block": 128}],
    ids=["tiny", "like the default"],
)
def test_memory_of_many(settings: dict[str, int], tmp_path: Path) -> None:
    """Above all of tiny ones, whose sessions take far more than their weights."""
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(train("sold", max_epochs=1, **settings)))
    command = [sys.executable, "-c", PROGRAM, str(path), "60"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0.4 < float(found.stdout) < 1.6
