"""A CSV that trains predicts: the same raw file, over HTTP and by `Predictor`."""

import csv
import io
import json
import random
import re
import warnings
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pytest
from fastapi.testclient import TestClient

from app.serving import get_predict
from lometab.predictor import Predictor
from lometab.table import Dialect, read_csv
from tests.support.http import check_problem
from tests.support.models import TINY, train_as_worker
from tests.support.workbooks import write_workbook
from worker import train

Row = tuple[str, str, str]
NAMES = ("größe", "farbe", "y")


def make_rows(n_rows: int) -> list[Row]:
    rng = random.Random(n_rows)
    rows = []
    for _ in range(n_rows):
        size, colour = rng.gauss(0, 1), rng.choice(["rot", "grün", "blau, hell"])
        y = 2 * size + (colour == "rot") + rng.gauss(0, 0.05)
        rows.append((f"{size:.3f}", colour, f"{y:.3f}"))
    return rows


def write(
    rows: list[Row],
    names: tuple[str, ...] | None = NAMES,
    *,
    delimiter: str = ",",
    quote: str = '"',
    encoding: str = "utf-8",
    comma: bool = False,
    first: str = "",
    end: str = "",
    quoting: Any = csv.QUOTE_MINIMAL,
) -> bytes:
    file = io.StringIO()
    file.write(first)
    writer = csv.writer(
        file,
        delimiter=delimiter,
        quotechar=quote,
        quoting=quoting,
        lineterminator=end + "\n",
    )
    if names is not None:
        writer.writerow(names)
    for row in rows:
        texts = [text.replace(".", ",") if comma else text for text in row]
        writer.writerow(texts)
    return file.getvalue().encode(encoding)


def write_r(rows: list[Row]) -> bytes:
    """As R's write.csv(row.names = TRUE) without col.names = NA."""
    lines = [",".join(f'"{name}"' for name in NAMES)]
    for i, (size, colour, y) in enumerate(rows, start=1):
        lines.append(f'"row {i}",{size},"{colour}",{y}')
    return ("\n".join(lines) + "\n").encode()


DIALECTS: dict[str, Callable[[list[Row]], bytes]] = {
    "plain": write,
    "single quotes": lambda rows: write(rows, quote="'", quoting=csv.QUOTE_ALL),
    "equal names": lambda rows: write(rows, ("größe", "größe", "y")),
    "Excel's first line": lambda rows: write(rows, delimiter=";", first="sep=;\n"),
    "Latin-1": lambda rows: write(rows, encoding="latin-1"),
    "UTF-16": lambda rows: write(rows, delimiter="\t", encoding="utf-16"),
    "delimiters at the end": lambda rows: write(rows, end=","),
    "R's row names": write_r,
    "no header": lambda rows: write(rows, None),
    "decimal commas": lambda rows: write(rows, delimiter=";", comma=True),
    "tabs": lambda rows: write(rows, delimiter="\t"),
    "bars and CRLF": lambda rows: write(rows, delimiter="|", end="\r"),
}


@pytest.fixture(autouse=True)
def fresh_predict() -> Iterator[None]:
    get_predict.cache_clear()
    yield
    get_predict.cache_clear()


def train_on(
    client: TestClient,
    content: bytes,
    folder: Path,
    *,
    has_reading: bool = True,
    columns: dict[str, str] | None = None,
) -> str:
    """Upload, post a job, do it as a worker does; where its model is asked."""
    answer = client.post("/datasets", files={"file": ("file.csv", content)})
    assert answer.status_code == 201, answer.text
    dataset = answer.json()
    used = [c["name"] for c in dataset["columns"] if c["kind"] != "ignore"]
    body = {
        "dataset_id": dataset["id"],
        "target": used[-1],
        "columns": columns or {},
        "hyperparameters": {**TINY, "max_epochs": 2},
    }
    answer = client.post("/jobs", json=body)
    assert answer.status_code == 202, answer.text
    job_id = train_as_worker(folder, has_reading=has_reading)
    return f"/models/{client.get(f'/jobs/{job_id}').json()['model_id']}/predict"


def ask(client: TestClient, path: str, content: bytes, query: str = "") -> Any:
    answer: httpx.Response = client.post(
        f"{path}?exclude=members{query}",
        content=content,
        headers={"Content-Type": "text/csv"},
    )
    assert answer.status_code == 200, answer.text
    return [row["mean"] for row in answer.json()["predictions"]]


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [50, 250, 1000])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_trains_predicts(
    client: TestClient, tmp_path: Path, dialect: str, n_rows: int
) -> None:
    content = DIALECTS[dialect](make_rows(n_rows))
    path = train_on(client, content, tmp_path)
    predictor = Predictor((tmp_path / train.ONNX).read_bytes())
    table = {name: [*column.to_pylist()] for name, column in read_csv(content).items()}
    expected = predictor.predict(table).mean
    assert len(predictor.columns) >= 2 and np.ptp(expected) > 0.1
    np.testing.assert_allclose(ask(client, path, content), expected, rtol=1e-6)
    # A body of other length than a joined one is spooled, and is read the same way.
    streamed = client.post(
        f"{path}?include=mean",
        content=iter((content,)),
        headers={"Content-Type": "text/csv"},
    )
    means = [row["mean"] for row in streamed.json()["predictions"]]
    np.testing.assert_allclose(means, expected, rtol=1e-6)
    # One row alone is as clear as all of them.
    head = read_head(content)
    np.testing.assert_allclose(ask(client, path, head), expected[:1], rtol=1e-5)


def read_head(content: bytes) -> bytes:
    """The header, if there is one, and the first row."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
    lines = content.decode(encoding).splitlines(keepends=True)
    n_lines = 1 + lines[0].startswith("sep=") + any(c.isalpha() for c in lines[0][:4])
    if lines[0].startswith("sep="):
        n_lines = 3
    return "".join(lines[:n_lines]).encode(encoding)


def test_a_request_may_be_written_otherwise(client: TestClient, tmp_path: Path) -> None:
    """Another delimiter, quote or encoding than in training, found or set."""
    rows = make_rows(250)
    trained = write(rows, delimiter=";", encoding="latin-1")
    path = train_on(client, trained, tmp_path)
    expected = ask(client, path, trained)
    for content in (
        write(rows),
        write(rows, delimiter="\t", encoding="utf-16"),
        write(rows, quote="'", quoting=csv.QUOTE_ALL),
    ):
        assert ask(client, path, content) == expected
    comma_named = write(rows, (*NAMES[:2], "y;größe;farbe"))
    assert ask(client, path, comma_named, "&delimiter=,") == expected
    answer = client.post(
        path, content=write(rows, None), headers={"Content-Type": "text/csv"}
    )
    check_problem(answer, 422, "'größe' is absent", "training file", "`header`")
    for query in ("delimiter=%5E", "quote=x", "header=perhaps", "encoding=zlib"):
        answer = client.post(
            f"{path}?{query}", content=trained, headers={"Content-Type": "text/csv"}
        )
        check_problem(answer, 422)
    for charset in ("zlib", "idna", "klingon", "rot13"):
        answer = client.post(
            path,
            content=trained,
            headers={"Content-Type": f"text/csv; charset={charset}"},
        )
        check_problem(answer, 422)


def test_numbers_are_written_as_the_body_writes_them(
    client: TestClient, tmp_path: Path
) -> None:
    """Decimal marks belong to a file, not to the model's column."""
    rows = make_rows(250)
    trained = write(rows, delimiter=";", comma=True)
    path = train_on(client, trained, tmp_path)
    expected = ask(client, path, trained)
    headers = {"Content-Type": "text/csv"}
    assert ask(client, path, write(rows)) == expected
    assert ask(client, path, write(rows, delimiter="\t", comma=True)) == expected
    [other] = ask(client, path, write([("1.305", "rot", "")]))
    plain = client.post(path, json={"rows": [{"größe": 1.305, "farbe": "rot"}]}).json()[
        "predictions"
    ]
    assert other == pytest.approx(plain[0]["mean"], rel=1e-5)
    answer = client.post(path, content=write([("1.305", "rot", "")]), headers=headers)
    assert any("number_format" in text for text in answer.json()["warnings"])
    doubtful = write([("1.305", "rot", "")], delimiter="\t")
    answer = client.post(path, content=doubtful, headers=headers)
    check_problem(answer, 422, "'1.305'", "`number_format`")
    assert ask(client, path, doubtful, "&number_format=1,234.5") == [other]
    thousands = ask(client, path, doubtful, "&number_format=1.234,5")
    assert thousands != [other]

    def ask_texts(*sizes: str, query: str = "") -> httpx.Response:
        rows = [{"größe": size, "farbe": "rot"} for size in sizes]
        return client.post(path + query, json={"rows": rows})

    # Numbers that are texts in JSON: as they are written, or refused in doubt.
    check_problem(ask_texts("1.305"), 422, "'1.305'", "send numbers as such")
    for texts, query in [
        (("1.305", "0.5"), ""),
        (("1,305", "0,5"), ""),
        (("1.305",), "?number_format=1,234.5"),
    ]:
        means = [
            row["mean"] for row in ask_texts(*texts, query=query).json()["predictions"]
        ]
        assert means[0] == pytest.approx(other, rel=1e-5)
    assert "number_format" in ask_texts("0.5").json()["warnings"][0]
    told = ask_texts("1.305", query="?number_format=1.234,5").json()["predictions"]
    assert told[0]["mean"] == pytest.approx(thousands[0], rel=1e-5)


def test_a_workbook_trains_and_predicts(client: TestClient, tmp_path: Path) -> None:
    rows = make_rows(60)
    content = write_workbook([NAMES, *[(float(a), b, float(c)) for a, b, c in rows]])
    path = train_on(client, content, tmp_path)
    expected = ask(client, path, write(rows))
    assert len(expected) == 60
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    for body in (content, iter((content,))):
        answer = client.post(path, content=body, headers={"Content-Type": kind})
        means = [row["mean"] for row in answer.json()["predictions"]]
        np.testing.assert_allclose(means, expected, rtol=1e-6)
    headers = {"Content-Type": kind}
    answer = client.post(f"{path}?sheet=Data", content=content, headers=headers)
    assert answer.status_code == 200
    answer = client.post(f"{path}?sheet=Dat", content=content, headers=headers)
    check_problem(answer, 422, "did you mean 'Data'?")
    check_problem(client.post(path, content=b"PK", headers=headers), 422, "damaged")


def test_a_model_of_plain_numbers_takes_other_marks(
    client: TestClient, tmp_path: Path
) -> None:
    rows = make_rows(250)
    path = train_on(client, write(rows), tmp_path)
    expected = ask(client, path, write(rows))
    comma = write(rows, delimiter=";", comma=True)
    assert ask(client, path, comma) == expected
    assert ask(client, path, write([("1.305", "rot", "")], delimiter=";"))
    answer = client.post(
        path,
        content=write([("1,305", "rot", "")], delimiter=";"),
        headers={"Content-Type": "text/csv"},
    )
    check_problem(answer, 422, "'1,305'", "`number_format`")


def write_forms(n_rows: int) -> bytes:
    """Numbers and dates in forms of their own, a title, units and a total."""
    rng = random.Random(n_rows)
    lines = [
        "Measured by hand",
        "price,mass,depth,day,clock,level,y",
        "(€),(kg),(m),,,,",
    ]
    for i in range(n_rows):
        a, b, c = rng.gauss(0, 900), rng.gauss(0, 1), rng.gauss(0, 1)
        price = f"({-a:,.2f} €)" if a < 0 else f"{a:,.2f} €"
        depth = f"{b:.3f}".replace("-", "\u2212")
        level = "<0.5" if i % 9 == 0 else f"{c:.4f}"
        lines.append(
            f'"{price}",{abs(c):.2f} kg,{depth},{i % 28 + 1}-Jun-2019,{i % 24}:15,'
            f"{level},{a / 900 + b:.3f}"
        )
    return "\n".join([*lines, "Total,1,2,,,,3", ""]).encode()


def test_forms_of_numbers_and_dates_travel(client: TestClient, tmp_path: Path) -> None:
    content = write_forms(300)
    path = train_on(client, content, tmp_path, columns={"level": "numeric"})
    predictor = Predictor((tmp_path / train.ONNX).read_bytes())
    assert predictor.metadata["formats"] == {
        "price": "1,234.5 €",
        "mass": "1,234.5 kg",
        "depth": "1,234.5",
        "day": "d mon y",
        "clock": "h:m",
    }
    assert predictor.metadata["missing_in"] == {"level": ["<0.5"]}
    table = {name: [*column.to_pylist()] for name, column in read_csv(content).items()}
    expected = predictor.predict(table).mean
    assert len(expected) == 300 and len(predictor.columns) == 6
    np.testing.assert_allclose(ask(client, path, content), expected, rtol=1e-6)
    streamed = client.post(
        f"{path}?include=mean",
        content=iter((content,)),
        headers={"Content-Type": "text/csv"},
    )
    means = [row["mean"] for row in streamed.json()["predictions"]]
    np.testing.assert_allclose(means, expected, rtol=1e-6)
    rows = [
        dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)
    ]
    answer = client.post(path, json={"rows": rows})
    means = [row["mean"] for row in answer.json()["predictions"]]
    np.testing.assert_allclose(means, expected, rtol=1e-6)
    session = onnxruntime.InferenceSession(str(tmp_path / train.ONNX))
    (tmp_path / "rows.csv").write_bytes(
        b"\n".join(content.splitlines()[i] for i in (1, *range(3, 303)))
    )
    inputs = read_documented(tmp_path, session)
    np.testing.assert_allclose(session.run(["mean"], inputs)[0], expected, rtol=1e-6)


def read_documented(folder: Path, session: Any) -> Any:
    """What the reader in docs/onnx.md makes of a file."""
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text("utf-8")
    [reader] = re.findall(r"```python\n(import csv.*?)```", page, re.DOTALL)
    [forms] = re.findall(r"```python\n(ORDERS.*?)```", page, re.DOTALL)
    (folder / "documented.py").write_text(reader + forms, encoding="utf-8")
    spec = spec_from_file_location("documented", folder / "documented.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it is short, and closes none
        return module.read_inputs(
            folder / "rows.csv", session, module.written_number, module.written_moment
        )


def test_json_trains_and_predicts(client: TestClient, tmp_path: Path) -> None:
    """One object a line, an array of them, and what pandas splits."""
    rows = [
        {"size": float(size), "colour": colour, "y": float(y)}
        for size, colour, y in make_rows(250)
    ]
    lines = "\n".join(map(json.dumps, rows)).encode()
    path = train_on(client, lines, tmp_path)
    predictor = Predictor((tmp_path / train.ONNX).read_bytes())
    expected = predictor.predict(rows).mean
    split = {
        "columns": [*rows[0]],
        "index": [*range(250)],
        "data": [[*row.values()] for row in rows],
    }
    for content, kind in (
        (lines, "application/x-ndjson"),
        (json.dumps(rows).encode(), "application/json"),
        (json.dumps(split).encode(), "application/json"),
    ):
        answer = client.post(path, content=content, headers={"Content-Type": kind})
        assert answer.status_code == 200, answer.text
        means = [row["mean"] for row in answer.json()["predictions"]]
        np.testing.assert_allclose(means, expected, rtol=1e-6)
    answer = client.post(
        path, content=lines[:-5], headers={"Content-Type": "application/x-ndjson"}
    )
    check_problem(answer, 422, "line 250")


def test_a_file_without_header_takes_one_with_names(
    client: TestClient, tmp_path: Path
) -> None:
    rows = make_rows(50)
    path = train_on(client, write(rows, None), tmp_path)
    expected = ask(client, path, write(rows, None))
    named = write(rows, ("column_1", "column_2", "column_3"))
    assert ask(client, path, named) == expected
    assert ask(client, path, write(rows, None), "&header=false") == expected


def test_a_dialect_goes_with_the_model(client: TestClient, tmp_path: Path) -> None:
    content = write(make_rows(50), delimiter=";", encoding="latin-1")
    train_on(client, content, tmp_path)
    found = Predictor((tmp_path / train.ONNX).read_bytes()).metadata["reading"]
    dialect = Dialect(encoding="windows-1252", delimiter=";")
    assert (found, Dialect.from_dict(found)) == (dialect.to_dict(), dialect)


def test_a_model_of_before_has_no_dialect(client: TestClient, tmp_path: Path) -> None:
    content = write(make_rows(50), delimiter=";", comma=True)
    path = train_on(client, content, tmp_path, has_reading=False)
    predictor = Predictor((tmp_path / train.ONNX).read_bytes())
    assert "reading" not in predictor.metadata
    table = {name: column.to_pylist() for name, column in read_csv(content).items()}
    expected = predictor.predict(table).mean
    np.testing.assert_allclose(ask(client, path, content), expected, rtol=1e-6)
