"""How unlike the training rows a row is, as a part of the ONNX graph."""

import numpy as np
from onnx import TensorProto

from lometab.graph import Graph
from lometab.table import Novelty


def measure_novelty(
    graph: Graph, novelty: Novelty, scores: str | None, one_hot: str | None
) -> None:
    """`Novelty.measure` as the output `novelty`, (N, 3)."""
    counts = _count(graph, novelty, one_hot)  # (N, 3)
    distance = graph.add("Gather", counts, graph.integers(0), axis=1)  # (N, 1)
    if scores is not None and novelty.features:
        squared = _squared_distance(graph, novelty, scores)
        distance = graph.add("Add", distance, squared)
    levels = graph.constant("novelty.levels", novelty.levels, np.float32)
    beyond = graph.add("Greater", distance, levels)
    beyond = graph.add("Cast", beyond, to=TensorProto.FLOAT)
    share = graph.add("ReduceMean", beyond, graph.integers(1), keepdims=1)
    n_columns = [max(1, len(novelty.columns)), max(1, len(novelty.surprises))]
    others = graph.add("Gather", counts, graph.integers(1, 2), axis=1)
    others = graph.add(
        "Div", others, graph.constant("novelty.columns", n_columns, np.float32)
    )
    graph.add("Concat", share, others, axis=1, output="novelty")


def _squared_distance(graph: Graph, novelty: Novelty, scores: str) -> str:
    x = graph.add("Gather", scores, graph.integers(*novelty.features), axis=1)
    center = graph.constant("novelty.center", novelty.center, np.float32)
    whitening = graph.constant("novelty.whitening", novelty.whitening, np.float32)
    x = graph.add("Sub", x, center)
    x = graph.add("MatMul" if novelty.whitening.ndim == 2 else "Mul", x, whitening)
    return graph.add("ReduceSumSquare", x, graph.integers(1), keepdims=1)


def _count(graph: Graph, novelty: Novelty, one_hot: str | None) -> str:
    """For each row what its texts, missing numbers and far numbers add to its distance,
    how many of its numbers are out of range, and how many categories unseen: (N, 3).

    All are weighted sums of what is true of the row, so they are one product for the
    numbers and one for the texts. They start from a row that has all its numbers and
    no category that training had.
    """
    unseen = sum(float(each[-1]) for each in novelty.surprises)
    start = [[unseen + novelty.gaps[:, 0].sum(), 0.0, len(novelty.surprises)]]
    counts = graph.constant("novelty.start", start, np.float32)
    if novelty.columns or len(novelty.gaps):
        facts, weights = _number_facts(graph, novelty)
        weight = graph.constant("novelty.numbers", weights, np.float32)
        counts = graph.add("Gemm", facts, weight, counts)
    if one_hot is not None:
        surprises = np.concatenate([s[:-1] - s[-1] for s in novelty.surprises])
        weights = [(surprise, 0.0, -1.0) for surprise in surprises]
        weight = graph.constant("novelty.texts", weights, np.float32)
        counts = graph.add("Gemm", one_hot, weight, counts)
    return counts


def _number_facts(
    graph: Graph, novelty: Novelty
) -> tuple[str, list[tuple[float, float, float]]]:
    """Whether each number is out of range, far out of it, and missing, (N, ...), and
    what each of these adds to the three sums."""
    facts = []
    weights: list[tuple[float, float, float]] = []
    if novelty.columns:
        columns = graph.integers(*novelty.columns, *novelty.columns)
        x = graph.add("Gather", "numeric", columns, axis=1)
        lower = np.concatenate([novelty.lower, novelty.far_lower])
        upper = np.concatenate([novelty.upper, novelty.far_upper])
        below = graph.add("Less", x, graph.constant("novelty.lower", lower, np.float64))
        above = graph.add(
            "Greater", x, graph.constant("novelty.upper", upper, np.float64)
        )
        facts.append(graph.add("Or", below, above))
        weights += [(0.0, 1.0, 0.0)] * len(novelty.columns)
        weights += [(novelty.far, 0.0, 0.0)] * len(novelty.columns)
    if len(novelty.gaps):
        facts.append(graph.add("IsNaN", "numeric"))
        weights += [(lack - have, 0.0, 0.0) for have, lack in novelty.gaps]
    both = facts[0] if len(facts) == 1 else graph.add("Concat", *facts, axis=1)
    return graph.add("Cast", both, to=TensorProto.FLOAT), weights
