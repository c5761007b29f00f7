"""docs/scaling.md: its sections, from the stored runs alone."""

from statistics import median
from typing import Any

from record import ROOT, Runs, table, write_section

PAGE = ROOT / "docs" / "scaling.md"
POSTGRES_DEFAULT = 100
"""`max_connections` of Postgres as it comes."""
JOB_SECONDS = (5, 60, 600)
CROWDS = (1, 2, 10, 100, 1000)
CALLS_PER_SECOND = 1 + 1 + 1 / 2 + 2 / 15
"""Of a worker with a job: a report, a look at what is requested, webhooks every two
seconds, the reaper and the heartbeat every fifteen."""
LABELS = {"before": "before", "now": "now", "pooled": "now, through PgBouncer"}


def write(runs: Runs) -> None:
    found = {(key["label"], key["part"], key.get("workers")): r for key, r in runs}
    write_section("workers", describe_workers(found), PAGE)
    streams = [(key, result) for key, result in runs if key["part"] == "streams"]
    if streams:
        write_section("streams", describe_streams(streams), PAGE)
    write_section("model", describe_model(Model(found)), PAGE)


def describe_workers(found: dict[Any, dict[str, Any]]) -> str:
    rows = []
    for (label, part, n), run in sorted(found.items(), key=lambda each: str(each[0])):
        if part not in ("paced", "pooled", "flat"):
            continue
        claim, lists = run["calls"]["claim"], run["lists"]
        rows.append(
            [
                f"{n}, {'without pause' if part == 'flat' else 'jobs of 10 s'}",
                LABELS["pooled" if part == "pooled" else label],
                f"{run['connections']} ({run.get('usual_connections', '-')})",
                run["messages"],
                run["claims_per_second"],
                f"{claim['p50']:.0f} / {claim['p95']:.0f}",
                f"{lists['p50']:.0f} / {lists['p95']:.0f}",
                f"{run['postgres_cores']:.2f}",
                sum(run["errors"].values()),
                f"{run['load']} on {run['cores']}",
            ]
        )
    header = [
        *("workers", "code", "connections, most (median)", "messages left", "claims/s"),
        *("claim p50 / p95, ms", "`GET /jobs` p50 / p95, ms", "cores of Postgres"),
        *("timeouts", "load on cores"),
    ]
    return f"""
`make bench-scaling`. Each worker is a thread group with an engine of its own and all
that a worker calls but training: claim, heartbeat, progress with an event a second,
status, finish, and beside them reaper and webhooks. One Postgres, one Redis, one API;
20 000 queued jobs in 4 workspaces. Calls are timed by their callers, on the machine
that also runs Postgres: where the load is above the cores, times tell of the machine.
Connections and messages hardly depend on that; a transaction that takes seconds meets
others of its worker more often. Messages left are those in Redis that nobody took.

{table(header, rows)}
{describe_wall(found)}"""


def describe_wall(found: dict[Any, dict[str, Any]]) -> str:
    lines = []
    for (label, part, n), run in found.items():
        if part != "paced":
            continue
        most, usual = run["connections"], run.get("usual_connections")
        line = f"- {n} workers, {LABELS[label]}: {most / n:.1f} a worker at most"
        if usual is not None:
            line += f", {usual / n:.1f} by the median of the run"
        lines.append(line)
    return (
        f"Connections, those of the API included; Postgres as it comes allows "
        f"{POSTGRES_DEFAULT} in all:\n\n" + "\n".join(lines)
    )


def describe_streams(streams: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    rows = [
        [
            f"{key['rate']:.0f}",
            LABELS[key["label"]],
            result["streams"],
            f"{result['received']} of {result['written']}",
            result["broken"],
            f"{result['lag'].get('p50', '-')} / {result['lag'].get('p95', '-')}",
            result["connections"],
            f"{result['postgres_cores']:.2f}",
            f"{result['api_cores']:.2f}",
            f"{result['load']} on {result['cores']}",
        ]
        for key, result in streams
    ]
    header = [
        *("events/s in all", "code", "streams", "received", "broken"),
        *("lag p50 / p95, s", "connections", "cores of Postgres", "cores of the API"),
        "load on cores",
    ]
    return f"""
A thousand streams (`GET /jobs/{{id}}/events` by Server-Sent Events) over four API
processes. A process asks the database twice a second for all of its streams at once, so
that half a second is the lag that is meant.

{table(header, rows)}"""


class Model:
    """Jobs of `t` seconds on `n` workers, by what was measured.

    A worker needs `t + overhead` seconds a job, and `n` of them do `n` times as much
    until the database is at its end: `core_seconds` of one core of Postgres a job, and
    `beat_cores` for each worker that lives.
    """

    def __init__(self, found: dict[Any, dict[str, Any]]) -> None:
        sweeps = {key["part"]: result for key, result in Runs("sweeps")}
        self.overhead = sweeps["many"]["overhead_ms"] / 1000
        one, two = (sweeps["scaling"][name] for name in ("one", "two"))
        self.n_pairs = len(one)
        self.ratio = median(b / a for a, b in zip(one, two, strict=True))
        flat = [r for (_, part, _), r in found.items() if part == "flat"]
        self.core_seconds = median(
            run["postgres_cores"] / run["claims_per_second"] for run in flat
        )
        paced = [
            (n, r)
            for (label, part, n), r in found.items()
            if part == "paced" and label == newest(found, n)
        ]
        self.beat_cores = CALLS_PER_SECOND * median(cost_of_call(r) for _, r in paced)

    def rate(self, n: int, seconds: float) -> float:
        """Jobs a second."""
        return n / (seconds + self.overhead)

    def cores(self, n: int, seconds: float) -> float:
        """Of Postgres, for that."""
        return self.rate(n, seconds) * self.core_seconds + n * self.beat_cores

    def end(self, seconds: float, cores: float) -> int:
        """Workers that so many cores of Postgres carry."""
        return int(cores / self.cores(1, seconds))


def cost_of_call(run: dict[str, Any]) -> float:
    """Seconds of one core of Postgres, on average over all kinds of calls."""
    n_calls = sum(call["n"] for call in run["calls"].values())
    return float(run["postgres_cores"] * run["seconds"] / n_calls)


def newest(found: dict[Any, dict[str, Any]], n: int) -> str:
    return "now" if ("now", "paced", n) in found else "before"


def describe_model(model: Model) -> str:
    rows = [
        [
            n,
            *(
                f"{3600 * model.rate(n, t):,.0f} ({model.cores(n, t):.2f})"
                for t in JOB_SECONDS
            ),
        ]
        for n in CROWDS
    ]
    header = ["workers", *(f"jobs of {t} s" for t in JOB_SECONDS)]
    ends = [
        f"{model.end(t, 1):,} workers with jobs of {t} s ({model.end(t, 4):,} on four "
        "cores)"
        for t in JOB_SECONDS
    ]
    return f"""
Jobs share nothing but the database, so that n workers do n times the work of one until
Postgres is at its end: n / (t + o) jobs a second for jobs of t seconds. The overhead o
of a job that is a cell of a sweep is {1000 * model.overhead:.0f} ms of a worker's time
(`docs/results.md`, a thousand small cells). Two workers on one machine of two cores
took {model.ratio:.2f} of the time of one (there, {model.n_pairs} pairs), where the
model says 0.50: they share the machine's memory and what else runs there, which workers
on machines of their own do not.

A job costs Postgres {1000 * model.core_seconds:.1f} ms of one core (claim, heartbeat, a
report, finish), a worker with a job {1000 * model.beat_cores:.2f} ms of one core a
second (a report a second, status, heartbeats, reaper, webhooks): by the processor time
of a call, which other load on the machine changes little. Jobs an hour, and in brackets
the cores of Postgres for them:

{table(header, rows)}
So it ends where one core of Postgres is used up: at {"; ".join(ends)}. Before that
come `max_connections` (a worker holds one, an API process up to 29; PgBouncer moves
it) and the network that tables and models go through. It is a model: a hundred
workers that train were never run.
"""
