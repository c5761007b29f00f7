"""How many categories columns have, and how many are too rare for an input each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lometab.table.kinds import count_values
from lometab.table.parquet import Table
from lometab.table.schema import Schema
from lometab.table.values import is_arrow, read_texts


@dataclass(frozen=True)
class Levels:
    """The categories of a column, by how often they come."""

    n_frequent: int
    """Those with an input of their own; missing is one, however rare."""
    n_rare: int
    """Those that share one."""

    @property
    def width(self) -> int:
        """Inputs of the column."""
        return self.n_frequent + (self.n_rare > 0)


def count_levels(table: Table, schema: Schema) -> dict[str, Levels]:
    """Of each categorical column. Of all rows: in those to train on, categories may
    be rarer."""
    return {name: _count_column(table, name, schema) for name in schema.categorical}


def _count_column(table: Table, name: str, schema: Schema) -> Levels:
    values, missing = table[name], frozenset(schema.missing)
    present = read_texts(values, missing) if is_arrow(values) else None
    counts, _ = count_values(values, missing, present, False)
    n_frequent = sum(count >= schema.min_frequency for count in counts.values())
    has_missing = sum(counts.values()) < len(values)
    return Levels(n_frequent + has_missing, len(counts) - n_frequent)


def describe_rare(levels: Mapping[str, Levels], schema: Schema) -> Iterator[str]:
    """What the caller should know of categories that share an input."""
    for name, each in levels.items():
        if each.n_rare > 1:
            yield (
                f"column {name!r}: {each.n_rare} categories are each in fewer than "
                f"{schema.min_frequency} rows and share one input; set "
                "`min_frequency` to 1 for an input each"
            )
