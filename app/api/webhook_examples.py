"""Examples of answers about webhooks and usage, for the OpenAPI document."""

from typing import Any

_WEBHOOK: dict[str, Any] = {
    "id": "wh_0123456789ab",
    "url": "https://hooks.example.com/lometab",
    "events": ["job.succeeded", "job.failed"],
    "description": "The chat room of the team",
    "is_enabled": True,
    "n_failed": 0,
    "not_before": None,
    "created_at": "2026-01-31T12:00:00Z",
}
_SECRET = {"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="}
_DELIVERY: dict[str, Any] = {
    "id": "msg_0123456789ab",
    "type": "job.succeeded",
    "status": "delivered",
    "attempt": 1,
    "next_at": "2026-01-31T12:01:00Z",
    "attempts": [
        {
            "attempt": 1,
            "at": "2026-01-31T12:01:00Z",
            "status": 204,
            "error": None,
            "seconds": 0.08,
        }
    ],
    "body": {
        "type": "job.succeeded",
        "timestamp": "2026-01-31T12:01:00Z",
        "data": {"job_id": "job_0123456789ab"},
    },
    "created_at": "2026-01-31T12:01:00Z",
    "delivered_at": "2026-01-31T12:01:00Z",
}
_KEPT = {"count": 2, "bytes": 2_000_000}
EXAMPLES: dict[str, Any] = {
    "create_webhook": {**_WEBHOOK, **_SECRET},
    "rotate_webhook": {**_WEBHOOK, **_SECRET},
    "list_webhooks": {"data": [_WEBHOOK], "next_cursor": None},
    "read_webhook": _WEBHOOK,
    "change_webhook": {**_WEBHOOK, "is_enabled": False},
    "list_deliveries": {"data": [_DELIVERY], "next_cursor": None},
    "redeliver": {**_DELIVERY, "status": "pending", "delivered_at": None},
    "read_usage": {
        "bytes": 4_000_000,
        "files": 4,
        "datasets": _KEPT,
        "models": _KEPT,
        "checkpoints": {"count": 0, "bytes": 0},
        "jobs": {"succeeded": 2},
        "quotas": {
            "max_stored_bytes": None,
            "max_models": 100,
            "max_queued_jobs": 20_000,
        },
        "kept_days": {
            "datasets": None,
            "failed_jobs": 30.0,
            "events": None,
            "attempts": None,
        },
    },
}
