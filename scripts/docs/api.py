"""reference/api.md and reference/reports.md: from the OpenAPI document."""

from typing import Any

from app.main import api
from lometab.evaluation import COMPARISON_DEFINITIONS, DEFINITIONS
from scripts.docs.text import WARNING, code, table

Schema = dict[str, Any]
REPORTS = {
    "RunReport": "`GET /jobs/{id}/report`",
    "ClassDiversity": "`GET /jobs/{id}/diversity`, of classes",
    "RegressionDiversity": "`GET /jobs/{id}/diversity`, of numbers",
    "ClassCalibration": "`GET /jobs/{id}/calibration`, of classes",
    "RegressionCalibration": "`GET /jobs/{id}/calibration`, of numbers",
}


def write_api() -> str:
    """Every route by its tag, with parameters, bodies and answers."""
    document = api.openapi()
    lines = ["# API", "", WARNING, ""]
    lines += [
        "A running service has the same at `/docs`, where requests can be tried, and "
        "as a document for programs at `/openapi.json`. Both work without internet. "
        "Errors of all routes are in [errors](../errors.md).",
        "",
    ]
    tags = {each["name"]: each["description"] for each in document["tags"]}
    for tag, text in tags.items():
        lines += [f"## {tag.capitalize()}", "", text, ""]
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag in operation["tags"]:
                    lines += _operation(method.upper(), path, operation)
    return "\n".join(lines)


def _operation(method: str, path: str, operation: Schema) -> list[str]:
    lines = [f"### `{method} {path}`", "", f"**{operation['summary']}.**", ""]
    lines += [operation.get("description", ""), ""]
    parameters = [
        (code(each["name"]), each["in"], each.get("description", ""))
        for each in operation.get("parameters", [])
    ]
    if parameters:
        lines += table(("parameter", "in", "meaning"), parameters)
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        kinds = ", ".join(
            f"{code(kind)} {_kind(each['schema'])}".strip()
            for kind, each in body.items()
        )
        lines += [f"Body: {kinds}.", ""]
        for each in body.values():
            lines += _parts(each["schema"])
    answers = ", ".join(
        f"{status} {_answer(each)}".strip()
        for status, each in operation["responses"].items()
    )
    return [*lines, f"Answers: {answers}.", ""]


def _parts(schema: Schema) -> list[str]:
    """Of a body that has no name: a form, whose parts are told nowhere else."""
    rows = [
        (code(name), _kind(each), each.get("description", ""))
        for name, each in schema.get("properties", {}).items()
    ]
    return table(("part", "kind", "meaning"), rows) if rows else []


def _answer(response: Schema) -> str:
    schemas = [each.get("schema", {}) for each in response.get("content", {}).values()]
    names = [_kind(each) for each in schemas if each]
    return f"({names[0]})" if names and names[0] and names[0] != "`Problem`" else ""


def _kind(schema: Schema) -> str:
    """What a value is, in a word or two."""
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_kind(each) for each in options))
    if "enum" in schema:
        return ", ".join(code(each) for each in schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}".strip()
    if schema.get("format") == "binary":
        return "file"
    return str(schema.get("title" if "type" not in schema else "type", ""))


def write_reports() -> str:
    """Every field of the reports, and what its numbers mean."""
    schemas = api.openapi()["components"]["schemas"]
    lines = ["# Fields of reports", "", WARNING, ""]
    lines += [
        "Every report has `definitions` of the numbers in it; they are all here. "
        "[Reading a report](../learn/numbers.md) says what to do with them.",
        "",
        "## What the numbers mean",
        "",
        *_define(DEFINITIONS),
        "## What a sweep says of its cells",
        "",
        *_define(COMPARISON_DEFINITIONS),
    ]
    known: list[str] = []
    for name, where in REPORTS.items():
        lines += [f"## {where}", "", f"{schemas[name].get('description', '')}", ""]
        lines += _fields(schemas, name, known)
    for name in known:
        if name not in REPORTS:
            text = schemas[name].get("description", "")
            lines += [f"### {name}", "", text, "", *_fields(schemas, name, [])]
    return "\n".join(lines)


def _define(texts: dict[str, str]) -> list[str]:
    return table(("name", "meaning"), ((code(n), text) for n, text in texts.items()))


def _fields(schemas: Schema, name: str, known: list[str]) -> list[str]:
    _collect(schemas, schemas[name], known)
    rows = [
        (code(field), _kind(each), each.get("description", ""))
        for field, each in schemas[name].get("properties", {}).items()
    ]
    return table(("field", "kind", "meaning"), rows)


def _collect(schemas: Schema, schema: Any, known: list[str]) -> None:
    """Names of all schemas with fields that this one refers to, in their order."""
    if isinstance(schema, list):
        for each in schema:
            _collect(schemas, each, known)
    if not isinstance(schema, dict):
        return
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name and name not in known and "properties" in schemas[name]:
        known.append(name)
        _collect(schemas, schemas[name], known)
    for each in schema.values():
        _collect(schemas, each, known)
