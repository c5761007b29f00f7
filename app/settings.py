"""The service's settings: the only reader of the environment."""

import json
import logging
import os
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class Settings(BaseSettings):
    """Each field is read from the variable LOMETAB_<its name in capitals>."""

    model_config = SettingsConfigDict(env_prefix="LOMETAB_", extra="ignore")

    data_dir: Path = Path("lometab-data")
    """Where the embedded default keeps its database and its broker's folders."""
    database_url: str = ""
    """SQLAlchemy URL; empty: SQLite in the data directory."""
    broker_url: str = ""
    """Celery broker URL; empty: folders in the data directory."""
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)

    require_keys: bool | None = None
    """Requests need an API key; null: unless the service is the embedded default."""

    max_upload_bytes: int = Field(default=2 * 2**30, gt=0)
    """Largest request body that is taken."""
    max_table_bytes: int = Field(default=4 * 2**30, gt=0)
    """Largest table that is taken, unpacked."""
    max_columns: int = Field(default=10_000, gt=0)
    """Most columns of a table."""
    max_predict_rows: int = Field(default=1_000_000, gt=0)
    """Most rows in one predict request."""
    max_predict_bytes: int = Field(default=256 * 2**20, gt=0)
    """Largest body of a predict request."""
    max_json_bytes: int = Field(default=32 * 2**20, gt=0)
    """The same for JSON, which is parsed whole."""
    predict_queue: int = Field(default=128, gt=0)
    """Predict requests that a process has in hand at a time; others get a 503."""
    predict_threads: int = Field(default=4, gt=0)
    """Threads of a process that answer small requests."""
    join_rows: int = Field(default=256, ge=0)
    """Requests for one model share a run up to so many rows; 0: none do."""
    table_queue: int = Field(default=16, gt=0)
    """Large tables that a process has in hand and has not begun to answer."""
    table_threads: int = Field(default=2, gt=0)
    """Threads of a process that answer large tables, chunk by chunk."""
    model_cache_bytes: int = Field(default=2**30, gt=0)
    """Weights of models that a process keeps loaded for predict."""
    ort_providers: Annotated[list[str], NoDecode] = ["CPUExecutionProvider"]
    """ONNX Runtime execution providers in order of preference: `cuda,cpu`."""
    ort_threads: int = Field(default=1, gt=0)
    """Threads of one ONNX Runtime call."""

    worker_queue: str = Field(default="cpu", pattern="^(cpu|gpu)$")
    """The queue this worker takes jobs from."""
    training_threads: int = Field(default=0, ge=0)
    """CPU threads of a training process; 0: as many as there are cores."""
    lease_seconds: float = Field(default=60.0, gt=0)
    """A worker that has not renewed its claim for so long has lost the job."""
    patrol_seconds: float = Field(default=15.0, gt=0)
    """How often a worker looks for jobs that were lost or never announced."""
    checkpoint_seconds: float = Field(default=30.0, ge=0)
    """The least time between two checkpoints of a job."""
    checkpoint_kept_seconds: float = Field(default=86400.0, ge=0)
    """How long the checkpoint of a failed or cancelled job is kept for `retry`."""
    max_training_bytes: int = Field(default=0, ge=0)
    """Memory a training process may take; 0: nine tenths of what the machine has."""
    max_attempts: int = Field(default=3, gt=0)
    """Attempts at a job whose worker dies before it is given up."""
    exit_with_parent: bool = False
    """A worker ends when its standard input is closed: set by `lometab serve`."""

    @field_validator("ort_providers", mode="before")
    @classmethod
    def split_providers(cls, given: object) -> object:
        """Names with commas between them, or a JSON list; `cpu` and `cuda` will do."""
        if not isinstance(given, str):
            return given
        names = json.loads(given) if given.startswith("[") else given.split(",")
        known = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
        return [known.get(name.strip().lower(), name.strip()) for name in names]

    @property
    def is_embedded(self) -> bool:
        return not self.database_url

    @property
    def keys_required(self) -> bool:
        return not self.is_embedded if self.require_keys is None else self.require_keys

    @property
    def sqlalchemy_url(self) -> str:
        if self.database_url:
            return self.database_url
        return f"sqlite:///{self.data_dir.absolute() / 'lometab.db'}"

    def environment(self, **changes: object) -> dict[str, str]:
        """The environment of a child process that shall run under these settings."""
        copy = self.model_copy(update=changes)
        changed = copy.model_dump(mode="json", exclude_none=True)
        ours = {
            f"LOMETAB_{name.upper()}": value
            if isinstance(value, str)
            else json.dumps(value)
            for name, value in changed.items()
        }
        return {**os.environ, **ours}


def configure_logging() -> None:
    """One format for all our processes; libraries speak up only when it matters."""
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # No line shows these, and finding them takes longer than the rest of it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    for name in ("app", "worker"):
        logging.getLogger(name).setLevel(logging.INFO)
    # It warns that a filesystem broker has no host.
    logging.getLogger("kombu.connection").setLevel(logging.ERROR)


@cache
def get_settings() -> Settings:
    return Settings()


def override_settings(**changes: object) -> Settings:
    """Settings from a command line, for this process and its children.

    To be called before anything reads the settings.
    """
    os.environ.update(get_settings().environment(**changes))
    get_settings.cache_clear()
    return get_settings()
