"""`lometab predict`: rows of a file, answered by a model here or elsewhere."""

import csv
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from app.cli.connection import DataDir, Key, Url, open_client
from app.cli.output import AsJson, note, print_json
from app.cli.train import check_detached, leave
from lometab.answers import flatten
from lometab.client import Client, Job
from lometab.client.show import open_bar
from lometab.client.wire import find_output
from lometab.errors import DataError, ModelFileError

CHUNK_ROWS = 5000
LARGE_BYTES = 64 * 2**20
"""A file from which on a service answers by a job."""
Columns = dict[str, list[Any]]


def add(cli: typer.Typer) -> None:
    cli.command()(predict)


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="An ONNX file, an id, name@version or name@alias."
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The rows.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="out.csv, out.parquet or, by a job, out.arrow."
        ),
    ] = None,
    job: Annotated[
        bool | None,
        typer.Option(
            help="By a job of the service's workers, for tables of any size; else if "
            "the file is large and --output is given."
        ),
    ] = None,
    skip: Annotated[
        bool,
        typer.Option(
            "--skip", help="By a job: rows that cannot be read have no answer."
        ),
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="By a job: only create it, and do not wait."),
    ] = False,
    members: Annotated[
        bool, typer.Option("--members", help="Also what each member says.")
    ] = False,
    coverage: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Of intervals and sets.")
    ] = 0.9,
    calibrated: Annotated[
        bool,
        typer.Option("--calibrated", help="Probabilities at the fitted temperature."),
    ] = False,
    fill: Annotated[
        bool,
        typer.Option(
            "--fill", help="Columns that the file has not are missing values."
        ),
    ] = False,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Answer the rows of a file: mean, uncertainty, intervals or sets."""
    if not file.is_file():
        raise DataError(f"there is no file {str(file)!r}")
    options: dict[str, Any] = {
        "coverage": coverage,
        "calibrated": calibrated,
        "missing_columns": "fill" if fill else "error",
        "exclude": [] if members else ["members"],
    }
    is_file = Path(model).is_file()
    by_job = _is_by_job(file, output, job, skip or detach, as_json)
    _check(output, by_job, is_file=is_file, is_detached=detach, url=url)
    if is_file:
        _answer(_answer_by_file(Path(model), file, options), output, as_json)
        return
    with open_client(url, key, data_dir, workers=int(by_job)) as client:
        if not by_job:
            _answer(_answer_by_service(client, model, file, options), output, as_json)
            return
        made = client.models[model].start_predictions(
            file,
            output="csv" if output is None else find_output(output),
            on_error="skip" if skip else "fail",
            **options,
        )
        if detach:
            leave(made, as_json)
        elif output is not None:
            _wait_and_download(made, output, as_json)


def _is_by_job(
    file: Path, output: Path | None, asked: bool | None, needs_job: bool, as_json: bool
) -> bool:
    """Whether the workers answer: if it is asked for, or the file is large."""
    if asked is not None or needs_job:
        return bool(asked) or needs_job
    is_large = file.stat().st_size >= LARGE_BYTES
    return is_large and output is not None and not as_json


def _check(
    output: Path | None,
    by_job: bool,
    *,
    is_file: bool,
    is_detached: bool,
    url: str | None,
) -> None:
    """What cannot be, before anything is begun."""
    if by_job and is_file:
        raise DataError(
            "an ONNX file answers here: --job, --skip and --detach need a model of a "
            "service"
        )
    if by_job and output is None and not is_detached:
        raise DataError("answers of a job go to a file: set --output")
    check_detached(is_detached, url)
    suffixes = (".csv", ".parquet", ".arrow") if by_job else (".csv", ".parquet")
    if output is not None and output.suffix.lower() not in suffixes:
        raise DataError(
            f"answers go to {' or '.join(suffixes)}, however: {output.name}"
        )
    if output is not None and not output.absolute().parent.is_dir():
        raise DataError(f"there is no folder {str(output.parent)!r}")


def _wait_and_download(job: Job, output: Path, as_json: bool) -> None:
    try:
        with open_bar(sys.stderr.isatty(), job.info, stderr=True) as bar:
            for event in job.events():
                bar.take(event)
    except KeyboardInterrupt:
        job.cancel()
        note(f"{job.id} is cancelled")
        raise
    job.refresh().check().download(output)
    if as_json:
        print_json(job.info)
        return
    _warn(job.info["warnings"], set())
    result = job.info["result"]
    note(f"{result['n_rows']} rows are answered in {output}")
    if result["n_faults"]:
        note(f"{result['n_faults']} have no answer: lometab jobs faults {job.id}")


def _answer_by_service(
    client: Client, model: str, file: Path, options: dict[str, Any]
) -> Iterator[Columns]:
    """A Parquet file goes in chunks, any other whole: only the service knows how the
    model's own file was written."""
    found = client.models[model]
    parts: Any = [file]
    if file.suffix.lower() == ".parquet":
        parts = _read_parquet(file)
    warned: set[str] = set()
    for part in parts:
        for answer in found.predict_chunks(part, CHUNK_ROWS, **options):
            _warn(answer["warnings"], warned)
            yield flatten(answer)


def _read_parquet(file: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(CHUNK_ROWS):
            yield pa.Table.from_batches([batch])


def _answer_by_file(
    model: Path, file: Path, options: dict[str, Any]
) -> Iterator[Columns]:
    """By ONNX Runtime in this process, with the reader that training uses."""
    from lometab.predictor import Predictor
    from lometab.table import ParquetTable, read_file

    try:
        predictor = Predictor(model)
    except ModelFileError as error:
        raise DataError(f"{model}: {error}") from error
    with tempfile.TemporaryDirectory(prefix="lometab-") as folder:
        path = Path(folder) / "table.parquet"
        read_file(file, path)
        table = ParquetTable(path)
        missing = options["missing_columns"]
        notes = predictor.compare([*table], missing_columns=missing)
        for columns in table.chunks(CHUNK_ROWS):
            n_rows = len(next(iter(columns.values())))
            x_num, x_cat = predictor.encode_columns(columns, n_rows, notes)
            mean, members, novelty = predictor.run_all(x_num, x_cat)
            if novelty is not None:
                notes.see_novel(novelty[:, 0])
            found = predictor.describe(
                mean,
                members,
                calibrated=options["calibrated"],
                coverage=options["coverage"],
                groups=predictor.find_groups(x_cat),
                novelty=novelty,
            )
            answer = {"classes": predictor.classes, "k": predictor.k}
            rows = _to_rows(found, options["exclude"])
            yield flatten(answer | {"predictions": rows})
        _warn(
            [*notes.warnings(), *predictor.warn_of_coverage(options["coverage"])], set()
        )


def _to_rows(found: Any, exclude: list[str]) -> list[dict[str, Any]]:
    """A prediction as the service would answer it."""
    names = ("mean", "label", "members", "member_std", "entropy", "mutual_information")
    columns = {}
    for name in (*names, "disagreement", "interval", "set", "trust", "novelty"):
        value = getattr(found, name)
        if value is not None and name not in exclude:
            columns[name] = value.tolist() if hasattr(value, "tolist") else value
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _warn(warnings: list[str], warned: set[str]) -> None:
    for warning in warnings:
        if warning not in warned:
            warned.add(warning)
            note(f"warning: {warning}")


# ----------------------------------------------------------------------------
# Answers, written as they come


def _answer(chunks: Iterator[Columns], output: Path | None, as_json: bool) -> None:
    """Write them, and say how many went to a file."""
    n_rows = 0

    def count() -> Iterator[Columns]:
        nonlocal n_rows
        for columns in chunks:
            n_rows += len(next(iter(columns.values()), []))
            yield columns

    if output is None:
        _write(count(), None, as_json)
        return
    _write(count(), output, as_json=False)
    if as_json:
        print_json({"path": str(output), "n_rows": n_rows})
    else:
        note(f"{n_rows} rows are answered in {output}")


def _write(chunks: Iterator[Columns], output: Path | None, as_json: bool) -> None:
    if as_json:
        _write_json(chunks)
    elif output is None:
        _write_csv(chunks, sys.stdout)
    elif output.suffix.lower() == ".parquet":
        _write_parquet(chunks, output)
    elif output.suffix.lower() == ".csv":
        with _whole(output) as path, path.open("w", newline="", encoding="utf-8") as f:
            _write_csv(chunks, f)
    else:
        raise DataError(f"answers go to .csv or .parquet, however: {output.name}")


def _write_json(chunks: Iterator[Columns]) -> None:
    """One object a line, for each row."""
    for columns in chunks:
        for row in zip(*columns.values(), strict=True):
            print_row = dict(zip(columns, row, strict=True))
            sys.stdout.write(json.dumps(print_row, ensure_ascii=False) + "\n")


def _write_csv(chunks: Iterator[Columns], file: IO[str]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    for i, columns in enumerate(chunks):
        if i == 0:
            writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow([_to_cell(value) for value in row])


def _to_cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _write_parquet(chunks: Iterator[Columns], output: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    with _whole(output) as path:
        try:
            for columns in chunks:
                table = _to_table(pa, columns)
                writer = writer or pq.ParquetWriter(path, table.schema)
                writer.write_table(table.cast(writer.schema))
        finally:
            if writer is not None:
                writer.close()


def _to_table(pa: Any, columns: Mapping[str, list[Any]]) -> Any:
    """Whole numbers among fractions, or a chunk of nulls, change no column's type."""
    return pa.table(
        {
            name: pa.array(values, pa.float64())
            if all(value is None or isinstance(value, float) for value in values)
            else pa.array(values)
            for name, values in columns.items()
        }
    )


@contextmanager
def _whole(output: Path) -> Iterator[Path]:
    """A file that is there once it is whole."""
    part = output.with_name(output.name + ".part")
    try:
        yield part
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
