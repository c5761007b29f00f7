"""The client for asyncio. The package `sync` is made of this one by `make client`:
every word here is true of both, with and without `await`."""

from lometab.client.aio.client import AsyncClient
from lometab.client.aio.jobs import AsyncJob, AsyncJobs
from lometab.client.aio.models import AsyncModel, AsyncModels
from lometab.client.aio.resources import AsyncDataset, AsyncDatasets
from lometab.client.aio.webhooks import AsyncWebhook, AsyncWebhooks

__all__ = [
    "AsyncClient",
    "AsyncDataset",
    "AsyncDatasets",
    "AsyncJob",
    "AsyncJobs",
    "AsyncModel",
    "AsyncModels",
    "AsyncWebhook",
    "AsyncWebhooks",
]
