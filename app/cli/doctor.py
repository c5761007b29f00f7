"""`lometab doctor`: whether all is there and well; each line says what to do."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from app.cli.connection import DataDir
from app.cli.mistakes import explain
from app.cli.output import AsJson, print_json, print_lines, print_text
from app.cli.service import has_nothing
from lometab import __version__
from lometab.extras import EXTRAS, is_installed

MAX_CLOCK_SECONDS = 5.0


class Line(NamedTuple):
    """What came of one check."""

    name: str
    state: str
    """ok, note or FAULT."""
    text: str

    def __str__(self) -> str:
        return f"{self.state:<7} {self.name}: {self.text}"


def add(cli: typer.Typer) -> None:
    cli.command()(doctor)


def doctor(
    deep: Annotated[
        bool, typer.Option(help="Also look at every row and read every stored byte.")
    ] = False,
    orphan_seconds: Annotated[
        float, typer.Option(min=0, help="How old orphans are that count.")
    ] = 3600.0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine, the settings and what is stored; nothing is changed.

    The exit code is 1 if anything is not as it must be.
    """
    lines = [*examine_machine()]
    if is_installed("sqlalchemy"):
        lines += _examine_service(data_dir)
        if not _has_fault(lines):
            lines += _examine_storage(deep, orphan_seconds)
    if as_json:
        print_json([line._asdict() for line in lines])
    else:
        for line in lines:
            print_text(str(line))
        n_faults = sum(line.state == "FAULT" for line in lines)
        print_lines(f"{n_faults} checks found faults" if n_faults else "all is well")
    raise typer.Exit(1 if _has_fault(lines) else 0)


def _has_fault(lines: list[Line]) -> bool:
    return any(line.state == "FAULT" for line in lines)


# ----------------------------------------------------------------------------
# This machine


def examine_machine() -> Iterator[Line]:
    """What is installed, and what it can compute on."""
    python = platform.python_version()
    yield Line("python", "ok", f"{python}, lometab {__version__}")
    for extra, modules in EXTRAS.items():
        missing = [each for each in modules if not is_installed(each)]
        if not missing:
            yield Line(f"extra {extra}", "ok", "installed")
        else:
            fix = f"pip install 'lometab[{extra}]'"
            yield Line(f"extra {extra}", "note", f"no {missing[0]}: {fix}")
    yield _examine_runtime()
    yield _examine_torch()


def _examine_runtime() -> Line:
    import onnxruntime

    both = [_find_version(name) for name in ("onnxruntime", "onnxruntime-gpu")]
    if all(both):
        return Line(
            "onnxruntime",
            "FAULT",
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each "
            "other: pip uninstall both, then pip install onnxruntime-gpu",
        )
    providers = ", ".join(onnxruntime.get_available_providers())
    return Line("onnxruntime", "ok", f"{onnxruntime.__version__} with {providers}")


def _find_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _examine_torch() -> Line:
    """Without loading it, unless it can have a GPU."""
    found = _find_version("torch")
    if found is None:
        return Line("device", "note", "no torch: nothing can be trained here")
    if found.endswith("+cpu"):
        return Line("device", "ok", f"torch {found}: trains on the CPU")
    code = "import torch; print(torch.cuda.device_count(), torch.version.cuda)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it does not load"])[-1]
        return Line("device", "FAULT", f"torch {found}: {last}; install it again")
    n_devices, cuda = done.stdout.split()
    if n_devices == "0":
        return Line("device", "ok", f"torch {found}: no GPU is seen, trains on the CPU")
    return Line("device", "ok", f"torch {found}: {n_devices} GPU, CUDA {cuda}")


# ----------------------------------------------------------------------------
# The service


def _examine_service(data_dir: Path | None) -> list[Line]:
    from app.settings import get_settings, list_unknown, override_settings

    lines = [Line("settings", "FAULT", each) for each in list_unknown()]
    try:
        get_settings()
        if data_dir is not None:
            override_settings(data_dir=data_dir)
    except Exception as error:
        return [*lines, _fail("settings", error)]
    if not lines:
        lines.append(Line("settings", "ok", "see `lometab config`"))
    checks: tuple[tuple[str, Callable[[], Line]], ...] = (
        ("data directory", _examine_disk),
        ("database", _examine_database),
        ("broker", _examine_broker),
    )
    for name, check in checks:
        try:
            lines.append(check())
        except Exception as error:
            lines.append(_fail(name, error))
    if not _has_fault(lines):
        lines += [_examine_workers(), _examine_clock()]
    return lines


def _fail(name: str, error: Exception) -> Line:
    mistake = explain(error)
    text = mistake.text if mistake else f"{type(error).__name__}: {error}"
    return Line(name, "FAULT", text)


def _examine_disk() -> Line:
    from app.settings import get_settings

    settings = get_settings()
    folder = settings.data_dir.absolute()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free
    text = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < settings.min_free_bytes:
        return Line("data directory", "FAULT", f"{text}: uploads are refused")
    is_new = "" if folder.exists() else "; it is made by `lometab serve`"
    return Line("data directory", "ok", text + is_new)


def _examine_database() -> Line:
    from app.masking import mask
    from app.settings import get_settings
    from app.storage import db

    settings = get_settings()
    where = mask(settings.sqlalchemy_url)
    if has_nothing(settings):
        return Line("database", "note", f"{where} is not there yet: `lometab serve`")
    with db.reading() as session:
        revision = db.check_revision(session)
    return Line("database", "ok", f"{where} at revision {revision}")


def _examine_broker() -> Line:
    from app.jobs import get_celery
    from app.masking import mask
    from app.settings import get_settings

    settings = get_settings()
    if not settings.broker_url:
        return Line("broker", "ok", "folders in the data directory")
    where = mask(settings.celery_url)
    with get_celery().connection_for_read() as connection:
        try:
            connection.ensure_connection(max_retries=1, timeout=3)
        except Exception as error:
            cause = mask(str(error))
            return Line(
                "broker",
                "FAULT",
                f"{where} cannot be reached: {cause}; jobs wait until the reaper "
                "finds them. Is it running, and is LOMETAB_BROKER_URL right?",
            )
        return Line("broker", "ok", where)


def _examine_workers() -> Line:
    from app.jobs import count_workers
    from app.settings import get_settings
    from app.storage import db
    from app.storage.enums import Queue

    settings = get_settings()
    if has_nothing(settings):
        return Line("workers", "note", "none: there is no database yet")
    with db.reading() as session:
        found = {
            queue.value: count_workers(
                session, queue, heard_within=2 * settings.reaper_seconds
            )
            for queue in Queue
        }
    told = ", ".join(f"{n} of the queue {queue}" for queue, n in found.items())
    if not any(found.values()):
        return Line("workers", "note", "none is heard of: start `lometab worker`")
    return Line("workers", "ok", told)


def _examine_clock() -> Line:
    """Leases are by the database's clock; ours must not be far from it."""
    from app.settings import get_settings
    from app.storage import db

    if get_settings().is_embedded:
        return Line("clock", "ok", "the database's is this machine's")
    with db.reading() as session:
        apart = abs((db.now(session) - datetime.now(UTC)).total_seconds())
    if apart > MAX_CLOCK_SECONDS:
        return Line(
            "clock",
            "FAULT",
            f"{apart:.0f} s apart from the database's: set this machine's by NTP",
        )
    return Line("clock", "ok", f"{apart:.1f} s apart from the database's")


def _examine_storage(deep: bool, min_age: float) -> list[Line]:
    from app.doctor import examine
    from app.settings import get_settings, override_settings

    settings = get_settings()
    if has_nothing(settings):
        return []
    override_settings(statement_seconds=0)
    return [
        Line(
            each.name,
            "FAULT" if each.faults else "ok",
            "; ".join(each.faults[:20]) or "yes",
        )
        for each in examine(deep=deep, min_age=min_age)
    ]
