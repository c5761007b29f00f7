"""The child's program, in this process: checkpoints that cannot be used, faults."""

import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from lometab.config import TrainConfig
from lometab.evaluation import DRAWS
from lometab.predictor import Predictor
from lometab.table import ParquetTable, Split, infer_schema, read_file
from tests.support.tables import make_csv
from worker import train
from worker.messages import (
    CHECKPOINT,
    DATA,
    LEFT,
    MACHINE_FAULT,
    NETWORKS,
    ONNX,
    OUTCOME,
    REPORTS,
    WEIGHTS,
    CheckpointUnusable,
    CheckpointWritten,
    Done,
    EpochDone,
    Failed,
    Message,
    PhaseBegun,
    Resumed,
    Spec,
)

CONFIG = TrainConfig(
    **{"k": 2, "rank": 1, "n_blocks": 1, "d_block": 8, "n_bins": 4, "d_embedding": 4},
    **{"max_epochs": 3, "batch_size": 64},
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A table, and what was made of its columns."""
    folder = tmp_path_factory.mktemp("source")
    (folder / "t.csv").write_text(make_csv(120))
    read_file(folder / "t.csv", folder / DATA)
    schema = infer_schema(ParquetTable(folder / DATA), target="y")
    return folder / DATA, schema.to_dict()


@pytest.fixture
def spec(source: tuple[Path, dict[str, Any]], tmp_path: Path) -> Spec:
    shutil.copy(source[0], tmp_path / DATA)
    return Spec(
        job_id="job_1",
        attempt=1,
        role="cell",
        hyperparameters=asdict(CONFIG),
        schema=source[1],
        split=asdict(Split()),
        dataset_sha256="0" * 64,
        device="cpu",
        threads=1,
        checkpoint_seconds=0.0,
        supervisor=0,
    )


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, list[Message]]]:
    """Runs the program until it has no more specs; its exit code and its messages."""
    monkeypatch.setattr(train, "die_with_parent", lambda _: None)

    class NoMore(Exception):
        pass

    def play(*specs: Spec, orders: set[str] | None = None) -> Any:
        rest, sent = [*specs], []

        class Inbox:
            def get(self) -> tuple[Spec, set[str]]:
                if not rest:
                    raise NoMore
                return rest.pop(0), orders or set()

        code = train.work(Inbox(), tmp_path, sent.append)  # type: ignore[arg-type]
        if isinstance(sent[-1], Failed) and "NoMore" in sent[-1].detail:
            sent.pop()
        return code, sent

    return play


def test_cells(run: Any, spec: Spec, tmp_path: Path) -> None:
    _, sent = run(spec, spec)
    assert sent.count(Done()) == 2 and sent[0] == PhaseBegun("training")
    epochs = [each.progress for each in sent if isinstance(each, EpochDone)]
    assert [each["epoch"] for each in epochs] == [1, 2, 3, 1, 2, 3]
    assert json.loads((tmp_path / OUTCOME).read_text())["epochs"] == 3


def test_catboost_leaves_its_draws_as_others_do(
    run: Any, spec: Spec, tmp_path: Path
) -> None:
    """Else nothing could say whether it is ahead by more than noise."""
    pytest.importorskip("catboost")
    found = []
    for each in (spec, replace(spec, is_catboost=True)):
        run(each)
        found.append(json.loads((tmp_path / OUTCOME).read_text())[DRAWS])
    assert len(found[0]) == len(found[1]) == 100 and found[0] != found[1]


@pytest.mark.parametrize("least", [1, 4])
def test_a_model_of_trials(
    run: Any, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    """Members of several networks: one file, its reports, and nothing is trained."""
    monkeypatch.setattr("lometab.selection.find_least", lambda _: least)
    for number, more in ((3, {}), (5, {"d_block": 12, "k": 3, "seed": 1, "ema": 0.9})):
        settings = {**spec.hyperparameters, **more}
        run(replace(spec, role="trial", hyperparameters=settings))
        (tmp_path / NETWORKS).mkdir(exist_ok=True)
        shutil.move(tmp_path / WEIGHTS, tmp_path / NETWORKS / str(number))
    combined = replace(spec, role="refit", networks=(5, 3, 4), baselines=("mlp",))
    code, sent = run(combined)  # the weights of trial 4 are gone
    assert code == 0, sent
    phases = [each.phase for each in sent if isinstance(each, PhaseBegun)]
    assert phases == ["training", "comparing", "exporting", "evaluating"]
    assert not any(isinstance(each, EpochDone) for each in sent)

    predictor = Predictor((tmp_path / ONNX).read_bytes())
    trials = [network["trial"] for network in predictor.metadata["networks"]]
    assert {*trials} <= {3, 5}
    assert len(predictor.metadata["members"]) == predictor.k
    assert least <= predictor.k <= 5
    for origin in predictor.metadata["members"]:
        assert origin["member"] < (3 if trials[origin["network"]] == 5 else 2)
    report = json.loads((tmp_path / REPORTS).read_text())["report"]
    assert report["k"] == predictor.k
    if least == 1:  # then they are at least as good as the best member by itself
        scores = report["scores"]["val"]
        assert scores["ensemble"]["rmse"] <= min(scores["members"]["rmse"]) + 1e-6
    assert [each["name"] for each in report["baselines"]] == ["lometab", "mlp"]
    for place in (tmp_path / NETWORKS).iterdir():
        shutil.rmtree(place)
    assert run(combined)[1][-1].code == "internal"


def test_the_end_is_told_before_the_process_is_gone(
    run: Any, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that takes long to end was killed, and its finished work was lost."""
    monkeypatch.setattr(train, "run", lambda *_: None)
    code, sent = run(replace(spec, role="train"))
    assert (code, sent) == (0, [Done()])


def leave(run: Any, spec: Spec, folder: Path) -> None:
    """Train an epoch, and have its checkpoint where the next attempt looks for it."""
    code, sent = run(spec, orders={"leave"})
    assert code == LEFT
    (written,) = [each for each in sent if isinstance(each, CheckpointWritten)]
    shutil.move(folder / written.folder, folder / CHECKPOINT)


def test_a_checkpoint_is_resumed(run: Any, spec: Spec, tmp_path: Path) -> None:
    leave(run, spec, tmp_path)
    _, sent = run(spec)
    assert Resumed(1) in sent and sent[-1] == Done()
    epochs = [each.progress for each in sent if isinstance(each, EpochDone)]
    assert [each["epoch"] for each in epochs] == [2, 3]


def test_a_network_that_a_stop_cut_off_is_left_out(
    run: Any, spec: Spec, tmp_path: Path
) -> None:
    """Its members would count as much as those that were trained to the end."""
    orders: set[str] = set()
    several = replace(spec, role="train", n_seeds=3)
    sent: list[Message] = []

    def send(message: Message) -> None:
        sent.append(message)
        if isinstance(message, EpochDone) and len(epochs()) == 4:
            orders.add("stop")  # in the first epoch of the second network

    def epochs() -> list[Any]:
        return [each.progress for each in sent if isinstance(each, EpochDone)]

    train.run(several, tmp_path, send, orders)
    assert [each["seed"] for each in epochs()] == [0, 0, 0, 1]
    predictor = Predictor(tmp_path / ONNX)
    assert predictor.k == CONFIG.k
    reports = json.loads((tmp_path / REPORTS).read_text())
    told = [w for w in reports["report"]["warnings"] if "1 of 3 networks" in w]
    assert told and told[0] in predictor.metadata["warnings"]


def cut_json(folder: Path) -> None:
    path = folder / "seed-0" / "checkpoint.json"
    path.write_text(path.read_text()[:40])


def cut_tensors(folder: Path) -> None:
    (path,) = (folder / "seed-0").glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:100])


def empty(folder: Path) -> None:
    for path in (folder / "seed-0").iterdir():
        path.unlink()


def rename_tensor(folder: Path) -> None:
    """It can be read, but is of a model that had other names."""
    (path,) = (folder / "seed-0").glob("*.safetensors")
    path.write_bytes(path.read_bytes().replace(b'"model.head', b'"model.tail'))


def change_settings(folder: Path) -> None:
    path = folder / "seed-0" / "checkpoint.json"
    state = json.loads(path.read_text())
    state["config"]["d_block"] = 16
    path.write_text(json.dumps(state))


@pytest.mark.parametrize(
    "damage", [cut_json, cut_tensors, empty, rename_tensor, change_settings]
)
def test_a_bad_checkpoint_is_told_and_training_starts_afresh(
    damage: Callable[[Path], None], run: Any, spec: Spec, tmp_path: Path
) -> None:
    leave(run, spec, tmp_path)
    damage(tmp_path / CHECKPOINT)
    _, sent = run(spec)
    (told,) = [each for each in sent if isinstance(each, CheckpointUnusable)]
    assert told.detail and sent[-1] == Done()
    epochs = [each.progress for each in sent if isinstance(each, EpochDone)]
    assert [each["epoch"] for each in epochs] == [1, 2, 3]


def test_a_full_disk_is_the_machines_fault(
    run: Any, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    code, sent = run(spec)
    assert code == 1
    assert isinstance(sent[-1], Failed) and sent[-1].code == MACHINE_FAULT


def test_an_error_is_told(run: Any, spec: Spec) -> None:
    code, sent = run(replace(spec, hyperparameters={"max_epochs": -1}))
    assert code == 1 and isinstance(sent[-1], Failed)
    assert sent[-1].code == "internal" and "max_epochs" in sent[-1].detail
