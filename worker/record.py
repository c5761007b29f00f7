"""All that a worker's attempts read from the database and write to it.

Nothing else in the worker writes a job's row. Each function is one or more whole
transactions of its own; what it raises while the database is away is `DATABASE_AWAY`.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app import jobs
from app.settings import Settings
from app.storage import blobs, db
from app.storage.enums import JobKind, JobRole
from app.storage.tables import DEFAULT_WORKSPACE, Dataset, Job
from lometab.evaluation import Outcome
from lometab.space import CATBOOST
from worker.messages import Role, Spec

if TYPE_CHECKING:
    from app.jobs.search import Trial


log = logging.getLogger(__name__)


class StudyAway(Exception):
    """The study of a search is out of reach."""


DATABASE_AWAY = (DBAPIError, PoolTimeout, StudyAway, blobs.StoreAway)
WrongRevision = db.WrongRevision


def check_revision() -> None:
    with db.reading() as session:
        db.check_revision(session)


def find_share(settings: Settings) -> jobs.Share:
    """What the workers beside this one leave of the machine."""
    with db.reading() as session:
        return jobs.find_share(session, heard_within=2 * settings.reaper_seconds)


def heartbeat_worker(settings: Settings, worker_id: str) -> None:
    """Say that this worker lives, and what a training process has here."""
    share = find_share(settings)
    with db.transaction() as session:
        jobs.heartbeat_worker(
            session,
            worker_id=worker_id,
            queue=settings.worker_queue,
            workspace_id=DEFAULT_WORKSPACE,
            memory_bytes=jobs.find_training_bytes(settings, share),
            threads=jobs.find_training_threads(settings, share=share),
            device=_DEVICES[settings.worker_queue],
        )


_DEVICES = {"cpu": "cpu", "gpu": "cuda"}


def make_spec(
    job: Job, dataset: Dataset, settings: Settings, share: jobs.Share = jobs.ALONE
) -> Spec:
    """What the child process is told of a job."""
    made_of = job.made_of or {}
    return Spec(
        job_id=job.id,
        attempt=job.attempt,
        role=cast(Role, job.role.value),
        is_catboost=job.settings == CATBOOST,
        hyperparameters=job.config["hyperparameters"],
        schema=job.schema,
        split=job.config["split"],
        max_rows=job.config.get("max_rows"),
        storage=job.config.get("storage", "memory"),
        calibrate_by=job.config.get("calibrate_by"),
        importance_groups=job.config.get("importance_groups"),
        members=job.config.get("members", "all"),
        base_sha256=made_of.get("onnx_sha256"),
        baselines=tuple(job.config.get("baselines", ())),
        n_seeds=job.config.get("n_seeds", 1),
        keeps_rows=job.config.get("keep_rows", True),
        networks=tuple(made_of.get("trials", ())),
        weight_column=job.config.get("weight_column"),
        class_weight=job.config.get("class_weight"),
        dataset_sha256=dataset.sha256,
        reading=dataset.reading,
        warnings=tuple(job.warnings or ()),
        device="cuda" if job.queue == "gpu" else "cpu",
        threads=jobs.find_training_threads(
            settings, job.estimate.get("seconds_per_epoch"), share
        ),
        checkpoint_seconds=settings.checkpoint_seconds,
        supervisor=os.getpid(),
    )


def make_prediction_spec(
    job: Job, parent: Job, dataset: Dataset, settings: Settings
) -> Spec:
    """The same of a part of a prediction."""
    config = parent.config
    number, n_chunks = job.number or 0, parent.progress["n_runs"]
    return Spec(
        job_id=job.id,
        attempt=job.attempt,
        role=cast(Role, job.role.value),
        hyperparameters={},
        schema={},
        split={},
        base_sha256=config["onnx_sha256"] if job.role == JobRole.CHUNK else None,
        prediction={
            "model_id": config["model_id"],
            "output": config["output"],
            "on_error": config["on_error"],
            "id_column": config["id_column"],
            "options": config["options"],
            "formats": config["formats"],
            "is_first": number == 0,
            "is_last": number == n_chunks - 1,
            "max_faults": jobs.MAX_FAULTS,
            **(job.settings or {"first_row": 0, "n_rows": parent.progress["n_rows"]}),
        },
        dataset_sha256=dataset.sha256,
        device="cpu",
        threads=jobs.find_training_threads(settings),
        checkpoint_seconds=settings.checkpoint_seconds,
        supervisor=os.getpid(),
    )


def claim(settings: Settings, owner: str, job_id: str | None) -> Job | None:
    """The named job if it is queued, else the next one that is, if any."""
    with db.transaction() as session:
        return jobs.claim(
            session,
            queue=settings.worker_queue,
            owner=owner,
            lease_seconds=settings.lease_seconds,
            job_id=job_id,
        )


def begin_parent(parent_id: str) -> None:
    with db.transaction() as session:
        jobs.begin_parent(session, parent_id)


def update_parent(child: Job) -> list[Job]:
    """A child may have ended; the jobs that were made of it."""
    with db.transaction() as session:
        return jobs.follow(session, child)


def update_study(parent_id: str) -> None:
    """Tell the study of a search what its trials came to."""
    try:
        jobs.search.tell_all(parent_id)
    except (jobs.search.StudyError, KeyError) as error:  # or there is none
        raise StudyAway(str(error)) from error


def drop_answers(settings: Settings) -> None:
    """Of chunks whose job has its result."""
    jobs.drop_answers(kept_seconds=settings.checkpoint_kept_seconds)


def forget_worker(worker_id: str) -> None:
    with db.transaction() as session:
        jobs.forget_worker(session, worker_id)


class Record:
    """The row of a job, as the attempt that holds it may read and write it.

    What returns a bool says whether the attempt still was the holder, in a state that
    allows the move.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    # Before the child begins

    def read_dataset(self) -> Dataset:
        with db.reading() as session:
            return session.get_one(Dataset, self.job.dataset_id)

    def write_table(self, dataset: Dataset, path: Path) -> None:
        with path.open("wb") as file:
            for chunk in blobs.chunks(dataset.workspace_id, dataset.table_sha256):
                file.write(chunk)

    def read_parent(self) -> Job:
        assert self.job.parent_id is not None
        with db.reading() as session:
            return session.get_one(Job, self.job.parent_id)

    def write_rows(self, dataset: Dataset, parent: Job, path: Path) -> None:
        """Those of a chunk, of the columns that its model takes."""
        from lometab.table import ParquetTable  # the one thing here that needs Arrow

        assert self.job.settings is not None
        schema = self.job.schema
        names = {*schema["numeric"], *schema["categorical"], *schema["datetime"]}
        names.add(parent.config["id_column"])
        file = blobs.BlobFile(dataset.workspace_id, dataset.table_sha256)
        first, n_rows = (self.job.settings[each] for each in ("first_row", "n_rows"))
        ParquetTable(file).copy_rows(first, n_rows, names, path)

    def list_answers(self) -> list[str]:
        with db.reading() as session:
            return jobs.list_answers(session, self.job)

    def append_blob(self, sha256: str, path: Path) -> None:
        """At the end of the file; all of it, or an error."""
        with path.open("ab") as file:
            start = file.tell()
            try:
                for chunk in blobs.chunks(self.job.workspace_id, sha256):
                    file.write(chunk)
            except BaseException:
                file.truncate(start)
                raise

    def write_base(self, sha256: str, path: Path) -> bool:
        """The file of the model whose members are chosen among; False if it is gone."""
        try:
            content = blobs.read(self.job.workspace_id, sha256)
        except KeyError:
            return False
        path.write_bytes(content)
        return True

    def read_checkpoint(self) -> bytes | None:
        """The packed checkpoint if there is one.

        Raises:
            blobs.BlobDamaged: it is gone, or not what was stored.
        """
        sha256 = self.job.checkpoint_sha256
        if sha256 is None:
            return None
        try:
            return blobs.read(self.job.workspace_id, sha256)
        except KeyError as error:
            raise blobs.BlobDamaged("it is not stored any more") from error

    def read_networks(self) -> Iterator[tuple[int, bytes]]:
        """The packed weights of the trials that the model is made of; those that are
        gone, or not what was stored, are left out."""
        if not (self.job.made_of or {}).get("trials"):
            return
        with db.reading() as session:
            trials = jobs.find_networks(session, self.job)
        for number, sha256 in trials.items():
            try:
                yield number, blobs.read(self.job.workspace_id, sha256)
            except (KeyError, blobs.BlobDamaged) as error:
                log.warning("%s: trial %s is left out: %s", self.job.id, number, error)

    def read_deadline(self) -> datetime | None:
        """When the search that the job is a part of has to end."""
        if self.job.parent_id is None:
            return None
        with db.reading() as session:
            parent = session.get_one(Job, self.job.parent_id)
            return jobs.find_deadline(parent) if parent.kind == JobKind.TUNE else None

    def draw(self) -> "Trial | None":
        """Settings of a trial: those an earlier attempt had, or new ones."""
        search = jobs.search  # Optuna: only if we search
        try:
            trial = search.Trial(self.job)
        except search.StudyError as error:
            raise StudyAway(type(error).__name__) from error
        with db.transaction() as session:
            is_held = jobs.set_settings(session, self.job, trial.settings)
        return trial if is_held else None

    # While it trains

    def renew_lease(self, lease_seconds: float) -> bool:
        with db.transaction() as session:
            return jobs.heartbeat(session, self.job, lease_seconds) is not None

    def read_status(self) -> str | None:
        """What is requested of the job; None if it is lost."""
        with db.reading() as session:
            return jobs.read_status(session, self.job)

    def request_stop(self) -> None:
        with db.transaction() as session:
            jobs.stop(session, self.job)

    def request_stop_of_search(self) -> None:
        """No further trial begins, and all that run end."""
        assert self.job.parent_id is not None
        with db.transaction() as session:
            jobs.stop(session, session.get_one(Job, self.job.parent_id))

    def write_progress(
        self, phase: str, progress: Mapping[str, Any], events: Sequence[jobs.NewEvent]
    ) -> bool:
        with db.transaction() as session:
            return jobs.report_progress(session, self.job, phase, progress, events)

    def keep_checkpoint(self, packed: bytes, epoch: int) -> bool:
        sha256 = blobs.store_bytes(self.job.workspace_id, packed)
        with db.transaction() as session:
            return jobs.keep_checkpoint(session, self.job, sha256=sha256, epoch=epoch)

    def drop_checkpoint(self, reason: str) -> bool:
        """Forget the checkpoint that the attempt began with, and warn."""
        with db.transaction() as session:
            return jobs.drop_checkpoint(session, self.job, reason)

    # How it ended

    def finish(
        self,
        onnx: bytes,
        reports: Mapping[str, dict[str, Any]],
        progress: Mapping[str, Any],
    ) -> bool:
        sha256 = blobs.store_bytes(self.job.workspace_id, onnx)
        with db.transaction() as session:
            return jobs.finish(
                session,
                self.job,
                onnx_sha256=sha256,
                metadata=jobs.read_facts(onnx),
                reports=reports,
                progress=progress,
            )

    def finish_cell(
        self,
        outcome: Mapping[str, Any],
        weights: Callable[[], bytes] | None,
        progress: Mapping[str, Any],
    ) -> bool:
        """Keep the outcome, and the weights if it is one of the best of its siblings.

        Args:
            weights: packs them; None if there are none.
        """
        sha256 = None
        if weights is not None and self._is_worth_keeping(outcome):
            sha256 = blobs.store_bytes(self.job.workspace_id, weights())
        with db.transaction() as session:
            is_done = jobs.finish_measured(
                session,
                self.job,
                outcome=outcome,
                progress=progress,
                weights_sha256=sha256,
            )
            if is_done and sha256 is not None:
                jobs.drop_weights(session, self.job)
        return is_done

    def finish_part(
        self,
        answers: Path,
        outcome: Mapping[str, Any],
        faults: Sequence[jobs.Fault],
        progress: Mapping[str, Any],
    ) -> bool:
        """Keep the answers of a chunk, or of all of them."""
        with answers.open("rb") as file:
            sha256 = blobs.store(self.job.workspace_id, file)
        with db.transaction() as session:
            return jobs.finish_part(
                session,
                self.job,
                outcome={**outcome, "sha256": sha256, "size": answers.stat().st_size},
                progress=progress,
                sha256=sha256,
                faults=faults,
            )

    def _is_worth_keeping(self, outcome: Mapping[str, Any]) -> bool:
        with db.reading() as session:
            return jobs.is_worth_keeping(
                session, self.job, Outcome.from_dict(dict(outcome))
            )

    def fail(self, error: Mapping[str, Any]) -> bool:
        return self._write(jobs.fail, error)

    def release(self) -> bool:
        return self._write(jobs.release)

    def lose(self, max_attempts: int, reason: str) -> bool:
        return self._write(jobs.lose, max_attempts=max_attempts, reason=reason)

    def end_cancelled(self) -> bool:
        return self._write(jobs.end_cancelled)

    def _write(self, move: Callable[..., bool], *args: Any, **kwargs: Any) -> bool:
        with db.transaction() as session:
            return move(session, self.job, *args, **kwargs)
