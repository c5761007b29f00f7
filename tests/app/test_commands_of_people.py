"""The commands that talk to a service, on the API of this process."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner, Result

from app.cli.application import cli
from app.cli.mistakes import AWAY, FAILED, NOT_FOUND, USAGE, explain
from app.cli.output import complain, draw_reliability, print_rows
from lometab.client import Client, Retries
from lometab.config import PRESETS
from tests.support.bridge import Bridge
from tests.support.models import ROWS, TABLE, succeed
from tests.support.predictions import work_off

Run = Callable[..., Result]
MODULES = ("datasets", "jobs", "models", "predict", "reports", "train", "webhooks")


@pytest.fixture
def run(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Run:
    @contextmanager
    def open_client(*_: object, **__: object) -> Iterator[Client]:
        quick = Retries(attempts=2, first_seconds=0.001)
        with Client("http://127.0.0.1", transport=Bridge(client), retries=quick) as c:
            yield c

    for name in MODULES:
        monkeypatch.setattr(f"app.cli.{name}.open_client", open_client)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments])

    return invoke


def read_json(result: Result) -> Any:
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


@pytest.fixture
def job(client: TestClient) -> dict[str, Any]:
    return succeed(client, "label")


@pytest.fixture
def rows_csv(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*ROWS[0]])
        writer.writeheader()
        writer.writerows(ROWS)
    return path


def test_what_there_is_is_listed(run: Run, job: dict[str, Any]) -> None:
    assert job["id"] in run("jobs").stdout
    assert [each["id"] for each in read_json(run("jobs", "--json"))] == [job["id"]]
    assert read_json(run("jobs", "--status", "failed", "--json")) == []
    assert "no job yet" in run("jobs", "--status", "failed").stdout
    assert job["model_id"] in run("models").stdout
    assert job["dataset_id"] in run("datasets").stdout
    shown = read_json(run("jobs", "show", job["id"], "--json"))
    assert shown["status"] == "succeeded"
    assert "label" in run("models", "show", job["model_id"]).stdout
    assert "rows" in run("datasets", "show", job["dataset_id"]).stdout


def test_a_report_has_a_reliability_chart(run: Run, job: dict[str, Any]) -> None:
    shown = run("report", job["model_id"]).stdout
    assert "accuracy" in shown and "█" in shown and "diversity" in shown
    found = read_json(run("report", job["id"], "--json"))
    assert {*found} == {"job", "report", "diversity", "calibration"}


def test_models_are_compared(run: Run, client: TestClient, job: dict[str, Any]) -> None:
    other = succeed(client, "label")
    shown = run("compare", job["id"], other["model_id"])
    assert job["id"] in shown.stdout and other["id"] in shown.stdout
    assert len(read_json(run("compare", job["id"], other["id"], "--json"))) == 2


def test_watching_ends_with_the_job(run: Run, job: dict[str, Any]) -> None:
    done = run("jobs", "watch", job["id"])
    assert done.exit_code == 0 and "succeeded" in done.stdout


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_answers_go_to_a_file(
    run: Run, job: dict[str, Any], rows_csv: Path, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"out.{suffix}"
    done = run("predict", job["model_id"], str(rows_csv), "-o", str(out), "--members")
    assert done.exit_code == 0, (done.output, done.exception)
    if suffix == "csv":
        found = [*csv.DictReader(io.StringIO(out.read_text()))]
    else:
        found = pq.read_table(out).to_pylist()
    assert len(found) == len(ROWS)
    assert {"label", "entropy", "set"} < {*found[0]}
    assert any(name.startswith("member_2_") for name in found[0])
    assert [*tmp_path.glob("*.part")] == []


def test_the_file_answers_as_the_service_does(
    run: Run, job: dict[str, Any], rows_csv: Path, tmp_path: Path
) -> None:
    onnx = tmp_path / "m.onnx"
    run("models", "export", job["model_id"], "-o", str(onnx))
    by_file = run("predict", str(onnx), str(rows_csv))
    by_service = run("predict", job["model_id"], str(rows_csv))
    assert by_file.exit_code == 0, by_file.output
    one, other = (
        [*csv.DictReader(io.StringIO(each.stdout))] for each in (by_file, by_service)
    )
    assert len(one) == len(ROWS) and [*one[0]] == [*other[0]]
    for mine, theirs in zip(one, other, strict=True):
        assert mine["label"] == theirs["label"] and mine["set"] == theirs["set"]
        assert float(mine["entropy"]) == pytest.approx(float(theirs["entropy"]))


def test_aliases_and_pruning(run: Run, client: TestClient) -> None:
    ids = []
    for _ in range(3):
        made = succeed(client, "y")
        ids.append(made["model_id"])
    assert "nothing to prune" in run("models", "prune").stdout  # they have no names
    refused = run("models", "promote", ids[0])
    assert "has no name" in str(refused.exception)


def test_a_job_is_left_to_the_service(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    made = read_json(
        run(
            *("train", str(path), "-t", "y", "--preset", "fast", "--budget", "10m"),
            *("--set", "rank=8", "--set", "split.seed=3", "--tag", "a", "--name", "n"),
            *("--detach", "--url", "http://127.0.0.1", "--json"),
        )
    )
    config = made["config"]
    assert made["status"] == "queued" and made["tags"] == ["a"] and made["name"] == "n"
    assert config["hyperparameters"]["rank"] == 8 and config["split"]["seed"] == 3
    assert (made["kind"], config["time_budget_seconds"]) == ("tune", 600)
    assert config["max_runtime_seconds"] is None
    cancelled = read_json(run("jobs", "cancel", made["id"], "--json"))
    assert cancelled["status"] == "cancelled"
    swept = run(
        *("sweep", str(path), "-t", "y", "--grid", "rank=1,2", "--seeds", "2"),
        *("--budget", "2h", "--detach", "--url", "http://127.0.0.1", "--json"),
    )
    assert read_json(swept)["progress"]["n_runs"] == 4
    assert read_json(swept)["config"]["max_runtime_seconds"] == 7200
    tuned = run(
        *("tune", str(path), "-t", "y", "--set", "k=4", "--set", "max_epochs=2"),
        *("--detach", "--url", "http://127.0.0.1", "--json"),
    )
    space = read_json(tuned)["config"]["tune"]["space"]
    assert space["k"] is None, "what is given is not searched"


def test_what_is_mistyped_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    here = ("--url", "http://127.0.0.1", "--detach")
    for arguments, words, code in (
        (("train", "nowhere.csv", "-t", "y"), "no file 'nowhere.csv'", USAGE),
        (("train", str(path), "-t", "z", *here), "'z'", USAGE),
        (("train", str(path), "-t", "y", "--set", "rnk=8", *here), "rank", USAGE),
        (("train", str(path), "-t", "y", "--set", "rank"), "NAME=VALUE", USAGE),
        (("train", str(path), "-t", "y", "--budget", "soon"), "10m", USAGE),
        (("jobs", "show", "job_0"), "no job 'job_0'", NOT_FOUND),
        (("predict", "mdl_0", str(path)), "no model 'mdl_0'", NOT_FOUND),
        (("profile", "nowhere.csv"), "no file", USAGE),
    ):
        done = run(*arguments)
        mistake = done.exception and explain(done.exception)
        text = mistake.text if mistake else done.output
        assert words in text.replace("\n", ""), (arguments, text, done.exception)
        assert (mistake.code if mistake else done.exit_code) == code, arguments


def test_a_profile_is_what_the_service_finds(
    run: Run, client: TestClient, rows_csv: Path
) -> None:
    here = read_json(run("profile", str(rows_csv), "--json"))
    there = client.post("/datasets", files={"file": rows_csv.read_bytes()}).json()
    for name in here:
        assert here[name] == there[name], name
    assert {*here} == {*there} - {
        *("id", "filename", "sha256", "size", "created_at", "links")
    } - ({*there} - {*here})
    assert {"columns", "reading", "head", "warnings", "suggestions"} <= {*here}


def test_confidence_that_tells_the_truth_meets_its_mark() -> None:
    bins = [
        {"lower": 0.5, "upper": 0.6, "count": 3, "accuracy": 0.5, "confidence": 0.55},
        {"lower": 0.6, "upper": 0.7, "count": 0, "accuracy": None, "confidence": None},
    ]
    _, line = draw_reliability(bins, width=20)
    assert "██████████·|" in line and line.split()[-1] == "3"


def test_mistakes_have_their_codes() -> None:
    from lometab.client import JobFailed, Unreachable
    from lometab.errors import ConfigError

    failed = JobFailed({"id": "job_1", "error": {"code": "diverged", "detail": "d"}})
    for error, code in (
        (Unreachable("gone"), AWAY),
        (failed, FAILED),
        (ConfigError("rank"), USAGE),
        (ModuleNotFoundError("no", name="torch"), USAGE),
        (OSError(98, "in use"), AWAY),
    ):
        mistake = explain(error)
        assert mistake is not None and mistake.code == code
    assert explain(RuntimeError("a bug")) is None
    assert explain(ModuleNotFoundError("no", name="nobodys")) is None


def test_predict_by_a_job_says_the_same(
    run: Run,
    job: dict[str, Any],
    rows_csv: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.jobs.create.notify", lambda *_: bool(work_off()))
    found = []
    for name, option in (("a.csv", "--no-job"), ("b.csv", "--job")):
        path = tmp_path / name
        done = run("predict", job["model_id"], str(rows_csv), "-o", str(path), option)
        assert done.exit_code == 0, (done.output, done.exception)
        found.append([*csv.DictReader(io.StringIO(path.read_text()))])
    by_request, by_job = found
    assert len(by_job) == len(ROWS)
    for first, second in zip(by_request, by_job, strict=True):
        assert first["label"] == second["label"]
        assert float(first["mean_high"]) == pytest.approx(float(second["mean_high"]))
    nowhere = run("predict", job["model_id"], str(rows_csv), "--job")
    assert nowhere.exit_code != 0 and "--output" in str(nowhere.exception)


def test_a_prediction_is_left_to_the_service_and_downloaded_later(
    run: Run,
    job: dict[str, Any],
    rows_csv: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.jobs.create.notify", lambda *_: bool(work_off()))
    broken = {name: "much" for name in ROWS[0]}
    rows_csv.write_text(rows_csv.read_text() + ",".join(broken.values()) + "\n")
    asked = ["predict", job["model_id"], str(rows_csv), "--skip"]
    left = run(*asked, "--detach")
    assert left.exit_code == USAGE and "--url" in left.stderr
    made = read_json(run(*asked, "--detach", "--url", "http://service", "--json"))
    assert made["kind"] == "predict"
    shown = run("jobs", "show", made["id"]).stdout
    assert f"{len(ROWS) + 1} of {len(ROWS) + 1}" in shown and "jobs download" in shown
    path = tmp_path / "later.csv"
    found = read_json(run("jobs", "download", made["id"], "-o", str(path), "--json"))
    assert found == {"path": str(path), "size": path.stat().st_size}
    assert len([*csv.DictReader(io.StringIO(path.read_text()))]) == len(ROWS) + 1
    (fault,) = read_json(run("jobs", "faults", made["id"], "--json"))
    assert fault["row"] == len(ROWS) + 1
    wrong = run("jobs", "download", job["id"])
    assert "models export" in str(wrong.exception)


def test_webhooks_are_made_changed_and_deleted(run: Run) -> None:
    assert "no webhook yet" in run("webhooks").stdout
    address = "https://hooks.example.com/lometab"
    made = read_json(run("webhooks", "create", address, "--json"))
    assert made["secret"].startswith("whsec_")
    assert made["events"] == ["job.succeeded", "job.failed"]
    id_ = made["id"]
    (row,) = read_json(run("webhooks", "--json"))
    assert row["id"] == id_ and "secret" not in row
    assert address in run("webhooks").stdout
    changed = run("webhooks", "update", id_, "--event", "model.promoted", "--off")
    assert "model.promoted" in changed.stdout and "secret" not in changed.stdout
    assert run("webhooks", "update", id_).exit_code == USAGE
    again = read_json(run("webhooks", "rotate", id_, "--json"))
    assert again["secret"] != made["secret"] and not again["is_enabled"]
    assert read_json(run("webhooks", "deliveries", id_, "--json")) == []
    assert "nothing was sent" in run("webhooks", "deliveries", id_).stdout
    assert run("webhooks", "delete", id_).exit_code == 0
    assert explain(run("webhooks", "show", id_).exception).code == NOT_FOUND  # type: ignore


RUNNING = ("serve", "api", "worker", "migrate", "bootstrap", "dashboard", "version")


def list_commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, each in getattr(command, "commands", {}).items():
        yield f"{path} {name}".strip(), each
        yield from list_commands(each, f"{path} {name}".strip())


def test_every_command_that_answers_has_json_and_a_sentence() -> None:
    for name, command in list_commands(get_command(cli)):
        assert command.help, name
        options = {option for each in command.params for option in each.opts}
        is_group = name in ("keys", "blobs")
        assert "--json" in options or is_group or name in RUNNING, name


def test_an_option_before_a_command_is_not_lost(run: Run, job: dict[str, Any]) -> None:
    done = run("jobs", "--url", "http://elsewhere", "show", job["id"])
    assert done.exit_code == USAGE and "after the command" in done.stderr


def test_a_preset_is_one_of_the_library(run: Run, rows_csv: Path) -> None:
    done = run("train", str(rows_csv), "-t", "y", "--preset", "fst")
    assert done.exit_code == USAGE
    for name in PRESETS:
        assert name in done.stderr


def test_a_file_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    complain("line 1: \x1b[2J\x07 [bold]x")
    shown = capsys.readouterr().err
    assert "\x1b" not in shown and "\x07" not in shown and "[bold]x" in shown


def test_ids_are_never_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a narrow terminal columns are left out, in the order that is given."""
    rows = [
        {"id": "job_0123456789ab", "model_id": "mdl_0123456789ab", "name": "n" * 60}
    ]
    columns = {"job": "id", "model": "model_id", "name": "name", "other": "other"}
    for width in (50, 80, 110):
        screen = io.StringIO()
        console = Console(
            file=screen, width=width, force_terminal=True, color_system=None
        )
        monkeypatch.setattr("app.cli.output.get_console", lambda c=console: c)
        print_rows(rows, columns, "", spare=["other"])
        shown = screen.getvalue()
        assert "job_0123456789ab" in shown and "mdl_0123456789ab" in shown
        assert ("other" in shown) == (width == 110)
        assert max(map(len, shown.splitlines())) <= width


def test_where_ids_have_no_room_side_by_side_each_row_is_a_paragraph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = ["job_0123456789abcdef01234567", "mdl_0123456789abcdef01234567"]
    rows = [{"id": ids[0], "model_id": ids[1], "kind": "train"}] * 2
    columns = {"job": "id", "model": "model_id", "kind": "kind"}
    for width, n_lines in ((44, 7), (57, 7), (80, 3)):
        screen = io.StringIO()
        console = Console(file=screen, width=width, force_terminal=True)
        monkeypatch.setattr("app.cli.output.get_console", lambda c=console: c)
        print_rows(rows, columns, "", spare=["kind"])
        shown = screen.getvalue()
        assert all(shown.count(id_) == 2 for id_ in ids)
        assert len(shown.splitlines()) == n_lines
