"""One ONNX file: a raw row in, the ensemble's mean and every member's output out.

Read top to bottom: the file, the graph from its inputs to its outputs, the metadata,
and the check that the file answers as torch does. Shapes in comments: N rows, F numbers
the network sees, K members, D widths, C classes.
"""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

import lometab
from lometab import metrics
from lometab.data import Float, Schema
from lometab.ensemble import Ensemble, answer_scores
from lometab.errors import ExportMismatch
from lometab.evaluation import conformity_quantiles
from lometab.nn import AdditiveLinear, BatchEnsembleLinear, LoMETab, LoMETabLinear
from lometab.predictor import FORMAT_VERSION, Predictor, seal
from lometab.preprocessing import Feature, Preprocessor
from lometab.splits import Parts

# What ONNX Runtime 1.14 and later can read.
_OPSETS = {"": 18, "ai.onnx.ml": 3}
_IR_VERSION = 8

SPELLING = (
    "Blanks around a cell do not count, and a cell that then is one of `missing` is"
    " missing: NaN in the input `numeric`, the empty string in `categorical`. A"
    " category is its text, but whole numbers have no point (3.0 is 3, -0.0 is 0; 007"
    " and 3.10 stay) and true and false are in lower case. The columns in `datetime`"
    " enter `numeric` as seconds since 1970-01-01T00:00:00Z; without a zone it is UTC."
    " Columns in `formats` write numbers or dates as shown there, others plainly."
)
"""How a cell becomes an input of the file: what `lometab.cells` does, in words."""


def to_onnx(ensemble: Ensemble, *, metadata: Mapping[str, Any] | None = None) -> bytes:
    """The ensemble and its preprocessing as the content of one ONNX file.

    Args:
        metadata: what else the file should tell of itself, fit for strict JSON.
    """
    graph = _Graph()
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
            _graph_outputs(ensemble.schema, ensemble.k),
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid(*opset) for opset in _OPSETS.items()],
        ir_version=_IR_VERSION,
        producer_name="lometab",
        producer_version=lometab.__version__,
    )
    helper.set_model_props(proto, {"lometab": _describe(ensemble, metadata or {})})
    onnx.checker.check_model(proto)
    return seal(proto.SerializeToString())


def export(
    ensemble: Ensemble,
    x_num: Float,
    x_cat: NDArray[np.object_],
    y: NDArray[Any],
    parts: Parts,
    *,
    metadata: Mapping[str, Any] | None = None,
) -> bytes:
    """The file as it is served: checked against torch, and calibrated.

    Args:
        x_num, x_cat, y: all rows, as `lometab.data` gives them. Training rows are used
            for the check, validation rows for the quantiles of conformity and, for
            classes, the temperature.
    """
    fit = ensemble.fit
    metadata = {
        **(metadata or {}),
        "training": {
            "config": asdict(ensemble.config),
            "best_epoch": fit.best_epoch,
            "best_score": fit.best_score,
            "epochs": len(fit.history),
            "seconds": round(sum(each.seconds for each in ensemble.fits), 3),
            "n_seeds": len(ensemble.fits),
        },
    }
    content = to_onnx(ensemble, metadata=metadata)
    train, val = parts["train"][:1000], parts["val"]
    check_onnx(ensemble, content, x_num[train], x_cat[train])
    mean, _ = Predictor(content).run(x_num[val], x_cat[val])
    conformity = metrics.conformal_scores(y[val], mean)
    metadata["conformity"] = conformity_quantiles(conformity)
    if ensemble.schema.classes is not None:
        metadata["temperature"] = metrics.fit_temperature(y[val], mean)
    return to_onnx(ensemble, metadata=metadata)


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


def _graph_outputs(schema: Schema, k: int) -> list[onnx.ValueInfoProto]:
    classes = [] if schema.classes is None else [len(schema.classes)]
    return [
        helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["N", *classes]),
        helper.make_tensor_value_info("members", TensorProto.FLOAT, ["N", k, *classes]),
    ]


# ----------------------------------------------------------------------------
# The graph: a row's numbers and texts to the network's input


@dataclass
class _Graph:
    """Nodes and constants as they are added. A value is known by its name."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: Any, dtype: Any) -> str:
        self.constants.append(
            numpy_helper.from_array(np.array(value, dtype=dtype), name)
        )
        return name

    def parameter(self, name: str, value: Tensor) -> str:
        return self.constant(name, value.detach().cpu().numpy(), np.float32)

    def integers(self, *values: int) -> str:
        """Axes, a shape or indices."""
        return self.constant(f"integers_{len(self.constants)}", values, np.int64)

    def add(
        self, operator: str, *inputs: str, output: str = "", **attributes: Any
    ) -> str:
        output = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [output], name=output, **attributes)
        )
        return output


def _outputs(graph: _Graph, ensemble: Ensemble) -> str:
    """Every member's raw output, seed after seed: (N, K, D_out)."""
    preprocessor = ensemble.preprocessor
    scores = _scores(graph, preprocessor) if preprocessor.features_ else None
    others = []
    if preprocessor.categories_:
        others.append(_one_hot(graph, preprocessor.categories_))
    if preprocessor.indicators_:
        others.append(_is_missing(graph, preprocessor.indicators_))
    seeds = []
    for i, model in enumerate(ensemble.models):
        prefix = f"seeds.{i}." if ensemble.other_seeds else ""
        parts = [*others]
        if scores is not None:
            parts.insert(0, _embed(graph, scores, model, prefix))
        x = graph.add("Concat", *parts, axis=1)  # (N, D_in)
        seeds.append(_members(graph, x, model, prefix))
    return seeds[0] if len(seeds) == 1 else graph.add("Concat", *seeds, axis=1)


def _scores(graph: _Graph, preprocessor: Preprocessor) -> str:
    """`Preprocessor.transform` of the numbers: (N, n_num) -> (N, F)."""
    x = _features(graph, preprocessor.features_)
    x = _fill_missing(graph, x, preprocessor.medians_)
    x = _interpolate(graph, x, preprocessor.quantiles_, preprocessor.scores_)
    return graph.add("Cast", x, to=TensorProto.FLOAT)


def _features(graph: _Graph, features: Sequence[Feature]) -> str:
    """`Feature.of` of every feature: (N, n_num) -> (N, F)."""
    # Plain columns, then all sines, then all cosines; the last Gather puts them in
    # their order.
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


def _angle(graph: _Graph, x: str, periods: list[float]) -> str:
    """2 pi (x mod period) / period, in double."""
    prefix = f"angle_{len(graph.nodes)}"
    period = graph.constant(f"{prefix}.period", periods, np.float64)
    zero = graph.constant(f"{prefix}.zero", 0.0, np.float64)
    turn = graph.constant(f"{prefix}.turn", 2 * np.pi, np.float64)
    x = graph.add("Mod", x, period, fmod=1)  # its sign is that of x
    x = graph.add("Where", graph.add("Less", x, zero), graph.add("Add", x, period), x)
    return graph.add("Mul", turn, graph.add("Div", x, period))


def _fill_missing(graph: _Graph, x: str, medians: list[float]) -> str:
    median = graph.constant("medians", medians, np.float64)
    return graph.add("Where", graph.add("IsNaN", x), median, x)


def _interpolate(
    graph: _Graph, x: str, quantiles: list[Float], scores: list[Float]
) -> str:
    """`np.interp` of every feature, in double and to the bit: (N, F) -> (N, F).

    The quantiles of a feature are laid out as a square. Comparing x with the first
    number of every line finds its line, comparing it with that line finds its place.
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
    cell = graph.add("Unsqueeze", x, graph.integers(2))  # (N, F, 1)
    start = graph.integers(*(i * side for i in range(len(quantiles))))
    line = graph.add("Add", _count_reached(graph, cell, firsts), start)  # (N, F)
    rest = _part(graph, lines, 1, side, axis=1)
    place = _count_reached(graph, cell, graph.add("Gather", rest, line))
    index = graph.add("Add", graph.add("Mul", line, graph.integers(side)), place)

    # Constants of constants: ONNX Runtime computes them once, when it loads the file.
    left = graph.add("Reshape", lines, graph.integers(-1))
    level = _score_table(graph, scores, side * side)
    slope = graph.add("Div", _differences(graph, level), _differences(graph, left))
    x = graph.add("Sub", x, graph.add("Gather", left, index))
    x = graph.add("Mul", graph.add("Gather", slope, index), x)
    return graph.add("Add", x, graph.add("Gather", level, index))


def _fill_up(values: Float, size: int, filler: float) -> Float:
    return np.concatenate([values, np.full(size - len(values), filler)])


def _score_table(graph: _Graph, scores: list[Float], size: int) -> str:
    """The scores of all features, (F * size); in the file once if they are equal."""
    distinct = {s.tobytes(): s for s in scores}
    table = graph.constant(
        "scores", [_fill_up(s, size, s[-1]) for s in distinct.values()], np.float64
    )
    which = graph.integers(*([*distinct].index(s.tobytes()) for s in scores))
    return graph.add("Reshape", graph.add("Gather", table, which), graph.integers(-1))


def _count_reached(graph: _Graph, cell: str, marks: str) -> str:
    """How many marks each cell is not below: (N, F, 1), (..., F, M) -> (N, F)."""
    x = graph.add("GreaterOrEqual", cell, marks)
    x = graph.add("Cast", x, to=TensorProto.FLOAT)  # float sums are the fastest here
    x = graph.add("ReduceSum", x, graph.integers(-1), keepdims=0)
    return graph.add("Cast", x, to=TensorProto.INT64)


def _differences(graph: _Graph, x: str) -> str:
    """`np.diff` of a vector."""
    ahead = _part(graph, x, 1, np.iinfo(np.int64).max)
    return graph.add("Sub", ahead, _part(graph, x, 0, -1))


def _part(graph: _Graph, x: str, start: int, end: int, axis: int = 0) -> str:
    bounds = [graph.integers(each) for each in (start, end, axis)]
    return graph.add("Slice", x, *bounds)


def _embed(graph: _Graph, x: str, model: LoMETab, prefix: str) -> str:
    """The piecewise-linear embeddings side by side: (N, F) -> (N, F * D_embedding)."""
    embedding = model.embedding
    assert embedding is not None and embedding.linear0 is not None
    encoding = embedding.impl
    scale = graph.parameter(f"{prefix}embedding.scale", encoding.weight)  # (F, bins)
    shift = graph.parameter(f"{prefix}embedding.shift", encoding.bias)
    bounds = _encoding_bounds(encoding)
    lower = graph.constant(f"{prefix}embedding.lower", bounds[0], np.float32)
    upper = graph.constant(f"{prefix}embedding.upper", bounds[1], np.float32)
    weight = graph.parameter(f"{prefix}embedding.weight", embedding.linear.weight)
    linear = graph.parameter(
        f"{prefix}embedding.linear.weight", embedding.linear0.weight
    )
    bias = graph.parameter(f"{prefix}embedding.linear.bias", embedding.linear0.bias)

    x = graph.add("Unsqueeze", x, graph.integers(2))  # (N, F, 1)
    encoded = graph.add("Add", graph.add("Mul", x, scale), shift)  # (N, F, bins)
    encoded = graph.add("Max", graph.add("Min", encoded, upper), lower)
    encoded = graph.add("Transpose", encoded, perm=[1, 0, 2])
    encoded = graph.add("MatMul", encoded, weight)  # (F, N, bins) -> (F, N, D)
    encoded = graph.add("Transpose", encoded, perm=[1, 0, 2])
    x = graph.add("Add", graph.add("Mul", x, linear), bias)  # (N, F, D)
    x = graph.add("Add", x, encoded)
    n_features, d_embedding = embedding.get_output_shape()
    return graph.add("Reshape", x, graph.integers(0, n_features * d_embedding))


def _encoding_bounds(encoding: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Between which bounds each component of the encoding is kept, (F, bins).

    Inner components stay in [0, 1]; the first is open below and the last above. A
    feature with one bin has only the last, open on both sides.
    """
    lower = np.zeros(encoding.weight.shape)
    upper = np.ones(encoding.weight.shape)
    lower[:, 0] = -np.inf
    upper[:, -1] = np.inf
    if encoding.single_bin_mask is not None:
        lower[encoding.single_bin_mask.cpu().numpy(), -1] = -np.inf
    return lower, upper


def _one_hot(graph: _Graph, categories: list[list[str]]) -> str:
    """(N, n_cat) texts -> (N, sum of the columns' levels); unknown texts: zeros."""
    codes = []
    for i, levels in enumerate(categories):
        column = graph.add("Gather", "categorical", graph.integers(i), axis=1)
        codes.append(
            graph.add(
                "LabelEncoder",
                column,
                domain="ai.onnx.ml",
                keys_strings=levels,
                values_int64s=[*range(len(levels))],
                default_int64=-1,
            )
        )
    code = graph.add("Concat", *codes, axis=1)  # (N, n_cat)
    # One place for each level of each column: which column it looks at, for what.
    column = graph.integers(*(i for i, c in enumerate(categories) for _ in c))
    level = graph.integers(*(j for levels in categories for j in range(len(levels))))
    is_level = graph.add("Equal", graph.add("Gather", code, column, axis=1), level)
    return graph.add("Cast", is_level, to=TensorProto.FLOAT)


def _is_missing(graph: _Graph, columns: list[int]) -> str:
    x = graph.add("Gather", "numeric", graph.integers(*columns), axis=1)
    return graph.add("Cast", graph.add("IsNaN", x), to=TensorProto.FLOAT)


# ----------------------------------------------------------------------------
# The graph: the members and their mean


def _members(graph: _Graph, x: str, model: LoMETab, prefix: str) -> str:
    """Every member's raw output: (N, D_in) -> (N, K, D_out)."""
    for i, block in enumerate(model.blocks):
        x = graph.add("Relu", _linear(graph, x, block, f"{prefix}blocks.{i}"))
    x = _linear(graph, x, model.head, f"{prefix}head")
    return graph.add("Transpose", x, perm=[1, 0, 2])


def _linear(graph: _Graph, x: str, layer: Any, name: str) -> str:
    """One member's layer each: (N, D_in) or (K, N, D_in) -> (K, N, D_out)."""
    weight = _effective_weight(graph, layer, name)
    bias = graph.parameter(f"{name}.bias", layer.bias[:, None])  # (K, 1, D_out)
    x = graph.add("MatMul", x, graph.add("Transpose", weight, perm=[0, 2, 1]))
    return graph.add("Add", x, bias)


def _effective_weight(graph: _Graph, layer: Any, name: str) -> str:
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


def _unscale(graph: _Graph, outputs: str, preprocessor: Preprocessor) -> None:
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


def _classify(graph: _Graph, outputs: str, schema: Schema) -> None:
    """Classification: `members` (N, K, C) and `mean` (N, C), probabilities."""
    if schema.task == "binary":  # the logit of class 0 is 0
        outputs = graph.add("Pad", outputs, graph.integers(0, 0, 1, 0, 0, 0))
    members = graph.add("Softmax", outputs, output="members", axis=2)
    graph.add("ReduceMean", members, graph.integers(1), output="mean", keepdims=0)


# ----------------------------------------------------------------------------
# The metadata


def _describe(ensemble: Ensemble, more: Mapping[str, Any]) -> str:
    """The JSON document in the file; `seal` fills in its checksum."""
    schema, config = ensemble.schema, ensemble.config
    levels = dict(
        zip(schema.categorical, ensemble.preprocessor.categories_, strict=True)
    )
    layers: list[Any] = [
        layer for model in ensemble.models for layer in (*model.blocks, model.head)
    ]
    own = {
        "checksum": "0" * 64,
        "version": FORMAT_VERSION,
        "task": schema.task,
        "target": schema.target,
        "classes": schema.classes,
        "k": ensemble.k,
        "rank": config.rank,
        "sigma_init": config.sigma_init,
        "variant": config.variant,
        "numeric": schema.numeric,
        "categorical": schema.categorical,
        "datetime": schema.datetime,
        "categories": {name: len(texts) for name, texts in levels.items()},
        "levels": levels,
        "ranges": _ranges(ensemble),
        "ignored": schema.ignored,
        "missing": schema.missing,
        "formats": {n: f for n, f in schema.formats.items() if n in schema.numeric},
        "spelling": SPELLING,
        # What the weights take once ONNX Runtime has multiplied them out.
        "folded_bytes": sum(
            4 * config.k * layer.in_features * layer.out_features for layer in layers
        ),
        "library": {
            "lometab": lometab.__version__,
            "onnx": onnx.__version__,
            "torch": torch.__version__,
        },
    }
    if taken := own.keys() & more.keys():
        raise ValueError(f"metadata must not set {sorted(taken)}: the file does")
    return json.dumps(own | dict(more), allow_nan=False)


def _ranges(ensemble: Ensemble) -> dict[str, tuple[float, float]]:
    """The least and the largest number of each column in the training rows, up to the
    noise with which quantiles are fitted; none for a column that was constant there."""
    fitted = ensemble.preprocessor
    return {
        ensemble.schema.numeric[feature.column]: (quantiles[0], quantiles[-1])
        for feature, quantiles in zip(fitted.features_, fitted.quantiles_, strict=True)
        if feature.wave is None
    }


# ----------------------------------------------------------------------------
# The parity gate


def check_onnx(
    ensemble: Ensemble, content: bytes, x_num: Float, x_cat: NDArray[np.object_]
) -> float:
    """Run the file against torch in float64; ExportMismatch if it answers otherwise.

    The rows are those given and rows of nothing but missing cells, of unseen
    categories and of huge numbers, in batches of 1, 2, 7 and 1000. The reference is
    float64 from the raw cell to the answer: scores that are never rounded to float32,
    then the model in double. An error is the distance of probabilities, or that of
    regression's answers over the standard deviation of the training target. The file
    may be off by 1e-5, or by ten times what torch in float32 is off on these rows.

    Returns: the worst error of the file.
    """
    x_num, x_cat = _gate_rows(x_num, x_cat)
    exact, rounded = _references(ensemble, x_num, x_cat)
    unit = ensemble.preprocessor.y_std_  # 1 for classification
    tolerance = max(1e-5, 10 * _distance(rounded, exact) / unit)
    predictor = Predictor(content)
    worst = 0.0
    for size in (1, 2, 7, 1000):
        for start in range(0, max(size, 14), size):
            rows = slice(start, start + size)
            answer = predictor.run(x_num[rows], x_cat[rows])
            error = _distance(answer, (exact[0][rows], exact[1][rows])) / unit
            if not error <= tolerance:  # NaN is no match either
                raise ExportMismatch(
                    f"the exported file is off by {error:.2g} in a batch of {size} rows"
                    f" where at most {tolerance:.2g} is allowed"
                )
            worst = max(worst, error)
    return worst


def _gate_rows(
    x_num: Float, x_cat: NDArray[np.object_]
) -> tuple[Float, NDArray[np.object_]]:
    """1000 rows: first the strange ones, then the given ones as often as they fit."""
    number, text = x_num[:1], x_cat[:1]
    unseen = np.full_like(text, "\N{REPLACEMENT CHARACTER} unseen")
    strange_num = [
        np.full_like(number, np.nan),
        number,
        np.full_like(number, 1e30),
        np.full_like(number, -1e30),
    ]
    strange_cat = [np.full_like(text, ""), unseen, text, text]
    rows = np.resize(np.arange(len(x_num)), 1000 - len(strange_num))
    return (
        np.concatenate([*strange_num, x_num[rows]]),
        np.concatenate([*strange_cat, x_cat[rows]]),
    )


Answer = tuple[NDArray[Any], NDArray[Any]]
"""`mean` and `members`."""


def _references(
    ensemble: Ensemble, x_num: Float, x_cat: NDArray[np.object_]
) -> tuple[Answer, Answer]:
    """What torch answers in float64, and in float32."""
    preprocessor, models = ensemble.preprocessor, ensemble.models
    scores, codes = preprocessor.transform(x_num, x_cat)
    exact_scores = _exact_scores(preprocessor, x_num)
    exact_models = [copy.deepcopy(model).double() for model in models]
    exact = answer_scores(ensemble, exact_models, exact_scores, codes)
    return exact, answer_scores(ensemble, models, scores, codes)


def _exact_scores(preprocessor: Preprocessor, x_num: Float) -> Float:
    """The scores of `Preprocessor.transform` before they are rounded to float32."""
    scores = np.empty((len(x_num), len(preprocessor.features_)))
    for i, feature in enumerate(preprocessor.features_):
        x = feature.of(x_num)
        x = np.where(np.isnan(x), preprocessor.medians_[i], x)
        scores[:, i] = np.interp(x, preprocessor.quantiles_[i], preprocessor.scores_[i])
    return scores


def _distance(answer: Answer, exact: Answer) -> float:
    return max(float(np.max(np.abs(a - e))) for a, e in zip(answer, exact, strict=True))
