"""The service's settings: the only reader of the environment."""

import json
import logging
import os
from functools import cache
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


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

    max_upload_bytes: int = Field(default=256 * 2**20, gt=0)
    """Largest request body that is taken."""
    max_predict_rows: int = Field(default=100_000, gt=0)
    """Most rows in one predict request."""
    cached_models: int = Field(default=16, gt=0)
    """Models a process keeps loaded for predict."""
    ort_providers: list[str] = ["CPUExecutionProvider"]
    """ONNX Runtime execution providers, in order of preference."""
    ort_threads: int = Field(default=1, gt=0)
    """Threads of one ONNX Runtime call."""

    worker_queue: str = Field(default="cpu", pattern="^(cpu|gpu)$")
    """The queue this worker takes jobs from."""
    training_threads: int = Field(default=0, ge=0)
    """CPU threads of a training process; 0: as many as there are cores."""
    lease_seconds: float = Field(default=60.0, gt=0)
    """A worker that has not renewed its claim for so long has lost the job."""
    sweep_seconds: float = Field(default=15.0, gt=0)
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
