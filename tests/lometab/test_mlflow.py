"""Models in MLflow: a plain frame works, and nothing is pickled."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lometab import LoMETabClassifier, LoMETabRegressor, Predictor

pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own

TINY: dict[str, Any] = {
    **{"preset": "fast", "k": 3, "rank": 2, "n_blocks": 1, "d_block": 8, "n_bins": 4},
    **{"d_embedding": 2, "max_epochs": 2, "batch_size": 32, "random_state": 0},
}
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {"a": RNG.normal(size=120), "n": RNG.integers(0, 9, 120), "t": list("xyz") * 40}
)


def is_older(version: str) -> bool:
    import mlflow
    from packaging.version import Version

    return Version(mlflow.__version__) < Version(version)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    y = X["a"] + X["n"]
    LoMETabRegressor(**TINY).fit(X, y).export_onnx(folder / "r.onnx")
    LoMETabClassifier(**TINY).fit(X, y > y.median()).export_onnx(folder / "c.onnx")
    return {"r": folder / "r.onnx", "c": folder / "c.onnx"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["r", "c"])
def test_a_plain_frame_is_answered_as_the_file_does(
    files: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    import lometab.mlflow

    path = tmp_path / "kept"
    lometab.mlflow.save_model(files[kind], path, input_example=X.head(2))
    model = lometab.mlflow.load_model(str(path))
    frame = X.set_index(pd.Index(range(1000, 1120)))
    answered = model.predict(frame)
    expected = Predictor(files[kind]).predict(X)
    if not is_older("3.17"):  # which hands a frame on without its index
        assert answered.index.tolist() == frame.index.tolist()
    if kind == "r":
        assert np.allclose(answered["mean"], expected.mean, atol=1e-5)
        assert [*answered] == [
            *("mean", "member_std", "interval_lower", "interval_upper")
        ]
        wide = model.predict(frame, params={"coverage": 0.95, "members": True})
        assert "member_2" in wide
        width = wide["interval_upper"] - wide["interval_lower"]
        assert (
            width >= answered["interval_upper"] - answered["interval_lower"] - 1e-6
        ).all()
    else:
        assert answered["label"].tolist() == expected.label
    names = [each["name"] for each in model.metadata.signature.inputs.to_dict()]
    assert sorted(names) == ["a", "n", "t"]
    kept = {file.name for file in path.rglob("*")}
    assert files[kind].name in kept
    assert not [name for name in kept if name.endswith((".pkl", ".pickle"))]


@pytest.mark.slow
def test_gaps_whole_numbers_and_more_columns_are_fine(
    files: dict[str, Path], tmp_path: Path
) -> None:
    import lometab.mlflow

    lometab.mlflow.save_model(files["r"].read_bytes(), tmp_path / "m")
    model = lometab.mlflow.load_model(str(tmp_path / "m"))
    odd = pd.DataFrame({"a": [1, 2], "n": [np.nan, 3.5], "t": ["x", None]})
    assert model.predict(odd).shape[0] == 2
    records = json.loads(X.head(2).to_json(orient="records"))
    assert model.predict(pd.DataFrame(records)).shape[0] == 2
