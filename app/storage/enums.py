"""Every closed list of words that the database keeps and the API shows."""

from enum import StrEnum


class JobStatus(StrEnum):
    """Where a job is on its way."""

    QUEUED = "queued"  # it waits for a worker
    RUNNING = "running"  # a worker holds its lease
    STOPPING = "stopping"  # the same, and it shall end with the best epoch so far
    CANCELLING = "cancelling"  # the same, and it shall end with nothing
    SUCCEEDED = "succeeded"  # its model and reports, or its outcome, exist
    FAILED = "failed"  # given up; `error` says why
    CANCELLED = "cancelled"  # ended by the caller; no model


HELD = (JobStatus.RUNNING, JobStatus.STOPPING, JobStatus.CANCELLING)
FINISHED = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


class JobKind(StrEnum):
    """What a caller can ask for."""

    TRAIN = "train"  # one model; workers claim it
    SWEEP = "sweep"  # many settings side by side; workers claim its cells
    TUNE = "tune"  # a search for the best settings; workers claim its trials
    PREDICT = "predict"  # answers to a table; workers claim its chunks


SEARCHES = (JobKind.SWEEP, JobKind.TUNE)
"""Kinds of jobs whose children try settings."""
PARENTS = (*SEARCHES, JobKind.PREDICT)
"""Kinds of jobs that are run by their children."""


class JobRole(StrEnum):
    """What a job is there for."""

    TRAIN = "train"  # on its own: a model
    SWEEP = "sweep"  # the parent of cells
    TUNE = "tune"  # the parent of trials, repeats and a refit
    CELL = "cell"  # of a sweep: one seed of one cell of the grid
    TRIAL = "trial"  # of a search: one draw of settings
    REPEAT = "repeat"  # of a search: one of its best trials with another seed
    REFIT = "refit"  # of a search: the winner's training, which makes the model
    PREDICT = "predict"  # the parent of chunks and of what assembles them
    CHUNK = "chunk"  # of a prediction: answers to some rows
    ASSEMBLE = "assemble"  # of a prediction: all chunks as one file


RUNS = (JobRole.CELL, JobRole.TRIAL, JobRole.CHUNK)
"""Roles that a parent counts as its runs."""
ANSWERS = (JobRole.CHUNK, JobRole.ASSEMBLE)
"""Roles that predict and train nothing."""
MEASURED = (JobRole.CELL, JobRole.TRIAL, JobRole.REPEAT, *ANSWERS)
"""Roles that end with an outcome, and no model."""


class JobPhase(StrEnum):
    """What a job does while it runs."""

    PREPARING = "preparing"  # the table is read, and the child process starts
    TRAINING = "training"  # epoch after epoch
    EXPORTING = "exporting"  # the ONNX file is made and checked
    EVALUATING = "evaluating"  # the reports are made
    COMPARING = "comparing"  # baselines are trained
    SEARCHING = "searching"  # of a tune job: its trials run
    REPEATING = "repeating"  # of a tune job: the best trials run with other seeds
    REFITTING = "refitting"  # of a tune job: the winner is trained
    PREDICTING = "predicting"  # rows are answered
    ASSEMBLING = "assembling"  # the answers become one file


class EventType(StrEnum):
    """What happened to a job."""

    QUEUED = "queued"  # it was created, or is tried again
    WARNING = "warning"  # something was decided that the caller may want to know
    RUNNING = "running"  # a worker claimed it; of a parent: its first child began
    PHASE = "phase"  # the next phase began
    EPOCH = "epoch"  # an epoch ended
    CHECKPOINT = "checkpoint"  # a checkpoint was kept
    RESUMED = "resumed"  # it goes on from a checkpoint
    RELEASED = "released"  # its worker gave it back in an orderly way
    LOST = "lost"  # its worker or its process died; it is queued again
    STOPPING = "stopping"  # a stop was requested
    CANCELLING = "cancelling"  # a cancel was requested
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CHILD = "child"  # of a parent: a child has ended
    REPEATING = "repeating"  # of a tune job: the best trials are repeated
    REFITTING = "refitting"  # of a tune job: the winner is trained


class FailureCode(StrEnum):
    """Why a job failed."""

    BAD_DATA = "bad_data"  # the table cannot be trained on
    DIVERGED = "diverged"  # the loss is no number any more
    EXPORT_MISMATCH = "export_mismatch"  # the ONNX file answers otherwise than torch
    MISSING_PACKAGE = "missing_package"  # the worker lacks a baseline's package
    MODEL_DELETED = "model_deleted"  # of a prediction: the model is gone
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_LOST = "worker_lost"  # it took down too many workers
    NO_SUCCESS = "no_success"  # of a parent: none of its children succeeded
    INTERNAL = "internal"  # a fault of ours; the log of the worker has the rest

    @classmethod
    def _missing_(cls, value: object) -> "FailureCode":
        """A code of another version."""
        return cls.INTERNAL


class Queue(StrEnum):
    """Which workers a job waits for."""

    CPU = "cpu"
    GPU = "gpu"


class WebhookEvent(StrEnum):
    """What a webhook can be told of."""

    JOB_SUCCEEDED = "job.succeeded"  # a job that is no part of another
    JOB_FAILED = "job.failed"  # the same
    MODEL_PROMOTED = "model.promoted"  # an alias came to point at another model
    MONITOR_ALARM = "monitor.alarm"  # a day's rows are unlike those of training


class DeliveryStatus(StrEnum):
    """Where a message to a webhook is on its way."""

    PENDING = "pending"  # it waits for its next attempt
    DELIVERED = "delivered"  # the receiver said so
    DEAD = "dead"  # given up; it can be delivered again by hand
