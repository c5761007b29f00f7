"""How fast predict is, and how it stands what it is not made for.

    python benchmarks/serving.py [PART ...]

Parts: latency, joining, tables, models, overload, peers; all of them if none is named.
Servers are real: two uvicorn workers, API keys on, SQLite, on loopback. The client, the
servers and their peers share this machine, so what counts is ratios within one run.
Each part's numbers are kept in benchmarks/results/serving.json; the section of the
results is written from it. The exit status is 1 if a bound does not hold.
"""

import argparse
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import onnxruntime
import psutil
import pyarrow as pa
import pyarrow.csv
from load import Outcome, ask_again_and_again, ask_at_rate, make_request
from record import RESULTS, ROOT, former, table, write_section

sys.path.append(str(ROOT))

from app import jobs
from app.access import SCOPES, create_key
from app.settings import override_settings
from app.storage import blobs, db
from lometab.ensemble import Ensemble, train_ensemble
from lometab.export import to_onnx
from lometab.predictor import MAX_ROWS, Predictor
from lometab.table import infer_schema
from tests.support.servers import free_port, wait_until

SHAPES: dict[str, tuple[int, dict[str, int]]] = {
    "small": (0, {"k": 16, "rank": 8, "d_block": 192, "n_blocks": 2}),
    "mixed": (8, {"k": 16, "rank": 8, "d_block": 192, "n_blocks": 2}),
    "large": (0, {"k": 32, "rank": 16, "d_block": 512, "n_blocks": 2}),
}
"""Text columns beside 8 numeric ones, and the network."""
PARTS = ("latency", "joining", "tables", "models", "overload", "peers")
N_ROWS = 100_000
N_MODELS = 200
N_KEPT = 10
N_TOGETHER = 16  # rows of a request under overload: with one, the load is the limit
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
PEERS = ROOT / "benchmarks" / "peers"
ORT = f"onnxruntime=={onnxruntime.__version__}"
MEGABYTE = 1e6


# ----------------------------------------------------------------------------
# Models and rows


def make_table(n_text: int, n_rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"n{i}": rng.normal(size=n_rows) for i in range(8)}
    texts = np.array([f"level {i}" for i in range(10)], dtype=object)
    for i in range(n_text):
        columns[f"c{i}"] = rng.choice(texts, n_rows)
    return columns


def make_ensemble(name: str) -> Ensemble:
    """Barely trained: what it answers does not matter, how long it takes does."""
    n_text, shape = SHAPES[name]
    columns = make_table(n_text, 3000)
    columns["y"] = columns["n0"] + np.random.default_rng(1).normal(size=3000)
    schema = infer_schema(columns, target="y")
    parts = {"train": np.arange(2000), "val": np.arange(2000, 3000)}
    config = former(max_epochs=1, batch_size=1024, share_batches=True, **shape)
    return train_ensemble(columns, schema, parts, config)


def to_file(ensemble: Ensemble) -> bytes:
    conformity = [percent / 50 for percent in range(1, 100)]
    return to_onnx(ensemble, metadata={"conformity": conformity})


def make_variants(count: int) -> list[bytes]:
    """The small model with other weights each time."""
    import torch

    ensemble = make_ensemble("small")
    files = []
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in ensemble.fit.model.parameters():
                weight += 0.01 * torch.randn(weight.shape, generator=generator)
        files.append(to_file(ensemble))
    return files


def one_row(name: str) -> dict[str, Any]:
    return {n: column[0] for n, column in make_table(SHAPES[name][0], 1).items()}


def json_rows(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"rows": rows}).encode()


# ----------------------------------------------------------------------------
# Servers


class Stage:
    """A database with models and a key; servers are started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.environ["LOMETAB_DATABASE_URL"] = ""
        override_settings(data_dir=folder, require_keys=True)
        db.migrate()
        with db.transaction() as session:
            _, self.key = create_key(
                session, workspace_id="default", name="bench", scopes=SCOPES
            )
        self.models: dict[str, str] = {}

    def publish(self, port: int, files: dict[str, bytes]) -> None:
        """Each file as the model of a job, done as a worker does it."""
        headers = {"Authorization": f"Bearer {self.key}"}
        rows = "".join(f"{i * 37 % 101 / 7},{i * i % 7}\n" for i in range(100))
        for name, content in files.items():
            httpx.post(
                f"http://127.0.0.1:{port}/jobs",
                files={"file": ("t.csv", f"x,y\n{rows}")},
                data={"config": '{"target": "y"}'},
                headers=headers,
                timeout=60,
            ).raise_for_status()
            sha256 = blobs.store_bytes("default", content)
            with db.transaction() as session:
                job = jobs.claim(session, queue="cpu", owner="me", lease_seconds=60)
                assert job is not None
                assert jobs.finish(
                    session,
                    job,
                    onnx_sha256=sha256,
                    reports={"report": {"scores": {"test": {"ensemble": {}}}}},
                    progress={"epoch": 1, "max_epochs": 1},
                )
                job_id = job.id
            url = f"http://127.0.0.1:{port}/jobs/{job_id}"
            answer = httpx.get(url, headers=headers).raise_for_status().json()
            self.models[name] = answer["model_id"]

    def path(self, name: str, query: str = "") -> str:
        return f"/models/{self.models[name]}/predict{query}"

    @contextmanager
    def serve(self, **settings: object) -> Iterator["Server"]:
        environment = {
            **os.environ,
            "LOMETAB_DATA_DIR": str(self.folder),
            "LOMETAB_REQUIRE_KEYS": "true",
            **{f"LOMETAB_{n.upper()}": str(value) for n, value in settings.items()},
        }
        port = free_port()
        command = [sys.executable, "-m", "app.cli", "api", "--port", str(port)]
        with started([*command, "--processes", "2"], port, environment) as process:
            yield Server(port, process)


class Server:
    def __init__(self, port: int, process: psutil.Process) -> None:
        self.port = port
        self.process = process

    def resident(self) -> dict[int, int]:
        """Bytes of each process that does work."""
        found = {}
        for process in (self.process, *self.process.children(recursive=True)):
            try:
                found[process.pid] = process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return found


@contextmanager
def started(
    command: list[str],
    port: int,
    environment: dict[str, str],
    folder: Path = ROOT,
    seconds: float = 120.0,
) -> Iterator[psutil.Process]:
    """A process that listens on the port; at the end it and all below it are gone."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(
            command,
            env={**environment, "OMP_NUM_THREADS": "1"},
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        family = psutil.Process(process.pid)
        try:
            wait_until(
                lambda: process.poll() is not None or does_answer(port),
                seconds=seconds,
                what=f"{command[0]} listens",
            )
            if process.poll() is not None:
                raise RuntimeError(Path(log.name).read_text()[-2000:])
            time.sleep(2.0)  # the other worker starts as well
            yield family
        finally:
            below = family.children(recursive=True) if process.poll() is None else []
            process.terminate()
            _, alive = psutil.wait_procs([family, *below], timeout=10)
            for each in alive:
                each.kill()


def does_answer(port: int) -> bool:
    """A port that is open only is not enough: ours is tried out before it is served."""
    try:
        httpx.get(f"http://127.0.0.1:{port}/", timeout=5)
    except httpx.HTTPError:
        return False
    return True


class Connection:
    """One client that asks, waits for the answer, and asks again."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = request

    def ask(self) -> bytes:
        self.socket.sendall(self.request)
        buffer = self._receive()
        while b"\r\n\r\n" not in buffer:
            buffer += self._receive()
        head, _, body = buffer.partition(b"\r\n\r\n")
        self.head = head
        lower = head.lower()
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(buffer.decode(errors="replace"))
        if b"content-length:" in lower:
            length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
            while len(body) < length:
                body += self._receive()
        else:
            while not body.endswith(b"0\r\n\r\n"):
                body += self._receive()
        return body

    def _receive(self) -> bytes:
        received = self.socket.recv(65536)
        if not received:
            raise RuntimeError("the server closed the connection")
        return received


def seconds_of(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def take_turns(
    functions: dict[str, Callable[[], object]], turns: int, calls: int = 1
) -> dict[str, float]:
    """The median seconds of each; in each turn all are called, so often in a row."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(turns + 1):
        for name, function in functions.items():
            spent = [seconds_of(function) for _ in range(calls)]
            if turn:  # the first one warms up
                times[name] += spent
    return {name: median(each) for name, each in times.items()}


def bare_run(predictor: Predictor, rows: dict[str, Any]) -> Callable[[], object]:
    x_num, x_cat, _ = predictor.encode(rows)
    inputs = {"numeric": x_num}
    if predictor.categorical:
        inputs["categorical"] = x_cat
    session = predictor._session
    return lambda: session.run(["mean", "members"], inputs)


# ----------------------------------------------------------------------------
# Parts


def measure_latency(stage: Stage, files: dict[str, bytes]) -> dict[str, Any]:
    """One client, one row: ours, joining off, a route that does nothing, bare."""
    result = {}
    for name in SHAPES:
        body = json_rows(one_row(name))
        with ExitStack() as stack:
            ours = stack.enter_context(stage.serve())
            off = stack.enter_context(stage.serve(join_rows=0))
            request = make_request(stage.path(name), body, key=stage.key)
            n_bytes = len(Connection(ours.port, request).ask())
            port = free_port()
            environment = {**os.environ, "N_BYTES": str(n_bytes)}
            command = [sys.executable, "-m", "uvicorn", "nothing:app", "--port"]
            command += [str(port), "--workers", "2"]
            command += ["--log-level", "warning", "--no-access-log"]
            stack.enter_context(
                started(command, port, environment, ROOT / "benchmarks")
            )
            columns = {n: [cell] for n, cell in one_row(name).items()}
            # Not sooner: who is idle while others start loses its connection.
            connection = Connection(ours.port, request)
            result[name] = take_turns(
                {
                    "ours": connection.ask,
                    "alone": Connection(off.port, request).ask,
                    "nothing": Connection(port, request).ask,
                    "bare": bare_run(Predictor(files[name]), columns),
                },
                turns=20,
                calls=20 if name == "large" else 50,
            )
            result[name]["timing"] = read_timing(connection)
    return result


def read_timing(connection: Connection) -> dict[str, float]:
    """Medians of what `Server-Timing` tells, in seconds."""
    times: dict[str, list[float]] = {}
    for _ in range(300):
        connection.ask()
        line = connection.head.lower().split(b"server-timing: ")[1].split(b"\r\n")[0]
        for part in line.decode().split(", "):
            name, _, spent = part.partition(";dur=")
            times.setdefault(name, []).append(float(spent) / 1e3)
    return {name: median(each) for name, each in times.items()}


def measure_joining(stage: Stage, files: dict[str, bytes], seconds: float) -> Any:
    """64 clients with one row each, joined and not, in turn; then a long run."""
    result: dict[str, Any] = {}
    with stage.serve() as ours, stage.serve(join_rows=0) as off:
        for name in ("small", "large"):
            request = make_request(
                stage.path(name), json_rows(one_row(name)), key=stage.key
            )
            rates: dict[str, list[float]] = {"joined": [], "alone": []}
            for turn in range(4):
                for way, server in (("joined", ours), ("alone", off)):
                    outcome = ask_again_and_again(
                        server.port, request, n_clients=64, seconds=4
                    )
                    if turn:  # the first one warms up
                        rates[way].append(outcome.rate())
            long = ask_again_and_again(
                ours.port, request, n_clients=64, seconds=seconds
            )
            result[name] = {
                **{way: median(each) for way, each in rates.items()},
                "long": summarise(long),
            }
    return result


def summarise(outcome: Outcome, status: int = 200) -> dict[str, Any]:
    return {
        "seconds": outcome.seconds,
        "rate": outcome.rate(status),
        "statuses": dict(outcome.statuses),
        "broken": outcome.n_broken,
        "p50": outcome.percentile(50, status),
        "p95": outcome.percentile(95, status),
        "p99": outcome.percentile(99, status),
    }


class Memory:
    """The most that any process of a server grows by."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.before = server.resident()
        self.growth = 0
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._is_done.wait(0.02):
            for pid, size in self.server.resident().items():
                self.growth = max(self.growth, size - self.before.get(pid, size))

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        self._thread.join()


def measure_tables(stage: Stage, files: dict[str, bytes]) -> dict[str, Any]:
    """100 000 rows in one body on the small model."""
    columns = make_table(0, N_ROWS)
    predictor = Predictor(files["small"])
    x_num, x_cat, _ = predictor.encode(columns)
    rows = pa.table(columns)
    text, stream = io.BytesIO(), io.BytesIO()
    pyarrow.csv.write_csv(rows, text)
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows)
    arrow = "application/vnd.apache.arrow.stream"
    expected, _ = predictor.run(x_num[:100], x_cat[:100])
    session = predictor._session
    parts = [x_num[i : i + MAX_ROWS] for i in range(0, N_ROWS, MAX_ROWS)]

    def bare() -> None:
        for part in parts:
            session.run(["mean", "members"], {"numeric": part})

    with stage.serve() as server, httpx.Client(timeout=300) as client:

        def send(query: str, body: bytes, kind: str, accept: str) -> bytes:
            answer = client.post(
                f"http://127.0.0.1:{server.port}{stage.path('small', query)}",
                content=body,
                headers={
                    "Content-Type": kind,
                    "Accept": accept,
                    "Authorization": f"Bearer {stage.key}",
                },
            )
            return answer.raise_for_status().content

        def send_csv() -> None:
            answer = send("?include=mean", text.getvalue(), "text/csv", "text/csv")
            means = pyarrow.csv.read_csv(io.BytesIO(answer))["mean"].to_numpy()
            assert len(means) == N_ROWS
            np.testing.assert_allclose(means[:100], expected, rtol=1e-4, atol=1e-5)

        def send_arrow() -> None:
            answer = send("", stream.getvalue(), arrow, arrow)
            found = pa.ipc.open_stream(answer).read_all()
            assert found.num_rows == N_ROWS
            means = found["mean"].to_numpy()[:100]
            np.testing.assert_allclose(means, expected, rtol=1e-4, atol=1e-5)

        for _ in range(20):  # both workers have the model
            httpx.post(
                f"http://127.0.0.1:{server.port}{stage.path('small')}",
                content=json_rows(one_row("small")),
                headers={
                    "Content-Type": "application/json",
                    "Authorization": f"Bearer {stage.key}",
                },
            ).raise_for_status()
        with Memory(server) as memory:
            times = take_turns({"csv": send_csv, "arrow": send_arrow, "bare": bare}, 5)
    return {**times, "growth": memory.growth, "csv bytes": len(text.getvalue())}


def measure_models(stage: Stage, files: dict[str, bytes]) -> dict[str, Any]:
    """200 models in turn, of which 10 fit into the cache, twice."""
    variants = make_variants(N_MODELS)
    size = Predictor(variants[0]).loaded_bytes
    row = one_row("small")
    expected = [Predictor(content).predict([row]).mean[0] for content in variants]
    with stage.serve() as server:
        names = {f"variant {i}": content for i, content in enumerate(variants)}
        stage.publish(server.port, names)
    with stage.serve(model_cache_bytes=N_KEPT * size) as server:
        connections = [Connection(server.port, b"") for _ in range(8)]
        passes = []
        worst = 0.0
        for _ in range(3):
            started_at = time.perf_counter()
            for i, name in enumerate(names):
                for connection in connections[:: 7 if i % 2 else 4]:
                    connection.request = make_request(
                        stage.path(name), json_rows(row), key=stage.key
                    )
                    mean = json.loads(connection.ask())["predictions"][0]["mean"]
                    worst = max(worst, abs(mean - expected[i]))
            passes.append(
                {
                    "resident": max(server.resident().values()),
                    "seconds": time.perf_counter() - started_at,
                }
            )
    return {"passes": passes, "worst": float(worst), "model bytes": size}


def measure_overload(stage: Stage, files: dict[str, bytes], seconds: float) -> Any:
    """Four times as many requests as can be answered, then a calm again."""
    name = "large"
    columns = make_table(0, N_TOGETHER)
    cells = zip(*(column.tolist() for column in columns.values()), strict=True)
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    expected = Predictor(files[name]).predict(rows).mean
    request = make_request(stage.path(name), json_rows(*rows), key=stage.key)
    with stage.serve() as server:
        ask_again_and_again(server.port, request, n_clients=64, seconds=3)
        full = ask_again_and_again(server.port, request, n_clients=64, seconds=8)
        calm = ask_again_and_again(server.port, request, n_clients=1, seconds=3)
        with Memory(server) as memory:
            outcome, n_unsent = ask_at_rate(
                server.port,
                request,
                rate=4 * full.rate(),
                n_clients=512,
                seconds=seconds,
            )
        after = ask_again_and_again(server.port, request, n_clients=1, seconds=5)
        answers = [json.loads(body)["predictions"] for body in outcome.bodies]
        means = np.array([[each["mean"] for each in answer] for answer in answers])
    return {
        "capacity": full.rate(),
        "offered": 4 * full.rate(),
        "sent": sum(outcome.statuses.values()) / outcome.seconds,
        "unsent": n_unsent,
        "accepted": summarise(outcome),
        "refused": summarise(outcome, 503),
        "worst": float(np.abs(means - expected).max()),
        "growth": memory.growth,
        "calm p50": calm.percentile(50),
        "after p50": median(t for at, t in after.times),
    }


# ----------------------------------------------------------------------------
# Peers


def measure_peers(stage: Stage, files: dict[str, bytes]) -> dict[str, Any]:
    """The same ONNX files behind other servers, which take turns."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("small", "large"):
            onnx = folder / f"{name}.onnx"
            onnx.write_bytes(files[name])
            numbers = [*one_row(name).values()]
            body = json_rows(one_row(name))
            with ExitStack() as stack:
                ours = stack.enter_context(stage.serve())
                request = make_request(stage.path(name), body, key=stage.key)
                servers = {"LoMETab": (ours.port, request)}
                for peer, serve in (
                    ("MLServer", serve_mlserver),
                    ("BentoML", serve_bentoml),
                    ("MLflow", serve_mlflow),
                ):
                    place = folder / f"{peer}-{name}"
                    try:
                        servers[peer] = stack.enter_context(serve(onnx, place, numbers))
                    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                        print(f"{peer} does not run here: {str(error)[-500:]}")
                for peer, each in try_out(servers).items():
                    result.setdefault(peer, {})[name] = each
    return result


def try_out(servers: dict[str, tuple[int, bytes]]) -> dict[str, Any]:
    """One client, then 64, at each server in turn; the medians of the turns."""
    alone: dict[str, list[float]] = {peer: [] for peer in servers}
    many: dict[str, list[dict[str, Any]]] = {peer: [] for peer in servers}
    for turn in range(4):
        for peer, (port, request) in servers.items():
            connection = Connection(port, request)
            spent = [seconds_of(connection.ask) for _ in range(60)]
            outcome = ask_again_and_again(port, request, n_clients=64, seconds=3)
            if turn:  # the first one warms up
                alone[peer] += spent
                many[peer].append(summarise(outcome))
    return {
        peer: {
            "p50": median(alone[peer]),
            "many": {
                name: median(each[name] for each in many[peer])
                for name in ("rate", "p50", "p99")
            },
            "errors": sum(
                each["broken"] + sum(each["statuses"].values()) - each["statuses"][200]
                for each in many[peer]
            ),
        }
        for peer in servers
    }


def environment_of(peer: str, *packages: str) -> Path:
    """Programs of a virtual environment with what the peer needs."""
    folder = CACHE / "lometab-benchmarks" / peer
    if not (folder / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "pip", "install", "--quiet", *packages]
        subprocess.run(pip, check=True)
        (folder / "done").touch()
    return folder / "bin"


@contextmanager
def serve_mlserver(onnx: Path, folder: Path, numbers: list[float]) -> Iterator[Any]:
    programs = environment_of("mlserver", "mlserver==1.7.1", "uvloop==0.21.0", ORT)
    port = free_port()
    folder.mkdir()
    ports = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
    settings = {**ports, "parallel_workers": 2, "host": "127.0.0.1"}
    (folder / "settings.json").write_text(json.dumps({**settings, "debug": False}))
    model = {
        "name": "model",
        "implementation": "mlserver_model.OnnxModel",
        "parameters": {"uri": str(onnx)},
        "max_batch_size": 256,
        "max_batch_time": 0.001,
    }
    (folder / "model-settings.json").write_text(json.dumps(model))
    tensor = {"name": "numeric", "shape": [1, 8], "datatype": "FP64", "data": numbers}
    body = json.dumps({"inputs": [tensor]}).encode()
    environment = {**os.environ, "PYTHONPATH": str(PEERS)}
    command = [str(programs / "mlserver"), "start", str(folder)]
    with started(command, port, environment, folder):
        time.sleep(5)
        yield port, make_request("/v2/models/model/infer", body)


@contextmanager
def serve_bentoml(onnx: Path, folder: Path, numbers: list[float]) -> Iterator[Any]:
    programs = environment_of("bentoml", "bentoml==1.4.39", ORT)
    port = free_port()
    environment = {
        **os.environ,
        "ONNX": str(onnx),
        "BENTOML_DO_NOT_TRACK": "True",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    command = [str(programs / "bentoml"), "serve", "bento_service:Onnx"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    body = json.dumps({"numeric": [numbers]}).encode()
    with started(command, port, environment, PEERS):
        time.sleep(5)
        yield port, make_request("/predict", body)


@contextmanager
def serve_mlflow(onnx: Path, folder: Path, numbers: list[float]) -> Iterator[Any]:
    programs = environment_of("mlflow", "mlflow==3.17.2", "onnx==1.23.2", ORT)
    save = [programs / "python", PEERS / "mlflow_model.py", onnx, folder]
    subprocess.run(save, check=True, capture_output=True)
    port = free_port()
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [str(programs / "mlflow"), "models", "serve", "-m", str(folder)]
    command += ["--env-manager", "local", "--workers", "2"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    body = json.dumps({"inputs": {"numeric": [numbers]}}).encode()
    with started(command, port, environment, folder):
        time.sleep(5)
        yield port, make_request("/invocations", body)


# ----------------------------------------------------------------------------
# The section of the results


class Checks:
    """Lines of a table: what was measured, its bound, and whether that holds."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, ...]] = []

    def add(self, what: str, measured: str, bound: str, holds: bool) -> None:
        self.lines.append((what, measured, bound, "yes" if holds else "**no**"))

    def hold(self) -> bool:
        return all(line[-1] == "yes" for line in self.lines)


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def check_latency(checks: Checks, result: dict[str, Any]) -> None:
    for name, each in result.items():
        ratio = each["ours"] / (each["nothing"] + each["bare"])
        checks.add(
            f"one client, one row, *{name}*: p50 over (bare run + empty route)",
            f"{ratio:.2f} ({ms(each['ours'])} over {ms(each['bare'])} + "
            f"{ms(each['nothing'])})",
            "<= 1.7",
            ratio <= 1.7,
        )
    for name, each in result.items():
        ratio = each["ours"] / each["alone"]
        what = f"the same, *{name}*: joining over joining switched off"
        checks.add(what, f"{ratio:.2f}", "<= 1.1", ratio <= 1.1)


def check_joining(checks: Checks, result: dict[str, Any]) -> None:
    for name, least in (("large", 3.0), ("small", 1.0)):
        each = result[name]
        ratio = each["joined"] / each["alone"]
        checks.add(
            f"64 clients, one row each, *{name}*: rows/s over joining switched off",
            f"{ratio:.2f} ({each['joined']:.0f} over {each['alone']:.0f})",
            f">= {least}",
            ratio >= least,
        )
        long = each["long"]
        spread = long["p99"] / long["p50"]
        checks.add(
            f"the same for {long['seconds']:.0f} s: p99 over p50",
            f"{spread:.1f} ({ms(long['p99'])} over {ms(long['p50'])})",
            "<= 10",
            spread <= 10,
        )
        n_errors = sum(n for code, n in long["statuses"].items() if code != "200")
        n_errors += long["broken"]
        n_good = long["statuses"]["200"]
        measured = f"{n_errors} of {n_good + n_errors}"
        checks.add("errors in that time", measured, "0", n_errors == 0)


def check_tables(checks: Checks, result: dict[str, Any]) -> None:
    for name, what, least in (
        ("csv", "CSV in, means as CSV out", 0.6),
        ("arrow", "Arrow in, all members as Arrow out", 0.8),
    ):
        share = result["bare"] / result[name]
        checks.add(
            f"{N_ROWS} rows in a body, *small*: {what}, rate over the bare session's",
            f"{share:.0%} ({N_ROWS / result[name]:.0f} rows/s)",
            f">= {least:.0%}",
            share >= least,
        )
    growth = result["growth"] / MEGABYTE
    what = "the most a process grew by meanwhile"
    checks.add(what, f"{growth:.0f} MB", "< 300 MB", growth < 300)


def check_models(checks: Checks, result: dict[str, Any]) -> None:
    sizes = [each["resident"] / MEGABYTE for each in result["passes"]]
    checks.add(
        f"{N_MODELS} models in turn, {N_KEPT} of them kept: resident memory after "
        f"the second and third pass over the first",
        f"{sizes[1] / sizes[0]:.2f}, {sizes[2] / sizes[0]:.2f} ({sizes[0]:.0f} MB)",
        "<= 1.05",
        sizes[1] <= 1.05 * sizes[0],
    )
    worst = result["worst"]
    checks.add("the largest error of their answers", f"{worst:.1g}", "", worst < 1e-4)


def check_overload(checks: Checks, result: dict[str, Any]) -> None:
    accepted, refused = result["accepted"], result["refused"]
    checks.add(
        f"overload, *large*, {N_TOGETHER} rows a request, {accepted['seconds']:.0f} s: "
        "sent over what can be done",
        f"{result['sent'] / result['capacity']:.1f} ({result['sent']:.0f} requests/s)",
        "4",
        result["sent"] >= 3.9 * result["capacity"],
    )
    others = {c: n for c, n in accepted["statuses"].items() if c not in ("200", "503")}
    n_lost = sum(others.values()) + accepted["broken"]
    checks.add(
        "answered right, refused by 503, otherwise",
        f"{accepted['rate']:.0f}/s, {refused['rate']:.0f}/s, {n_lost}",
        "0 otherwise",
        n_lost == 0 and result["worst"] < 1e-3,
    )
    measured = f"{ms(refused['p95'])} (accepted: {ms(accepted['p95'])})"
    checks.add("p95 of the 503", measured, "< 250 ms", refused["p95"] < 0.25)
    growth = result["growth"] / MEGABYTE
    checks.add("growth of memory", f"{growth:.0f} MB", "< 300 MB", growth < 300)
    ratio = result["after p50"] / result["calm p50"]
    what = "p50 in the 5 s after over that before"
    checks.add(what, f"{ratio:.2f}", "<= 1.2", ratio <= 1.2)


def describe_peers(result: dict[str, Any]) -> str:
    rows = [
        (
            peer,
            name,
            f"{1e3 * each['p50']:.2f}",
            f"{each['many']['rate']:.0f}",
            f"{1e3 * each['many']['p50']:.1f}",
            f"{1e3 * each['many']['p99']:.1f}",
            each["errors"],
        )
        for name in ("small", "large")
        for peer, models in result.items()
        if (each := models.get(name))
    ]
    header = ("server", "model", "p50, 1 client (ms)", "rows/s, 64 clients")
    return table((*header, "p50 (ms)", "p99 (ms)", "errors"), rows)


def describe_latency(result: dict[str, Any]) -> str:
    """Where the time of one row goes."""
    rows = [
        (
            name,
            *(f"{1e6 * each['timing'][p]:.0f}" for p in ("queue", "parse", "run")),
            f"{1e6 * each['timing']['encode']:.0f}",
            f"{1e6 * (each['ours'] - sum(each['timing'].values())):.0f}",
            f"{1e6 * each['nothing']:.0f}",
            f"{1e6 * each['bare']:.0f}",
        )
        for name, each in result.items()
        if "timing" in each
    ]
    if not rows:
        return ""
    header = ("model", "queue", "parse", "run", "encode", "HTTP, routing, log")
    return (
        "\nWhere the time of one row goes, in microseconds by `Server-Timing`; `parse` "
        "holds the query for key and model. A run in the server is slower than the "
        "bare one, as the code between two runs takes the caches from it, and a run of "
        "the model takes them from that code in turn: what it costs is how much of it "
        "there is.\n\n"
        f"{table((*header, 'empty route', 'bare run'), rows)}"
    )


def write_results(kept: dict[str, Any]) -> bool:
    checks = Checks()
    for part in PARTS[:-1]:
        if part in kept:
            globals()[f"check_{part}"](checks, kept[part])
    text = (
        "## Serving\n\n`make bench-serving`. Models: *small* K=16, rank 8, two blocks "
        "of 192, 8 numeric columns; *mixed* the same with 8 text columns more; *large* "
        "K=32, rank 16, two blocks of 512, 42 MB folded. Two uvicorn workers, API keys "
        "on, SQLite, one thread for a run; the load comes from the same two cores. "
        "Latencies are medians of ways that take turns. The empty route is FastAPI's, "
        "takes the same body without a look at it or at a key, and returns as many "
        "bytes.\n\n"
        f"{table(('what', 'measured', 'bound', 'holds'), checks.lines)}"
    )
    text += describe_latency(kept.get("latency", {}))
    if "peers" in kept:
        text += (
            "\nThe same ONNX files behind other servers, each with two workers and "
            "batching where it has some (`benchmarks/peers`), without keys; one row a "
            "request, the mean and all members in the answer; medians of three turns, "
            "all servers up:\n\n"
            f"{describe_peers(kept['peers'])}"
        )
    write_section("serving", text)
    return checks.hold()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=60, help="of the long runs")
    options = parser.parse_args()
    path = RESULTS / "serving.json"
    with tempfile.TemporaryDirectory() as temporary:
        stage = Stage(Path(temporary))
        files = {name: to_file(make_ensemble(name)) for name in SHAPES}
        with stage.serve() as server:
            stage.publish(server.port, files)
        for part in options.parts or PARTS:
            print(f"{part} ...", flush=True)
            measure: Any = globals()[f"measure_{part}"]
            more = [options.seconds] if part in ("joining", "overload") else []
            result = measure(stage, files, *more)
            print(json.dumps(result, indent=1), flush=True)
            kept = json.loads(path.read_text()) if path.exists() else {}
            RESULTS.mkdir(exist_ok=True)
            path.write_text(json.dumps({**kept, part: result}, indent=1) + "\n")
    return 0 if write_results(json.loads(path.read_text())) else 1


if __name__ == "__main__":
    sys.exit(main())
