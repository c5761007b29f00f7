"""The texts below the fields of our dataclasses, for the OpenAPI document.

Pydantic reads those of a class itself, and not of the classes that it extends.
"""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from lometab.config import TrainConfig
from lometab.table import ReadOptions, Split

DOCUMENTED: tuple[type, ...] = (TrainConfig, Split, ReadOptions)


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
    for kind in DOCUMENTED:
        properties = schemas.get(kind.__name__, {}).get("properties", {})
        for name, text in read_docstrings(kind).items():
            if name in properties:
                properties[name].setdefault("description", " ".join(text.split()))
