"""What a model's ONNX file tells of itself, for the model's row."""

import json
from typing import Any

from lometab.onnx_file import read_metadata


def read_facts(content: bytes) -> dict[str, Any] | None:
    """The metadata of the file, all but its training rows; None if the database
    cannot hold it."""
    facts = read_metadata(content)
    facts.pop("background", None)
    has_nul = "\\u0000" in json.dumps(facts)  # in a category; Postgres takes none
    return None if has_nul else facts
