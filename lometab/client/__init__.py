"""The client of a LoMETab service, for programs and notebooks.

    from lometab.client import Client

    client = Client("http://127.0.0.1:8000")
    job = client.train("wine.csv", target="quality", preset="fast")
    model = job.wait(progress=True).model
    model.predict(frame)

`AsyncClient` is the same with `await`. It needs httpx and neither torch nor Arrow.
"""

from lometab.client import show, wire
from lometab.client.aio import (
    AsyncClient,
    AsyncDataset,
    AsyncJob,
    AsyncModel,
    AsyncWebhook,
)
from lometab.client.errors import (
    BadData,
    BadRequest,
    Busy,
    Changed,
    ClientError,
    Conflict,
    Forbidden,
    JobCancelled,
    JobFailed,
    NotFound,
    NotReady,
    ServiceError,
    TimedOut,
    TooLarge,
    TooMany,
    Unauthorized,
    Unreachable,
)
from lometab.client.sync import Client, Dataset, Job, Model, Webhook
from lometab.client.wire import Retries

__all__ = [
    "AsyncClient",
    "AsyncDataset",
    "AsyncJob",
    "AsyncModel",
    "AsyncWebhook",
    "BadData",
    "BadRequest",
    "Busy",
    "Changed",
    "Client",
    "ClientError",
    "Conflict",
    "Dataset",
    "Forbidden",
    "Job",
    "JobCancelled",
    "JobFailed",
    "Model",
    "NotFound",
    "NotReady",
    "Retries",
    "ServiceError",
    "TimedOut",
    "TooLarge",
    "TooMany",
    "Unauthorized",
    "Unreachable",
    "Webhook",
    "show",
    "wire",
]
