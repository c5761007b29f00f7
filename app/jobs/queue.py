"""The Celery instance. A message only notifies: the job's row is the truth."""

import logging
from functools import cache

from celery import Celery
from kombu.exceptions import ChannelError, OperationalError

from app.settings import Settings, get_settings

log = logging.getLogger(__name__)


@cache
def get_celery() -> Celery:
    settings = get_settings()
    celery = Celery("lometab", broker=settings.celery_url or "filesystem://")
    if not settings.broker_url:
        celery.conf.broker_transport = "app.jobs.broker:Transport"
    celery.conf.update(
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=1,
        broker_channel_error_retry=True,  # a Redis that became a replica tells so
        broker_transport_options=_transport_options(settings),
        task_ignore_result=True,
        task_default_queue=settings.worker_queue,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    return celery


def _transport_options(settings: Settings) -> dict[str, object]:
    once = {"max_retries": 1, "interval_start": 0, "interval_max": 0}
    if settings.broker_url:
        return {
            **once,
            "visibility_timeout": 7 * 86400,
            "socket_connect_timeout": 1,
            "socket_timeout": 5,
        }
    folder = settings.data_dir.absolute() / "broker"
    messages, control = folder / "messages", folder / "control"
    for path in (messages, control):
        path.mkdir(parents=True, exist_ok=True)
    return {
        **once,
        "data_folder_in": str(messages),
        "data_folder_out": str(messages),
        "control_folder": str(control),
        "polling_interval": 0.1,
    }


def notify(job_id: str | None, queue: str) -> bool:
    """Tell a worker of a committed job, or that some job waits.

    If the broker is down the job is not lost: the reaper notifies again.
    """
    try:
        # The worker declares the queue. Declaring it here too would have us read the
        # filesystem transport's table while the worker writes it.
        get_celery().send_task(
            "train", args=[job_id], queue=queue, retry=False, declare=[]
        )
    except (OperationalError, ChannelError, OSError) as error:
        log.warning(
            "the broker is out of reach; %s waits for the reaper: %s", job_id, error
        )
        return False
    return True
