"""The OpenAPI document of the search service, generated from its models and limits."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from pointsman import __version__
from pointsman.config.model import SearchApiLimits
from pointsman.core.model import Json
from pointsman.router.search_api.messages import API_VERSION, ErrorBody, Health, SearchAnswer, SearchBody

_REFUSALS = {
    400: "The request is malformed, or its apiVersion is not supported.",
    401: "The token is missing, unknown or expired.",
    403: "The token may not use this project.",
    408: "The request took too long to arrive.",
    413: "The body is too large, or has too many tools.",
    415: "The body is neither plain nor gzip-compressed JSON.",
    421: "The Host header is not allowed.",
    429: "Too many concurrent searches with this token.",
    500: "Internal error.",
    503: "Too many concurrent searches, or this one took too long.",
}
_EXAMPLE = {
    "query": ["what will the weather be"],
    "tools": [{"toolKey": "sky:get_forecast", "toolName": "get_forecast", "serverName": "Sky"}],
}


def document(limits: SearchApiLimits) -> Json:
    _, definitions = models_json_schema(
        [
            (SearchBody, "validation"),
            (SearchAnswer, "serialization"),
            (ErrorBody, "serialization"),
            (Health, "serialization"),
        ],
        ref_template="#/components/schemas/{model}",
    )
    schemas: Json = definitions["$defs"]
    fields = schemas["SearchBody"]["properties"]
    fields["tools"]["maxItems"] = limits.tools
    fields["query"]["anyOf"][1]["maxItems"] = limits.queries
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pointsman search service",
            "version": API_VERSION,
            "description": f"Ranks tools for a query. Served by Pointsman {__version__}.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/catalog/search": {"post": _search(limits)},
            "/health": {"get": _page("Whether the service is ready", "Health", (503,))},
            "/metrics": {"get": _metrics()},
            "/openapi.json": {"get": _itself()},
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "headers": {
                "X-Request-Id": {"description": "The request's, or a generated one.", "schema": {"type": "string"}}
            },
        },
    }


def _search(limits: SearchApiLimits) -> Json:
    return {
        "operationId": "search",
        "summary": "Rank tools for a query",
        "description": "The body may be compressed (`Content-Encoding: gzip`): at most "
        f"{limits.body_bytes} bytes as sent, {limits.unpacked_bytes} unpacked.",
        "security": [{"token": []}],
        "parameters": [
            _header("X-Pointsman-Project", "Project of the search; empty or absent for none."),
            _header("X-Request-Id", "Returned in the response."),
        ],
        "requestBody": {"required": True, "content": _json("SearchBody", _EXAMPLE)},
        "responses": {
            "200": _answer("The ranking.", _json("SearchAnswer")),
            **{str(status): _answer(text, _json("ErrorBody")) for status, text in _REFUSALS.items()},
        },
    }


def _page(summary: str, model: str, also: tuple[int, ...] = ()) -> Json:
    """Describe a page that needs no token; an invalid one is rejected nevertheless."""
    shown = {str(status): _answer(summary + ".", _json(model)) for status in (200, *also)}
    return {"summary": summary, "security": [{}, {"token": []}], "responses": shown | _refused(400, 401, 403, 421)}


def _metrics() -> Json:
    text = {"text/plain": {"schema": {"type": "string"}}}
    return {"summary": "Prometheus metrics", "responses": {"200": _answer("Metrics.", text)} | _refused(400, 403, 421)}


def _itself() -> Json:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "summary": "This document",
        "responses": {"200": _answer("The OpenAPI document.", content)} | _refused(400, 403, 421),
    }


def _refused(*statuses: int) -> Json:
    return {str(status): _answer(_REFUSALS[status], _json("ErrorBody")) for status in statuses}


def _answer(description: str, content: Json) -> Json:
    headers = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    return {"description": description, "headers": headers, "content": content}


def _json(model: str, example: Any = None) -> Json:
    content: Json = {"schema": {"$ref": f"#/components/schemas/{model}"}}
    if example is not None:
        content["example"] = example
    return {"application/json": content}


def _header(name: str, description: str) -> Json:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}
