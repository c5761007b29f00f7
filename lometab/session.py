"""ONNX Runtime: where it computes, and what it is told when it opens a model."""

from collections.abc import Sequence

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from lometab.errors import ModelFileError

onnxruntime.disable_telemetry_events()  # it would report to its makers

_ORT_ERRORS = (  # they have no base class of their own
    ort_state.Fail,
    ort_state.InvalidArgument,
    ort_state.InvalidGraph,
    ort_state.InvalidProtobuf,
    ort_state.NotImplemented,
    ort_state.RuntimeException,
)


def preload(providers: Sequence[str] | None) -> None:
    """Load CUDA's libraries from the packages that bring them, before the first session
    that wants them: the loader would not find them there, and ONNX Runtime would fall
    back to the CPU with no more than a line in its log."""
    load = getattr(onnxruntime, "preload_dlls", None)
    if load is not None and _CUDA in (providers or ()) and not _preloaded:
        _preloaded.append(True)
        load()


_CUDA = "CUDAExecutionProvider"
_preloaded: list[bool] = []


def find_providers(wanted: Sequence[str]) -> list[str]:
    """Where ONNX Runtime really computes if it is asked for these: what is installed
    may still fail to start, and then it falls back without an error."""
    return [*open_session(_IDENTITY, wanted, threads=1).get_providers()]


# A graph that hands one number through, as ONNX encodes it.
_NUMBER = b"\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01"
_GRAPH = (
    b"\x0a\x10\x0a\x01x\x12\x01y\x22\x08Identity\x12\x01g"
    b"\x5a\x0f\x0a\x01x" + _NUMBER + b"\x62\x0f\x0a\x01y" + _NUMBER
)
_IDENTITY = b"\x08\x08\x42\x02\x10\x12\x3a" + bytes([len(_GRAPH)]) + _GRAPH


def open_session(
    content: bytes, providers: Sequence[str] | None, threads: int
) -> onnxruntime.InferenceSession:
    """A session of the model on the first of the providers that are installed.

    Raises:
        ModelFileError: ONNX Runtime cannot load it.
    """
    wanted = ["CPUExecutionProvider"] if providers is None else [*providers]
    preload(wanted)
    installed = onnxruntime.get_available_providers()
    available = [name for name in wanted if name in installed]
    if not available:
        raise ValueError(
            f"providers must name one of {installed}, however: {providers=}"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait for work would otherwise keep their cores busy.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(content, options, providers=available)
    except _ORT_ERRORS as error:
        raise ModelFileError(
            f"ONNX Runtime {onnxruntime.__version__} cannot load the model: {error}"
        ) from error
