"""How unlike the training rows a row is, as a part of the ONNX graph."""

import numpy as np
from onnx import TensorProto

from lometab.graph import Graph
from lometab.table import Novelty


def measure_novelty(
    graph: Graph, novelty: Novelty, scores: str | None, one_hot: str | None
) -> None:
    """`Novelty.measure` as the output `novelty`, (N, 3)."""
    parts = []
    if scores is not None and novelty.features:
        parts.append(_squared_distance(graph, novelty, scores))
    if one_hot is not None:
        parts.append(_surprise(graph, novelty, one_hot))
    distance = parts[0] if len(parts) == 1 else graph.add("Sum", *parts)  # (N, 1)
    levels = graph.constant("novelty.levels", novelty.levels, np.float32)
    beyond = [
        graph.add("Greater", distance, levels),
        _out_of_range(graph, novelty) if novelty.columns else None,
    ]
    shares = []
    for each in beyond:
        if each is None:
            shares.append(graph.add("Mul", distance, _zero(graph)))
            continue
        x = graph.add("Cast", each, to=TensorProto.FLOAT)
        shares.append(graph.add("ReduceMean", x, graph.integers(1), keepdims=1))
    shares.append(_unseen_share(graph, novelty, one_hot, distance))
    graph.add("Concat", *shares, axis=1, output="novelty")


def _zero(graph: Graph) -> str:
    return graph.constant(f"zero_{len(graph.constants)}", 0.0, np.float32)


def _squared_distance(graph: Graph, novelty: Novelty, scores: str) -> str:
    x = graph.add("Gather", scores, graph.integers(*novelty.features), axis=1)
    center = graph.constant("novelty.center", novelty.center, np.float32)
    whitening = graph.constant("novelty.whitening", novelty.whitening, np.float32)
    x = graph.add("Sub", x, center)
    x = graph.add("MatMul" if novelty.whitening.ndim == 2 else "Mul", x, whitening)
    return graph.add("ReduceSumSquare", x, graph.integers(1), keepdims=1)


def _surprise(graph: Graph, novelty: Novelty, one_hot: str) -> str:
    """That of unseen levels for all, and for each level what it is below that."""
    weights = np.concatenate([each[:-1] - each[-1] for each in novelty.surprises])
    unseen = sum(float(each[-1]) for each in novelty.surprises)
    weight = graph.constant("novelty.surprises", weights[:, None], np.float32)
    start = graph.constant("novelty.unseen", unseen, np.float32)
    return graph.add("Add", graph.add("MatMul", one_hot, weight), start)


def _out_of_range(graph: Graph, novelty: Novelty) -> str:
    x = graph.add("Gather", "numeric", graph.integers(*novelty.columns), axis=1)
    lower = graph.constant("novelty.lower", novelty.lower, np.float64)
    upper = graph.constant("novelty.upper", novelty.upper, np.float64)
    return graph.add("Or", graph.add("Less", x, lower), graph.add("Greater", x, upper))


def _unseen_share(
    graph: Graph, novelty: Novelty, one_hot: str | None, distance: str
) -> str:
    """1 - the sum of all one-hot inputs over the number of columns: (N, 1)."""
    if one_hot is None:
        return graph.add("Mul", distance, _zero(graph))
    seen = graph.add("ReduceSum", one_hot, graph.integers(1), keepdims=1)
    share = graph.constant("novelty.share", 1 / len(novelty.surprises), np.float32)
    one = graph.constant("novelty.one", 1.0, np.float32)
    return graph.add("Sub", one, graph.add("Mul", seen, share))
