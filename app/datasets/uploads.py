"""Reading a multipart request as it arrives: counted, and never whole in memory."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.errors import BadMultipart, TooLarge, UnsupportedMediaType
from lometab.errors import suggest

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_FIELD_BYTES = 2**20
_MAX_FIELDS = 20


@dataclass
class Upload:
    """The parts of a multipart body: one file, and small text fields."""

    fields: dict[str, bytes] = field(default_factory=dict)
    path: Path | None = None
    """The file, in a folder of its own that goes with it."""
    filename: str = ""
    size: int = 0
    sha256: str = ""
    _folder: TemporaryDirectory[str] | None = None
    _file: IO[bytes] | None = None

    def open(self) -> None:
        self._folder = TemporaryDirectory(prefix="lometab-upload-")
        self.path = Path(self._folder.name) / "file"
        self._file = self.path.open("wb")

    def write(self, content: bytes) -> None:
        assert self._file is not None
        self._file.write(content)
        self.size += len(content)

    def check(self, *names: str) -> None:
        """See that there is a file, and no part besides it but those named."""
        for name in self.fields:
            if name not in names:
                known = ", ".join(f"`{each}`" for each in ("file", *names))
                raise BadMultipart(
                    f"there is no part {name[:100]!r}{suggest(name[:100], names)}; the "
                    f"parts are {known}"
                )
        if self.path is None:
            raise BadMultipart("the part `file` is missing")

    def finish(self) -> None:
        if self._file is not None:
            self._file.close()

    def close(self) -> None:
        self.finish()
        if self._folder is not None:
            self._folder.cleanup()


async def receive(request: Request, *, max_bytes: int) -> Upload:
    """Read a `multipart/form-data` body; the caller closes what it gets."""
    content_type, options = parse_options_header(request.headers.get("content-type"))
    if content_type != b"multipart/form-data" or not options.get(b"boundary"):
        raise UnsupportedMediaType(
            "send multipart/form-data with the file as the part `file`"
        )
    if int(request.headers.get("content-length", 0)) > max_bytes:
        raise _too_large(max_bytes)
    upload = Upload()
    try:
        parts = _Parts(upload)
        parser = MultipartParser(options[b"boundary"], parts.callbacks())
        n_bytes = 0
        async for content in request.stream():
            n_bytes += len(content)
            if n_bytes > max_bytes:
                raise _too_large(max_bytes)
            parser.write(content)
        parser.finalize()
        if not parts.is_whole:
            raise BadMultipart("the multipart body ends before its last boundary")
        upload.sha256 = parts.digest.hexdigest()
    except FormParserError as error:
        upload.close()
        raise BadMultipart(f"the multipart body cannot be read: {error}") from None
    except BaseException:
        upload.close()
        raise
    upload.finish()
    return upload


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"the request is larger than the limit of {max_bytes} bytes")


class _Parts:
    """What the parser calls while it reads."""

    def __init__(self, upload: Upload) -> None:
        self.upload = upload
        self.digest = hashlib.sha256()
        self.header = self.value = b""
        self.headers: dict[bytes, bytes] = {}
        self.name: str | None = None
        self.n_bytes = 0
        """Of the fields and their names."""
        self.is_whole = False

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self.on_part_begin,
            "on_header_field": self.on_header_field,
            "on_header_value": self.on_header_value,
            "on_header_end": self.on_header_end,
            "on_headers_finished": self.on_headers_finished,
            "on_part_data": self.on_part_data,
            "on_end": self.on_end,
        }

    def on_part_begin(self) -> None:
        self.headers = {}
        self.header = self.value = b""

    def on_end(self) -> None:
        self.is_whole = True

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self.header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]

    def on_header_end(self) -> None:
        self.headers[self.header.lower()] = self.value
        self.header = self.value = b""

    def on_headers_finished(self) -> None:
        _, options = parse_options_header(self.headers.get(b"content-disposition"))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name == "file":
            if self.upload.path is not None:
                raise BadMultipart("there is more than one part `file`")
            filename = options.get(b"filename", b"").decode("utf-8", "replace")
            self.upload.filename = filename.replace("\0", "\ufffd")[:255]
            self.upload.open()
            self.name = None
        else:
            if name in self.upload.fields or len(self.upload.fields) == _MAX_FIELDS:
                raise BadMultipart(f"there are too many parts, or two named {name!r}")
            self.upload.fields[name] = b""
            self.name = name
            self._count(len(name))

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self.name is None:
            self.upload.write(data[start:end])
            self.digest.update(data[start:end])
            return
        self.upload.fields[self.name] += data[start:end]
        self._count(end - start)

    def _count(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        if self.n_bytes > MAX_FIELD_BYTES:
            raise TooLarge(f"the parts besides `file` exceed {MAX_FIELD_BYTES} bytes")


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """A small body, whole; TooLarge as soon as it is more than that."""
    body = b""
    async for content in request.stream():
        body += content
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    return body
