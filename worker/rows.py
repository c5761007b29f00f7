"""The rows of a job: which of them are used, in memory or in a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.messages import DATA, TRAIN_ROWS, Spec

if TYPE_CHECKING:  # it loads more than the messages need
    from lometab.ensemble import Prepared
    from lometab.explain import Rows
    from lometab.table import ParquetTable, PartName, Parts, Schema, Table


@dataclass(frozen=True, eq=False)
class JobRows:
    """What a job takes of its table."""

    spec: Spec
    schema: "Schema"
    whole: "ParquetTable"
    used: "Parts"
    """Rows of the whole table that are used."""
    table: "Table"
    """Rows that may be in memory: those that are used, or some of each part."""
    parts: "Parts"
    """The parts of it."""

    @classmethod
    def open(cls, spec: Spec, folder: Path) -> "JobRows":
        from lometab.table import (
            HELD_ROWS,
            ParquetTable,
            Schema,
            Split,
            pick_rows,
            split_rows,
            target,
            thin_parts,
        )

        schema = Schema.from_dict(dict(spec.schema))
        whole = ParquetTable(folder / DATA)
        split = Split(**spec.split)
        used = split_rows(whole, schema, split, max_rows=spec.max_rows)
        if spec.storage == "file":
            classes = None if schema.classes is None else target(whole, schema)
            held = thin_parts(used, classes, dict.fromkeys(used, HELD_ROWS), split.seed)
            return cls(spec, schema, whole, used, *pick_rows(whole, held))
        n_used = sum(map(len, used.values()))
        if spec.max_rows is not None and n_used < whole.n_rows:
            return cls(spec, schema, whole, used, *pick_rows(whole, used))
        return cls(spec, schema, whole, used, whole, used)

    def prepare(self, names: "Sequence[PartName]", folder: Path) -> "Prepared":
        """The parts named, the one to train on first, ready for the network."""
        from lometab.ensemble import prepare, prepare_file

        if self.spec.storage == "memory":
            weight = self._weigh(self.table, self.parts)
            return prepare(self.table, self.schema, self.parts, names, weight=weight)
        return prepare_file(
            self.whole,
            self.schema,
            self._held,
            names[1:],
            folder / TRAIN_ROWS,
            weight=self._weigh(self.whole, self.used),
        )

    @property
    def _held(self) -> "Parts":
        """All rows to train on, and those of the other parts that are in memory."""
        from lometab.table import SomeRows

        assert isinstance(self.table, SomeRows)
        held = {name: self.table.rows[rows] for name, rows in self.parts.items()}
        return {**held, "train": self.used["train"]}

    def _weigh(self, table: "Table", parts: "Parts") -> Any:
        """How much each row counts, if that is said."""
        from lometab.weights import Weights, weigh_rows

        by_class: Any = self.spec.class_weight
        weights = Weights(column=self.spec.weight_column, by_class=by_class)
        return weigh_rows(table, self.schema, weights, parts["train"])

    def count(self) -> dict[str, Any]:
        """What was used of the table, and what the reports are of."""
        return {
            "table": self.whole.n_rows,
            "used": sum(map(len, self.used.values())),
            "train": len(self.used["train"]),
            "reported": {name: len(rows) for name, rows in self.parts.items()},
            "storage": self.spec.storage,
        }


@dataclass(frozen=True, eq=False)
class Taken:
    """The rows of a job in memory: values of their features, and their targets."""

    rows: "Rows"
    y: Any
    parts: "Parts"

    @classmethod
    def of(cls, opened: JobRows) -> "Taken":
        from lometab.explain import Rows
        from lometab.table import features, target

        schema = opened.schema
        values = features(opened.table, schema)
        rows = Rows(schema.numeric, schema.categorical, *values, schema.datetime)
        return cls(rows, target(opened.table, schema), opened.parts)

    def __call__(self, part: "PartName") -> tuple[Any, Any, Any]:
        chosen = self.parts[part]
        return self.rows.x_num[chosen], self.rows.x_cat[chosen], self.y[chosen]

    def find(self, part: "PartName") -> tuple[Any, Any, Any] | None:
        return self(part) if part in self.parts else None
