"""`make images`: build images for real, and run each command from its image.

There need not be a container engine: buildah builds in a chroot, on a base that
debootstrap makes of Debian and its Python and that is tagged as the one the Dockerfile
names. What is built runs as the image's own user, on a root that is mounted read-only,
against real Postgres and Redis: a key is made, a job trained, a row predicted, and each
health check run. It takes root, Linux, and a quarter of an hour. Sizes are stored, and
written into docs/results.md.

pip in the build uses this machine's own configuration, which is mounted for the build
alone and is in no image.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.record import Runs, table, write_section
from lometab import __version__
from tests.support.servers import Postgres, Redis, end_with_us, free_port, wait_until
from tests.support.services import TINY
from tests.support.tables import make_csv

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/python:3.11-slim-bookworm"
TARGETS = ("api", "worker-cpu")
BUILDAH = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
PIP_FILES = ("/etc/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-build", action="store_true", help="Run what is there.")
    parser.add_argument("--torch-index", help="Where the build finds torch.")
    options = parser.parse_args()
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is needed: apt-get install buildah debootstrap")
    if not options.no_build:
        make_base()
        for target in TARGETS:
            build(target, options.torch_index)
    with Trial() as trial:
        trial.run()
    runs = Runs("images")
    for target, image in trial.images.items():
        result = {**measure(target), **image.list_labels()}
        say(f"{name(target)}: {result['bytes'] / 1e6:.0f} MB")
        runs.put({"image": target}, result)
    write_section("images", section(runs))
    say("all is well")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def name(target: str) -> str:
    return f"localhost/lometab:{target}"


def buildah(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["buildah", *map(str, arguments)],
        env=BUILDAH,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip()


# Building


def make_base() -> None:
    """A stand-in for the official image: the same Debian, the same Python."""
    known = buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()
    if BASE in known:
        return
    say("making the base ...")
    with tempfile.TemporaryDirectory(prefix="lometab-base-") as folder:
        root = Path(folder) / "root"
        packages = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, "bookworm", root],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for link in ("python", "python3", "python3.11"):
            (root / "usr/local/bin" / link).symlink_to("/usr/bin/python3.11")
        container = buildah("from", "scratch")
        buildah("add", "--quiet", container, root, "/")
        path = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        buildah("config", "--env", path, container)
        buildah("commit", "--quiet", "--rm", container, BASE)


def build(target: str, torch_index: str | None) -> None:
    say(f"building {target} ...")
    arguments = list_build_arguments(torch_index)
    with tempfile.TemporaryDirectory(prefix="lometab-pip-") as folder:
        for volume in list_pip_volumes(Path(folder)):
            arguments += ["--volume", f"{volume}:ro"]
        buildah(
            # OCI images have no health checks: those of Docker have.
            *("bud", "--format", "docker", "--network", "host", "--layers"),
            *("--target", target),
            *(*arguments, "--tag", name(target), ROOT),
        )


def list_build_arguments(torch_index: str | None) -> list[str]:
    given = {"PYTHON": BASE, "VERSION": __version__, "REVISION": find_revision()}
    if torch_index is not None:
        given["TORCH_INDEX"] = torch_index
    return [
        word
        for key, value in given.items()
        for word in ("--build-arg", f"{key}={value}")
    ]


def find_revision() -> str:
    """The commit that is built; `-dirty` if the files are not those of it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def list_pip_volumes(folder: Path) -> Iterator[str]:
    """What pip is told on this machine: its files, and the folders that they name."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in (Path(each).expanduser() for each in PIP_FILES)
        if path.exists()
    ]
    lines = [line for text in texts for line in text.splitlines() if "=" in line]
    if find_links := os.environ.get("PIP_FIND_LINKS"):
        lines.append(f"find-links = {find_links}")
    kept = [line for line in lines if line.split("=")[0].strip() != "cert"]
    merged = folder / "pip.conf"
    merged.write_text("\n".join(["[global]", *dict.fromkeys(kept), ""]))
    yield f"{merged}:/etc/pip.conf"
    yield "/etc/ssl/certs:/etc/ssl/certs"
    for found in sorted({*re.findall(r"(?:file://|[\s=])(/[^\s=]+)", "\n".join(kept))}):
        if Path(found).is_dir():
            yield f"{found}:{found}"
            files = Path(found).parent / "files"  # what an index in a folder refers to
            if Path(found).name == "simple" and files.is_dir():
                yield f"{files}:{files}"


def measure(target: str) -> dict[str, Any]:
    """The bytes of all its files, and which build of torch is among them."""
    container = buildah("from", "--pull-never", name(target))
    try:
        root = Path(buildah("mount", container))
        n_bytes = sum(
            path.lstat().st_size for path in root.rglob("*") if not path.is_dir()
        )
        packages = root.glob("opt/lometab/lib/python3*/site-packages/torch-*.dist-info")
        torch = [path.name.split("-")[1].removesuffix(".dist") for path in packages]
    finally:
        buildah("rm", container)
    return {"bytes": n_bytes, "torch": " ".join(torch)}


def section(runs: Runs) -> str:
    rows = [
        [
            key["image"],
            f"{result['bytes'] / 1e6:.0f}",
            result["torch"] or "-",
            result["version"],
            result["revision"],
        ]
        for key, result in runs
    ]
    return (
        "## Images\n\n"
        "`make images`. The size is that of all files of an image, unpacked and with "
        "its base, which debootstrap makes here: the official one is a little "
        "different. Images for GPUs are not built.\n\n"
        + table(["image", "MB", "torch", "version", "commit"], rows)
    )


# Running


class Image:
    """A built image, whose commands run as its user on a root that is read-only."""

    def __init__(self, target: str, secrets: Path) -> None:
        self.container = buildah("from", "--pull-never", name(target))
        self.root = Path(buildah("mount", self.container))
        about = json.loads(buildah("inspect", "--type", "image", name(target)))
        config = about["Docker"]["config"]
        self.command: list[str] = config["Cmd"]
        self.check: list[str] = config["Healthcheck"]["Test"][1:]
        self.user: str = config["User"]
        self.environment = dict(each.split("=", 1) for each in config["Env"])
        self.labels: dict[str, str] = config["Labels"]
        (self.root / "run/secrets").mkdir(parents=True, exist_ok=True)
        self.secrets = secrets

    def list_labels(self) -> dict[str, str]:
        about = "org.opencontainers.image"
        return {key: self.labels[f"{about}.{key}"] for key in ("version", "revision")}

    def remove(self) -> None:
        buildah("umount", self.container)
        buildah("rm", self.container)

    def wrap(self, command: Sequence[str], environment: dict[str, str]) -> list[str]:
        root = self.root
        script = [
            f"mount --bind {root} {root}",
            f"mount --bind {self.secrets} {root}/run/secrets",
            f"mount -o remount,bind,ro {root}",
            f"mount -t tmpfs -o size=4g,mode=1777 tmpfs {root}/tmp",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f'exec chroot --userspec={self.user} {root} "$@"',
        ]
        given = {**self.environment, **environment}
        pairs = [f"{key}={value}" for key, value in given.items()]
        shell = ["sh", "-ec", "\n".join(script), "sh"]
        inside = ["env", "-i", "--chdir=/tmp", *pairs, *command]
        return ["unshare", "--mount", "--propagation", "private", *shell, *inside]

    def start(
        self, command: Sequence[str], environment: dict[str, str], log: Path
    ) -> "subprocess.Popen[bytes]":
        with log.open("wb") as file:
            return subprocess.Popen(
                self.wrap(command, environment),
                stdout=file,
                stderr=file,
                preexec_fn=end_with_us(signal.SIGKILL),
            )

    def run(self, command: Sequence[str], environment: dict[str, str]) -> Any:
        return subprocess.run(
            self.wrap(command, environment),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


class Trial:
    """The images together, as docker-compose.yml has them."""

    def __enter__(self) -> "Trial":
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.folder.chmod(0o755)
        secrets = self.folder / "secrets"
        secrets.mkdir()
        for each in ("postgres", "redis"):
            (secrets / each).write_text("a password\n")
        postgres, redis = Postgres(), Redis()
        self.stack.callback(postgres.remove)
        self.stack.callback(redis.remove)
        with postgres.connect() as connection:
            connection.execute("CREATE ROLE lometab LOGIN PASSWORD 'a password'")
            connection.execute("CREATE DATABASE lometab OWNER lometab")
        self.port, self.metrics_port = free_port(), free_port()
        address = f"127.0.0.1:{postgres.port}"
        self.environment = {
            "LOMETAB_DATABASE_URL": f"postgresql+psycopg://lometab@{address}/lometab",
            "LOMETAB_DATABASE_PASSWORD_FILE": "/run/secrets/postgres",
            "LOMETAB_BROKER_URL": redis.url(),
            "LOMETAB_LOG_FORMAT": "json",
            "LOMETAB_REAPER_SECONDS": "2",
            "LOMETAB_HOST": "127.0.0.1",
            "LOMETAB_PORT": str(self.port),
            "LOMETAB_METRICS_HOST": "127.0.0.1",
            "LOMETAB_METRICS_PORT": str(self.metrics_port),
            "LOMETAB_REQUIRE_KEYS": "true",
        }
        self.images = {each: Image(each, secrets) for each in TARGETS}
        for image in self.images.values():
            self.stack.callback(image.remove)
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def run(self) -> None:
        for target, image in self.images.items():
            check_contents(target, image, self.environment)
        key = self.bootstrap()
        api, worker = (self.images[each] for each in TARGETS)
        other = {**self.environment, "LOMETAB_METRICS_PORT": str(free_port())}
        with (
            self.started(api, self.environment, "api"),
            self.started(worker, other, "worker"),
        ):
            check = [each.replace("8000", str(self.port)) for each in api.check]
            wait_until(
                lambda: api.run(check, self.environment).returncode == 0,
                seconds=180,
                what="the API's health check succeeds",
            )
            say("the API's health check succeeds")
            wait_until(
                lambda: worker.run(worker.check, other).returncode == 0,
                seconds=180,
                what="the worker's health check succeeds",
            )
            say("the worker's health check succeeds")
            self.train_and_predict(key)
        late = worker.run(worker.check, {**other, "LOMETAB_REAPER_SECONDS": "0.1"})
        assert late.returncode == 1, late

    def bootstrap(self) -> str:
        keys = []
        for _ in range(2):  # once more does nothing
            done = self.images["api"].run(["lometab", "bootstrap"], self.environment)
            assert done.returncode == 0, done.stderr
            keys += re.findall(r"lmt_\S+", done.stdout)
        (key,) = keys
        say("bootstrap made the tables and one key")
        return str(key)

    @contextmanager
    def started(
        self, image: Image, environment: dict[str, str], what: str
    ) -> Iterator[None]:
        log = self.folder / f"{what}.log"
        process = image.start(image.command, environment, log)
        try:
            yield
        except BaseException:
            sys.stderr.write(log.read_text(errors="replace")[-5000:])
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            code = process.wait(60)
            say(f"{what} ended by SIGTERM in {time.monotonic() - began:.1f} s: {code}")

    def train_and_predict(self, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        address = f"http://127.0.0.1:{self.port}"
        with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
            config = {"target": "y", "hyperparameters": TINY}
            posted = client.post(
                "/jobs",
                files={"file": ("table.csv", make_csv())},
                data={"config": json.dumps(config)},
            )
            assert posted.status_code == 202, posted.text
            path = posted.json()["links"]["self"]

            def read() -> dict[str, Any] | None:
                job: dict[str, Any] = client.get(path).json()
                return job if job["status"] in ("succeeded", "failed") else None

            job = wait_until(read, seconds=600, what="the job ends")
            assert job["status"] == "succeeded", job["error"]
            row = {"size": 5.0, "colour": "red", "weight": 4.0, "label": "high"}
            predict = f"/models/{job['model_id']}/predict"
            answer = client.post(predict, json={"rows": [row]})
            assert answer.status_code == 200, answer.text
            say(f"trained and predicted: {answer.json()['predictions'][0]}")
            assert client.get("/metrics").status_code == 404
        metrics = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics").text
        assert 'lometab_jobs{status="succeeded",kind="train"} 1' in metrics
        log = (self.folder / "worker.log").read_text().splitlines()
        ended = [json.loads(line) for line in log if "ended: succeeded" in line]
        assert [each["job_id"] for each in ended] == [job["id"]]


def check_contents(target: str, image: Image, environment: dict[str, str]) -> None:
    """No rights, nothing to write to, nothing that builds, one copy of the code."""
    probe = (
        "import os, importlib.util as u\n"
        "assert os.getuid() == os.getgid() == 10001\n"
        "for place in ('/', '/opt/lometab', '/etc', '/var/tmp', '/usr'):\n"
        "    try: open(place + '/x', 'w')\n"
        "    except OSError as error: assert error.errno in (13, 30), error\n"
        "    else: raise SystemExit(place + ' can be written to')\n"
        "open('/tmp/x', 'w').close()\n"
        "assert all(u.find_spec(name) is None for name in ('pip', 'hatchling'))\n"
    )
    done = image.run(["python", "-c", probe], environment)
    assert done.returncode == 0, done.stderr
    copies = [*image.root.rglob("lometab/predictor.py")]
    assert len(copies) == 1, copies
    assert not [*image.root.glob("usr/bin/*gcc*")]
    assert not [*image.root.rglob("nvidia/cu*")]
    has_torch = bool([*image.root.glob("opt/lometab/lib/python3*/site-packages/torch")])
    assert has_torch == target.startswith("worker")
    assert image.labels["org.opencontainers.image.title"] == "LoMETab"
    labels = image.list_labels()
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", labels["revision"]), labels
    assert re.fullmatch(r"\d+\.\d+\..+", labels["version"]), labels
    # What docker-compose.yml can turn on is there.
    probe = "import opentelemetry.exporter.otlp.proto.http, opentelemetry.sdk"
    done = image.run(["python", "-c", probe], environment)
    assert done.returncode == 0, done.stderr
    say(f"{target}: no rights, a read-only root, no pip, one copy of the code")


if __name__ == "__main__":
    main()
