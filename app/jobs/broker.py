"""Folders as a broker: kombu's own, with messages that are whole once they are seen.

Kombu opens a message under its final name and then writes it, so that a worker may find
it empty. Here it is written under another name and moved.
"""

import os
import uuid
from pathlib import Path
from time import monotonic
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):  # type: ignore[misc]
    def _put(self, queue: str, payload: Any, **_: Any) -> None:
        folder = Path(self.data_folder_out)
        name = f"{round(monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        partial = folder / f".{name}.partial"  # no name of a message
        partial.write_bytes(dumps(payload).encode())
        os.replace(partial, folder / name)


class Transport(filesystem.Transport):  # type: ignore[misc]
    Channel = Channel
