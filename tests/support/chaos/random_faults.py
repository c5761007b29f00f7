"""Jobs while faults come at random: none is lost, none is done twice."""

import time
from collections.abc import Callable
from typing import Any

from tests.support.chaos.field import Battlefield


def run(
    field: Battlefield, *, n_jobs: int, seconds: float, pause: float
) -> dict[str, Any]:
    """Faults at random for some time, each kind at least once, then peace."""
    field.post(n_jobs)
    away = min(20, seconds / 4)
    faults: list[tuple[str, Callable[[], None]]] = [
        ("worker killed", field.kill_worker),
        ("training process killed", field.kill_child),
        ("worker told to stop", field.terminate_worker),
        ("worker frozen past its lease", field.freeze_worker),
        ("Redis wiped", field.wipe_redis),
        ("connections to Postgres ended", field.end_connections),
        ("Redis failed over", field.fail_redis_over),
        ("Postgres restarted", field.restart_postgres),
        (f"Redis stopped for {away:.0f} s", lambda: field.stop_redis(away)),
    ]
    deadline = time.monotonic() + seconds
    todo = [*faults]
    while time.monotonic() < deadline or todo:
        time.sleep(pause * field.rng.uniform(0.5, 1.5))
        field.keep()
        # The cheap faults more often, once each kind has had its turn.
        name, fault = todo.pop(0) if todo else field.rng.choice(faults[:6])
        field.inject(name, fault)
        if field.count()["succeeded"] == n_jobs and not todo:
            break
    field.finish(seconds=30 + 20 * n_jobs)
    return judge(field, n_jobs)


def judge(field: Battlefield, n_jobs: int) -> dict[str, Any]:
    statuses = field.count()
    (n_models,) = field.stack.query("SELECT count(DISTINCT job_id) FROM models")[0]
    (gaps,) = field.stack.query(
        "SELECT count(*) FROM jobs WHERE event_seq <> "
        "(SELECT count(*) FROM events WHERE events.job_id = jobs.id)"
    )[0]
    (attempts,) = field.stack.query("SELECT sum(attempt) FROM jobs")[0]
    return {
        "jobs": n_jobs,
        "succeeded": statuses["succeeded"],
        "lost": n_jobs - sum(statuses.values()),
        "failed": statuses["failed"],
        "doubled": field.count_doubled(),
        "models": n_models,
        "stuck": n_jobs - statuses["succeeded"] - statuses["failed"],
        "gaps in events": gaps,
        "attempts": attempts,
        "longest wait for a new worker, s": field.find_recovery(),
    }
