"""The service's settings: the only reader of the environment."""

import ipaddress
import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from platformdirs import user_data_dir
from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.masking import mask
from lometab.errors import LoMETabError, suggest

ROOT = Path(__file__).resolve().parents[1]
"""The folder that holds `app`, `worker` and `migrations`."""


OLD_DATA_DIR = Path("lometab-data")
"""Where earlier versions kept their files: below the folder they were started in."""
OTHERS = ("LOMETAB_URL", "LOMETAB_KEY", "LOMETAB_PATROL_SECONDS")
"""Variables of ours that are no settings of the service."""
PER_WORKSPACE = (
    *("max_queued_jobs", "max_webhooks", "max_stored_bytes", "max_models"),
    *("keep_datasets_days", "keep_failed_jobs_days"),
    *("keep_events_days", "keep_attempts_days"),
)
"""Settings that a workspace can have of its own."""


def find_data_dir() -> Path:
    """The same wherever we are started, unless files of before are here."""
    if OLD_DATA_DIR.is_dir():
        return OLD_DATA_DIR
    return Path(user_data_dir("lometab", appauthor=False))


class Settings(BaseSettings):
    """Each field is read from the variable LOMETAB_<its name in capitals>."""

    model_config = SettingsConfigDict(
        env_prefix="LOMETAB_",
        extra="ignore",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # there may be a password in it
    )

    data_dir: Path = Field(default_factory=find_data_dir)
    """Where the embedded default keeps its database and its broker's folders: the
    user's data directory, or `lometab-data` if that is here."""
    database_url: str = ""
    """SQLAlchemy URL; empty: SQLite in the data directory."""
    database_password_file: Path | None = None
    """A file with the password for that URL, such as a secret of a container."""
    database_connections: int = Field(default=15, gt=0)
    """Connections to the database that a process holds, beside those of predict."""
    database_pooler: bool = False
    """Whether that URL leads to PgBouncer, or another pooler that gives connections out
    for a transaction: then nothing is set for longer, and no statement is prepared."""
    statement_seconds: float = Field(default=60.0, ge=0)
    """How long a statement may take on Postgres; 0: as long as it takes."""
    blob_store: str = ""
    """Where files are kept: empty or `database`; `s3://bucket/prefix`, `gs://...`,
    `az://...`, or a directory. What is in another place is still found there."""
    blob_options: dict[str, Any] = {}
    """Options of object stores, as `{"endpoint": "http://minio:9000"}`; under an
    address: of that one alone. What is not said is read from AWS_ and such variables.
    """
    blob_options_file: Path | None = None
    """A file with more of these options, such as a secret of a container."""
    broker_url: str = ""
    """Celery broker URL; empty: folders in the data directory."""
    broker_password_file: Path | None = None
    """A file with the password for that URL."""
    host: str = "127.0.0.1"
    """The address that the API listens on; on others than loopback, requests need a
    key."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The port that the API listens on; 0: a free one, which is printed."""
    root_path: str = Field(default="", pattern=r"^(/[\w.~-]+)*$")
    """What a proxy puts before our paths and takes off again, such as `/lometab`."""
    cors_origins: Annotated[list[str], NoDecode] = []
    """Web pages that may call from a browser, by origin: `https://app.example`, with
    commas between them; `*`: any, with a key."""

    require_keys: bool | None = None
    """Requests need an API key; null: unless the service is the embedded default."""

    max_connections: int = Field(default=1000, gt=0)
    """Connections that a process holds at a time; others get a 503."""
    max_header_bytes: int = Field(default=32 * 2**10, gt=0)
    """Largest address and headers of a request, together."""
    header_seconds: float = Field(default=10.0, gt=0)
    """How long a client may take to send its headers."""
    keep_alive_seconds: int = Field(default=75, gt=0)
    """How long a connection is kept on which nothing is asked. Longer than clients and
    proxies keep theirs, so that none of them asks on one that is just being closed."""
    body_seconds: float = Field(default=30.0, gt=0)
    """How long a client may send nothing of a body that is waited for."""
    min_body_rate: int = Field(default=512, ge=0)
    """Bytes a second that a body must come at, on average, after `body_seconds`."""
    send_seconds: float = Field(default=60.0, gt=0)
    """How long a client may take nothing of an answer that is being sent."""

    log_format: Literal["text", "json"] = "text"
    """How lines of the log are written; as JSON with the ids of what they are about."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is told in the log, at least."""

    traces: bool = False
    """Whether spans are sent by OpenTelemetry; the extra `otel` brings it, and its own
    variables say where they go: OTEL_EXPORTER_OTLP_ENDPOINT."""
    traces_predict_share: float = Field(default=0.01, ge=0, le=1)
    """Of predict requests that come without a `traceparent`, how many are traced; one
    that has it is traced as its caller says."""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """Where `GET /metrics` is answered, apart from the API; 0: by the API itself, if
    requests need no key."""
    metrics_host: str = "127.0.0.1"
    """The address of that port: who can reach it needs no key."""
    metrics_dir: Path | None = None
    """Where the processes of a service on one machine leave their counts for one
    another: made by `lometab api` and `lometab serve`."""

    shutdown_seconds: int = Field(default=30, gt=0)
    """How long answers under way may still take once the service is told to end."""
    key_requests_per_minute: int = Field(default=0, ge=0)
    """Requests of a key whose own limit is not set; 0: any number."""
    key_max_concurrent: int = Field(default=0, ge=0)
    """The same for requests at a time, by process."""
    audit_days: int = Field(default=365, gt=0)
    """How long the record of a change is kept."""
    min_free_bytes: int = Field(default=512 * 2**20, ge=0)
    """Free space on disk below which uploads and jobs get a 507."""

    max_upload_bytes: int = Field(default=2 * 2**30, gt=0)
    """Largest request body that is taken."""
    max_table_bytes: int = Field(default=4 * 2**30, gt=0)
    """Largest table that is taken, unpacked."""
    max_columns: int = Field(default=10_000, gt=0)
    """Most columns of a table."""
    max_rows: int = Field(default=100_000_000, gt=0)
    """Most rows of a table."""
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
    """Large tables that a process has in hand, until their answers are sent."""
    predict_body_seconds: float = Field(default=600.0, gt=0)
    """Longest time in which the body of a predict request may arrive."""
    explain_queue: int = Field(default=8, gt=0)
    """Predict requests with `explain` that a process has in hand at a time."""
    explain_threads: int = Field(default=1, gt=0)
    """Threads of a process that explain rows."""
    table_threads: int = Field(default=2, gt=0)
    """Threads of a process that answer large tables, chunk by chunk."""
    model_cache_bytes: int = Field(default=2**30, gt=0)
    """Memory for models that a process keeps loaded for predict."""
    invocations_model: str = Field(default="", pattern=r"^[A-Za-z0-9._@-]*$")
    """The model that answers `POST /invocations`, as `churn@champion`; others do at
    `/models/{id}/invocations`."""
    ort_providers: Annotated[list[str], NoDecode] = ["CPUExecutionProvider"]
    """ONNX Runtime execution providers in order of preference: `cuda,cpu`."""
    ort_threads: int = Field(default=1, gt=0)
    """Threads of one ONNX Runtime call."""

    monitor: bool = True
    """Whether predicted rows are counted for `GET /models/{id}/monitor`."""
    monitor_seconds: float = Field(default=10.0, gt=0)
    """How often counts are written to the database."""
    monitor_days: int = Field(default=90, gt=0)
    """How long counts, and answers that wait for outcomes, are kept."""
    monitor_answers: int = Field(default=100_000, ge=0)
    """Answers of a model that wait for outcomes, if their rows have ids; 0: none."""

    prediction_chunk_rows: int = Field(default=100_000, gt=0, le=10_000_000)
    """About how many rows of a prediction job a worker takes at a time."""
    prediction_kept_days: float = Field(default=7.0, gt=0, le=36_500)
    """How long the result of a prediction job is kept."""
    max_webhooks: int = Field(default=20, ge=0)
    """Webhooks of a workspace; others get a 429."""
    webhook_networks: Annotated[list[str], NoDecode] = []
    """Networks that webhooks may reach though they are not public, with commas between
    them: `10.1.0.0/16,127.0.0.1/32`; there http will do, elsewhere it takes https."""
    webhook_seconds: float = Field(default=10.0, gt=0)
    """How long a receiver may take, from the connection to the end of its answer."""
    webhook_poll_seconds: float = Field(default=2.0, gt=0)
    """How often a worker looks for messages to webhooks that are due."""
    webhook_backoff_seconds: float = Field(default=5.0, ge=0)
    """The wait after a first attempt that failed; each next one is five times longer,
    up to six hours."""
    webhook_attempts: int = Field(default=9, gt=0)
    """Attempts at a message before it is given up."""
    webhook_days: int = Field(default=30, gt=0)
    """How long messages to webhooks, and what became of them, are kept."""

    max_queued_jobs: int = Field(default=20_000, gt=0)
    """Jobs of a workspace that wait at a time, the runs of sweeps and tune jobs
    included; others get a 429."""
    max_stored_bytes: int = Field(default=0, ge=0)
    """Bytes of files that a workspace keeps; uploads and jobs beyond get a 507; 0: any
    number."""
    max_models: int = Field(default=0, ge=0)
    """Models of a workspace; jobs beyond get a 429; 0: any number."""
    keep_datasets_days: float = Field(default=0, ge=0)
    """Datasets that no job uses go after so many days; 0: never; so below."""
    keep_failed_jobs_days: float = Field(default=0, ge=0)
    """The same for jobs that failed or were cancelled, by when they ended."""
    keep_events_days: float = Field(default=0, ge=0)
    """The same for events of jobs that have ended; the last one stays."""
    keep_attempts_days: float = Field(default=0, ge=0)
    """The same for attempts at jobs that have ended; the last one stays."""
    workspaces: dict[str, dict[str, float]] = {}
    """What holds for some workspaces alone, of the settings `max_queued_jobs`,
    `max_webhooks`, and the six above: `{"acme": {"max_models": 10}}`."""
    worker_queue: str = Field(default="cpu", pattern="^(cpu|gpu)$")
    """The queue this worker takes jobs from."""
    training_threads: int = Field(default=0, ge=0)
    """CPU threads of a training process; 0: as many as the worker may use, by its CPU
    affinity and the quota of its control group, and by how many workers the machine
    has; one for a small table."""
    lease_seconds: float = Field(default=60.0, gt=0)
    """A worker that has not renewed its claim for so long has lost the job."""
    reaper_seconds: float = Field(
        default=15.0,
        gt=0,
        validation_alias=AliasChoices(
            "LOMETAB_REAPER_SECONDS", "LOMETAB_PATROL_SECONDS"
        ),
    )
    """How often a worker looks for jobs that were lost or never announced. The second
    name is the old one."""
    janitor_seconds: float = Field(default=600.0, gt=0)
    """How often a worker clears away what dead processes left behind."""
    checkpoint_seconds: float = Field(default=30.0, ge=0)
    """The least time between two checkpoints of a job."""
    checkpoint_kept_seconds: float = Field(default=86400.0, ge=0)
    """How long the checkpoint of a failed or cancelled job is kept for `retry`."""
    max_training_bytes: int = Field(default=0, ge=0)
    """Memory a training process may take; 0: nine tenths of what the machine has, or
    the worker's control group allows, divided among the workers there. Jobs that no
    worker has room for are refused."""
    max_attempts: int = Field(default=3, gt=0)
    """Attempts at a job whose worker dies before it is given up."""
    exit_with_parent: bool = False
    """A worker ends when its standard input is closed: set by `lometab serve`."""

    @field_validator("database_url")
    @classmethod
    def check_database(cls, given: str) -> str:
        """A driver would take the end of such a password for a part of the host, and
        say so in its errors."""
        place = given.partition("://")[2].partition("?")[0]
        password = place.rpartition("@")[0].partition(":")[2]
        if not given.startswith("sqlite") and ("@" in password or "/" in password):
            raise ValueError("write an @ in a password as %40, and a / as %2F")
        return given

    @field_validator("broker_url")
    @classmethod
    def check_broker(cls, given: str) -> str:
        """As above; of several sentinels each."""
        for each in given.split(";"):
            place = each.partition("://")[2]
            password = place.rpartition("@")[0].partition(":")[2]
            if re.search(r"[\s/?#@]", password):
                raise ValueError(
                    "in a password write @ as %40, / as %2F, ? as %3F, # as %23 and a "
                    "blank as %20"
                )
        return given

    @field_validator("blob_store")
    @classmethod
    def check_store(cls, given: str) -> str:
        given = given.rstrip("/") if given != "/" else given
        if given in ("", "database"):
            return ""
        if given.startswith("/"):
            return f"file://{given}"
        if re.fullmatch(r"(s3|gs|az|abfs|abfss)://[^/\s?#]+(/[^\s?#]*)?", given):
            return given
        if given.startswith("file:///"):
            return given
        raise ValueError(
            "give database, s3://bucket/prefix, gs://bucket/prefix, "
            "az://container/prefix or the absolute path of a directory"
        )

    @field_validator("cors_origins", mode="before")
    @classmethod
    def split_origins(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        if given.startswith("["):
            return json.loads(given)
        return [each.strip().rstrip("/") for each in given.split(",") if each.strip()]

    @field_validator("cors_origins")
    @classmethod
    def check_origins(cls, origins: list[str]) -> list[str]:
        for origin in origins:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s*]+", origin):
                raise ValueError(
                    "an origin is like https://app.example, without a path"
                )
        return origins

    @field_validator("workspaces")
    @classmethod
    def check_workspaces(
        cls, given: dict[str, dict[str, float]]
    ) -> dict[str, dict[str, float]]:
        for name, chosen in given.items():
            for setting, value in chosen.items():
                if setting not in PER_WORKSPACE:
                    hint = suggest(setting, PER_WORKSPACE)
                    raise ValueError(f"{name}: there is no setting {setting!r}{hint}")
                if value < 0:
                    raise ValueError(f"{name}: {setting} must not be below 0")
        return given

    def for_workspace(self, workspace_id: str) -> "Settings":
        """The settings as they hold in one workspace."""
        chosen = self.workspaces.get(workspace_id)
        return self if chosen is None else self.model_copy(update=chosen)

    @field_validator("webhook_networks", mode="before")
    @classmethod
    def split_networks(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        if given.startswith("["):
            return json.loads(given)
        return [each.strip() for each in given.split(",") if each.strip()]

    @field_validator("webhook_networks")
    @classmethod
    def check_networks(cls, given: list[str]) -> list[str]:
        return [str(ipaddress.ip_network(each)) for each in given]

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
            return _with_password(self.database_url, self.database_password_file)
        return f"sqlite:///{self.data_dir.absolute() / 'lometab.db'}"

    @property
    def celery_url(self) -> str:
        """Of the broker; empty: folders in the data directory."""
        return _with_password(self.broker_url, self.broker_password_file)

    @property
    def store_options(self) -> dict[str, Any]:
        """Options of object stores, those of the file included."""
        if self.blob_options_file is None:
            return self.blob_options
        try:
            more = json.loads(self.blob_options_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            # Without the cause, which may quote the file.
            what = error.strerror if isinstance(error, OSError) else "it is no JSON"
            raise LoMETabError(
                f"the options in {self.blob_options_file} cannot be read: {what}"
            ) from None
        if not isinstance(more, dict):
            raise LoMETabError(f"{self.blob_options_file} has to be a JSON object")
        return _merge(self.blob_options, more)

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
        # Before all else that may have a package `app` or `worker`.
        others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = [str(ROOT), *(each for each in others if each not in ("", str(ROOT)))]
        return {**os.environ, **ours, "PYTHONPATH": os.pathsep.join(path)}


def _merge(options: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Both; those of one address too."""
    merged = {**options, **more}
    for name in options.keys() & more.keys():
        if not (isinstance(options[name], dict) and isinstance(more[name], dict)):
            raise LoMETabError(
                f"the option {name} is in LOMETAB_BLOB_OPTIONS and in a file too; "
                "give it once"
            )
        merged[name] = _merge(options[name], more[name])
    return merged


def _with_password(url: str, file: Path | None) -> str:
    """The URL with the password that the file has, if it is told of one."""
    if file is None or not url:
        return url
    try:
        password = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise LoMETabError(f"the password cannot be read: {error}") from error
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    if at and ":" in user:
        raise LoMETabError("a password is in the URL and in a file too; give it once")
    return f"{scheme}://{user}:{quote(password, safe='')}@{place}"


@dataclass(frozen=True)
class Setting:
    """One setting as it holds now."""

    variable: str
    value: str
    source: str
    """`environment` or `default`."""
    meaning: str


def list_settings() -> list[Setting]:
    """All of them; passwords in addresses are not shown."""
    settings = get_settings()
    found = []
    for name, field in Settings.model_fields.items():
        variable = f"LOMETAB_{name.upper()}"
        is_set = variable in os.environ or (
            name in ("reaper_seconds",) and ("LOMETAB_PATROL_SECONDS" in os.environ)
        )
        value = getattr(settings, name)
        if name == "blob_options":  # there are secrets among them
            value = dict.fromkeys(value, "***")
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        text = mask(text)
        source = "environment" if is_set else "default"
        meaning = " ".join((field.description or "").split())
        found.append(Setting(variable, text.strip('"'), source, meaning))
    return found


def list_unknown() -> list[str]:
    """Variables that look like settings of ours and are none, each with a hint."""
    known = [f"LOMETAB_{name.upper()}" for name in Settings.model_fields]
    return [
        f"{name} is set, and there is no such setting{suggest(name, known)}"
        for name in sorted(os.environ)
        if name.startswith("LOMETAB_") and name not in (*known, *OTHERS)
    ]


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
