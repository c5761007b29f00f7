"""A child that plays a script instead of training, and jobs for it."""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import jobs
from app.jobs import states
from app.settings import Settings
from app.storage import blobs, db
from app.storage.tables import Dataset, Event, Job, new_id
from lometab.onnx_file import seal
from worker.child import Child, Children
from worker.health import Health
from worker.messages import Message, Order, Spec
from worker.supervise import Attempt

MODEL = seal(b"\x08\x08", {"version": 1})
"""The least that is a file of ours."""
SCORES = {"scores": {"test": {"ensemble": {"rmse": 0.5}}}}
SPEC = Spec(
    job_id="job_1",
    attempt=2,
    role="trial",
    hyperparameters={"k": 4},
    schema={"columns": ["größe"]},
    split={"seed": 0},
    baselines=("mlp",),
    dataset_sha256="0" * 64,
    reading={"delimiter": ";"},
    device="cpu",
    threads=1,
    checkpoint_seconds=30.0,
    supervisor=17,
)
Step = Message | Callable[["FakeChild"], Message | None]
"""What the child sends; or what happens next, which may be to send something."""


class FakeChild:
    """Sends the messages of its script, one in each call of `receive`."""

    def __init__(
        self,
        script: Sequence[Step] = (),
        *,
        exit_code: int = 0,
        n_bytes: int = 0,
        is_endless: bool = False,
    ) -> None:
        self._script = iter(script)
        self._exit_code = exit_code
        self._n_bytes = n_bytes
        self._is_endless = is_endless
        self.specs: list[Spec] = []
        self.orders: list[Order] = []
        self.files: list[list[str]] = []
        """What was in the folder when a job began."""
        self.n_ends = 0
        self.is_removed = False

    @cached_property
    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="lometab-fake-"))

    def start(self, spec: Spec) -> None:
        self.specs.append(spec)
        self.files.append(sorted(path.name for path in self.folder.iterdir()))

    def send(self, order: Order) -> None:
        self.orders.append(order)

    def receive(self, timeout: float) -> list[Message] | None:
        for step in self._script:
            sent = step(self) if callable(step) else step
            return [] if sent is None else [sent]
        return [] if self._is_endless else None

    def is_running(self) -> bool:
        return self.n_ends == 0

    def wait(self) -> bool:
        return True

    def end(self) -> int:
        self.n_ends += 1
        return self._exit_code

    def count_bytes(self) -> int:
        return self._n_bytes

    def read_last_line(self) -> str:
        return "Segmentation fault"

    def clear(self) -> None:
        for path in self.folder.iterdir():
            if path.name != "table.parquet":
                path.unlink()

    def remove(self) -> None:
        self.is_removed = True
        shutil.rmtree(self.folder)


CONFIG: dict[str, Any] = {"hyperparameters": {"max_epochs": 9}, "split": {"seed": 0}}


def add_job(**values: Any) -> Job:
    """A queued job on a table of its own."""
    sha256 = blobs.store_bytes("default", b"a table")
    with db.transaction() as session:
        dataset = session.scalar(sa.select(Dataset)) or Dataset(
            id=new_id("ds"),
            workspace_id="default",
            sha256="1" * 64,
            options_sha256="0" * 64,
            table_sha256=sha256,
            filename="t.csv",
            size=8,
            n_rows=1,
            n_columns=2,
            read_options={},
            reading={"delimiter": ";"},
            profile={},
        )
        session.add(dataset)
        session.flush()
        job = Job(
            id=new_id("job"),
            workspace_id="default",
            dataset_id=dataset.id,
            schema={"task": "regression"},
            estimate={"memory_bytes": 3 << 20},
            **{
                "progress": {"epoch": 0},
                "kind": "train",
                "role": values.get("kind", "train"),
                "queue": "cpu",
                **values,
                "config": CONFIG | values.get("config", {}),
            },
        )
        states.add(session, job)
    return job


def claim(session: Session) -> Job:
    job = jobs.claim(session, queue="cpu", owner="me", lease_seconds=60)
    assert job is not None
    return job


def attempt(
    child: Child | Callable[[], Child],
    settings: Settings | None = None,
    health: Health | None = None,
    children: Children | None = None,
) -> Job:
    """Claim the next job and run one attempt at it with the child; its row after."""
    with db.transaction() as session:
        job = claim(session)
    make = child if callable(child) else (lambda: child)
    used = children or Children(make)
    try:
        Attempt(job, settings or Settings(), used, health or Health()).run()
    finally:
        if children is None:
            used.end()
    return read(job)


def read(job: Job) -> Job:
    with db.reading() as session:
        return session.get_one(Job, job.id)


def read_events(job: Job) -> list[tuple[str, dict[str, Any]]]:
    with db.reading() as session:
        rows = session.execute(
            sa.select(Event.type, Event.data)
            .where(Event.job_id == job.id)
            .order_by(Event.seq)
        )
        return [(kind, data) for kind, data in rows]


def types(job: Job) -> list[str]:
    return [kind for kind, _ in read_events(job)]


def write_model(child: FakeChild) -> None:
    (child.folder / "model.onnx").write_bytes(MODEL)
    (child.folder / "reports.json").write_text(json.dumps({"report": SCORES}))
