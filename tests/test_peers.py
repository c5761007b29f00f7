"""The clients of others, from PyPI, against the service: Triton's, MLServer's and
MLflow's."""

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.services import post_job, wait_for_end
from tests.support.stacks import Service, Stack
from tests.support.tables import make_csv

ROOT = Path(__file__).parents[1]
TABLE = make_csv(200)
MLSERVER = ROOT / "build" / "mlserver" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.both_databases
def test_other_peoples_clients_get_what_predict_answers(
    stack: Stack, start_service: Callable[[], Service]
) -> None:
    stack.environment["LOMETAB_INVOCATIONS_MODEL"] = "amount@1"
    service = start_service()
    frame, expected = train_both(service)
    address = service.address.removeprefix("http://")
    for is_binary in (True, False):
        ask_as_triton(address, stack.key, frame, expected["kind"], is_binary)
    if stack.key is None:  # MLflow's client has no way to send one
        ask_as_mlflow(address, frame, expected["amount"])


@pytest.mark.slow
@pytest.mark.both_databases
def test_mlserver_gets_what_predict_answers(
    stack: Stack, start_service: Callable[[], Service], tmp_path: Path
) -> None:
    """Its types, its codecs and `mlserver infer`, in an environment of their own."""
    if not MLSERVER.exists():
        pytest.skip("MLServer is not installed: `make mlserver` does it")
    service = start_service()
    frame, expected = train_both(service)
    asked = {
        "address": service.address.removeprefix("http://"),
        "key": stack.key,
        "model": "kind",
        "columns": frame.to_dict("list"),
    }
    done = subprocess.run(
        [MLSERVER, "-P", ROOT / "tests" / "support" / "mlserver_peer.py"],
        input=json.dumps(asked),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    metadata = found["metadata"]
    assert metadata["server"]["name"] == "lometab"
    assert [each["name"] for each in metadata["model"]["inputs"]] == [*frame]
    ours = expected["kind"]
    check_answers([found["codecs"]], ours)
    whole = [ours[i] for i in found["whole"]]
    assert len(whole) > 6
    assert {*found["commands"]} == {"alone", "together", "binary"}
    for answers in found["commands"].values():
        assert len(answers) == -(-len(whole) // 2)
        check_answers(answers, whole)


def check_answers(
    answers: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    """Rows of some answers, one after the other, against those of predict."""
    for name in ("mean", "members"):
        found = np.concatenate([np.array(answer[name]) for answer in answers])
        assert np.allclose(found, np.array([row[name] for row in expected]), atol=1e-5)
    labels = [label for answer in answers for label in answer["label"]]
    assert labels == [row["label"] for row in expected]


def train_both(
    service: Service,
) -> tuple[pd.DataFrame, dict[str, list[dict[str, Any]]]]:
    """A regression and a classification; some rows, and what each predicts of them."""
    ids = {}
    for target, other, name in (("y", "label", "amount"), ("label", "y", "kind")):
        columns = {other: "ignore"}
        job = post_job(service.client, TABLE, target, name=name, columns=columns)
        ids[name] = wait_for_end(service, job["id"])["model_id"]
    names = [
        column["name"]
        for column in service.client.get(f"/models/{ids['kind']}").json()["columns"]
    ]
    frame = pd.read_csv(io.StringIO(TABLE))[names].head(20)
    expected = {
        name: service.client.post(
            f"/models/{id_}/predict",
            content=frame.to_csv(index=False),
            headers={"Content-Type": "text/csv"},
        ).json()["predictions"]
        for name, id_ in ids.items()
    }
    return frame, expected


def ask_as_triton(
    address: str,
    key: str | None,
    frame: pd.DataFrame,
    expected: list[dict[str, Any]],
    is_binary: bool,
) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    triton = pytest.importorskip("tritonclient.http")
    peer = triton.InferenceServerClient(address)
    assert peer.is_server_live() and peer.is_server_ready()
    for version in ("", "1"):
        assert peer.is_model_ready("kind", version, headers=headers)
    assert peer.get_server_metadata(headers=headers)["name"] == "lometab"
    metadata = peer.get_model_metadata("kind", headers=headers)
    assert [each["name"] for each in metadata["inputs"]] == [*frame]
    inputs = []
    for name, column in frame.items():
        is_text = column.dtype.kind not in "if"
        values = column.fillna("").astype(str) if is_text else column.fillna(0.0)
        array = values.to_numpy(object if is_text else np.float64)
        tensor = triton.InferInput(name, array.shape, "BYTES" if is_text else "FP64")
        inputs.append(tensor.set_data_from_numpy(array, binary_data=is_binary))
    fields = ("mean", "members", "label", "entropy")
    wanted = [triton.InferRequestedOutput(n, binary_data=is_binary) for n in fields]
    answer = peer.infer("kind", inputs, outputs=wanted, headers=headers)
    n_classes = len(expected[0]["mean"])
    assert answer.as_numpy("members").shape == (len(frame), 4, n_classes)
    means = answer.as_numpy("mean")
    ours = np.array([row["mean"] for row in expected])
    is_whole = ~frame.isna().any(axis=1).to_numpy()  # zeros are no gaps
    assert is_whole.any()
    assert np.allclose(means[is_whole], ours[is_whole], atol=1e-5)
    labels = [
        each.decode() if isinstance(each, bytes) else each
        for each in answer.as_numpy("label").tolist()
    ]
    assert [n for n, ok in zip(labels, is_whole, strict=True) if ok] == [
        row["label"] for row, ok in zip(expected, is_whole, strict=True) if ok
    ]
    with pytest.raises(triton.InferenceServerException, match="no model"):
        peer.infer("nothing", inputs, headers=headers)
    with pytest.raises(triton.InferenceServerException, match="] there is no model"):
        peer.get_model_metadata("nothing", headers=headers)
    wrong = {"Authorization": "Bearer lmt_nobody"}
    with pytest.raises(triton.InferenceServerException, match=r"\[401\] .*key"):
        peer.get_model_metadata("kind", headers=wrong)
    peer.close()


def ask_as_mlflow(
    address: str, frame: pd.DataFrame, expected: list[dict[str, Any]]
) -> None:
    scoring = pytest.importorskip("mlflow.pyfunc.scoring_server.client")
    host, _, port = address.partition(":")
    peer = scoring.ScoringServerClient(host, port)
    peer.ping()
    found = peer.invoke(frame, params={"coverage": 0.8}).get_predictions()
    assert found["mean"].tolist() == pytest.approx(
        [row["mean"] for row in expected], abs=1e-5
    )
    assert {"member_std", "interval_lower", "interval_upper"} < {*found}
    with pytest.raises(Exception, match="error code 422"):
        peer.invoke(frame[[frame.columns[0]]])
