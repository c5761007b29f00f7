"""The model file as bytes: its metadata, its checksum, and what is refused.

ONNX files are protobuf messages. What follows reads just enough of their encoding to
tell a whole file of ours from anything else, and to refuse one that would make ONNX
Runtime open other files. Needs the standard library only.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from lometab.errors import ModelFileError

FORMAT_VERSION = 1
"""The version of the file's metadata and of its inputs and outputs."""

_METADATA = 14
"""The field of a model that holds its metadata."""

_PARTS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external data"},
}
"""For each kind of message, the fields that lead to tensors."""

_KEY = b"lometab"
_CHECKSUM = b'{"checksum": "'
_BLANK = b"0" * 64


def seal(content: bytes, metadata: Mapping[str, Any]) -> bytes:
    """An ONNX file with this metadata, and the checksum of both in it.

    Args:
        content: a model without metadata, as protobuf encodes it.
        metadata: fit for strict JSON; `checksum` is set here.
    """
    document = {"checksum": _BLANK.decode(), **metadata}
    text = json.dumps(document, allow_nan=False).encode()
    entry = _encode_field(1, _KEY) + _encode_field(2, text)
    content += _encode_field(_METADATA, entry)
    start = content.rindex(_CHECKSUM + _BLANK) + len(_CHECKSUM)
    digest = hashlib.sha256(content).hexdigest().encode()
    return content[:start] + digest + content[start + len(digest) :]


def read_metadata(content: bytes) -> dict[str, Any]:
    """The metadata of a file that is whole, ours and closed in itself.

    Raises:
        ModelFileError: it is not.
    """
    if not content.startswith(b"\x08"):  # the version every ONNX file begins with
        raise ModelFileError("this is no ONNX file")
    start, end = _find_metadata(content)
    try:
        metadata = json.loads(content[start:end])
        version = metadata["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ModelFileError(_CHANGED) from None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ModelFileError(
            f"the file has format version {version}, and this lometab reads up to "
            f"{FORMAT_VERSION}: a newer lometab is needed"
        )
    digest_start = start + len(_CHECKSUM)
    digest_end = digest_start + len(_BLANK)
    view = memoryview(content)
    digest = hashlib.sha256(view[:digest_start])
    digest.update(_BLANK)
    digest.update(view[digest_end:])
    if digest.hexdigest().encode() != content[digest_start:digest_end]:
        raise ModelFileError(_CHANGED)
    return dict(metadata)


_CHANGED = "the file was changed since it was exported: its checksum does not match"


def _find_metadata(content: bytes) -> tuple[int, int]:
    """Where the metadata's text begins and ends."""
    found = None
    todo = [("model", 0, len(content))]
    while todo:
        kind, *bounds = todo.pop()
        for number, start, end in _fields(content, *bounds):
            part = _PARTS[kind].get(number)
            if part == "external data":
                raise ModelFileError(
                    "the model keeps tensors in other files, which are never opened"
                )
            if part is not None:
                todo.append((part, start, end))
            elif kind == "model" and number == _METADATA:
                entry = {n: (a, b) for n, a, b in _fields(content, start, end)}
                if content[slice(*entry.get(1, (0, 0)))] == _KEY:
                    found = entry.get(2)
    if found is None:
        raise ModelFileError(
            "this is an ONNX model, but none that lometab exported: it has no metadata "
            "named lometab"
        )
    return found


def _fields(content: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of each field of the message in content[start:end]."""
    while start < end:
        key, start = _varint(content, start)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            _, stop = _varint(content, start)
        elif wire_type == 2:
            size, start = _varint(content, start)
            stop = start + size
        elif wire_type in (1, 5):
            stop = start + (8 if wire_type == 1 else 4)
        else:
            raise ModelFileError(_CUT_SHORT)
        if stop > end:
            raise ModelFileError(_CUT_SHORT)
        yield number, start, stop
        start = stop


def _varint(content: bytes, start: int) -> tuple[int, int]:
    """A number in seven bits a byte, lowest first, and the offset behind it."""
    value = 0
    for i, byte in enumerate(content[start : start + 10]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, start + i + 1
    raise ModelFileError(_CUT_SHORT)


def _encode_field(number: int, content: bytes) -> bytes:
    """A field of bytes, as `_fields` reads it."""
    return _encode_varint(number << 3 | 2) + _encode_varint(len(content)) + content


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_CUT_SHORT = "the file is no whole ONNX file: it was cut short or damaged"
