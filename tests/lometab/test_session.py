"""Where ONNX Runtime computes: what is asked for, and what comes of it."""

from collections.abc import Sequence
from typing import Any

import onnxruntime
import pytest

from lometab import session
from lometab.session import find_providers, open_session

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class Runtime:
    """A build with CUDA, on a machine that has or lacks a GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_gpu: bool) -> None:
        self.calls: list[str] = []
        self.has_gpu = has_gpu
        real = onnxruntime.InferenceSession
        monkeypatch.setattr(session, "_preloaded", [])
        for name, value in (
            ("get_available_providers", lambda: [CUDA, CPU]),
            ("preload_dlls", lambda: self.calls.append("preload")),
            ("InferenceSession", self.open),
        ):
            monkeypatch.setattr(onnxruntime, name, value, raising=False)
        self.real = real

    def open(self, content: bytes, options: Any, providers: Sequence[str]) -> Any:
        self.calls.append(f"open on {', '.join(providers)}")
        made = self.real(content, options, providers=[CPU])
        got = [*providers] if self.has_gpu else [CPU]
        made.get_providers = lambda: got
        return made


@pytest.mark.parametrize("has_gpu", [True, False])
def test_libraries_are_loaded_before_the_first_session(
    has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime(monkeypatch, has_gpu=has_gpu)
    got = find_providers([CUDA, CPU])
    assert got == ([CUDA, CPU] if has_gpu else [CPU])
    open_session(session._IDENTITY, [CUDA, CPU], threads=1)
    opened = f"open on {CUDA}, {CPU}"
    assert runtime.calls == ["preload", opened, opened]  # loaded once


def test_without_need_of_cuda_nothing_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = Runtime(monkeypatch, has_gpu=True)
    find_providers([CPU])
    open_session(session._IDENTITY, None, threads=1)
    assert runtime.calls == [f"open on {CPU}"] * 2


def test_builds_from_before_have_nothing_to_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Runtime(monkeypatch, has_gpu=False)
    monkeypatch.delattr(onnxruntime, "preload_dlls")
    assert find_providers([CUDA, CPU]) == [CPU]
