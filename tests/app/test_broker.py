"""The folders of the embedded default as a broker."""

import json
import os
from pathlib import Path

import pytest

from app.jobs import queue
from app.jobs.broker import Transport
from app.settings import get_settings


def test_a_message_is_whole_once_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOMETAB_DATA_DIR", str(tmp_path))
    get_settings.cache_clear()
    queue.get_celery.cache_clear()
    seen: list[list[str]] = []
    replace = os.replace

    def look(source: Path, target: Path) -> None:
        """What a worker could read at the last moment before."""
        names = [path.name for path in Path(target).parent.iterdir()]
        seen.append([name for name in names if name.endswith(".cpu.msg")])
        replace(source, target)

    monkeypatch.setattr("app.jobs.broker.os.replace", look)
    try:
        with queue.get_celery().connection_for_write() as connection:
            assert isinstance(connection.transport, Transport)
        assert queue.notify("job_1", "cpu")
    finally:
        get_settings.cache_clear()
        queue.get_celery.cache_clear()
    assert seen == [[]]
    (message,) = (tmp_path / "broker" / "messages").iterdir()
    assert message.name.endswith(".cpu.msg")
    assert json.loads(message.read_text())["headers"]["task"] == "train"
