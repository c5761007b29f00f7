"""Files in an object store: a real S3 server over HTTP, and a directory."""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from app.cli.application import cli
from app.errors import StoreAway
from app.settings import Settings, get_settings, list_settings
from app.storage import blobs, chunks, db, objects, orphans, stores
from app.storage.tables import CHUNK_BYTES, Blob, BlobChunk, LooseObject
from lometab.errors import LoMETabError
from tests.support.blobs import Watched, count, refer, remove
from tests.support.faults import Choose, Fault, FaultyProxy
from tests.support.stacks import Stack, Stacks

SMALL = bytes(range(251)) * (2 * CHUNK_BYTES // 251)
LARGE = bytes(range(253)) * (18 * CHUNK_BYTES // 253)  # three parts


@pytest.fixture
def directory(
    stack: Stack, engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    use(
        monkeypatch,
        LOMETAB_BLOB_STORE=str(tmp_path / "blobs"),
        LOMETAB_DATA_DIR=str(
            stack.folder
        ),  # where commands see that there is something
    )
    yield tmp_path / "blobs"
    get_settings.cache_clear()


def use(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()


@pytest.fixture
def s3(
    engine: sa.Engine,
    stacks: Stacks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Choose], FaultyProxy]]:
    """Files go to S3; what it is called with breaks connections on their way."""
    monkeypatch.setattr(objects, "TRIES", 3)
    quick = {"init_backoff": timedelta(milliseconds=10)}
    monkeypatch.setitem(objects._RETRIES, "backoff", {**quick, "base": 2})
    use(monkeypatch, **stacks.s3.environment(tmp_path.name))
    proxies: list[FaultyProxy] = []

    def through(choose: Choose) -> FaultyProxy:
        proxy = FaultyProxy(stacks.s3.endpoint, choose)
        proxies.append(proxy.__enter__())
        use(monkeypatch, **stacks.s3.environment(tmp_path.name, proxy.url))
        return proxy

    yield through
    for proxy in proxies:
        proxy.__exit__()
    get_settings.cache_clear()


def list_names() -> set[str]:
    where = stores.get_default()
    assert isinstance(where, objects.ObjectStore)
    return {each.name for page in where.list_objects() for each in page}


# A directory: the rules, without a network


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 1])
def test_round_trip(directory: Path, size: int) -> None:
    content = LARGE[:size]
    sha256 = blobs.store_bytes("a b/c", content)
    assert blobs.store("a b/c", io.BytesIO(content)) == sha256
    assert blobs.read("a b/c", sha256) == content
    assert count(BlobChunk) == count(LooseObject) == 0
    (file,) = (path for path in directory.rglob("*") if path.is_file())
    assert file.read_bytes() == content
    assert directory.stat().st_mode & 0o077 == 0
    with pytest.raises(KeyError):
        blobs.read("other", sha256)


def test_any_part_is_read_and_held_against_its_hash(directory: Path) -> None:
    sha256 = blobs.store_bytes("default", LARGE)
    file = blobs.BlobFile("default", sha256)
    for start, size in ((0, 10), (CHUNK_BYTES - 3, 7), (9 * CHUNK_BYTES + 5, 2**21)):
        file.seek(start)
        assert file.read(size) == LARGE[start : start + size]
    assert (
        hashlib.sha256(blobs.BlobFile("default", sha256).read()).hexdigest() == sha256
    )


def find_file(directory: Path) -> Path:
    return next(path for path in directory.rglob("*") if path.is_file())


def flip(directory: Path) -> None:
    path = find_file(directory)
    content = bytearray(path.read_bytes())
    content[CHUNK_BYTES + 5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda folder: find_file(folder).unlink(),
        lambda folder: find_file(folder).write_bytes(SMALL[:100]),
    ],
    ids=["a bit", "gone", "short"],
)
def test_damage_is_told_and_mended(
    directory: Path, damage: Callable[[Path], None]
) -> None:
    sha256 = blobs.store_bytes("default", SMALL)
    refer(sha256)
    damage(directory)
    assert not blobs.is_intact("default", sha256)
    with pytest.raises(blobs.BlobDamaged):
        blobs.read("default", sha256)
    file = blobs.BlobFile("default", sha256)
    file.seek(CHUNK_BYTES)
    with pytest.raises(blobs.BlobDamaged):
        file.read(10)
    assert blobs.store_bytes("default", SMALL) == sha256
    assert blobs.read("default", sha256) == SMALL


@pytest.mark.both_databases
def test_what_nothing_refers_to_goes_after_a_while(directory: Path) -> None:
    sha256 = blobs.store_bytes("default", SMALL)
    reader = blobs.chunks("default", sha256)
    received = next(reader)
    remove(refer(sha256))
    with pytest.raises(KeyError):
        blobs.read("default", sha256)
    assert received + b"".join(reader) == SMALL  # whoever reads comes to the end
    assert orphans.remove_orphans() == 0
    assert orphans.remove_orphans(min_age=-1) == 1
    assert list_names() == set() and count(LooseObject) == 0


def test_an_upload_that_is_cut_off_is_cleared_away(directory: Path) -> None:
    def on_read(n_reads: int) -> None:
        if n_reads == 6:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        blobs.store("default", Watched(SMALL, on_read))
    assert count(Blob) == 0 and count(LooseObject) == 1
    assert orphans.remove_orphans() == 0
    assert orphans.remove_orphans(min_age=-1) == 1
    assert count(LooseObject) == 0


@pytest.mark.both_databases
def test_an_upload_under_way_is_stored_again_if_it_is_cleared_away(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = objects.ObjectStore.write
    written: list[str] = []

    def write_slowly(self: objects.ObjectStore, blob: Blob, pieces: object) -> None:
        write(self, blob, pieces)  # type: ignore[arg-type]
        written.append(blob.generation)
        if len(written) == 1:
            assert orphans.remove_orphans(min_age=-1) == 1

    monkeypatch.setattr(objects.ObjectStore, "write", write_slowly)
    sha256 = blobs.store_bytes("default", SMALL)
    assert len(written) == 2
    assert blobs.read("default", sha256) == SMALL
    assert len(list_names()) == 1 and count(LooseObject) == 0


def test_a_removal_that_is_cut_off_is_finished_by_the_next(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(refer(blobs.store_bytes("default", SMALL)))
    delete = objects.ObjectStore.remove

    def fail(self: objects.ObjectStore, name: str) -> None:
        raise StoreAway()

    monkeypatch.setattr(objects.ObjectStore, "remove", fail)
    with pytest.raises(StoreAway):
        orphans.remove_orphans(min_age=-1)
    monkeypatch.setattr(objects.ObjectStore, "remove", delete)
    assert orphans.remove_orphans() == 1  # it was marked: its age does not count
    assert list_names() == set()


def test_a_long_upload_says_that_it_goes_on(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "TOUCH_SECONDS", -1.0)
    touched: list[object] = []

    def on_read(n_reads: int) -> None:
        if n_reads > 4:
            with db.reading() as session:
                touched.append(session.scalar(sa.select(LooseObject.touched_at)))

    blobs.store("default", Watched(SMALL, on_read))
    assert len(set(touched)) > 1


def test_the_command_moves_all_files_and_back(directory: Path) -> None:
    run = CliRunner()
    contents = {"w0": SMALL, "w1": b"", "w2": b"x" * 10}
    hashes = {each: blobs.store_bytes(each, contents[each]) for each in contents}
    for to, n_chunks in (("database", 3), (str(directory), 0)):
        dry = run.invoke(cli, ["blobs", "move", "--to", to, "--dry-run"])
        assert "3 files would be moved" in dry.output
        done = run.invoke(cli, ["blobs", "move", "--to", to])
        assert done.exit_code == 0 and "3 files moved" in done.output
        assert "0 files moved" in run.invoke(cli, ["blobs", "move", "--to", to]).output
        assert count(BlobChunk) == n_chunks
        for workspace, sha256 in hashes.items():
            assert blobs.read(workspace, sha256) == contents[workspace]


def test_files_are_read_while_they_move(directory: Path) -> None:
    sha256 = blobs.store_bytes("default", LARGE)
    refer(sha256)
    reader = blobs.chunks("default", sha256)
    received = next(reader)
    assert blobs.move("default", sha256, stores.get_store(None))
    assert not blobs.move("default", sha256, stores.get_store(None))
    orphans.remove_orphans(min_age=-1)
    assert list_names() == set()
    assert received + b"".join(reader) == LARGE  # from the chunks, half-way
    assert count(BlobChunk) == 18
    assert blobs.move("default", sha256, stores.get_default())
    assert count(BlobChunk) == 0
    assert blobs.read("default", sha256) == LARGE


@pytest.mark.both_databases
def test_a_file_that_goes_while_it_moves(directory: Path) -> None:
    sha256 = blobs.store_bytes("default", SMALL)
    id_ = refer(sha256)

    class Late(chunks.DatabaseStore):
        def write(self, blob: Blob, pieces: object) -> None:
            super().write(blob, pieces)  # type: ignore[arg-type]
            remove(id_)

    assert not blobs.move("default", sha256, Late())
    assert count(Blob) == count(BlobChunk) == 0


def test_the_commands_show_and_clean(directory: Path) -> None:
    run = CliRunner()
    kept = blobs.store_bytes("default", SMALL)
    refer(kept)
    blobs.store_bytes("default", b"nobody's")
    (directory / "default" / "stray.0000000000-0").write_bytes(b"stray")
    shown = json.loads(run.invoke(cli, ["blobs", "list", "--json"]).output)
    assert shown == [
        {"store": f"file://{directory}", "files": 2, "bytes": len(SMALL) + 8}
    ]
    options = ["--list", "--min-age", "0"]
    dry = run.invoke(cli, ["blobs", "clean", *options, "--dry-run"])
    assert "nothing refers to it" in dry.output and "of no row" in dry.output
    assert len(list_names()) == 3
    done = run.invoke(cli, ["blobs", "clean", *options])
    assert done.exit_code == 0, done.output
    assert blobs.is_intact("default", kept)
    run.invoke(cli, ["blobs", "clean", "--min-age", "0"])
    assert len(list_names()) == 1


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("database", ""),
        ("s3://bucket/prefix/", "s3://bucket/prefix"),
        ("/var/files", "file:///var/files"),
        ("ftp://host/x", None),
        ("memory:///", None),
        ("files", None),
    ],
)
def test_addresses(given: str, meant: str | None) -> None:
    if meant is None:
        with pytest.raises(ValueError, match="the absolute path of a directory"):
            Settings(blob_store=given)
    else:
        assert Settings(blob_store=given).blob_store == meant


def test_secrets_are_not_shown(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, LOMETAB_BLOB_OPTIONS='{"secret_access_key": "hush"}')
    shown = {each.variable: each.value for each in list_settings()}
    assert shown["LOMETAB_BLOB_OPTIONS"] == '{"secret_access_key": "***"}'


def test_options_come_from_a_file(tmp_path: Path) -> None:
    address, file = "s3://bucket", tmp_path / "secret"
    options: dict[str, Any] = {
        "endpoint": "http://minio:9000",
        address: {"region": "x"},
    }
    secrets = {"access_key_id": "me", address: {"secret_access_key": "hush"}}
    file.write_text(json.dumps(secrets))
    settings = Settings(blob_options=options, blob_options_file=file)
    assert settings.store_options == {
        "endpoint": "http://minio:9000",
        "access_key_id": "me",
        address: {"region": "x", "secret_access_key": "hush"},
    }
    assert "hush" not in str(settings.environment())
    twice = Settings(blob_options={"access_key_id": "x"}, blob_options_file=file)
    with pytest.raises(LoMETabError, match="give it once"):
        assert twice.store_options
    for content in ("hush", '["hush"]'):
        file.write_text(content)
        with pytest.raises(LoMETabError) as raised:
            assert settings.store_options
        assert "hush" not in str(raised.value)
    away = Settings(blob_options_file=tmp_path / "no")
    with pytest.raises(LoMETabError, match="cannot be read"):
        assert away.store_options


# S3: the network


Through = Callable[[Choose], FaultyProxy]


@pytest.mark.processes
def test_s3(s3: Through) -> None:
    for content in (b"", SMALL, LARGE):
        sha256 = blobs.store_bytes("default", content)
        assert blobs.read("default", sha256) == content
    file = blobs.BlobFile("default", sha256)
    file.seek(7 * CHUNK_BYTES)
    assert file.read(3 * CHUNK_BYTES) == LARGE[7 * CHUNK_BYTES : 10 * CHUNK_BYTES]
    assert len(list_names()) == 3
    assert orphans.remove_orphans(min_age=-1) == 6  # the rows, then their objects
    assert orphans.remove_orphans(min_age=-1) == 0
    assert list_names() == set()


@pytest.mark.processes
def test_s3_with_its_keys_in_a_file(
    s3: Through, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = get_settings().blob_options
    file = tmp_path / "secret"
    keys = ("access_key_id", "secret_access_key")
    file.write_text(json.dumps({name: options.pop(name) for name in keys}))
    use(
        monkeypatch,
        LOMETAB_BLOB_OPTIONS=json.dumps(options),
        LOMETAB_BLOB_OPTIONS_FILE=str(file),
    )
    sha256 = blobs.store_bytes("default", SMALL)
    assert blobs.read("default", sha256) == SMALL


def fault_at(method: str, n: int, fault: Fault) -> Choose:
    """The fault for the first so many requests of a method."""
    n_left = n

    def choose(what: str, _: int) -> Fault | None:
        nonlocal n_left
        if what.startswith(method) and n_left > 0:
            n_left -= 1
            return fault
        return None

    return choose


FAULTS = {
    "cut in mid-part": ("PUT", Fault(cut_request_after=3 * 2**20)),
    "500s": ("PUT", Fault(status=500)),
    "slow": ("PUT", Fault(delay=1.0)),
    "the answer is lost": ("PUT", Fault(cut_answer_after=0)),
    "the beginning fails": ("POST", Fault(status=503)),
    "cut while it is read": ("GET", Fault(cut_answer_after=2**20)),
    "500s while it is read": ("GET", Fault(status=500)),
}


@pytest.mark.processes
@pytest.mark.parametrize("name", FAULTS)
def test_s3_that_fails_now_and_then(s3: Through, name: str) -> None:
    method, fault = FAULTS[name]
    proxy = s3(fault_at(method, 2, fault))
    sha256 = blobs.store_bytes("default", LARGE)
    assert blobs.read("default", sha256) == LARGE
    assert proxy.n_faults == 2
    assert len(list_names()) == 1 and count(LooseObject) == 0


@pytest.mark.processes
def test_s3_that_is_away(s3: Through, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told as such, nothing is half there, and later all goes on."""
    sha256 = blobs.store_bytes("default", SMALL)
    address = get_settings().blob_options
    monkeypatch.setitem(objects._RETRIES, "max_retries", 1)
    s3(lambda *_: Fault(status=503))
    for act in (
        lambda: blobs.store_bytes("default", b"new"),
        lambda: blobs.read("default", sha256),
        lambda: blobs.is_intact("default", sha256),
    ):
        with pytest.raises(StoreAway):
            act()
    assert count(Blob) == 1 and count(LooseObject) == 1
    use(monkeypatch, LOMETAB_BLOB_OPTIONS=json.dumps(address))
    assert blobs.read("default", sha256) == SMALL
    assert blobs.read("default", blobs.store_bytes("default", b"new")) == b"new"
