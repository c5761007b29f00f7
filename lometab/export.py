"""One ONNX file: a raw row in, the ensemble's mean and every member's output out.

Read top to bottom: the file, the graph from its inputs to its outputs, the metadata.
Shapes in comments: N rows, F numbers the network sees, K members, D widths, C classes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import Tensor

import lometab
from lometab.ensemble import Ensemble
from lometab.evaluation import Calibrator, Rows, calibrate_rows, group_rows
from lometab.graph import Graph
from lometab.nn import AdditiveLinear, BatchEnsembleLinear, LoMETab, LoMETabLinear
from lometab.novelty_graph import measure_novelty
from lometab.onnx_file import FORMAT_VERSION, seal
from lometab.parity import check
from lometab.predictor import Predictor
from lometab.table import Feature, Float, Preprocessor, Schema

# What ONNX Runtime 1.14 and later can read.
_OPSETS = {"": 18, "ai.onnx.ml": 3}
_IR_VERSION = 8

SPELLING = (
    "Blanks around a value do not count, and a value that then is one of `missing` is"
    " missing: NaN in the input `numeric`, the empty string in `categorical`. A"
    " category is its text, but whole numbers have no point (3.0 is 3, -0.0 is 0; 007"
    " and 3.10 stay) and true and false are in lower case. The columns in `datetime`"
    " enter `numeric` as seconds since 1970-01-01T00:00:00Z; without a zone it is UTC."
    " Columns in `formats` write numbers or dates as shown there, others plainly: a"
    " number as 1234.5 is written there, with its currency or unit, which a value may"
    " lack, and negative with a minus or in parentheses."
)
"""How a value becomes an input: what `lometab.table` does, in words."""


def to_onnx(ensemble: Ensemble, *, metadata: Mapping[str, Any] | None = None) -> bytes:
    """The ensemble and its preprocessing as the content of one ONNX file.

    Args:
        metadata: what else the file should tell of itself, fit for strict JSON.
    """
    return seal(_build(ensemble), _metadata(ensemble, metadata or {}))


def export(
    ensemble: Ensemble,
    x_num: Float,
    x_cat: NDArray[np.object_],
    *,
    calibrate: Callable[[Predictor], Calibrator],
    metadata: Mapping[str, Any] | None = None,
) -> bytes:
    """The file as it is served: checked against torch, and calibrated.

    Args:
        x_num, x_cat: rows to check the file with, as `lometab.table` gives them.
        calibrate: gives what the file's answers are calibrated by; it is called with
            the checked file.
        metadata: what else the file should tell of itself, fit for strict JSON.

    Raises:
        ExportMismatch: the file does not answer as torch does.
    """
    model = _build(ensemble)
    own = _metadata(ensemble, {**(metadata or {}), "training": _training(ensemble)})
    predictor = Predictor(seal(model, own))
    check(ensemble, predictor, x_num, x_cat)
    calibrator = calibrate(predictor)
    if warnings := calibrator.warnings(is_pruned=False):
        own["warnings"] = [*own.get("warnings", ()), *warnings]
    return seal(model, own | calibrator.to_metadata())


def calibrate_on(
    x_num: Float,
    x_cat: NDArray[np.object_],
    y: NDArray[Any],
    *,
    own: tuple[Float, NDArray[np.object_], NDArray[Any]] | None = None,
    by: str | None = None,
) -> Callable[[Predictor], Calibrator]:
    """For `export`: calibrate by these rows, those of the part `val`.

    Args:
        own: rows of a calibration part, if there is one: then those of `val` only
            choose, and quantiles and temperature are of these.
        by: a categorical column whose values are calibrated apart, or the target.
    """

    def calibrate(predictor: Predictor) -> Calibrator:
        def answer(x_num: Float, x_cat: NDArray[np.object_], y: NDArray[Any]) -> Rows:
            groups = group_rows(by, predictor.target, predictor.categorical, x_cat, y)
            return Rows(y, *predictor.run(x_num, x_cat), groups)

        val = answer(x_num, x_cat, y)
        return calibrate_rows(val, None if own is None else answer(*own), by=by)

    return calibrate


def _training(ensemble: Ensemble) -> dict[str, Any]:
    training = ensemble.training
    return {
        "config": asdict(ensemble.config),
        "best_epoch": training.best_epoch,
        "best_score": training.best_score,
        "epochs": training.epochs,
        "seconds": round(training.seconds, 3),
        "n_seeds": len(ensemble.fits),
    }


def _build(ensemble: Ensemble) -> bytes:
    """The model without its metadata."""
    graph = Graph()
    outputs = _outputs(graph, ensemble)
    if ensemble.schema.classes is None:
        _unscale(graph, outputs, ensemble.preprocessor)
    else:
        _classify(graph, outputs, ensemble.schema)
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "lometab",
            _graph_inputs(ensemble.schema),
            _graph_outputs(ensemble),
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid(*opset) for opset in _OPSETS.items()],
        ir_version=_IR_VERSION,
        producer_name="lometab",
        producer_version=lometab.__version__,
    )
    onnx.checker.check_model(proto)
    content: bytes = proto.SerializeToString()
    return content


def _graph_inputs(schema: Schema) -> list[onnx.ValueInfoProto]:
    inputs = [
        ("numeric", TensorProto.DOUBLE, len(schema.numeric)),
        ("categorical", TensorProto.STRING, len(schema.categorical)),
    ]
    return [
        helper.make_tensor_value_info(name, kind, ["N", width])
        for name, kind, width in inputs
        if width
    ]


def _graph_outputs(ensemble: Ensemble) -> list[onnx.ValueInfoProto]:
    schema, k = ensemble.schema, ensemble.k
    classes = [] if schema.classes is None else [len(schema.classes)]
    shapes: dict[str, list[Any]] = {
        "mean": ["N", *classes],
        "members": ["N", k, *classes],
    }
    if ensemble.preprocessor.novelty_ is not None:
        shapes["novelty"] = ["N", 3]
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]


# ----------------------------------------------------------------------------
# The graph: a row's numbers and texts to the network's input


def _outputs(graph: Graph, ensemble: Ensemble) -> str:
    """Every member's raw output, network after network: (N, K, D_out)."""
    preprocessor = ensemble.preprocessor
    scores = _scores(graph, preprocessor) if preprocessor.features_ else None
    others = []
    if preprocessor.categories_:
        others.append(_one_hot(graph, preprocessor))
    if preprocessor.novelty_ is not None:
        texts = others[0] if others else None
        measure_novelty(graph, preprocessor.novelty_, scores, texts)
    if preprocessor.indicators_:
        others.append(_is_missing(graph, preprocessor.indicators_))
    networks = []
    for i, model in enumerate(ensemble.models):
        prefix = f"networks.{i}." if ensemble.others else ""
        parts = [*others]
        if scores is not None:
            parts.insert(0, _embed(graph, scores, model, prefix))
        if model.embeddings:  # (K, N, ...), as the embeddings of members are
            parts[1:] = [_repeat(graph, part, model.config.k) for part in others]
        x = graph.add("Concat", *parts, axis=-1)  # (N, D_in) or (K, N, D_in)
        networks.append(_members(graph, x, model, prefix))
    if len(networks) == 1:
        return networks[0]
    return graph.add("Concat", *networks, axis=1)


def _scores(graph: Graph, preprocessor: Preprocessor) -> str:
    """`Preprocessor.transform` of the numbers: (N, n_num) -> (N, F)."""
    x = _features(graph, preprocessor.features_)
    x = _fill_missing(graph, x, preprocessor.medians_)
    x = _interpolate(graph, x, preprocessor.quantiles_, preprocessor.scores_)
    return graph.add("Cast", x, to=TensorProto.FLOAT)


def _features(graph: Graph, features: Sequence[Feature]) -> str:
    """`Feature.of` of every feature: (N, n_num) -> (N, F)."""
    # Columns as they are, then all sines, then all cosines; the last Gather puts them
    # in their order.
    parts, order = [], []
    for wave, operator in ((None, ""), ("sin", "Sin"), ("cos", "Cos")):
        group = [
            i for i, f in enumerate(features) if (f.wave[0] if f.wave else None) == wave
        ]
        if not group:
            continue
        columns = graph.integers(*(features[i].column for i in group))
        x = graph.add("Gather", "numeric", columns, axis=1)
        if operator:
            periods = [f.wave[1] for f in (features[i] for i in group) if f.wave]
            x = graph.add(operator, _angle(graph, x, periods))
        parts.append(x)
        order += group
    x = graph.add("Concat", *parts, axis=1)
    return graph.add("Gather", x, graph.integers(*np.argsort(order)), axis=1)


def _angle(graph: Graph, x: str, periods: list[float]) -> str:
    """2 pi (x mod period) / period, in double."""
    prefix = f"angle_{len(graph.nodes)}"
    period = graph.constant(f"{prefix}.period", periods, np.float64)
    zero = graph.constant(f"{prefix}.zero", 0.0, np.float64)
    turn = graph.constant(f"{prefix}.turn", 2 * np.pi, np.float64)
    x = graph.add("Mod", x, period, fmod=1)  # its sign is that of x
    x = graph.add("Where", graph.add("Less", x, zero), graph.add("Add", x, period), x)
    return graph.add("Mul", turn, graph.add("Div", x, period))


def _fill_missing(graph: Graph, x: str, medians: list[float]) -> str:
    median = graph.constant("medians", medians, np.float64)
    return graph.add("Where", graph.add("IsNaN", x), median, x)


def _interpolate(
    graph: Graph, x: str, quantiles: list[Float], scores: list[Float]
) -> str:
    """`np.interp` of every feature, in double and to the bit: (N, F) -> (N, F).

    The quantiles of a feature are laid out as a square. Comparing x with the first
    number of every line finds its line, comparing it with that line finds its offset.
    """
    # One number more than quantiles: the last one has a neighbour, infinitely far.
    side = math.ceil(math.sqrt(max(map(len, quantiles)) + 1))
    square = np.array([_fill_up(q, side * side, np.inf) for q in quantiles])
    lines = graph.constant("quantiles", square.reshape(-1, side), np.float64)
    firsts = graph.constant("quantiles.first", square[:, side::side], np.float64)
    lowest = graph.constant("quantiles.lowest", [q[0] for q in quantiles], np.float64)
    highest = graph.constant(
        "quantiles.highest", [q[-1] for q in quantiles], np.float64
    )
    x = graph.add("Min", graph.add("Max", x, lowest), highest)
    number = graph.add("Unsqueeze", x, graph.integers(2))  # (N, F, 1)
    start = graph.integers(*(i * side for i in range(len(quantiles))))
    line = graph.add("Add", _count_reached(graph, number, firsts), start)  # (N, F)
    rest = _part(graph, lines, 1, side, axis=1)
    offset = _count_reached(graph, number, graph.add("Gather", rest, line))
    index = graph.add("Add", graph.add("Mul", line, graph.integers(side)), offset)

    # Constants of constants: ONNX Runtime computes them once, when it loads the file.
    left = graph.add("Reshape", lines, graph.integers(-1))
    level = _score_table(graph, scores, side * side)
    slope = graph.add("Div", _differences(graph, level), _differences(graph, left))
    x = graph.add("Sub", x, graph.add("Gather", left, index))
    x = graph.add("Mul", graph.add("Gather", slope, index), x)
    return graph.add("Add", x, graph.add("Gather", level, index))


def _fill_up(values: Float, size: int, filler: float) -> Float:
    return np.concatenate([values, np.full(size - len(values), filler)])


def _score_table(graph: Graph, scores: list[Float], size: int) -> str:
    """The scores of all features, (F * size); in the file once if they are equal."""
    distinct = {s.tobytes(): s for s in scores}
    table = graph.constant(
        "scores", [_fill_up(s, size, s[-1]) for s in distinct.values()], np.float64
    )
    which = graph.integers(*([*distinct].index(s.tobytes()) for s in scores))
    return graph.add("Reshape", graph.add("Gather", table, which), graph.integers(-1))


def _count_reached(graph: Graph, number: str, marks: str) -> str:
    """How many marks each number is not below: (N, F, 1), (..., F, M) -> (N, F)."""
    x = graph.add("GreaterOrEqual", number, marks)
    x = graph.add("Cast", x, to=TensorProto.FLOAT)  # float sums are the fastest here
    x = graph.add("ReduceSum", x, graph.integers(-1), keepdims=0)
    return graph.add("Cast", x, to=TensorProto.INT64)


def _differences(graph: Graph, x: str) -> str:
    """`np.diff` of a vector."""
    ahead = _part(graph, x, 1, np.iinfo(np.int64).max)
    return graph.add("Sub", ahead, _part(graph, x, 0, -1))


def _part(graph: Graph, x: str, start: int, end: int, axis: int = 0) -> str:
    bounds = [graph.integers(each) for each in (start, end, axis)]
    return graph.add("Slice", x, *bounds)


def _embed(graph: Graph, x: str, model: LoMETab, prefix: str) -> str:
    """The piecewise-linear embeddings side by side: (N, F) -> (N, F * D_embedding).

    Where each member has one of its own: (N, F) -> (K, N, F * D_embedding).
    """
    embeddings: list[Any] = [*model.embeddings] or [model.embedding]
    is_shared = model.embedding is not None

    def joined(values: list[Tensor]) -> Tensor:
        return values[0] if is_shared else torch.stack(values)

    encoding = embeddings[0].impl  # the bins are the same ones
    scale = graph.parameter(f"{prefix}embedding.scale", encoding.weight)  # (F, bins)
    shift = graph.parameter(f"{prefix}embedding.shift", encoding.bias)
    lower = graph.parameter(f"{prefix}embedding.lower", encoding.lower)
    upper = graph.parameter(f"{prefix}embedding.upper", encoding.upper)
    weight = graph.parameter(
        f"{prefix}embedding.weight", joined([e.linear.weight for e in embeddings])
    )
    linear = graph.parameter(
        f"{prefix}embedding.linear.weight",
        joined([e.linear0.weight[None] for e in embeddings]),  # (1, F, D)
    )
    bias = graph.parameter(
        f"{prefix}embedding.linear.bias",
        joined([e.linear0.bias[None] for e in embeddings]),
    )

    x = graph.add("Unsqueeze", x, graph.integers(2))  # (N, F, 1)
    encoded = graph.add("Add", graph.add("Mul", x, scale), shift)  # (N, F, bins)
    encoded = graph.add("Max", graph.add("Min", encoded, upper), lower)
    encoded = graph.add("Transpose", encoded, perm=[1, 0, 2])
    # (F, N, bins) -> (F, N, D) or (K, F, N, D)
    encoded = graph.add("MatMul", encoded, weight)
    encoded = graph.add(
        "Transpose", encoded, perm=[1, 0, 2] if is_shared else [0, 2, 1, 3]
    )
    x = graph.add("Add", graph.add("Mul", x, linear), bias)  # (N, F, D) or (K, N, F, D)
    x = graph.add("Add", x, encoded)
    n_features, d_embedding = embeddings[0].linear0.weight.shape
    kept = [0] if is_shared else [0, 0]  # dimensions that stay
    return graph.add("Reshape", x, graph.integers(*kept, n_features * d_embedding))


def _repeat(graph: Graph, x: str, k: int) -> str:
    """(N, D) -> (K, N, D)."""
    return graph.add("Expand", x, graph.integers(k, 1, 1))


def _one_hot(graph: Graph, preprocessor: Preprocessor) -> str:
    """(N, n_cat) texts -> (N, sum of the columns' cardinalities); texts that are no
    level: the one that rare ones share, which is the last, or else zeros."""
    codes = []
    for i, levels in enumerate(preprocessor.categories_):
        column = graph.add("Gather", "categorical", graph.integers(i), axis=1)
        codes.append(
            graph.add(
                "LabelEncoder",
                column,
                domain="ai.onnx.ml",
                keys_strings=levels or [""],  # none is not allowed
                values_int64s=[*range(len(levels))] or [0],
                default_int64=len(levels),
            )
        )
    code = graph.add("Concat", *codes, axis=1)  # (N, n_cat)
    # One output for each level of each column: which column it looks at, for what.
    widths = preprocessor.cardinalities_[: len(codes)]
    column = graph.integers(*(i for i, n in enumerate(widths) for _ in range(n)))
    level = graph.integers(*(j for n in widths for j in range(n)))
    is_level = graph.add("Equal", graph.add("Gather", code, column, axis=1), level)
    return graph.add("Cast", is_level, to=TensorProto.FLOAT)


def _is_missing(graph: Graph, columns: list[int]) -> str:
    x = graph.add("Gather", "numeric", graph.integers(*columns), axis=1)
    return graph.add("Cast", graph.add("IsNaN", x), to=TensorProto.FLOAT)


# ----------------------------------------------------------------------------
# The graph: the members and their mean


def _members(graph: Graph, x: str, model: LoMETab, prefix: str) -> str:
    """Every member's raw output: (N, D_in) -> (N, K, D_out)."""
    for i, block in enumerate(model.blocks):
        x = graph.add("Relu", _linear(graph, x, block, f"{prefix}blocks.{i}"))
    x = _linear(graph, x, model.head, f"{prefix}head")
    return graph.add("Transpose", x, perm=[1, 0, 2])


def _linear(graph: Graph, x: str, layer: Any, name: str) -> str:
    """One member's layer each: (N, D_in) or (K, N, D_in) -> (K, N, D_out)."""
    weight = _effective_weight(graph, layer, name)
    bias = graph.parameter(f"{name}.bias", layer.bias[:, None])  # (K, 1, D_out)
    x = graph.add("MatMul", x, graph.add("Transpose", weight, perm=[0, 2, 1]))
    return graph.add("Add", x, bias)


def _effective_weight(graph: Graph, layer: Any, name: str) -> str:
    """The layer's `effective_weight` (K, D_out, D_in), computed when the file loads."""
    weight = graph.parameter(f"{name}.weight", layer.weight)
    if isinstance(layer, LoMETabLinear):
        a = graph.parameter(f"{name}.a", layer.a)
        b = graph.parameter(f"{name}.b", layer.b)
        product = graph.add("MatMul", a, graph.add("Transpose", b, perm=[0, 2, 1]))
        if isinstance(layer, AdditiveLinear):
            return graph.add("Add", weight, product)
        return graph.add("Add", weight, graph.add("Mul", weight, product))
    if isinstance(layer, BatchEnsembleLinear):
        s = graph.parameter(f"{name}.s", layer.s[:, :, None])
        r = graph.parameter(f"{name}.r", layer.r[:, None, :])
        return graph.add("Mul", graph.add("Mul", weight, s), r)
    return weight


def _unscale(graph: Graph, outputs: str, preprocessor: Preprocessor) -> None:
    """Regression: `members` (N, K) and `mean` (N) in the target's units."""
    # In double: with a large mean and a small spread, float32 would round twice.
    scale = graph.constant("target.std", preprocessor.y_std_, np.float64)
    shift = graph.constant("target.mean", preprocessor.y_mean_, np.float64)
    x = graph.add("Squeeze", outputs, graph.integers(2))
    x = graph.add("Mul", graph.add("Cast", x, to=TensorProto.DOUBLE), scale)
    mean = graph.add("ReduceMean", x, graph.integers(1), keepdims=0)
    for value, output in ((x, "members"), (mean, "mean")):
        value = graph.add("Add", value, shift)
        graph.add("Cast", value, output=output, to=TensorProto.FLOAT)


def _classify(graph: Graph, outputs: str, schema: Schema) -> None:
    """Classification: `members` (N, K, C) and `mean` (N, C), probabilities."""
    if schema.task == "binary":  # the logit of class 0 is 0
        outputs = graph.add("Pad", outputs, graph.integers(0, 0, 1, 0, 0, 0))
    members = graph.add("Softmax", outputs, output="members", axis=2)
    graph.add("ReduceMean", members, graph.integers(1), output="mean", keepdims=0)


# ----------------------------------------------------------------------------
# The metadata


def _metadata(ensemble: Ensemble, more: Mapping[str, Any]) -> dict[str, Any]:
    """What the file tells of itself."""
    schema, config = ensemble.schema, ensemble.config
    levels = dict(
        zip(schema.categorical, ensemble.preprocessor.categories_, strict=True)
    )
    n_rare = ensemble.preprocessor.n_rare_
    layers: list[Any] = [
        layer for model in ensemble.models for layer in (*model.blocks, model.head)
    ]
    own: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "task": schema.task,
        "target": schema.target,
        "classes": schema.classes,
        "k": ensemble.k,
        "members": [asdict(origin) for origin in ensemble.origins],
        "networks": [
            {"trial": fit.trial, "config": asdict(fit.model.config)}
            for fit in ensemble.fits
        ],
        "rank": config.rank,
        "sigma_init": config.sigma_init,
        "variant": config.variant,
        "numeric": schema.numeric,
        "categorical": schema.categorical,
        "datetime": schema.datetime,
        "categories": {name: len(texts) for name, texts in levels.items()},
        "levels": levels,
        "min_frequency": schema.min_frequency,
        "rare": {name: n for name, n in zip(levels, n_rare, strict=True) if n},
        "ranges": _ranges(ensemble),
        "with_missing": [schema.numeric[i] for i in ensemble.preprocessor.indicators_],
        "ignored": schema.ignored,
        "missing": schema.missing,
        "formats": {n: f for n, f in schema.formats.items() if n in schema.numeric},
        "missing_in": schema.missing_in,
        "spelling": SPELLING,
        # What the weights take once ONNX Runtime has multiplied them out.
        "folded_bytes": sum(
            4 * layer.k * layer.in_features * layer.out_features for layer in layers
        ),
        "library": {
            "lometab": lometab.__version__,
            "onnx": onnx.__version__,
            "torch": torch.__version__,
        },
    }
    if taken := {"checksum", *own} & more.keys():
        raise ValueError(f"metadata must not set {sorted(taken)}: the file does")
    return own | dict(more)


def _ranges(ensemble: Ensemble) -> dict[str, tuple[float, float]]:
    """The least and the largest number of each column in the training rows, up to the
    noise with which quantiles are fitted; none for a column that was constant there."""
    fitted = ensemble.preprocessor
    return {
        ensemble.schema.numeric[feature.column]: (quantiles[0], quantiles[-1])
        for feature, quantiles in zip(fitted.features_, fitted.quantiles_, strict=True)
        if feature.wave is None
    }
