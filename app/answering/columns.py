"""From rows to what is answered of them, by the options of a request."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from app.answering.options import ANSWERED, DEFAULT, FIELDS, LEFT_OUT, PredictOptions
from lometab.errors import DataError
from lometab.predictor import Notes, Predictor

Columns = dict[str, Any]
"""What is answered of some rows: an array or a list for each name."""


def with_ids(columns: Columns, ids: Any) -> Columns:
    """The ids first, if there are any."""
    return columns if ids is None else {"id": ids, **columns}


def find_id_column(options: PredictOptions, names: Collection[str]) -> str | None:
    """The column that is handed through, if any is."""
    id_column = options.id_column
    if id_column is None:
        return "id" if "id" in names else None
    if id_column not in names:
        raise DataError(
            f"there is no column {id_column!r} to hand through as id", column=id_column
        )
    return id_column


def encode_rows(
    predictor: Predictor,
    table: Mapping[str, Any],
    n_rows: int,
    notes: Notes,
    formats: Mapping[str, str] | None,
) -> tuple[Any, Any]:
    """The inputs of the model; whatever a value is wrong by, it is a DataError."""
    try:
        return predictor.encode_columns(table, n_rows, notes, formats=formats)
    except DataError:
        raise
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"a value cannot be read: {error}") from None


def make_columns(
    predictor: Predictor,
    options: PredictOptions,
    mean: Any,
    members: Any,
    novelty: Any,
    x_cat: Any,
) -> Columns:
    """What is answered of each row, out of what the model said.

    Args:
        x_cat: the rows' texts, as the model was given them.
    """
    wanted: Sequence[str] = ANSWERED
    doubt = None
    without = LEFT_OUT
    if options is not DEFAULT:
        chosen = ANSWERED if options.include is None else options.include
        wanted = [n for n in FIELDS if n in chosen and n not in options.exclude]
        doubt = _find_doubt(options, predictor)
        without = {*FIELDS} - {*wanted, doubt}
    fields = predictor.describe_fields(
        mean,
        members,
        calibrated=options.calibrated,
        coverage=options.coverage,
        conformal=options.conformal,
        groups=predictor.find_groups(x_cat),
        novelty=novelty,
        without=without,
    )
    if "std" in wanted:
        fields["std"] = fields.get("member_std")
    columns: Columns = {}
    for name in wanted:
        value = fields.get(name)
        if value is not None:  # it applies to the model
            columns[name] = value
    if options.abstain is not None:
        columns["abstain"] = fields["trust"] < options.abstain
    elif options.abstain_above is not None and doubt is not None:
        columns["abstain"] = fields[doubt] > options.abstain_above
    return columns


def warn_of_coverage(predictor: Predictor, options: PredictOptions) -> list[str]:
    """Why intervals have no ends, or sets all classes, if they are answered."""
    if options is not DEFAULT:
        chosen = ANSWERED if options.include is None else options.include
        name = "interval" if predictor.classes is None else "set"
        if name not in chosen or name in options.exclude:
            return []
    return predictor.warn_of_coverage(options.coverage, options.conformal)


def check_doubt(options: PredictOptions, predictor: Predictor) -> None:
    """See that rows can be abstained from as the options say."""
    if options.abstain_above is not None and _find_spread(predictor) is None:
        raise DataError(
            "abstain_above takes the spread of members, and this model has one"
        )
    if options.abstain is not None and not predictor.knows_trust:
        raise DataError(
            "this model does not know how certain it was of its calibration rows: it "
            "has one member, or was made by an earlier version; train it again, or use "
            "abstain_above"
        )


def _find_doubt(options: PredictOptions, predictor: Predictor) -> str | None:
    """The field that `abstain` or `abstain_above` is held against."""
    if options.abstain is not None:
        return "trust"
    return None if options.abstain_above is None else _find_spread(predictor)


def _find_spread(predictor: Predictor) -> str | None:
    """The field that `abstain_above` is held against."""
    if predictor.classes is not None:
        return "entropy"
    return "member_std" if predictor.k > 1 else None
