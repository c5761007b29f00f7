"""Tables: from a file as people have it to the arrays that a model takes.

What is named here is for the rest of the project; the modules are for this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lometab.table.arrow import (
        MAX_VALUE as MAX_VALUE,
    )
    from lometab.table.arrow import (
        ArrowFile as ArrowFile,
    )
    from lometab.table.arrow import (
        Limits as Limits,
    )
    from lometab.table.arrow import (
        ParquetInput as ParquetInput,
    )
    from lometab.table.arrow import (
        check_batch as check_batch,
    )
    from lometab.table.arrow import (
        kept_type as kept_type,
    )
    from lometab.table.arrow import (
        measure_column as measure_column,
    )
    from lometab.table.arrow import (
        opened as opened,
    )
    from lometab.table.describe import (
        describe_file as describe_file,
    )
    from lometab.table.describe import (
        examine_file as examine_file,
    )
    from lometab.table.dialect import (
        OPTION_ALIASES as OPTION_ALIASES,
    )
    from lometab.table.dialect import (
        Delimiter as Delimiter,
    )
    from lometab.table.dialect import (
        Dialect as Dialect,
    )
    from lometab.table.dialect import (
        Encoding as Encoding,
    )
    from lometab.table.dialect import (
        Expected as Expected,
    )
    from lometab.table.dialect import (
        Guess as Guess,
    )
    from lometab.table.dialect import (
        Quote as Quote,
    )
    from lometab.table.dialect import (
        ReadOptions as ReadOptions,
    )
    from lometab.table.duplicates import (
        find_duplicates as find_duplicates,
    )
    from lometab.table.format_search import (
        fits_all as fits_all,
    )
    from lometab.table.formats import (
        DateFormat as DateFormat,
    )
    from lometab.table.formats import (
        NumberFormat as NumberFormat,
    )
    from lometab.table.formats import (
        base_of as base_of,
    )
    from lometab.table.formats import (
        with_base as with_base,
    )
    from lometab.table.frames import (
        columns_of as columns_of,
    )
    from lometab.table.frames import (
        read_column as read_column,
    )
    from lometab.table.frames import (
        to_array as to_array,
    )
    from lometab.table.json_rows import (
        read_json_lines as read_json_lines,
    )
    from lometab.table.kinds import (
        ColumnKind as ColumnKind,
    )
    from lometab.table.kinds import (
        Facts as Facts,
    )
    from lometab.table.kinds import (
        Float as Float,
    )
    from lometab.table.kinds import (
        Looks as Looks,
    )
    from lometab.table.kinds import (
        Verdict as Verdict,
    )
    from lometab.table.kinds import (
        judge as judge,
    )
    from lometab.table.layout import (
        Layout as Layout,
    )
    from lometab.table.layout import (
        find_layout as find_layout,
    )
    from lometab.table.leaks import (
        find_leaks as find_leaks,
    )
    from lometab.table.levels import (
        Levels as Levels,
    )
    from lometab.table.levels import (
        count_levels as count_levels,
    )
    from lometab.table.levels import (
        describe_rare as describe_rare,
    )
    from lometab.table.novelty import (
        MARGIN as MARGIN,
    )
    from lometab.table.novelty import (
        Novelty as Novelty,
    )
    from lometab.table.parquet import (
        Column as Column,
    )
    from lometab.table.parquet import (
        ParquetTable as ParquetTable,
    )
    from lometab.table.parquet import (
        SomeRows as SomeRows,
    )
    from lometab.table.parquet import (
        Table as Table,
    )
    from lometab.table.parquet import (
        write_table as write_table,
    )
    from lometab.table.preprocessing import (
        PERIODS as PERIODS,
    )
    from lometab.table.preprocessing import (
        Feature as Feature,
    )
    from lometab.table.preprocessing import (
        Preprocessor as Preprocessor,
    )
    from lometab.table.profile import (
        Profile as Profile,
    )
    from lometab.table.profile import (
        judge_columns as judge_columns,
    )
    from lometab.table.profile import (
        profile_table as profile_table,
    )
    from lometab.table.reading import (
        Reading as Reading,
    )
    from lometab.table.reading import (
        read_csv as read_csv,
    )
    from lometab.table.reading import (
        read_file as read_file,
    )
    from lometab.table.records import (
        read_records as read_records,
    )
    from lometab.table.sampling import (
        HELD_ROWS as HELD_ROWS,
    )
    from lometab.table.sampling import (
        pick_rows as pick_rows,
    )
    from lometab.table.sampling import (
        share_rows as share_rows,
    )
    from lometab.table.sampling import (
        thin_parts as thin_parts,
    )
    from lometab.table.sampling import (
        thin_rows as thin_rows,
    )
    from lometab.table.scan import (
        clip as clip,
    )
    from lometab.table.schema import (
        BY_CALLER as BY_CALLER,
    )
    from lometab.table.schema import (
        BY_SPLIT as BY_SPLIT,
    )
    from lometab.table.schema import (
        Label as Label,
    )
    from lometab.table.schema import (
        Schema as Schema,
    )
    from lometab.table.schema import (
        features as features,
    )
    from lometab.table.schema import (
        infer_schema as infer_schema,
    )
    from lometab.table.schema import (
        read_feature as read_feature,
    )
    from lometab.table.schema import (
        target as target,
    )
    from lometab.table.splits import (
        PartName as PartName,
    )
    from lometab.table.splits import (
        Parts as Parts,
    )
    from lometab.table.splits import (
        Split as Split,
    )
    from lometab.table.splits import (
        split_rows as split_rows,
    )
    from lometab.table.values import (
        MISSING as MISSING,
    )
    from lometab.table.values import (
        category as category,
    )
    from lometab.table.values import (
        count_texts as count_texts,
    )
    from lometab.table.values import (
        read_categories as read_categories,
    )
    from lometab.table.values import (
        read_moments as read_moments,
    )
    from lometab.table.values import (
        read_numbers as read_numbers,
    )
    from lometab.table.without_pandas import (
        leave_out_pandas as leave_out_pandas,
    )
    from lometab.table.workbook import (
        as_csv as as_csv,
    )
    from lometab.table.workbook import (
        write_sheet as write_sheet,
    )

_NAMES = {
    "arrow": "MAX_VALUE ArrowFile Limits ParquetInput check_batch kept_type "
    "measure_column opened",
    "describe": "describe_file examine_file",
    "dialect": "OPTION_ALIASES Delimiter Dialect Encoding Expected Guess Quote "
    "ReadOptions",
    "duplicates": "find_duplicates",
    "format_search": "fits_all",
    "formats": "DateFormat NumberFormat base_of with_base",
    "frames": "columns_of read_column to_array",
    "json_rows": "read_json_lines",
    "kinds": "ColumnKind Facts Float Looks Verdict judge",
    "layout": "Layout find_layout",
    "leaks": "find_leaks",
    "levels": "Levels count_levels describe_rare",
    "novelty": "MARGIN Novelty",
    "parquet": "Column ParquetTable SomeRows Table write_table",
    "preprocessing": "PERIODS Feature Preprocessor",
    "profile": "Profile judge_columns profile_table",
    "reading": "Reading read_csv read_file",
    "records": "read_records",
    "sampling": "HELD_ROWS pick_rows share_rows thin_parts thin_rows",
    "scan": "clip",
    "schema": "BY_CALLER BY_SPLIT Label Schema features infer_schema read_feature "
    "target",
    "splits": "PartName Parts Split split_rows",
    "values": "MISSING category count_texts read_categories read_moments read_numbers",
    "without_pandas": "leave_out_pandas",
    "workbook": "as_csv write_sheet",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Each when it is asked for: some need Arrow or DuckDB, the predictor neither."""
    if name in _MODULES:
        return getattr(import_module(f"lometab.table.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
