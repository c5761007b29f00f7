"""FastAPI's errors, answered as all others are."""

from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from app.errors import (
    DATABASE_ERRORS,
    AppError,
    Invalid,
    from_validation,
    problem,
    tell_neighbours,
    to_app_error,
)
from lometab.errors import LoMETabError


def add_handlers(api: FastAPI) -> None:
    def handle(request: Request, error: Exception) -> Response:
        told = _from_framework(error) or to_app_error(
            error, request.scope.get("request_id", "-")
        )
        if told.status == 405:
            methods = ", ".join(_find_methods(api, request.url.path))
            told.headers = {**(told.headers or {}), "Allow": methods}
        status, headers, body = problem(tell_neighbours(told, request.url.path))
        return Response(body, status, headers)

    for kind in (
        AppError,
        LoMETabError,
        *DATABASE_ERRORS,
        RequestValidationError,
        HTTPException,
        Exception,
    ):
        api.add_exception_handler(kind, handle)


def _from_framework(error: Exception) -> AppError | None:
    if isinstance(error, RequestValidationError):
        return from_validation(error)
    if isinstance(error, HTTPException):
        return _from_http(error)
    return None


def _from_http(error: HTTPException) -> AppError:
    if isinstance(error.__cause__, RecursionError):  # the framework says 400
        return Invalid("the JSON is nested too deeply")
    wrapped = AppError(str(error.detail), headers=error.headers)
    wrapped.status = error.status_code
    wrapped.code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    return wrapped


def _find_methods(api: FastAPI, path: str) -> list[str]:
    """All that a path takes; the framework names those of the first route alone."""
    paths = api.openapi()["paths"]
    # `/jobs/plan` is itself, and no job of that name.
    templates = [
        template for template in paths if compile_path(template)[0].match(path)
    ]
    templates = [path] if path in paths else templates
    found = {method.upper() for template in templates for method in paths[template]}
    return sorted(found | ({"HEAD"} if "GET" in found else set()))
