"""Rows in any form give the same answers; bad files and bad rows one clear error."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lometab import predictor
from lometab.errors import ConfigError, DataError, ModelFileError
from lometab.evaluation import metrics
from lometab.export import to_onnx
from lometab.onnx_file import seal
from lometab.predictor import Predictor
from lometab.table import features, infer_schema
from tests.support.ensembles import ROW, TABLE, N, rows_of, train


@pytest.fixture(scope="module")
def content() -> bytes:
    return to_onnx(train("sold"))


@pytest.fixture(scope="module")
def sold(content: bytes) -> Predictor:
    return Predictor(content)


@pytest.fixture(scope="module")
def price() -> Predictor:
    return Predictor(to_onnx(train("price")))


# Forms of rows


class Frame:
    """What pandas and pyarrow have in common with our reading of them."""

    def __init__(self, table: dict[str, Any], attribute: str) -> None:
        self.table = table
        setattr(self, attribute, [*table])
        if attribute == "column_names":
            self.columns = [*table.values()]

    def __getitem__(self, name: str) -> Any:
        return np.array(self.table[name], dtype=object)


@pytest.mark.parametrize(
    "form",
    [
        rows_of,
        lambda table: table,
        lambda table: {name: tuple(column) for name, column in table.items()},
        lambda table: {name: np.array(column) for name, column in table.items()},
        lambda table: Frame(table, "columns"),
        lambda table: Frame(table, "column_names"),
    ],
    ids=["records", "lists", "tuples", "arrays", "frame", "arrow"],
)
def test_every_form_of_rows_gives_what_training_saw(form: Any, sold: Predictor) -> None:
    schema = infer_schema(
        {name: TABLE[name] for name in [*ROW, "sold"]},
        target="sold",
        columns={"zone": "categorical"},
    )
    x_num, x_cat = features(TABLE, schema)
    encoded = sold.encode(form(TABLE))
    np.testing.assert_array_equal(encoded.x_num, x_num)
    np.testing.assert_array_equal(encoded.x_cat, x_cat)
    assert encoded.warnings == []


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_of_other_libraries(library: str, sold: Predictor) -> None:
    module: Any = pytest.importorskip(library)
    expected = sold.encode(TABLE)
    table = {
        **TABLE,
        "size": [None if x != x else x for x in TABLE["size"]],
        "since": [datetime.fromisoformat(text) for text in TABLE["since"]],
        "colour": [text or None for text in TABLE["colour"]],
    }
    make = module.table if library == "pyarrow" else module.DataFrame
    encoded = sold.encode(make(table))
    np.testing.assert_array_equal(encoded.x_num, expected.x_num)
    np.testing.assert_array_equal(encoded.x_cat, expected.x_cat)


@pytest.mark.parametrize("zone", [3, 3.0, "3", "3.0", " 3 ", np.int8(3), np.float32(3)])
def test_one_category_has_many_spellings(zone: object, sold: Predictor) -> None:
    encoded = sold.encode([{**ROW, "zone": zone}])
    assert encoded.x_cat[0, sold.categorical.index("zone")] == "3"
    assert encoded.warnings == []


@pytest.mark.parametrize("cell", [None, float("nan"), "", "NA", " NA "])
def test_missing_has_many_spellings(cell: object, sold: Predictor) -> None:
    encoded = sold.encode([dict.fromkeys(ROW, cell)])
    assert np.isnan(encoded.x_num).all()
    assert (encoded.x_cat == "").all()
    (warning,) = encoded.warnings
    assert "which training had in every row" in warning


def test_the_missing_texts_are_those_of_the_file() -> None:
    own = Predictor(to_onnx(train("sold", missing=("", "n.a."))))
    encoded = own.encode([{**ROW, "size": "n.a.", "colour": "NA"}])
    assert np.isnan(encoded.x_num[0, 0])
    assert encoded.warnings == [
        "column 'colour' holds categories that training did not have in 1 of 1 rows: "
        "'NA'"
    ]


@pytest.mark.parametrize(
    "since",
    [
        "2024-01-01",
        "2024-01-01T00:00:00Z",
        "2024-01-01T02:00:00+02:00",
        1704067200,
        datetime(2024, 1, 1, tzinfo=UTC),
        date(2024, 1, 1),
        np.datetime64("2024-01-01"),
    ],
)
def test_one_moment_has_many_spellings(since: object, sold: Predictor) -> None:
    assert sold.encode([{**ROW, "since": since}]).x_num[0, 1] == 1704067200


def test_arrays_of_moments_may_have_gaps(sold: Predictor) -> None:
    since = np.array(["2024-01-01", "NaT"], dtype="datetime64[ns]")
    columns = {name: [ROW[name]] * 2 for name in ROW} | {"since": since}
    np.testing.assert_array_equal(
        sold.encode(columns).x_num[:, 1], [1704067200, np.nan]
    )


# What is noticed


def test_unseen_categories_are_counted(sold: Predictor) -> None:
    rows = [{**ROW, "colour": text} for text in ("red", "blue", "Blue", "blue", None)]
    answer = sold.predict(rows)
    assert answer.warnings == [
        "column 'colour' holds categories that training did not have in 3 of 5 rows: "
        "'Blue', 'blue'"
    ]
    np.testing.assert_array_equal(answer.members[1], answer.members[2])


@pytest.mark.parametrize("text", ["\ud800", "a\0b", "x" * 100_000, "unseen"])
def test_any_text_may_be_unseen(text: str, sold: Predictor) -> None:
    usual, strange = sold.predict([{**ROW, "colour": t} for t in ("blue", text)]).mean
    np.testing.assert_array_equal(usual, strange)


def test_an_absent_column_is_named_with_what_was_meant(sold: Predictor) -> None:
    row = {"Sise": 1.0, **{name: ROW[name] for name in ("since", "zone", "colour")}}
    with pytest.raises(DataError) as caught:
        sold.predict([row])
    assert str(caught.value) == (
        "column 'size' is absent from every row; 'Sise' is unknown "
        "(did you mean 'size'?); `missing_columns` set to \"fill\" takes it as missing"
    )
    assert caught.value.column == "size"
    with pytest.raises(DataError, match=r"2 columns are absent .* 'size', 'colour'"):
        sold.predict([{"since": None, "zone": None}])


def test_absent_columns_can_be_filled(sold: Predictor) -> None:
    answer = sold.predict([{"zone": 3}], missing_columns="fill")
    assert answer.warnings == [
        f"column {name!r} is absent from every row and was filled as missing"
        for name in ("size", "since", "colour")
    ]
    missing = sold.predict([{**dict.fromkeys(ROW), "zone": 3}])
    np.testing.assert_array_equal(answer.members, missing.members)
    for rows in ([{}], {"other": [1]}):
        assert len(sold.predict(rows, missing_columns="fill").mean) == 1


def test_a_column_need_not_be_in_every_row(sold: Predictor) -> None:
    sparse = sold.encode([ROW, {"zone": 3}])
    assert np.isnan(sparse.x_num[1]).all()
    (warning,) = sparse.warnings  # training had it in every row
    assert warning.endswith("1 of 2 rows: 'since'")


def test_other_columns_are_not_used_and_named(sold: Predictor) -> None:
    known = {"sold": True, "price": 3, "grade": 1}  # the target and ignored ones
    assert sold.predict([{**ROW, **known}]).warnings == []
    extra = {f"extra {i}": 1 for i in range(9)}
    assert sold.predict([{**ROW, **extra}]).warnings == [
        "columns not used: 'extra 0', 'extra 1', 'extra 2', 'extra 3', 'extra 4', ..."
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "there are no rows"),
        ({}, "there are no rows"),
        ([ROW, 3], "row 2 must be an object .* it is 3"),
        (ROW, "column 'size' must be a list of values, .* one row is a list"),
        (3, "rows must be a list of records, .* however: int"),
        ({**TABLE, "zone": [1, 2]}, "'size' has 400 and 'zone' has 2"),
        ([{**ROW, "size": "big"}], "'size' must hold a number .* row 1 holds 'big'"),
        ([{**ROW, "since": "then"}], "'since' must hold a date"),
        ([ROW, {**ROW, "size": 1e999}], "'size' holds an infinite number in row 2"),
        ({**TABLE, "size": np.zeros((4, 4))}, "'size' must have one dimension"),
    ],
)
def test_rows_that_cannot_be_read(rows: Any, message: str, sold: Predictor) -> None:
    with pytest.raises(DataError, match=message):
        sold.predict(rows)


# Answers


def test_classification_answers(sold: Predictor) -> None:
    answer = sold.predict(TABLE)
    assert answer.mean.shape == (N, 2)
    assert answer.members.shape == (N, 4, 2)
    assert answer.label is not None
    assert {type(label) for label in answer.label} == {bool}
    assert answer.label == [bool(c) for c in answer.mean.argmax(axis=1)]
    assert answer.std is answer.interval is answer.set is None
    assert answer.entropy is not None
    assert answer.mutual_information is not None
    assert answer.disagreement is not None
    for i in range(0, N, 50):  # by the formulas, one row at a time
        p = answer.members[i].astype(float)
        entropy = -(p.mean(axis=0) * np.log(p.mean(axis=0))).sum()
        inner = -(p * np.log(p)).sum(axis=1).mean()
        labels = p.argmax(axis=1)
        pairs = [labels[a] != labels[b] for a in range(4) for b in range(a)]
        assert answer.entropy[i] == pytest.approx(entropy, abs=1e-6)
        assert answer.mutual_information[i] == pytest.approx(entropy - inner, abs=1e-6)
        assert answer.disagreement[i] == pytest.approx(np.mean(pairs))


def test_regression_answers(price: Predictor) -> None:
    answer = price.predict(TABLE)
    assert answer.mean.shape == (N,)
    assert answer.members.shape == (N, 4)
    assert 80 < answer.mean.mean() < 120
    assert answer.std is not None
    np.testing.assert_allclose(answer.std, answer.members.std(axis=1), rtol=1e-3)
    assert answer.label is answer.entropy is answer.disagreement is None
    assert answer.interval is answer.set is answer.mutual_information is None


def test_labels_keep_the_type_of_the_data() -> None:
    grade = Predictor(to_onnx(train("grade")))
    assert grade.classes == [0, 1, 2]
    label = grade.predict(TABLE).label
    assert label is not None and set(label) <= {0, 1, 2}


def test_a_single_member_has_no_spread() -> None:
    for target in ("price", "sold"):
        single = Predictor(to_onnx(train(target, variant="mlp")))
        answer = single.predict(TABLE)
        assert single.k == 1
        assert answer.members.shape[1] == 1
        assert answer.member_std is answer.disagreement is None
        assert answer.mutual_information is answer.std is None


def test_conformal_intervals_and_sets() -> None:
    quantiles: list[float | None] = [i / 100 for i in range(1, 100)]
    quantiles[98] = None  # too few validation rows to tell
    metadata = {"conformity": quantiles}
    price = Predictor(to_onnx(train("price"), metadata=metadata))
    answer = price.predict([ROW], coverage=0.8)
    assert answer.interval is not None
    np.testing.assert_allclose(answer.interval[0], answer.mean[0] + [-0.8, 0.8])
    everything = price.predict([ROW], coverage=0.99).interval
    assert everything is not None and np.isinf(everything).all()

    grade = Predictor(to_onnx(train("grade"), metadata=metadata))
    answer = grade.predict([ROW], coverage=0.7)
    expected = metrics.conformal_set(answer.mean, 0.7)[0]
    assert answer.set == [[c for c in range(3) if expected[c]]]
    with pytest.raises(ValueError, match="whole hundredths"):
        grade.predict([ROW], coverage=0.905)


def test_calibrated_answers() -> None:
    quantiles = [i / 100 for i in range(1, 100)]
    metadata = {"conformity": quantiles, "temperature": 2.0}
    grade = Predictor(to_onnx(train("grade"), metadata=metadata))
    raw = grade.predict(TABLE, coverage=0.7)
    answer = grade.predict(TABLE, calibrated=True, coverage=0.7)
    roots = np.sqrt(raw.mean.astype(np.float64))
    expected = roots / roots.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answer.mean, expected, rtol=1e-6)
    entropy = -(expected * np.log(expected)).sum(axis=1)
    assert answer.entropy is not None
    np.testing.assert_allclose(answer.entropy, entropy, rtol=1e-6)
    assert answer.label == raw.label
    # Members, what is said of them, and the conformal sets are of the raw answers.
    np.testing.assert_array_equal(answer.members, raw.members)
    assert answer.mutual_information is not None
    assert raw.mutual_information is not None
    np.testing.assert_array_equal(answer.mutual_information, raw.mutual_information)
    assert answer.set == raw.set


def test_nothing_to_calibrate_by(sold: Predictor, price: Predictor) -> None:
    with pytest.raises(ConfigError, match="exported without a temperature"):
        sold.predict([ROW], calibrated=True)
    with pytest.raises(ConfigError, match="this model answers with numbers"):
        price.predict([ROW], calibrated=True)


def test_large_calls_are_cut_into_runs(
    sold: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    x_num, x_cat, _ = sold.encode(TABLE)
    mean, members = sold.run(x_num, x_cat)
    monkeypatch.setattr(predictor, "MAX_ROWS", 33)
    cut_mean, cut_members = sold.run(x_num, x_cat)
    np.testing.assert_allclose(cut_mean, mean, atol=1e-6)
    np.testing.assert_allclose(cut_members, members, atol=1e-6)
    assert sold.run(x_num[:0], x_cat[:0])[1].shape == (0, 4, 2)


def test_threads_may_share_a_predictor(sold: Predictor) -> None:
    rows = rows_of(TABLE)
    expected = sold.predict(rows).mean
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(lambda i: sold.predict(rows[i : i + 10]).mean, range(300))]
    for i, answer in enumerate(answers):
        np.testing.assert_allclose(answer, expected[i : i + 10], atol=1e-6)


# Loading


def test_a_file_or_its_content(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    for source in (tmp_path / "model.onnx", str(tmp_path / "model.onnx"), content):
        loaded = Predictor(source, threads=2)
        assert loaded.task == "binary"
        assert loaded.target == "sold"
        assert loaded.classes == [False, True]
        assert loaded.k == 4
        assert loaded.numeric == ["size", "since"]
        assert loaded.datetime == ["since"]
        assert loaded.categorical == ["zone", "colour"]
        assert loaded.providers == ["CPUExecutionProvider"]
        assert loaded.folded_bytes == loaded.metadata["folded_bytes"] > 0


def test_providers_that_are_not_installed_are_passed_over(content: bytes) -> None:
    wanted = ["NoSuchProvider", "CPUExecutionProvider"]
    assert Predictor(content, providers=wanted).providers == ["CPUExecutionProvider"]
    with pytest.raises(ValueError, match="providers must name one of"):
        Predictor(content, providers=["NoSuchProvider"])


@pytest.mark.processes
def test_importing_the_predictor_is_light() -> None:
    code = (
        "import sys; before = set(sys.modules); import lometab.predictor;"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before"
        " if not name.startswith('_')} - sys.stdlib_module_names)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} <= {"lometab", "numpy", "onnxruntime"}


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_file_cut_short_is_refused(share: float, content: bytes) -> None:
    cut = content[: int(share * len(content))]
    # Between two fields, what is left is a file of ONNX, and none of ours.
    expected = r"cut short|no ONNX file|none that lometab exported"
    with pytest.raises(ModelFileError, match=expected):
        Predictor(cut)


def test_something_else_is_refused() -> None:
    for other in (b"", b"a,b\n1,2\n", b"PK\x03\x04", b"\x08" + b"\xff" * 40):
        with pytest.raises(ModelFileError, match=r"no ONNX file|no whole ONNX file"):
            Predictor(other)


def tiny_model(**properties: str) -> onnx.ModelProto:
    value = helper.make_tensor_value_info("numeric", TensorProto.DOUBLE, ["N", 1])
    answer = helper.make_tensor_value_info("mean", TensorProto.DOUBLE, ["N", 1])
    one = numpy_helper.from_array(np.ones(1), "one")
    node = helper.make_node("Add", ["numeric", "one"], ["mean"])
    model = helper.make_model(
        helper.make_graph([node], "tiny", [value], [answer], [one]), ir_version=8
    )
    helper.set_model_props(model, properties)
    return model


def test_another_onnx_model_is_refused() -> None:
    with pytest.raises(ModelFileError, match="none that lometab exported"):
        Predictor(tiny_model(author="someone").SerializeToString())


def test_changed_bytes_are_noticed(content: bytes) -> None:
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), size=300):
        changed = bytearray(content)
        changed[place] ^= 1 << rng.integers(8)
        with pytest.raises(ModelFileError):
            Predictor(bytes(changed))
    constants = onnx.load_from_string(content).graph.initializer
    (weight,) = (each for each in constants if each.name == "blocks.0.weight")
    start = content.index(weight.raw_data)
    with pytest.raises(ModelFileError, match="was changed since it was exported"):
        Predictor(content[:start] + b"\0\0\0\0" + content[start + 4 :])


def test_a_newer_format_is_refused() -> None:
    newer = tiny_model(lometab='{"checksum": "new", "version": 2}')
    with pytest.raises(ModelFileError, match=r"format version 2, .* reads up to 1"):
        Predictor(newer.SerializeToString())


def test_no_other_file_is_opened(content: bytes) -> None:
    def refer(tensor: onnx.TensorProto) -> None:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")

    as_constant = onnx.load_from_string(content)
    refer(as_constant.graph.initializer[0])
    inside = onnx.load_from_string(content)
    tensor = numpy_helper.from_array(np.ones(3), "t")
    refer(tensor)
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=tensor)], "branch", [], []
    )
    inside.graph.node.append(
        helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    )
    for model in (as_constant, inside):
        with pytest.raises(ModelFileError, match="other files, which are never opened"):
            Predictor(model.SerializeToString())


def test_a_model_that_onnx_runtime_cannot_load(content: bytes) -> None:
    model = onnx.load_from_string(content)
    model.graph.node[-1].op_type = "NoSuchOperator"
    metadata = json.loads(model.metadata_props[0].value)
    del metadata["checksum"], model.metadata_props[:]
    with pytest.raises(
        ModelFileError, match=r"cannot load the model: .*NoSuchOperator"
    ):
        Predictor(seal(model.SerializeToString(), metadata))


# In chunks


def test_chunks_share_their_notes(sold: Predictor) -> None:
    table = {**TABLE, "colour": ["mauve", "ochre"] * 7 + TABLE["colour"][14:]}
    whole = sold.encode({**table, "note": [""] * N})
    notes = sold.compare([*table, "note"])
    parts = [
        sold.encode_columns(
            {name: column[i : i + 10] for name, column in table.items()}, 10, notes
        )
        for i in range(0, N, 10)
    ]
    np.testing.assert_array_equal(np.vstack([x for x, _ in parts]), whole.x_num)
    np.testing.assert_array_equal(np.vstack([x for _, x in parts]), whole.x_cat)
    assert notes.warnings() == whole.warnings
    assert whole.warnings[1].endswith("14 of 400 rows: 'mauve', 'ochre'")


def test_a_record_is_encoded_as_columns_are(sold: Predictor) -> None:
    plain = {**ROW, "since": 1.7e9, "zone": "3", "size": None}
    notes = sold.compare(plain)
    encoded = sold.encode_record(plain, notes)
    assert encoded is not None
    expected = sold.encode([plain])
    np.testing.assert_array_equal(encoded[0], expected.x_num)
    np.testing.assert_array_equal(encoded[1], expected.x_cat)
    assert notes.n_rows == 1
    for name, cell in (
        ("size", "0.5"),
        ("size", True),
        ("size", float("inf")),
        ("colour", "mauve"),
        ("colour", " red"),
        ("zone", 3),
        ("zone", ["3"]),
        ("zone", None),
    ):
        assert sold.encode_record({**plain, name: cell}, notes) is None


def test_what_training_never_lacked_is_told_if_it_is_missing(sold: Predictor) -> None:
    """`size` and `colour` were missing there too, `since` and `zone` never."""
    rows = [{**ROW, **dict.fromkeys(names)} for names in (["size", "colour"], [], [])]
    assert sold.predict(rows).warnings == []
    rows = [dict.fromkeys(ROW), {**ROW, "since": None}, ROW]
    assert sold.predict(rows).warnings[0] == (
        "values are missing, which training had in every row, in up to 2 of 3 rows: "
        "'since', 'zone'"
    )
    gone = [{**ROW, "since": None}]
    assert "'since'" in sold.predict(gone).warnings[0]
    # A column that no row has is told by itself.
    del gone[0]["since"]
    (told, *_) = sold.predict(gone, missing_columns="fill").warnings
    assert "absent from every row" in told


def test_files_of_before_do_not_know_what_training_lacked(content: bytes) -> None:
    model = onnx.load_from_string(content)
    metadata = json.loads(model.metadata_props[0].value)
    del metadata["with_missing"], metadata["checksum"]
    del model.metadata_props[:]
    old = Predictor(seal(model.SerializeToString(), metadata))
    assert old.encode([{**ROW, "since": None}]).warnings == []


def test_notes_name_the_first_of_many(sold: Predictor) -> None:
    notes = sold.compare([*ROW])
    for start in range(0, 40, 4):
        zones = [f"z{zone:02}" for zone in range(start, start + 4)]
        columns = {name: [cell] * 4 for name, cell in ROW.items()}
        sold.encode_columns({**columns, "zone": zones}, 4, notes)
    assert notes.warnings()[0].endswith("'z00', 'z01', 'z02', 'z03', 'z04', ...")
    assert len(notes.unseen["zone"]) == 6


def test_providers_are_those_really_got() -> None:
    installed = ["CPUExecutionProvider"]
    assert predictor.find_providers(["FancyExecutionProvider", *installed]) == installed
    with pytest.raises(ValueError, match="providers must name one of"):
        predictor.find_providers(["FancyExecutionProvider"])


def test_the_spread_of_one_row_is_that_of_many(price: Predictor) -> None:
    many = price.predict(rows_of(TABLE, 20))
    for i, row in enumerate(rows_of(TABLE, 20)):
        alone = price.predict([row])
        assert many.std is not None and alone.std is not None
        expected = alone.members.astype(np.float64).std(axis=1)
        np.testing.assert_allclose(alone.std, expected, rtol=1e-12)
        np.testing.assert_allclose(alone.std, many.std[i : i + 1], rtol=1e-3)
