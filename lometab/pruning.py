"""A model file with some of its members alone.

What members share stays as it is; tensors with a member as their first dimension are
cut, and what no output needs any more is left out. This works on the file itself, of
any earlier version too: no weights of training are needed.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from lometab.errors import DataError, ExportMismatch
from lometab.evaluation import Calibrator, Pruning, order_members
from lometab.onnx_file import read_metadata, seal
from lometab.predictor import Predictor
from lometab.table import Float

Wanted = Literal["all", "selected"] | int
"""Which members to keep: all, as many as do best on validation rows, or so many."""

_HEAD = re.compile(r"((?:seeds|networks)\.\d+\.)?head\.bias")
_LAYER = re.compile(r"(?:blocks\.\d+|head)\.(weight|bias|a|b|s|r)")
_EMBEDDING = re.compile(r"embedding\.(weight|linear\.weight|linear\.bias)")
CALIBRATED = ("conformity", "conformal", "doubt", "label_shares", "temperature")
"""Metadata that `Calibrator.to_metadata` gives."""
_TOLERANCE = 1e-5
_TIMED_ROWS = 1000


@dataclass(frozen=True)
class _Network:
    """One network of a file: its names begin with `prefix`, it has members from
    `start` on."""

    prefix: str
    start: int
    k: int

    def own(self, members: Sequence[int]) -> list[int]:
        return [m - self.start for m in members if 0 <= m - self.start < self.k]


def choose(y: NDArray[Any], members: NDArray[Any], wanted: Wanted) -> list[int]:
    """The members to keep, ascending, by validation rows.

    Args:
        members: each one's answers, (N, K) or (N, K, C).

    Raises:
        DataError: there are not so many.
    """
    k = members.shape[1]
    if wanted == "all":
        return [*range(k)]
    if isinstance(wanted, int) and not 1 <= wanted <= k:
        raise DataError(f"the model has {k} members, and {wanted} cannot be kept")
    order, losses = order_members(y, members)
    n_kept = wanted if isinstance(wanted, int) else int(np.argmin(losses)) + 1
    return sorted(order[:n_kept])


def prune(
    content: bytes,
    members: Sequence[int],
    x_num: Float,
    x_cat: NDArray[np.object_],
    *,
    calibrate: Callable[[Predictor], Calibrator],
) -> tuple[bytes, Pruning]:
    """The file of these members, checked against the whole one and calibrated anew.

    Args:
        x_num, x_cat: rows to check it with.

    Raises:
        ExportMismatch: its members do not answer as they did.
    """
    whole = Predictor(content)
    model, metadata = _cut(content, sorted(members))
    kept = Predictor(seal(model, metadata))
    _check(whole, kept, sorted(members), x_num, x_cat)
    calibrator = calibrate(kept)
    warnings = [*metadata.get("warnings", ()), *calibrator.warnings(is_pruned=True)]
    metadata["warnings"] = [*dict.fromkeys(warnings)]
    sealed = seal(model, metadata | calibrator.to_metadata())
    pruning = Pruning(
        members=sorted(members),
        k_before=whole.k,
        k_after=kept.k,
        file_bytes_before=len(content),
        file_bytes_after=len(sealed),
        folded_bytes_before=whole.folded_bytes,
        folded_bytes_after=kept.folded_bytes,
        seconds_before=_time(whole, x_num, x_cat),
        seconds_after=_time(kept, x_num, x_cat),
    )
    return sealed, pruning


def _check(
    whole: Predictor,
    kept: Predictor,
    members: Sequence[int],
    x_num: Float,
    x_cat: NDArray[np.object_],
) -> None:
    before = whole.run(x_num, x_cat)[1][:, [*members]]
    after = kept.run(x_num, x_cat)[1]
    unit = float(np.abs(before).max()) or 1.0
    worst = float(np.abs(after - before).max()) / unit
    if not worst <= _TOLERANCE:
        raise ExportMismatch(
            f"the file of fewer members is off by {worst:.2g} relative to the whole one"
        )


def _time(predictor: Predictor, x_num: Float, x_cat: NDArray[np.object_]) -> float:
    """Seconds of a thousand rows, the least of three runs."""
    rows = np.resize(np.arange(len(x_num)), _TIMED_ROWS)
    numbers, texts = x_num[rows], x_cat[rows]
    seconds = math.inf
    for _ in range(3):
        started_at = perf_counter()
        predictor.run(numbers, texts)
        seconds = min(seconds, perf_counter() - started_at)
    return round(seconds, 6)


# The file


def _cut(content: bytes, members: list[int]) -> tuple[bytes, dict[str, Any]]:
    """The model without its metadata, and the metadata that it shall have."""
    metadata = read_metadata(content)
    model = onnx.load_from_string(content)
    del model.metadata_props[:]
    graph = model.graph
    networks = _find_networks(graph)
    for network in networks:
        _cut_network(graph, network, network.own(members))
    _join(graph, [n for n in networks if n.own(members)], networks)
    _drop_unused(graph)
    for output in graph.output:
        if output.name == "members":
            output.type.tensor_type.shape.dim[1].dim_value = len(members)
    onnx.checker.check_model(model)
    for name in ("checksum", *CALIBRATED):
        metadata.pop(name, None)
    metadata |= {"k": len(members), "folded_bytes": _count_folded(graph)}
    if "members" in metadata:
        metadata["members"] = [metadata["members"][m] for m in members]
    return model.SerializeToString(), metadata


def _find_networks(graph: onnx.GraphProto) -> list[_Network]:
    found: list[tuple[int, str, int]] = []
    for tensor in graph.initializer:
        match = _HEAD.fullmatch(tensor.name)
        if match:
            prefix = match[1] or ""
            number = int(prefix.split(".")[1]) if prefix else 0
            found.append((number, prefix, tensor.dims[0]))
    networks, start = [], 0
    for _, prefix, k in sorted(found):
        networks.append(_Network(prefix, start, k))
        start += k
    return networks


def _cut_network(graph: onnx.GraphProto, network: _Network, own: list[int]) -> None:
    if not own or len(own) == network.k:
        return
    for tensor in graph.initializer:
        if not tensor.name.startswith(network.prefix):
            continue
        if _is_of_members(tensor, tensor.name.removeprefix(network.prefix)):
            values = numpy_helper.to_array(tensor)[own]
            tensor.CopyFrom(numpy_helper.from_array(values.copy(), tensor.name))
    _cut_expansions(graph, network, len(own))


def _is_of_members(tensor: onnx.TensorProto, name: str) -> bool:
    """Whether its first dimension is the member: shared weights have one less."""
    if _EMBEDDING.fullmatch(name):
        return len(tensor.dims) == 4
    match = _LAYER.fullmatch(name)
    return match is not None and (match[1] != "weight" or len(tensor.dims) == 3)


def _cut_expansions(graph: onnx.GraphProto, network: _Network, k: int) -> None:
    """Inputs that all members share are repeated for each, where each has embeddings
    of its own."""
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    first = next(
        node
        for node in graph.node
        if node.op_type == "MatMul"
        and node.input[0] in makers  # not that of the masks
        and any(
            each.startswith(f"{network.prefix}blocks.0.")
            for each in _list_constants(makers, node.input[1])
        )
    )
    joined = makers[first.input[0]]
    for name in joined.input:
        node = makers.get(name)
        if node is not None and node.op_type == "Expand":
            shape = constants[node.input[1]]
            values = numpy_helper.to_array(shape).copy()
            values[0] = k
            shape.CopyFrom(numpy_helper.from_array(values, shape.name))


def _list_constants(makers: dict[str, Any], name: str) -> list[str]:
    """Those that a value is made of."""
    if name not in makers:
        return [name]
    return [c for each in makers[name].input for c in _list_constants(makers, each)]


def _join(
    graph: onnx.GraphProto, kept: list[_Network], networks: list[_Network]
) -> None:
    """Take networks without a member out of the node that joins them all."""
    if len(kept) == len(networks):
        return
    ends = {network.prefix: _find_end(graph, network) for network in networks}
    (node,) = (
        node
        for node in graph.node
        if node.op_type == "Concat" and [*node.input] == [*ends.values()]
    )
    del node.input[:]
    node.input.extend(ends[network.prefix] for network in kept)


def _find_end(graph: onnx.GraphProto, network: _Network) -> str:
    """The output of the network's last node: its head's sum, transposed."""
    bias = f"{network.prefix}head.bias"
    (total,) = (n.output[0] for n in graph.node if bias in n.input)
    (end,) = (
        str(n.output[0])
        for n in graph.node
        if n.op_type == "Transpose" and n.input[0] == total
    )
    return end


def _drop_unused(graph: onnx.GraphProto) -> None:
    needed = {output.name for output in graph.output}
    nodes = []
    for node in reversed(graph.node):  # they stand in the order of their making
        if needed & {*node.output}:
            needed |= {*node.input}
            nodes.append(node)
    constants = [t for t in graph.initializer if t.name in needed]
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(nodes)]
    tensors = [onnx.TensorProto.FromString(t.SerializeToString()) for t in constants]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(tensors)


def _count_folded(graph: onnx.GraphProto) -> int:
    """Bytes of the weights once they are multiplied out."""
    sizes = {tensor.name: [*tensor.dims] for tensor in graph.initializer}
    total = 0
    for network in _find_networks(graph):
        for name, dims in sizes.items():
            own = name.removeprefix(network.prefix)
            if name.startswith(network.prefix) and re.fullmatch(
                r"(blocks\.\d+|head)\.weight", own
            ):
                total += 4 * network.k * dims[-1] * dims[-2]
    return total
