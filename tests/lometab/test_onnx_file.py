"""The bytes of a model file: metadata in, metadata out, and nothing else needed."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lometab.errors import ModelFileError
from lometab.onnx_file import read_metadata, seal

METADATA = {"version": 1, "task": "binary", "note": "é" * 300, "levels": [["a", "b"]]}


def make_model() -> onnx.ModelProto:
    value = helper.make_tensor_value_info("numeric", TensorProto.DOUBLE, ["N", 1])
    answer = helper.make_tensor_value_info("mean", TensorProto.DOUBLE, ["N", 1])
    one = numpy_helper.from_array(np.ones(1), "one")
    node = helper.make_node("Add", ["numeric", "one"], ["mean"])
    graph = helper.make_graph([node], "tiny", [value], [answer], [one])
    return helper.make_model(graph, ir_version=8)


def test_what_is_sealed_is_read() -> None:
    content = seal(make_model().SerializeToString(), METADATA)
    found = read_metadata(content)
    assert len(found.pop("checksum")) == 64
    assert found == METADATA


def test_sealing_writes_what_protobuf_would() -> None:
    model = make_model()
    content = seal(model.SerializeToString(), METADATA)
    text = json.dumps(read_metadata(content))
    helper.set_model_props(model, {"lometab": text})
    assert content == model.SerializeToString()
    assert onnx.load_from_string(content) == model


def test_another_metadata_goes_into_the_same_model() -> None:
    model = make_model().SerializeToString()
    one, other = seal(model, METADATA), seal(model, {**METADATA, "k": 3})
    assert read_metadata(one)["checksum"] != read_metadata(other)["checksum"]
    assert one.startswith(model) and other.startswith(model)


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        seal(make_model().SerializeToString(), {"version": 1, "best": float("nan")})


def test_a_model_without_metadata_is_refused() -> None:
    with pytest.raises(ModelFileError, match="none that lometab exported"):
        read_metadata(make_model().SerializeToString())


@pytest.mark.processes
def test_reading_metadata_needs_the_standard_library_only() -> None:
    code = (
        "import sys; before = set(sys.modules); import lometab.onnx_file; "
        "found = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "sys.exit(bool(found - sys.stdlib_module_names - {'lometab'}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
