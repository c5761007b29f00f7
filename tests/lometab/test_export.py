"""The exported file answers as torch does, stays small, and tells what it is."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import lometab
from lometab import export
from lometab.config import TrainConfig
from lometab.errors import ExportMismatch
from lometab.evaluation import metrics
from lometab.export import to_onnx
from lometab.graph import Graph
from lometab.parity import check_onnx
from lometab.predictor import Predictor
from lometab.table import (
    PERIODS,
    Feature,
)
from tests.support.networks import INPUTS, SMALL, make_ensemble, make_rows


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


# Several seeds


@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_members_of_several_seeds_are_one_file(n_classes: int | None) -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 50, "missing")
    one = make_ensemble(x_num, x_cat, n_classes=n_classes)
    two = make_ensemble(x_num, x_cat, n_classes=n_classes)
    both = replace(one, others=(two.fit,))
    content = to_onnx(both)
    check_onnx(both, content, x_num, x_cat)
    mean, members = Predictor(content).run(x_num, x_cat)
    parts = [Predictor(to_onnx(each)).run(x_num, x_cat)[1] for each in (one, two)]
    assert members.shape[1] == both.k == 2 * SMALL.k
    np.testing.assert_allclose(members, np.concatenate(parts, axis=1), atol=1e-5)
    np.testing.assert_allclose(mean, members.mean(1), atol=1e-5)
    assert both.n_parameters == 2 * one.n_parameters


# Parity


@pytest.mark.slow
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("n_classes", [None, 2, 4])
def test_the_file_answers_as_torch(inputs: str, n_classes: int | None) -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, inputs)
    ensemble = make_ensemble(
        x_num,
        x_cat,
        n_classes=n_classes,
        datetime=(3,) if inputs == "datetime" else (),
    )
    assert check_onnx(ensemble, to_onnx(ensemble), x_num, x_cat) < 1e-5


@pytest.mark.parametrize("min_frequency", [80, 1000])
def test_rare_categories_are_one_in_the_file_too(min_frequency: int) -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "missing")
    ensemble = make_ensemble(x_num, x_cat, min_frequency=min_frequency)
    n_rare = {
        name: n
        for name, n in zip(["c0", "c1"], ensemble.preprocessor.n_rare_, strict=True)
    }
    assert n_rare["c1"] > 1
    content = to_onnx(ensemble)
    assert check_onnx(ensemble, content, x_num, x_cat) < 1e-5
    predictor = Predictor(content)
    assert predictor.metadata["min_frequency"] == min_frequency
    assert predictor.metadata["rare"] == {n: c for n, c in n_rare.items() if c}
    # No rare category's text is in the file, and all answer as one never seen.
    rare = sorted({*x_cat[:, 1]} - {*predictor.metadata["levels"]["c1"]})
    assert len(rare) == n_rare["c1"]
    rows = [
        {"n0": 0, "n1": 1, "n2": 1, "c0": "red", "c1": text} for text in [*rare, "?"]
    ]
    answer = predictor.predict(rows)
    assert len(np.unique(answer.mean)) == 1
    assert any("rarely or not at all" in warning for warning in answer.warnings)


@pytest.mark.parametrize("variant", ["additive", "tabm", "deep-ensemble", "mlp"])
@pytest.mark.parametrize("n_classes", [None, 2, 4])
def test_other_variants_answer_as_torch(variant: str, n_classes: int | None) -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "missing")
    config = replace(SMALL, variant=variant)
    ensemble = make_ensemble(x_num, x_cat, n_classes=n_classes, config=config)
    assert check_onnx(ensemble, to_onnx(ensemble), x_num, x_cat) < 1e-5


def random_column(rng: np.random.Generator, n: int) -> np.ndarray:
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: rng.normal(size=n),
        lambda: rng.integers(0, 4, size=n).astype(float),
        lambda: 1e12 + rng.normal(size=n),
        lambda: rng.standard_cauchy(size=n) * 1e-9,
    ]
    return kinds[rng.integers(len(kinds))]()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    n_num=st.integers(0, 5),
    n_cat=st.integers(0, 5),
    n_classes=st.sampled_from([None, 2, 3, 4, 5, 6]),
    k=st.integers(1, 8),
    rank=st.integers(1, 4),
    share_missing=st.sampled_from([0.0, 0.3]),
    with_moment=st.booleans(),
    min_frequency=st.sampled_from([1, 48, 1000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_schema_answers_as_torch(
    n_num: int,
    n_cat: int,
    n_classes: int | None,
    k: int,
    rank: int,
    share_missing: float,
    with_moment: bool,
    min_frequency: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    n_cat = n_cat if n_num else max(n_cat, 1)
    x_num = np.empty((300, n_num))
    for i in range(n_num):
        x_num[:, i] = random_column(rng, 300)
    if n_num and with_moment:
        x_num[:, -1] = rng.uniform(0, 2e9, size=300).round(3)
    x_num[rng.random(x_num.shape) < share_missing] = np.nan
    x_cat = rng.choice(["a", "b", "3", "\u00e9 \U0001f600"], (300, n_cat)).astype(
        object
    )
    x_cat[rng.random(x_cat.shape) < share_missing] = ""
    ensemble = make_ensemble(
        x_num[:200],
        x_cat[:200],
        n_classes=n_classes,
        datetime=(n_num - 1,) if n_num and with_moment else (),
        min_frequency=min_frequency,
        config=replace(SMALL, k=k, rank=rank),
    )
    # Rows the ensemble has not seen, with missing cells and texts it does not know.
    x_num[200:][rng.random((100, n_num)) < 0.2] = np.nan
    x_cat[200:][rng.random((100, n_cat)) < 0.2] = "unknown"
    x_cat[200:][rng.random((100, n_cat)) < 0.2] = ""
    check_onnx(ensemble, to_onnx(ensemble), x_num[200:], x_cat[200:])


def test_another_model_does_not_pass_the_gate() -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "mixed")
    ensemble = make_ensemble(x_num, x_cat, n_classes=2)
    content = to_onnx(ensemble)
    with torch.no_grad():
        ensemble.fit.model.head.bias[0] += 1e-3
    with pytest.raises(ExportMismatch, match=r"off by .* in a batch of 1 rows"):
        check_onnx(ensemble, content, x_num, x_cat)


def test_answers_that_are_no_numbers_do_not_pass_the_gate() -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "mixed")
    ensemble = make_ensemble(x_num, x_cat)
    with torch.no_grad():
        ensemble.fit.model.head.bias[0] = torch.nan
    with pytest.raises(ExportMismatch):
        check_onnx(ensemble, to_onnx(ensemble), x_num, x_cat)


def test_the_batch_size_is_dynamic() -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 5000, "missing")
    predictor = Predictor(to_onnx(make_ensemble(x_num, x_cat, n_classes=4)))
    mean, members = predictor.run(x_num, x_cat)
    assert mean.shape == (5000, 4)
    assert members.shape == (5000, 3, 4)
    for rows in (slice(0, 1), slice(7, 20), slice(4990, 5000)):
        np.testing.assert_allclose(
            predictor.run(x_num[rows], x_cat[rows])[1], members[rows], atol=1e-6
        )


@pytest.mark.parametrize("n_classes", [None, 2, 4])
def test_the_mean_is_that_of_the_members(n_classes: int | None) -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "mixed")
    ensemble = make_ensemble(x_num, x_cat, n_classes=n_classes)
    mean, members = Predictor(to_onnx(ensemble)).run(x_num, x_cat)
    np.testing.assert_allclose(mean, members.mean(axis=1), rtol=1e-6)
    if n_classes:
        np.testing.assert_allclose(members.sum(axis=2), 1, rtol=1e-6)


def test_a_large_target_is_rounded_once() -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "mixed")
    ensemble = make_ensemble(x_num, x_cat, y_mean=2e6)
    content = to_onnx(ensemble)
    check_onnx(ensemble, content, x_num, x_cat)
    preprocessor, model = ensemble.preprocessor, ensemble.fit.model
    scores, codes = preprocessor.transform(x_num, x_cat)
    with torch.inference_mode():
        outputs = model(torch.from_numpy(scores), torch.from_numpy(codes)).double()
    exact = outputs.squeeze(2).numpy() * preprocessor.y_std_ + preprocessor.y_mean_
    members = Predictor(content).run(x_num, x_cat)[1]
    half_a_step = np.spacing(np.float32(2e6)) / 2
    assert np.abs(members - exact).max() <= half_a_step * 1.01


# The quantile transform


def run_graph(
    build: Callable[[Any, str], str], x: np.ndarray, name: str = "numeric"
) -> np.ndarray:
    """What the nodes added by `build` make of x, in double."""
    graph = Graph()
    result = build(graph, name)
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "part",
            [
                helper.make_tensor_value_info(
                    name, TensorProto.DOUBLE, ["N", x.shape[1]]
                )
            ],
            [helper.make_tensor_value_info(result, TensorProto.DOUBLE, None)],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=8,
    )
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    answer: np.ndarray = session.run(None, {name: x})[0]
    return answer


@pytest.mark.parametrize("n_quantiles", [1, 2, 10, 99, 100, 1000])
def test_the_quantile_transform_is_that_of_numpy_to_the_bit(n_quantiles: int) -> None:
    rng = np.random.default_rng(n_quantiles)
    quantiles = [
        np.sort(rng.normal(size=n_quantiles)),
        np.sort(rng.normal(size=n_quantiles)) * 1e-200,
        1.7e9 + np.arange(n_quantiles) * 2.0**-20,
        np.sort(rng.standard_cauchy(size=max(n_quantiles // 3, 1))) * 1e20,
    ]
    scores = [np.sort(rng.normal(size=len(q))) for q in quantiles]
    x = np.concatenate(
        [
            [rng.choice(q, 2000) for q in quantiles],
            [rng.uniform(q[0] - 1, q[-1] + 1, 2000) for q in quantiles],
            [np.nextafter(rng.choice(q, 2000), np.inf) for q in quantiles],
            [np.nextafter(rng.choice(q, 2000), -np.inf) for q in quantiles],
            np.tile([[1e30, -1e30, np.inf, -np.inf, 0.0]], (4, 1)),
        ],
        axis=1,
    ).T
    answer = run_graph(lambda g, x: export._interpolate(g, x, quantiles, scores), x)
    for i in range(len(quantiles)):
        np.testing.assert_array_equal(
            answer[:, i], np.interp(x[:, i], quantiles[i], scores[i])
        )


def test_moments_become_the_waves_of_the_preprocessor() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3e9, 3e9, size=(1000, 2))
    x[:4, 1] = [np.nan, 0.0, 1e30, -1e30]
    features = [Feature(1), Feature(0)]
    for period in PERIODS.values():
        features += [Feature(1, ("sin", period)), Feature(1, ("cos", period))]
    answer = run_graph(lambda g, _: export._features(g, features), x)
    for i, feature in enumerate(features):
        np.testing.assert_allclose(answer[:, i], feature.of(x), rtol=0, atol=1e-15)


# The file


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["lometab", "additive", "tabm", "deep-ensemble"])
@pytest.mark.parametrize("d_block", [32, 256])
def test_the_file_is_as_small_as_its_parameters(variant: str, d_block: int) -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 31_000, "missing")
    config = TrainConfig(variant=variant, k=16, rank=8, d_block=d_block)
    ensemble = make_ensemble(x_num, x_cat, config=config)
    assert max(map(len, ensemble.preprocessor.quantiles_)) == 1000
    bound = 1.1 * 4 * ensemble.fit.model.n_parameters
    bound += 16 * 1024 * x_num.shape[1] + 64 * 1024
    assert len(to_onnx(ensemble)) <= bound


@pytest.mark.parametrize("variant", ["lometab", "additive", "tabm"])
def test_onnx_runtime_folds_the_adapters_when_it_loads(
    variant: str, tmp_path: Path
) -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "datetime")
    config = replace(SMALL, variant=variant, n_blocks=3)
    ensemble = make_ensemble(x_num, x_cat, datetime=(3,), config=config)
    content = to_onnx(ensemble)
    names = {each.name for each in onnx.load_from_string(content).graph.initializer}
    factors = "rs" if variant == "tabm" else "ab"
    assert {f"blocks.2.{factor}" for factor in (*factors, "weight")} <= names

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    )
    onnxruntime.InferenceSession(content, options)
    graph = onnx.load(tmp_path / "optimized.onnx").graph
    operators = Counter(node.op_type for node in graph.node)
    # The embedding, three blocks, the head; and the distance that novelty is of.
    assert sum(n for name, n in operators.items() if "Mat" in name) == 6
    assert operators["Gemm"] == 2  # what is counted of numbers, and of texts
    # Each weight is one constant by now, and so are the slopes of the quantiles.
    shapes = {tuple(each.dims) for each in graph.initializer}
    k, d_block = config.k, config.d_block
    assert {(k, ensemble.fit.model.d_in, d_block), (k, d_block, d_block)} <= shapes
    assert (k, d_block, config.rank) not in shapes
    assert not {"Slice", "Neg"} & operators.keys()
    assert operators["Div"] == 2  # the phase of moments, and the shares of columns


def test_the_inputs_are_those_the_data_has() -> None:
    rng = np.random.default_rng(0)
    for inputs, expected in (
        ("numeric", [("numeric", ["N", 3], "tensor(double)")]),
        ("categorical", [("categorical", ["N", 2], "tensor(string)")]),
    ):
        content = to_onnx(make_ensemble(*make_rows(rng, 600, inputs), n_classes=2))
        session = onnxruntime.InferenceSession(content)
        assert [(i.name, i.shape, i.type) for i in session.get_inputs()] == expected
        assert [(o.name, o.shape, o.type) for o in session.get_outputs()] == [
            ("mean", ["N", 2], "tensor(float)"),
            ("members", ["N", 3, 2], "tensor(float)"),
            ("novelty", ["N", 3], "tensor(float)"),
        ]


def test_columns_that_never_vary_are_still_inputs() -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "mixed")
    x_num[:] = 7.0
    ensemble = make_ensemble(x_num, x_cat)
    assert check_onnx(ensemble, to_onnx(ensemble), x_num, x_cat) < 1e-5


def test_the_metadata_tells_what_the_file_is() -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "missing")
    ensemble = make_ensemble(x_num, x_cat, n_classes=2)
    schema = replace(ensemble.schema, classes=(False, True), ignored={"id": "why"})
    ensemble = replace(ensemble, schema=schema)
    content = to_onnx(ensemble, metadata={"dataset_sha256": "ab", "conformity": [0.1]})
    session = onnxruntime.InferenceSession(content)
    assert session.get_modelmeta().producer_name == "lometab"
    metadata = json.loads(session.get_modelmeta().custom_metadata_map["lometab"])
    d_in, d_block = ensemble.fit.model.d_in, SMALL.d_block
    folded = 4 * SMALL.k * (d_in * d_block + d_block * d_block + d_block)
    levels = {"c0": ["", "3", "green", "red"], "c1": [*"abcdefgh"]}
    assert len(metadata.pop("checksum")) == 64
    assert "lower case" in metadata.pop("spelling")
    assert metadata.pop("members") == [{"network": 0, "member": i} for i in range(3)]
    assert metadata.pop("networks") == [{"trial": None, "config": asdict(SMALL)}]
    ranges = metadata.pop("ranges")
    for column, name in enumerate(schema.numeric):
        ends = [np.nanmin(x_num[:, column]), np.nanmax(x_num[:, column])]
        spread = np.nanstd(x_num[:, column])
        np.testing.assert_allclose(ranges[name], ends, rtol=0, atol=1e-3 * spread)
    assert metadata == {
        "version": 1,
        "task": "binary",
        "target": "y",
        "classes": [False, True],
        "k": 3,
        "rank": 2,
        "sigma_init": 1.0,
        "variant": "lometab",
        "numeric": ["n0", "n1", "n2"],
        "categorical": ["c0", "c1"],
        "datetime": [],
        "categories": {"c0": 4, "c1": 8},
        "levels": levels,
        "min_frequency": 1,
        "rare": {},
        "ignored": {"id": "why"},
        "missing": list(schema.missing),
        "with_missing": ["n0", "n1", "n2"],
        "formats": {},
        "missing_in": {},
        "folded_bytes": folded,
        "library": {
            "lometab": lometab.__version__,
            "onnx": onnx.__version__,
            "torch": str(torch.__version__),
        },
        "dataset_sha256": "ab",
        "conformity": [0.1],
    }


def test_metadata_of_the_caller_is_checked() -> None:
    x_num, x_cat = make_rows(np.random.default_rng(0), 600, "mixed")
    ensemble = make_ensemble(x_num, x_cat)
    with pytest.raises(ValueError, match=r"must not set \['k', 'task'\]"):
        to_onnx(ensemble, metadata={"task": "x", "k": 3})
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_onnx(ensemble, metadata={"best": float("nan")})


@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_the_served_file_is_calibrated(
    n_classes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x_num, x_cat = make_rows(rng, 600, "mixed")
    ensemble = make_ensemble(x_num, x_cat, n_classes=n_classes)
    y = rng.integers(n_classes or 9, size=600)
    parts = {"train": np.arange(400), "val": np.arange(400, 600)}
    val = parts["val"]
    built = []
    build = export._build
    monkeypatch.setattr(export, "_build", lambda e: built.append(e) or build(e))
    content = export.export(
        ensemble,
        x_num,
        x_cat,
        calibrate=export.calibrate_on(x_num[val], x_cat[val], y[val]),
        metadata={"dataset_sha256": "ab"},
    )
    assert len(built) == 1  # the metadata come into a file that is finished
    served = Predictor(content)
    assert served.metadata["dataset_sha256"] == "ab"
    assert served.metadata["training"]["config"]["k"] == 3
    mean, _ = served.run(x_num[400:], x_cat[400:])
    if n_classes is None:
        assert "temperature" not in served.metadata
        scores = sorted(np.abs(y[400:] - mean.astype(np.float64)))
    else:
        # Random weights answer at random and too surely.
        temperature = served.metadata["temperature"]
        assert temperature == metrics.fit_temperature(y[400:], mean) > 1
        scores = sorted(1 - mean[np.arange(200), y[400:]].astype(np.float64))
    conformity = served.metadata["conformity"]
    assert conformity[49] == pytest.approx(scores[100])  # the 101st: ceil(201 / 2)
    assert conformity[98] == pytest.approx(scores[198])


# The round trip


def documented_reader() -> str:
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text()
    return page.partition("```python\n")[2].partition("```")[0]


def test_the_documented_reader_is_short() -> None:
    lines = [line for line in documented_reader().splitlines() if line]
    assert lines[0].startswith("import")
    assert len(lines) <= 20
