"""Real files: one schema by service, command and estimator, and one answer to the raw
file over HTTP, by `Predictor`, and by the reader of docs/onnx.md."""

import gzip
import io
import json
import subprocess
import venv
import warnings
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pyarrow.csv
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import lometab.estimator
from app import datasets, jobs
from app.cli.application import cli
from app.serving import get_predict
from app.storage import blobs, db
from app.storage.tables import Dataset, Job
from lometab import LoMETabClassifier, LoMETabRegressor
from lometab.config import from_preset
from lometab.ensemble import train_ensemble
from lometab.export import to_onnx
from lometab.parity import check_onnx
from lometab.predictor import Predictor
from lometab.table import (
    Schema,
    features,
    read_csv,
)
from tests.support.jobs import CLAIM, REPORTS

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
SMALL = from_preset(
    "fast", k=2, rank=1, d_block=16, n_bins=8, d_embedding=2, max_epochs=1
)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with onnxruntime and numpy, and nothing else."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.check_output([python, "-c", code], text=True).strip()
    for module in (np, onnxruntime):
        source = Path(module.__file__).parent
        for folder in (source, source.with_name(f"{source.name}.libs")):
            if folder.exists():
                (Path(packages) / folder.name).symlink_to(folder)
    done = subprocess.run([python, "-c", "import torch"], capture_output=True)
    assert done.returncode != 0
    return python


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", TARGETS)
def test_one_schema_and_one_answer(
    name: str, client: TestClient, bare_python: Path, tmp_path: Path
) -> None:
    source = SHARED / name
    if not source.exists():
        pytest.skip(f"the shared data set {name} is not here")
    raw = source.read_bytes()
    raw = gzip.decompress(raw) if name.endswith(".gz") else raw
    path, schema, content = train_over_http(client, source, TARGETS[name])
    check_profile(client, source, schema)
    assert alike(fit_schema(raw, TARGETS[name]), schema)

    predictor = Predictor(content)
    expected = predictor.predict(dict(read_csv(raw))).mean
    np.testing.assert_array_equal(ask(client, path, raw, predictor), expected)
    elsewhere = read_elsewhere(bare_python, tmp_path, raw, content)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(elsewhere, expected, rtol=1e-5, atol=1e-6 * scale)


def train_over_http(
    client: TestClient, source: Path, target: str
) -> tuple[str, Schema, bytes]:
    """Upload the file, ask for a job, and train its model on a part of the rows; where
    it is asked, the schema of the job, and the file."""
    get_predict.cache_clear()
    with source.open("rb") as file:
        answer = client.post("/datasets", files={"file": (source.name, file)})
    assert answer.status_code == 201, answer.text
    body = {"dataset_id": answer.json()["id"], "target": target}
    answer = client.post("/jobs", json=body)
    assert answer.status_code == 202, answer.text
    with db.transaction() as session:
        job = jobs.claim(session, **CLAIM)
        assert job is not None
        schema = Schema.from_dict(job.schema)
        content = train_part(job, schema)
        assert jobs.finish(
            session,
            job,
            onnx_sha256=blobs.store_bytes(job.workspace_id, content),
            reports=REPORTS,
            progress={"epoch": 1, "max_epochs": 1},
        )
    model_id = client.get(f"/jobs/{answer.json()['id']}").json()["model_id"]
    return f"/models/{model_id}/predict", schema, content


def train_part(job: Job, schema: Schema) -> bytes:
    with db.reading() as session:
        table = datasets.open_table(session.get_one(Dataset, job.dataset_id))
    rows = np.random.default_rng(0).permutation(table.n_rows)
    parts: Any = {"train": np.sort(rows[:600]), "val": np.sort(rows[600:800])}
    ensemble = train_ensemble(table, schema, parts, SMALL)
    content = to_onnx(ensemble)
    x_num, x_cat = features(table.sample(500), schema)
    check_onnx(ensemble, content, x_num, x_cat)
    return content


def check_profile(client: TestClient, source: Path, schema: Schema) -> None:
    """The command finds what the service found, and the schema of the job is that."""
    done = CliRunner().invoke(cli, ["profile", str(source), "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    (dataset,) = client.get("/datasets").json()["data"]
    stored = client.get(f"/datasets/{dataset['id']}").json()
    assert found == {name: stored[name] for name in found}
    columns = {c["name"]: c for c in found["columns"] if c["name"] != schema.target}
    by_kind = {
        kind: [name for name, column in columns.items() if column["kind"] == kind]
        for kind in ("numeric", "categorical", "datetime", "ignore")
    }
    dates = {*schema.datetime}
    assert by_kind["numeric"] == [n for n in schema.numeric if n not in dates]
    assert by_kind["categorical"] == [*schema.categorical]
    assert by_kind["datetime"] == [*schema.datetime]
    assert {*by_kind["ignore"]} == {*schema.ignored} - {schema.target}
    formats = {n: c["format"] for n, c in columns.items() if c["format"]}
    assert formats == {n: f for n, f in schema.formats.items() if n in columns}


def fit_schema(raw: bytes, target: str) -> Schema:
    """What an estimator makes of the frame that pandas reads; it is not trained."""
    frame = pd.read_csv(io.BytesIO(raw))
    y = frame.pop(target)
    is_class = y.dtype == object or str(y.dtype) == "str" or y.nunique() <= 2
    estimator = LoMETabClassifier if is_class else LoMETabRegressor
    found: list[Schema] = []

    def stop(_: Any, schema: Schema, *__: Any, **___: Any) -> None:
        found.append(schema)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that are not used
        patch.setattr(lometab.estimator, "prepare", stop)
        with pytest.raises(KeyboardInterrupt):
            estimator().fit(frame, y)
    return found[0]


def alike(one: Schema, other: Schema) -> bool:
    """But for the words that mean missing, which pandas has read, and the classes,
    which an estimator has as numbers until it is trained."""
    names = ("task", "numeric", "categorical", "datetime", "formats", "min_frequency")
    ignored = {k: v for k, v in other.ignored.items() if k != other.target}
    return one.ignored == ignored and all(
        getattr(one, name) == getattr(other, name) for name in names
    )


def ask(client: TestClient, path: str, raw: bytes, predictor: Predictor) -> Any:
    answer = client.post(
        f"{path}?include=mean",
        content=raw,
        headers={"Content-Type": "text/csv", "Accept": "text/csv"},
    )
    assert answer.status_code == 200, answer.text
    table = pyarrow.csv.read_csv(io.BytesIO(answer.content))
    columns = [column.to_numpy().astype(np.float32) for column in table.columns]
    return columns[0] if predictor.classes is None else np.stack(columns, axis=1)


def read_elsewhere(python: Path, folder: Path, raw: bytes, content: bytes) -> Any:
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text()
    (folder / "model.onnx").write_bytes(content)
    (folder / "rows.csv").write_bytes(raw)
    program = page.partition("```python\n")[2].partition("```")[0] + dedent(
        """
        import onnxruntime
        session = onnxruntime.InferenceSession("model.onnx")
        inputs = read_inputs("rows.csv", session)
        (mean,) = session.run(["mean"], inputs)
        np.save("mean.npy", mean)
        """
    )
    subprocess.run([python, "-I", "-c", program], cwd=folder, check=True)
    return np.load(folder / "mean.npy")
