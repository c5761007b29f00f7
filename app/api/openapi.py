"""The OpenAPI document: what FastAPI makes of the routes, and what it cannot know."""

from dataclasses import asdict
from typing import Any, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from app.access import Rule, find_rule
from app.answering import Output
from app.api import examples, webhook_examples
from app.api.bodies.common import Problem
from app.api.bodies.jobs import JobCreate, JobCreateOnDataset
from app.api.bodies.predict import PredictMatrix, PredictRows
from app.api.bodies.predictions import PredictionCreate, PredictionOnDataset
from app.api.docstrings import add_docstrings
from app.api.responses import problems
from app.observe import HEADER
from app.predictions import OnError
from app.serving import HEAD, PredictField
from app.settings import get_settings
from lometab.config import BaselineName, Preset, Storage, Task, TrainConfig
from lometab.evaluation import ClassTask, Method, Metric, Regime
from lometab.plots import Theme
from lometab.predictor import MissingColumns
from lometab.table import (
    ColumnKind,
    DateFormat,
    Delimiter,
    Encoding,
    NumberFormat,
    Quote,
)

TAGS = [
    {"name": "datasets", "description": "Tables that were uploaded."},
    {"name": "jobs", "description": "Training a model, and the reports on it."},
    {"name": "sweeps", "description": "Many settings side by side, or searched."},
    {"name": "models", "description": "What jobs made: files, names, predictions."},
    {"name": "predictions", "description": "Tables of any size, as a job."},
    {"name": "webhooks", "description": "Other services are told of what happens."},
    {"name": "neighbours", "description": "Predict by other people's protocols."},
    {"name": "webhooks", "description": "Who is told of what happens, and was told."},
    {"name": "access", "description": "Limits, usage, and who changed what."},
    {"name": "health", "description": "Whether the service lives and can work."},
]

_DATASET_SUMMARY = {
    "id": "ds_0123456789ab",
    "filename": "wine.csv",
    "name": "wine",
    "tags": ["checked"],
    "description": "Red and white together.",
    "sha256": "5d41402abc4b2a76b9719d911017c592ae2f5e1f0d0d2a1c6a0f9d6f3b7c8e91",
    "size": 84199,
    "n_rows": 1599,
    "n_columns": 1,
    "created_at": "2026-01-31T12:00:00Z",
    "links": {
        "self": "/datasets/ds_0123456789ab",
        "jobs": "/jobs?dataset_id=ds_0123456789ab",
    },
}
_SESSION = {
    "workspace_id": "default",
    "scopes": ["predict", "read"],
    "key_id": "key_0123456789ab",
    "keys_required": True,
}
_SURE = {"confidence": 1.0}
_DATASET = {
    **_DATASET_SUMMARY,
    "read_options": {"number_format": "1.234,5"},
    "reading": {
        "format": "csv",
        "compression": None,
        "encoding": {"value": "utf-8", **_SURE},
        "delimiter": {"value": ";", **_SURE},
        "quote": {"value": '"', **_SURE},
        "header": {"value": True, "confidence": 0.99},
    },
    "columns": [
        {
            "name": "quality",
            "kind": "numeric",
            "looks_like": "number",
            "reason": None,
            "format": None,
            "note": "if these are codes and not amounts, `categorical` is better",
            "n_missing": 0,
            "missing_share": 0.0,
            "n_distinct": 6,
            "example": "5",
            "range": [3.0, 8.0],
            "quantiles": {"0.05": 5.0, "0.5": 6.0, "0.95": 7.0},
            "top": [{"value": "5", "count": 681}, {"value": "6", "count": 638}],
        }
    ],
    "head": [["5"], ["5"]],
    "warnings": [],
    "suggestions": [
        {"target": "quality", "task": "regression", "why": "it is the last column"}
    ],
}
_PROGRESS = {
    "epoch": 40,
    "max_epochs": 60,
    "best_epoch": 31,
    "best_score": 0.612,
    "eta_seconds": 4.5,
    "seed": None,
    "n_finished": None,
    "n_runs": None,
    "n_rows": None,
    "rows_done": None,
    "n_faults": None,
    "examined": None,
}
_JOB = {
    "id": "job_0123456789ab",
    "kind": "train",
    "role": "train",
    "status": "running",
    "phase": "training",
    "progress": _PROGRESS,
    "attempt": 1,
    "notice": None,
    "queue_place": None,
    "estimated_start_at": None,
    "stopped_early": False,
    "name": "wine",
    "tags": ["first"],
    "description": None,
    "parent_id": None,
    "position": None,
    "number": None,
    "repeat": None,
    "settings": None,
    "promoted_from": None,
    "made_of": None,
    "outcome": None,
    "result": None,
    "dataset_id": "ds_0123456789ab",
    "model_id": None,
    "config": {"kind": "train", "target": "quality", "task": "regression"},
    "estimate": {
        "n_parameters": 167184,
        "memory_bytes": 310000000,
        "serving_bytes": 30000000,
        "n_rows": 1599,
        "storage": "memory",
        "disk_bytes": 0,
        "flops_per_epoch": 26000000000,
        "steps_per_epoch": 5,
        "seconds_per_epoch": 1.3,
        "max_seconds": 78.0,
        "basis": "workers",
    },
    "columns": {"alcohol": "numeric", "pH": "numeric"},
    "warnings": ["column 'id' is not used: every value is the same"],
    "error": None,
    "created_at": "2026-01-31T12:00:00Z",
    "started_at": "2026-01-31T12:00:01Z",
    "finished_at": None,
    "links": {
        "self": "/jobs/job_0123456789ab",
        "dataset": "/datasets/ds_0123456789ab",
    },
}
_SUMMARY = {
    "id": "mdl_0123456789ab",
    "task": "regression",
    "target": "quality",
    "k": 32,
    "job_id": "job_0123456789ab",
    "name": "wine",
    "version": 1,
    "aliases": ["champion"],
    "tags": ["first"],
    "description": None,
    "metrics": {"rmse": 0.612},
    "onnx_sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "created_at": "2026-01-31T12:01:00Z",
    "links": {
        "self": "/models/mdl_0123456789ab",
        "job": "/jobs/job_0123456789ab",
        "onnx": "/models/mdl_0123456789ab/onnx",
        "predict": "/models/mdl_0123456789ab/predict",
        "card": "/models/mdl_0123456789ab/card",
        "figures": "/jobs/job_0123456789ab/figures",
    },
}
_PREDICTION = {
    **_JOB,
    "kind": "predict",
    "role": "predict",
    "status": "queued",
    "phase": None,
    "attempt": 0,
    "started_at": None,
    "model_id": "mdl_0123456789ab",
    "estimate": None,
    "config": {"kind": "predict", "output": "parquet", "on_error": "fail"},
    "progress": {
        **dict.fromkeys(_PROGRESS),
        "n_runs": 100,
        "n_finished": 0,
        "n_rows": 10_000_000,
        "rows_done": 0,
        "n_faults": 0,
    },
    "links": {
        "self": "/jobs/job_0123456789ab",
        "result": "/jobs/job_0123456789ab/result",
        "faults": "/jobs/job_0123456789ab/faults",
    },
}
EXAMPLES: dict[str, Any] = {
    "create_dataset": _DATASET,
    "list_datasets": {"data": [_DATASET_SUMMARY], "next_cursor": None},
    "read_dataset": _DATASET,
    "change_dataset": _DATASET_SUMMARY,
    "change_job": {**_JOB, "description": "With fewer members."},
    "change_model": {**_SUMMARY, "description": "Agreed on in January."},
    "create_job": {
        **_JOB,
        "status": "queued",
        "phase": None,
        "attempt": 0,
        "started_at": None,
        "progress": {**dict.fromkeys(_PROGRESS), "epoch": 0, "max_epochs": 60},
    },
    "list_jobs": {"data": [_JOB], "next_cursor": "WyIyMDI2LTAxLTMxVDEyOjAwOjAwWiJd"},
    "read_job": _JOB,
    "read_events": {
        "data": [
            {
                "seq": 1,
                "type": "queued",
                "data": {},
                "created_at": "2026-01-31T12:00:00Z",
            }
        ],
        "next_after": None,
    },
    "cancel_job": {**_JOB, "status": "cancelling"},
    "stop_job": {**_JOB, "status": "stopping"},
    "retry_job": {**_JOB, "status": "queued", "phase": None},
    "read_sweep": examples.SWEEP,
    "read_tune": examples.TUNE,
    "promote": {**_JOB, "status": "queued", "phase": None},
    "prune": {**_JOB, "status": "queued", "phase": None},
    "create_prediction": _PREDICTION,
    "list_faults": {
        "data": [
            {
                "row": 71,
                "column": "pH",
                "detail": "column 'pH' holds 'sour' in row 71, which is no number",
            }
        ],
        "next_after": None,
    },
    "read_monitor": examples.MONITOR,
    "write_outcomes": {"matched": 1, "unknown": 0},
    "read_ranks": examples.RANKS,
    "list_models": {"data": [_SUMMARY], "next_cursor": None},
    "read_model": {
        **_SUMMARY,
        "task": "regression",
        "target": "quality",
        "classes": None,
        "k": 16,
        "columns": [
            {
                "name": "alcohol",
                "kind": "numeric",
                "range": [8.0, 14.9],
                "categories": None,
                "n_rare": None,
            }
        ],
        "warnings": ["column 'id' is not used: every value is the same"],
        "lineage": {"dataset_id": "ds_0123456789ab"},
    },
    "write_alias": _SUMMARY,
    "read_session": _SESSION,
    "create_session": _SESSION,
    "list_workers": {
        "data": [
            {
                "id": "machine-4711-0a1b2c3d",
                "queue": "cpu",
                "host": "machine",
                "device": "cpu",
                "version": "0.1.0",
                "heartbeat_at": "2026-01-31T12:00:00Z",
                "threads": 2,
                "memory_bytes": 15032385536,
                "is_busy": True,
                "job_ids": ["job_0123456789ab"],
            }
        ]
    },
    "read_queue": {
        "data": [
            {
                "job_id": "job_0123456789ab",
                "queue": "cpu",
                "ahead": 2,
                "starts_in_seconds": 340.0,
                "why": "2 other jobs will begin before",
            }
        ]
    },
    **webhook_examples.EXAMPLES,
    "plan_job": {
        "task": "regression",
        "columns": {"alcohol": "numeric", "pH": "numeric"},
        "hyperparameters": asdict(TrainConfig()),
        "n_runs": 1,
        "estimate": _JOB["estimate"],
        "spaces": {
            "paper": {"rank": {"values": [1, 2, 4, 8, 16]}},
            "near": {"lr": {"values": [0.001, 0.002]}},
        },
        "warnings": [],
    },
    "read_limits": {
        "limits": [
            {
                "name": "max_rows",
                "value": 100000000,
                "setting": "LOMETAB_MAX_ROWS",
                "description": "Most rows of a table.",
                "status": 422,
                "code": "bad_data",
            }
        ],
        "bodies": [{"routes": ["POST /jobs"], "max_bytes": 2147483648}],
        "key": {"requests_per_minute": 600, "max_concurrent": None},
    },
    "list_audit": {
        "data": [
            {
                "id": "aud_0123456789ab",
                "key_id": "key_0123456789ab",
                "method": "DELETE",
                "route": "/datasets/{dataset_id}",
                "target_id": "ds_0123456789ab",
                "status": 204,
                "request_id": "5f2b8c1d9e3a7f60",
                "created_at": "2026-01-31T12:00:00Z",
            }
        ],
        "next_cursor": None,
    },
    "read_usage": {
        "bytes": 5242880,
        "files": 12,
        "datasets": {"count": 3, "bytes": 3145728},
        "models": {"count": 5, "bytes": 2097152},
        "checkpoints": {"count": 1, "bytes": 65536},
        "jobs": {"succeeded": 5, "failed": 1},
        "quotas": {"max_stored_bytes": None, "max_models": 100, "max_queued_jobs": 500},
        "kept_days": {
            "datasets": None,
            "failed_jobs": 30,
            "events": 90,
            "attempts": 90,
        },
    },
    "create_webhook": {**examples.WEBHOOK, "secret": examples.WEBHOOK_SECRET},
    "list_webhooks": {"data": [examples.WEBHOOK], "next_cursor": None},
    "read_webhook": examples.WEBHOOK,
    "change_webhook": examples.WEBHOOK,
    "rotate_webhook": {**examples.WEBHOOK, "secret": examples.WEBHOOK_SECRET},
    "list_deliveries": {"data": [examples.DELIVERY], "next_cursor": None},
    "redeliver": {**examples.DELIVERY, "status": "pending", "delivered_at": None},
    "read_figures": examples.FIGURES,
    "read_effects": examples.REPORT["effects"],
    "infer": examples.INFERRED,
    "infer_version": {**examples.INFERRED, "model_version": "1"},
    "invoke": examples.INVOKED,
    "invoke_default": examples.INVOKED,
    "ping": {"status": "ok"},
    "read_server": {
        "name": "lometab",
        "version": "0.1.0",
        "extensions": ["binary_tensor_data"],
    },
    "read_live": {"live": True},
    "read_ready": {"ready": True},
    "read_tensors": examples.TENSORS,
    "read_tensors_of_version": examples.TENSORS,
    "read_model_ready": {"name": "wine", "ready": True},
    "read_version_ready": {"name": "wine", "ready": True},
    "read_health": {"status": "ok"},
    "read_version": {"version": "0.1.0", "revision": "0013"},
    "read_readiness": {
        "status": "ready",
        "workers": {"cpu": 2, "gpu": 0},
        "providers_asked": ["CPUExecutionProvider"],
        "providers": ["CPUExecutionProvider"],
    },
}
"""What each operation answers when all is well, by its id."""

SEVERAL: dict[str, Any] = {
    "read_diversity": examples.DIVERSITY,
    "read_calibration": examples.CALIBRATION,
    "read_report": {"regression": {"value": examples.REPORT}},
    "predict": examples.PREDICTIONS,
}
"""The same where one example is not enough."""

_FILE = "alcohol,pH,quality\n9.4,3.51,5\n9.8,3.2,6\n"
UPLOADS: dict[str, Any] = {
    "create_dataset": {"file": _FILE},
    "create_job": {"file": _FILE, "config": {"target": "quality", "preset": "fast"}},
    "create_prediction": {"file": _FILE, "config": {"output": "parquet"}},
}
"""Parts of a multipart request, by the id of the operation."""

CSV = {
    "read_diversity": "i,j,pairwise_kl,disagreement\r\n1,0,0.041,0.09\r\n",
    "read_calibration": "lower,upper,count,confidence,accuracy\r\n"
    "0.93,1.0,88,0.97,0.95\r\n",
    "predict": "mean,member_0,member_1,std,interval_lower,interval_upper\n"
    "5.6,5.5,5.7,0.1,4.55,6.65\n",
}
"""What `?format=csv` or `Accept: text/csv` gives, by the id of the operation."""

_LOCATION = {
    "description": "The address of what was made.",
    "schema": {"type": "string"},
    "required": True,
}
_ETAG = {
    "description": "Changes when the content does; for `If-None-Match`.",
    "schema": {"type": "string"},
    "required": True,
}
_TIMING = {
    "description": "Milliseconds to parse, wait in the queue, run and encode.",
    "schema": {"type": "string"},
    "required": True,
}
_HEAD = {
    "description": "If the answer is no JSON: the fields that it would have beside "
    "`predictions`, as JSON.",
    "schema": {"type": "string"},
}
_REQUEST_ID = {
    "description": "The request's id, as in the log: the caller's, or a new one.",
    "schema": {"type": "string"},
    "required": True,
}
_RETRY_AFTER = {
    "description": "Seconds after which the request can be sent again. It is not there "
    "where waiting does not help: a quota of models or webhooks is reached.",
    "schema": {"type": "integer", "minimum": 1},
}
HEADERS: dict[str, dict[str, Any]] = {
    "create_dataset": {"Location": _LOCATION},
    "create_job": {"Location": _LOCATION},
    "promote": {"Location": _LOCATION},
    "prune": {"Location": _LOCATION},
    "read_diversity": {"ETag": _ETAG},
    "read_calibration": {"ETag": _ETAG},
    "read_report": {"ETag": _ETAG},
    "read_figure": {"ETag": _ETAG},
    "read_card": {"ETag": _ETAG},
    "read_onnx": {"ETag": _ETAG},
    "create_prediction": {"Location": _LOCATION},
    "read_result": {"ETag": _ETAG},
    "predict": {"Server-Timing": _TIMING, HEAD: _HEAD},
}
"""Headers of a good answer, beside the request id."""


def _to(operation: str, parameter: str, source: str, description: str) -> Any:
    return {
        "operationId": operation,
        "parameters": {parameter: f"$response.body#/{source}"},
        "description": description,
    }


LINKS: dict[str, dict[str, Any]] = {
    "create_dataset": {
        "dataset": _to("read_dataset", "dataset_id", "id", "The dataset."),
        "jobs": _to("list_jobs", "dataset_id", "id", "Its jobs."),
        "delete": _to("delete_dataset", "dataset_id", "id", "Delete it."),
    },
    "create_job": {
        "job": _to("read_job", "job_id", "id", "The job as it is now."),
        "dataset": _to("read_dataset", "dataset_id", "dataset_id", "Its dataset."),
        "diversity": _to("read_diversity", "job_id", "id", "Once it succeeded."),
        "calibration": _to("read_calibration", "job_id", "id", "Once it succeeded."),
        "report": _to("read_report", "job_id", "id", "Once it succeeded."),
        "figures": _to("read_figures", "job_id", "id", "Pictures of all that."),
        "sweep": _to("read_sweep", "job_id", "id", "If it is a sweep."),
        "tune": _to("read_tune", "job_id", "id", "If it is a tune job."),
        "promote": _to("promote", "job_id", "id", "Make a model of one of its runs."),
        "delete": _to("delete_job", "job_id", "id", "Delete it, once it has ended."),
    },
    "create_prediction": {
        "job": _to("read_job", "job_id", "id", "The job as it is now."),
        "result": _to("read_result", "job_id", "id", "Once it succeeded."),
        "faults": _to("list_faults", "job_id", "id", "Rows without an answer."),
        "cancel": _to("cancel_job", "job_id", "id", "End it and keep nothing."),
    },
    "read_job": {
        "model": _to("read_model", "model_id", "model_id", "What the job made."),
    },
    "read_model": {
        "job": _to("read_job", "job_id", "job_id", "The job that made it."),
        "onnx": _to("read_onnx", "model_id", "id", "Its file."),
        "card": _to("read_card", "model_id", "id", "What to know of it."),
        "predict": _to("predict", "model_id", "id", "Ask it."),
    },
}
"""Where a good answer leads."""

ENUMS: dict[str, tuple[str, ...]] = {
    "BaselineName": get_args(BaselineName),
    "CalibrationPart": ("val", "calibration"),
    "ClassTask": get_args(ClassTask),
    "ColumnKind": get_args(ColumnKind),
    "ConformalMethod": get_args(Method),
    "DateFormat": get_args(DateFormat),
    "Delimiter": get_args(Delimiter),
    "FigureFormat": ("svg", "png", "json"),
    "Device": ("auto", "cpu", "gpu"),
    "Storage": get_args(Storage),
    "StorageAsked": ("auto", *get_args(Storage)),
    "Encoding": get_args(Encoding),
    "InputKind": ("numeric", "categorical", "datetime"),
    "Loss": ("rmse", "nll"),
    "MemberChoice": ("all", "selected"),
    "Metric": get_args(Metric),
    "MissingColumns": get_args(MissingColumns),
    "NumberFormat": get_args(NumberFormat),
    "OnError": get_args(OnError),
    "Output": get_args(Output),
    "PredictField": get_args(PredictField),
    "Preset": get_args(Preset),
    "Quote": get_args(Quote),
    "Regime": get_args(Regime),
    "ReportFormat": ("json", "csv"),
    "SquaredLoss": ("squared error", "brier"),
    "Task": get_args(Task),
    "TrainingKind": ("train", "sweep", "tune"),
    "TaskOrAuto": ("auto", *get_args(Task)),
    "Theme": get_args(Theme),
}
"""Lists of words that several schemas have, by the one name that they get here."""

# Bodies that no route names to FastAPI.
_BODIES: tuple[type[BaseModel], ...] = (
    JobCreate,
    JobCreateOnDataset,
    PredictMatrix,
    PredictRows,
    PredictionCreate,
    PredictionOnDataset,
    Problem,
)


def make_document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=TAGS,
    )
    schemas = document["components"]["schemas"]
    for body in _BODIES:
        schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[body.__name__] = schema
    add_docstrings(schemas)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _add_limits(operation, find_rule(method.upper(), path))
            _complete(operation)
    _name_enums(document)
    schemas.update(
        {
            name: {"type": "string", "enum": [*words], "title": name}
            for name, words in ENUMS.items()
        }
    )
    return document


def _add_limits(operation: dict[str, Any], rule: Rule) -> None:
    """What the guard answers before the route hears of a request."""
    statuses = [413] if "requestBody" in operation else []
    if rule.stores:
        statuses.append(507)
    told = problems(*statuses)
    responses = operation["responses"]
    for status in [*statuses, 431]:
        responses.setdefault(str(status), told[status])
    operation["responses"] = dict(sorted(responses.items()))
    limited = responses.get("429")
    if limited is not None:
        limited["headers"] = {"Retry-After": _RETRY_AFTER}


def _name_enums(node: Any) -> None:
    """Let every schema refer to the enums that have a name: generated clients would
    make a type of each of them otherwise."""
    if isinstance(node, dict):
        words = node.get("enum")
        name = _NAMES.get(tuple(words)) if isinstance(words, list) else None
        if name is not None:
            for key in ("enum", "type", "title"):
                node.pop(key, None)
            node["$ref"] = f"#/components/schemas/{name}"
        for key, value in node.items():
            if key not in ("example", "examples"):
                _name_enums(value)
    elif isinstance(node, list):
        for value in node:
            _name_enums(value)


_NAMES = {words: name for name, words in ENUMS.items()}


def _complete(operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    if "security" in operation and not get_settings().keys_required:
        operation["security"].append({})  # one may come without
    # By the specification, `Accept` is told by the content of the responses alone.
    parameters = [p for p in operation.pop("parameters", []) if p["name"] != "accept"]
    if parameters:
        operation["parameters"] = parameters
    if "ETag" in HEADERS.get(name, {}):
        operation["responses"]["304"] = {
            "description": "The client has it already, by its `If-None-Match`."
        }
    if name in CSV:
        operation["responses"]["200"]["content"]["text/csv"] = {
            "schema": {"type": "string"},
            "example": CSV[name],
        }
    if name in UPLOADS:
        form = operation["requestBody"]["content"]["multipart/form-data"]
        form["example"] = UPLOADS[name]
    for status, response in operation["responses"].items():
        headers = response.setdefault("headers", {})
        headers[HEADER] = _REQUEST_ID
        if status >= "4":
            continue
        headers.update(HEADERS.get(name, {}))
        if status >= "3":
            continue
        response["description"] = f"{operation['summary']}."
        if name in LINKS:
            response["links"] = LINKS[name]
        for media_type, content in response.get("content", {}).items():
            if media_type == "application/json" and name in EXAMPLES:
                content["example"] = EXAMPLES[name]
            if media_type == "application/json" and name in SEVERAL:
                content["examples"] = SEVERAL[name]
