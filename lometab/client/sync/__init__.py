"""The client.

Made of `aio/__init__.py` by `make client`: change that file instead.
"""

from lometab.client.sync.client import Client
from lometab.client.sync.jobs import Job, Jobs
from lometab.client.sync.models import Model, Models
from lometab.client.sync.resources import Dataset, Datasets
from lometab.client.sync.webhooks import Webhook, Webhooks

__all__ = [
    "Client",
    "Dataset",
    "Datasets",
    "Job",
    "Jobs",
    "Model",
    "Models",
    "Webhook",
    "Webhooks",
]
