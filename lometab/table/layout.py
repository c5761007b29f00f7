"""Where the table in a CSV is, and how it is written.

`find_layout` detects what the caller does not set, for the file that trains and for the
file that is predicted. For the latter, the columns that the model takes and the dialect
of its training file are known, and decide where they can.
"""

import itertools
import re
import sys
from dataclasses import dataclass, replace
from typing import Any, get_args

from lometab.errors import DataError, FileTooLarge
from lometab.table.dialect import (
    LINE,
    SAMPLE,
    Delimiter,
    Dialect,
    Expected,
    Guess,
    ReadOptions,
    count_known,
    read_sample,
)
from lometab.table.edges import (
    count_footers,
    count_titles,
    count_totals,
    find_line_end,
    has_units,
    read_tail,
)
from lometab.table.encoding import Text, find_text
from lometab.table.headers import guess_header, kind_of, name_columns
from lometab.table.marks import (
    begins_quoted,
    find_marks,
    guess_delimiter,
    refuse_other_delimiters,
)
from lometab.table.scan import Scan, Source, clip, error_at, open_binary


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A CSV as it was found to be; `records.read_records` reads it."""

    text: Text
    """In UTF-8."""
    dialect: Dialect
    confidence: dict[str, float]
    """How sure each part of the dialect is."""
    names: tuple[str, ...]
    start: int
    """Where the first row begins."""
    skipped: int
    """Bytes of first lines that are no part of the table."""
    skip_lines: Guess
    """How many lines these are."""
    stop: int | None
    """Where a footer begins."""
    skip_footer: Guess
    """How many lines it has."""
    has_units: bool
    """Whether the line below the header is left out too."""
    scan: Scan
    warnings: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        n_others = self.dialect.header + self.has_units + int(self.skip_footer.value)
        return self.scan.n_records - n_others

    @property
    def first_line(self) -> int | None:
        """The line of the first row, if then each row has a line of its own."""
        if self.scan.n_blank or self.scan.has_long_records:
            return None
        return 1 + int(self.skip_lines.value) + self.dialect.header + self.has_units

    def guess(self, what: str) -> Guess:
        return Guess(
            value=getattr(self.dialect, what), confidence=self.confidence[what]
        )


def find_layout(
    source: Source,
    options: ReadOptions,
    *,
    encoding: str | None = None,
    expected: Expected | None = None,
    max_bytes: int = sys.maxsize,
    max_columns: int = sys.maxsize,
) -> Layout:
    """Detect what the options do not set; DataError if it is no CSV.

    Args:
        encoding: any that Python knows, instead of that of the options.
    """
    default = expected.dialect if expected else None
    text = find_text(
        source,
        encoding or options.encoding,
        default.encoding if default else None,
        max_bytes,
    )
    sample = _sample(text.source)
    above = _Above()
    set_delimiter: Any = options.delimiter
    if (first := re.match(r"sep=([,;\t|])\r?\n", sample)) is not None:  # Excel's
        set_delimiter = set_delimiter or first[1]
        above = _Above(n_lines=1, n_bytes=len(first[0]))
        sample = sample[above.n_bytes :]
    if not sample.strip():
        raise DataError("the file is empty; a CSV with a header line is needed")
    given = replace(options, delimiter=set_delimiter)
    above, sample = _skip_titles(above, sample, given, expected)
    sure, scan = find_marks(text, sample, above.n_bytes, given, expected)
    dialect = Dialect(
        encoding=text.encoding,
        delimiter=sure["delimiter"].value,
        quote=sure["quote"].value,
    )
    records = read_sample(sample, dialect, 1000 if expected is None else 20)
    if len(records[0]) > max_columns:
        raise FileTooLarge(
            f"the file has {len(records[0])} columns, beyond the limit of {max_columns}"
        )
    header = _find_header(records, options.header, expected)
    dialect = replace(dialect, header=bool(header.value))
    units = dialect.header and has_units(records, _looks_typed)
    if units:
        records = [records[0], *records[2:]]
    try:
        names, warnings = name_columns(
            records, dialect.header, begins_quoted(sample, dialect.quote)
        )
    except DataError as error:
        raise error_at(text.source, scan.first_start, str(error)) from None
    if len(names) == 1 and expected is None and set_delimiter is None:
        refuse_other_delimiters(sample)
    footer, stop = _find_footer(text.source, dialect, len(names), options, scan, sample)
    start = scan.first_end if dialect.header else scan.first_start
    if units:
        start = find_line_end(text.source, start)
    warnings = [*above.warnings, *warnings, *text.warnings]
    if expected is None:
        warnings += _warn_of_header(records[0], header)
    if units:
        line = 2 + above.n_lines
        warnings.append(f"line {line}, below the header, holds units and is no row")
    if footer.value and options.skip_footer is None:
        warnings.append(_tell_footer(int(footer.value)))
    if scan.n_blank:
        warnings.append(f"{scan.n_blank} blank lines were passed over")
    return Layout(
        text=text,
        dialect=dialect,
        confidence={
            "encoding": text.confidence,
            "header": header.confidence,
            **{name: guess.confidence for name, guess in sure.items()},
        },
        names=tuple(names),
        start=start,
        skipped=above.n_bytes,
        skip_lines=Guess(value=above.n_lines, confidence=above.confidence),
        stop=stop,
        skip_footer=footer,
        has_units=units,
        scan=scan,
        warnings=tuple(warnings),
    )


@dataclass(frozen=True)
class _Above:
    """The lines above the table."""

    n_lines: int = 0
    n_bytes: int = 0
    confidence: float = 1.0
    warnings: tuple[str, ...] = ()


def _skip_titles(
    above: _Above, sample: str, options: ReadOptions, expected: Expected | None
) -> tuple[_Above, str]:
    """What stands above the table, and the sample without it."""
    told = options.skip_lines
    if told is not None:
        n_lines = max(0, told - above.n_lines)
    elif expected is not None:
        n_lines = _find_expected_line(sample, options, expected)
    else:
        n_lines = _count_title_lines(sample, options)
    if n_lines == 0:
        return above, sample
    lines = [match[0] for match in itertools.islice(LINE.finditer(sample), n_lines)]
    skipped = "".join(lines)
    warnings: tuple[str, ...] = ()
    if told is None:
        first = clip(next(iter(skipped.strip().splitlines()), ""))
        what = "line 1 is" if n_lines == 1 else f"the first {n_lines} lines are"
        warnings = (
            f"{what} a title and no part of the table ({first}); set `skip_lines` if "
            "that is wrong",
        )
    if not sample[len(skipped) :].strip():
        raise DataError(f"the file has no lines below the {n_lines} that are skipped")
    return (
        _Above(
            above.n_lines + n_lines,
            above.n_bytes + len(skipped.encode()),
            1.0 if told is not None else 0.8,
            warnings,
        ),
        sample[len(skipped) :],
    )


def _count_title_lines(sample: str, options: ReadOptions) -> int:
    quote = options.quote or '"'
    delimiter = options.delimiter or guess_delimiter(sample, quote).value
    dialect = Dialect(delimiter=delimiter, quote=quote)
    records = read_sample(sample, dialect, 200)
    count = count_titles(records) if records else 0
    if count == 0 or (count == 1 and len(records[1]) == 2 and '"' in sample[:1]):
        return 0  # the latter is R's header of a single column
    return _count_lines(sample, dialect, count)


def _count_lines(sample: str, dialect: Dialect, n_records: int) -> int:
    """The lines of the first records, with blank ones among them."""
    reader = dialect.reader(match[0] for match in LINE.finditer(sample))
    for record in reader:
        n_records -= bool(record)
        if n_records == 0:
            break
    return int(reader.line_num)


def _find_expected_line(sample: str, options: ReadOptions, expected: Expected) -> int:
    """How many lines stand above the one that names columns of the model."""
    trained = expected.dialect or Dialect()
    delimiters = (options.delimiter or trained.delimiter, *get_args(Delimiter))
    for delimiter in delimiters:
        dialect = Dialect(delimiter=delimiter, quote=trained.quote)
        first = read_sample(sample, dialect, 1)
        if first and count_known(first[0], expected.columns):
            return 0
    if options.header is False or not trained.header:
        return 0
    for delimiter in delimiters:
        dialect = Dialect(delimiter=delimiter, quote=trained.quote)
        for i, record in enumerate(read_sample(sample, dialect, 20)):
            if count_known(record, expected.columns):
                return _count_lines(sample, dialect, i)
    return 0


def _find_footer(
    source: Source,
    dialect: Dialect,
    width: int,
    options: ReadOptions,
    scan: Scan,
    sample: str,
) -> tuple[Guess, int | None]:
    """How many last lines are no rows, and where they begin.

    A few rows are no evidence, nor is a word such as `mean` that other rows begin with:
    then it is one of the column's values.
    """
    told = options.skip_footer
    if told == 0 or (told is None and (width < 2 or scan.n_records < _MIN_RECORDS)):
        return Guess(value=0, confidence=1.0), None
    lines = read_tail(source, told or 7)
    if told is not None:
        count = min(told, scan.n_records - 1, len(lines))
        return Guess(value=count, confidence=1.0), lines[-count][0] if count else None
    last = lines[-7:]
    if any(dialect.quote in line for _, line in last[-2:]):
        last = [each for each in last if each[1].count(dialect.quote) % 2 == 0]
    count = count_footers([line for _, line in last], width, dialect.reader)
    if count == 0 or count_totals(read_sample(sample, dialect)) > count:
        return Guess(value=0, confidence=1.0), None
    return Guess(value=count, confidence=0.8), lines[-count][0]


def _tell_footer(count: int) -> str:
    what = "last line is a total or a note and no row"
    if count > 1:
        what = f"last {count} lines are a total or notes and no rows"
    return f"the {what}; set `skip_footer` to 0 if that is wrong"


_MIN_RECORDS = 7
"""Of a file in which a footer is looked for, header and footer included."""


def _warn_of_header(first: list[str], header: Guess) -> list[str]:
    """What was decided of a first line that might be either."""
    shown = clip(", ".join(first))
    if not header.value and header.confidence < 1:
        return [
            f"the first line was taken as data, as it is like those below ({shown}); "
            "set `header` to true if it names the columns"
        ]
    if header.confidence < 1 and any(kind_of(text) for text in first):
        return [
            f"the first line was taken as names, though some are numbers ({shown}); "
            "set `header` to false if it is data"
        ]
    return []


def _looks_typed(text: str) -> bool:
    return kind_of(text) is not None


def _sample(source: Source) -> str:
    """The beginning of the text, up to the end of a line."""
    with open_binary(source) as file:
        start = file.read(SAMPLE)
    is_whole = len(start) < SAMPLE
    text = start.decode("utf-8", "replace").removeprefix("\ufeff")
    if is_whole:
        return text
    cut = max(text.rfind("\n"), text.rfind("\r"))
    return text[: cut + 1] if cut > 0 else text


def _find_header(
    records: list[list[str]], given: bool | None, expected: Expected | None
) -> Guess:
    if given is not None:
        return Guess(value=given, confidence=1.0)
    if expected is not None:
        is_named = count_known(records[0], expected.columns) > 0
        trained = expected.dialect is None or expected.dialect.header
        return Guess(value=is_named or trained, confidence=1.0)
    value, confidence = guess_header(records)
    return Guess(value=value, confidence=confidence)
