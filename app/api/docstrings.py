"""The texts below the fields of our dataclasses, for the OpenAPI document.

Pydantic could read those of a class, though not of the classes that it extends; but it
would read our sources at every start, which takes longer than all routes do.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, get_args, get_type_hints

from lometab.config import TrainConfig
from lometab.evaluation import Calibration, Diversity, RunReport
from lometab.space import Range
from lometab.table import ReadOptions, Split

DOCUMENTED = (TrainConfig, Split, ReadOptions, Range, RunReport, Calibration, Diversity)
"""These, and the dataclasses that their fields are of."""


def read_docstrings(kind: type) -> dict[str, str]:
    """What is said of each field, by name."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in pairwise(tree.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                found[field.target.id] = inspect.cleandoc(str(text.value.value))
    return found


def add_docstrings(schemas: dict[str, Any]) -> None:
    """Put them where a schema of one of the classes is silent."""
    kinds = {kind for root in DOCUMENTED for kind in _find_dataclasses(root)}
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        properties = schemas.get(kind.__name__, {}).get("properties", {})
        for name, text in read_docstrings(kind).items():
            if name in properties:
                properties[name].setdefault("description", " ".join(text.split()))


def _find_dataclasses(kind: Any) -> Iterator[type]:
    """A type and all that it is made of."""
    parts = get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        yield kind
        parts = tuple(get_type_hints(kind).values())
    for part in parts:
        yield from _find_dataclasses(part)
