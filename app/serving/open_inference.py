"""The Open Inference Protocol, version 2: what KServe, Triton and MLServer speak.

A column is an input tensor of shape [N] or [N, 1]; `mean`, `members` and the others are
output tensors. Tensors come and go in the JSON, or as bytes behind it (the extension
`binary_tensor_data`).
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from app.answering import FIELDS
from app.errors import AppError, TooLarge
from app.serving.neighbours import Answered, Asked, check_rows, write_columns
from app.serving.rows import check_lists
from app.settings import get_settings
from lometab.errors import DataError, suggest
from lometab.table import clip

HEADER = b"inference-header-content-length"
TYPES: dict[str, str] = {
    "BOOL": "?",
    **{
        f"{sign}INT{8 * n}": f"<{code}{n}"
        for n in (1, 2, 4, 8)
        for sign, code in (("", "i"), ("U", "u"))
    },
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"""Data types whose elements have one size, as NumPy names them; `BYTES` is beside."""
OPTIONS = ("calibrated", "coverage", "missing_columns")
_PASSED_OVER = ("binary_data_output", "content_type", "headers", "priority", "timeout")


class OpenInference:
    """One `infer` request.

    Args:
        name, version: as the path has them.
    """

    def __init__(self, name: str, version: str | None) -> None:
        self._name, self._version = name, version
        self._id: str | None = None
        self._is_binary: dict[str, bool] = {}
        self._wanted: list[str] | None = None
        self._all_binary = False

    # The request

    def read(self, body: bytes, headers: Mapping[bytes, bytes]) -> Asked:
        head, rest = _split(body, headers.get(HEADER))
        request = _parse(head)
        self._id = request.get("id")
        if not isinstance(self._id, str | None):
            raise DataError("id must be a text")
        parameters = _get(request, "parameters", dict, {})
        self._all_binary = bool(parameters.get("binary_data_output", False))
        self._read_outputs(_get(request, "outputs", list, []))
        columns: dict[str, Values] = {}
        start = 0
        for tensor in _read_inputs(request):
            name, values, start = _read_tensor(tensor, rest, start)
            if name in columns:
                raise DataError(
                    f"there are two inputs {clip(name)!r}", column=clip(name)
                )
            columns[name] = values
        if start < len(rest):
            raise DataError(f"{len(rest) - start} bytes are left behind the last input")
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            told = sorted(lengths)[:20]
            raise DataError(f"all inputs must have as many rows, however: {told}")
        return Asked(
            "application/json",
            write_columns(columns, _cut),
            self._read_options(parameters),
        )

    def _read_options(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        for name in parameters:
            if name not in (*OPTIONS, *_PASSED_OVER):
                raise DataError(
                    f"there is no parameter {clip(name)!r}{suggest(name, OPTIONS)}; "
                    f"there are {', '.join(OPTIONS)}"
                )
        options = {name: parameters[name] for name in OPTIONS if name in parameters}
        if self._wanted is not None:
            options["include"] = self._wanted
        return options

    def _read_outputs(self, outputs: Sequence[Any]) -> None:
        for output in outputs:
            name = output.get("name") if isinstance(output, dict) else None
            if not isinstance(name, str):
                raise DataError("an output is an object with a name")
            if name not in FIELDS:
                hint = suggest(name, FIELDS)
                raise DataError(
                    f"there is no output {clip(name)!r}{hint}; there are "
                    f"{', '.join(FIELDS)}"
                )
            parameters = _get(output, "parameters", dict, {})
            if "classification" in parameters:
                raise DataError(
                    "the parameter `classification` is not known; ask "
                    "for the output `label`"
                )
            self._is_binary[name] = bool(parameters.get("binary_data", False))
        if outputs:
            self._wanted = [*self._is_binary]

    # The answer

    def write(self, answer: dict[str, Any]) -> Answered:
        rows = answer["predictions"]
        found = dict.fromkeys(name for row in rows for name in row if name in FIELDS)
        missing = [name for name in self._wanted or () if name not in found]
        if missing:
            raise DataError(f"this model has no output {missing[0]!r}")
        outputs, pieces = [], []
        for name in found:
            tensor = _to_tensor(name, [row[name] for row in rows])
            output: dict[str, Any] = {
                "name": name,
                "datatype": _name_type(tensor),
                "shape": [*tensor.shape],
            }
            if self._is_binary.get(name, self._all_binary):
                piece = _to_bytes(tensor)
                output["parameters"] = {"binary_data_size": len(piece)}
                pieces.append(piece)
            else:
                output["data"] = _to_json(tensor)
            outputs.append(output)
        head: dict[str, Any] = {"model_name": self._name, "outputs": outputs}
        if self._version is not None:
            head["model_version"] = self._version
        if self._id is not None:
            head["id"] = self._id
        head["parameters"] = {
            "model_id": answer["model_id"],
            "warnings": "; ".join(answer["warnings"]),
        }
        text = orjson.dumps(head)
        if not pieces:
            return Answered("application/json", text)
        length = {HEADER.decode(): str(len(text))}
        return Answered("application/octet-stream", text + b"".join(pieces), length)

    def explain(self, error: AppError) -> Mapping[str, str]:
        return {"error": error.detail}


# ----------------------------------------------------------------------------
# Tensors that come


Values = list[Any] | NDArray[Any]
"""A column; what came as bytes stays so until it is written."""
_MAX_DIGITS = 20


def _split(body: bytes, length: bytes | None) -> tuple[bytes, memoryview]:
    """The JSON, and the bytes behind it, which are not copied."""
    if length is None:
        return body, memoryview(b"")
    is_length = length.isdigit() and len(length) <= _MAX_DIGITS
    if not is_length or int(length) > len(body):
        raise DataError("Inference-Header-Content-Length is not that of the body")
    return body[: int(length)], memoryview(body)[int(length) :]


def _parse(head: bytes) -> dict[str, Any]:
    check_lists(head)
    try:
        found = orjson.loads(head)
    except orjson.JSONDecodeError as error:
        raise DataError(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict) or not found.get("inputs"):
        raise DataError('the body must be {"inputs": [...]} with an input per column')
    return found


def _get(found: Any, name: str, kind: type, default: Any) -> Any:
    value = found.get(name, default)
    if not isinstance(value, kind):
        raise DataError(f"{name} must be a JSON {kind.__name__}")
    return value


def _read_inputs(request: Mapping[str, Any]) -> list[Any]:
    inputs: list[Any] = _get(request, "inputs", list, [])
    most = get_settings().max_columns
    if len(inputs) > most:
        raise TooLarge(f"there are {len(inputs)} inputs, beyond the limit of {most}")
    return inputs


def _read_tensor(tensor: Any, rest: memoryview, start: int) -> tuple[str, Values, int]:
    """A column's name and values, and where the bytes of the next one begin."""
    if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
        raise DataError("an input is an object with a name")
    name, datatype, shape = tensor["name"], tensor.get("datatype"), tensor.get("shape")
    told = clip(name)
    if not isinstance(datatype, str) or datatype not in (*TYPES, "BYTES"):
        given = f"the datatype {clip(datatype)!r}" if isinstance(datatype, str) else ""
        raise DataError(
            f"the input {told!r} has {given or 'no datatype'}, however it must be one "
            f"of {', '.join(TYPES)} or BYTES",
            column=told,
        )
    n_rows = _read_shape(told, shape)
    values: Values
    size = _get(tensor, "parameters", dict, {}).get("binary_data_size")
    if size is None:
        values = _flatten(tensor.get("data"))
    else:
        if type(size) is not int or not 0 <= size <= len(rest) - start:
            raise DataError(f"binary_data_size of {told!r} is not what was sent")
        values = _from_bytes(told, datatype, rest[start : start + size], n_rows)
        start += size
    if len(values) != n_rows:
        raise DataError(
            f"the input {told!r} has {len(values)} values, however its shape says "
            f"{n_rows}",
            column=told,
        )
    return name, values, start


def _read_shape(name: str, shape: Any) -> int:
    is_shape = isinstance(shape, list) and len(shape) in (1, 2)
    if not (is_shape and all(type(n) is int and n >= 0 for n in shape)) or (
        shape[1:] not in ([], [1])
    ):
        numbers = is_shape and all(type(n) is int for n in shape)
        raise DataError(
            f"the input {name!r} must be one column, with the shape [N] or [N, 1]"
            + (f", however: {shape}" if numbers else ""),
            column=name,
        )
    check_rows(shape[0])
    return int(shape[0])


def _flatten(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise DataError("data must be a list")
    return [
        each[0] if isinstance(each, list) and len(each) == 1 else each for each in data
    ]


def _from_bytes(name: str, datatype: str, content: memoryview, n_rows: int) -> Values:
    if datatype == "BYTES":
        return _read_texts(name, content, n_rows)
    kind = np.dtype(TYPES[datatype])
    if len(content) % kind.itemsize:
        raise DataError(f"the bytes of {name!r} are no {datatype}", column=name)
    values = np.frombuffer(content, kind)
    if kind.kind == "f" and np.isinf(values).any():
        raise DataError(f"the input {name!r} holds an infinite number", column=name)
    return values


def _read_texts(name: str, content: memoryview, n_rows: int) -> list[Any]:
    """Each after its length, of four bytes; no more than one too many."""
    texts: list[Any] = []
    start = 0
    while start < len(content) and len(texts) <= n_rows:
        if start + 4 > len(content):
            raise DataError(f"the bytes of {name!r} end within a length", column=name)
        (length,) = struct.unpack_from("<I", content, start)
        start += 4
        if start + length > len(content):
            raise DataError(f"the bytes of {name!r} end within a text", column=name)
        texts.append(str(content[start : start + length], "utf-8", "replace"))
        start += length
    return texts


def _cut(values: Values, start: int, stop: int) -> list[Any]:
    if isinstance(values, list):
        return values[start:stop]
    found: list[Any] = values[start:stop].tolist()
    if values.dtype.kind == "f":
        return [None if math.isnan(value) else value for value in found]
    return found


# ----------------------------------------------------------------------------
# Tensors that go


def _to_tensor(name: str, values: list[Any]) -> NDArray[Any]:
    if name == "set":
        return np.array([orjson.dumps(each).decode() for each in values], dtype=object)
    if name == "label":
        is_text = any(isinstance(value, str) for value in values)
        return np.array(values, dtype=object) if is_text else np.array(values)
    if name == "interval":  # null: it has no end
        ends = (-math.inf, math.inf)
        values = [
            [end if each is None else each for each, end in zip(row, ends, strict=True)]
            for row in values
        ]
    return np.array(values, dtype=np.float32)


def _name_type(tensor: NDArray[Any]) -> str:
    kinds = {"O": "BYTES", "b": "BOOL", "i": "INT64"}
    return kinds.get(tensor.dtype.kind, "FP32")


def _to_json(tensor: NDArray[Any]) -> list[Any]:
    """Flat, in the order of rows."""
    flat = tensor.reshape(-1).tolist()
    if tensor.dtype.kind != "f":
        return list(map(str, flat)) if tensor.dtype.kind == "O" else flat
    return [value if math.isfinite(value) else None for value in flat]


def _to_bytes(tensor: NDArray[Any]) -> bytes:
    if tensor.dtype.kind != "O":
        return tensor.tobytes()
    texts = [str(each).encode() for each in tensor.reshape(-1).tolist()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def describe_model(
    name: str, versions: Sequence[str], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The metadata of a model.

    Args:
        facts: what its file tells of itself.
    """
    moments = {*facts["datetime"]}
    classes = facts["classes"]
    c = [] if classes is None else [len(classes)]
    outputs = {"mean": ("FP32", [-1, *c]), "members": ("FP32", [-1, facts["k"], *c])}
    if classes is None:
        outputs |= {"member_std": ("FP32", [-1]), "interval": ("FP32", [-1, 2])}
    else:
        label = _name_type(_to_tensor("label", classes))
        outputs |= {"label": (label, [-1]), "set": ("BYTES", [-1])}
        names = ("entropy", "mutual_information", "disagreement")
        outputs |= {each: ("FP32", [-1]) for each in names}
    if "doubt" in facts:  # files of before have neither
        outputs |= {each: ("FP32", [-1]) for each in ("trust", "novelty")}
    inputs = [
        (each, "BYTES" if each in moments else "FP64") for each in facts["numeric"]
    ]
    inputs += [(each, "BYTES") for each in facts["categorical"]]
    return {
        "name": name,
        "versions": [*versions],
        "platform": "lometab_onnx",
        "inputs": [
            {"name": each, "datatype": kind, "shape": [-1]} for each, kind in inputs
        ],
        "outputs": [
            {"name": each, "datatype": kind, "shape": shape}
            for each, (kind, shape) in outputs.items()
        ],
    }
