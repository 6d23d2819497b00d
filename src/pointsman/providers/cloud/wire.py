"""Encodes requests to a search service, and validates its answers."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from pointsman.config.secrets import MASK, SECRET
from pointsman.providers.base import SearchHit, SearchHits, SearchRequest, ToolDocument
from pointsman.providers.cloud.errors import malformed
from pointsman.providers.visible import visible_line

API_VERSION = "1"
PACK_FROM_BYTES = 16_384
MAX_RESULTS = 100  # as in `tool_discovery`; a service may refuse more
MAX_EXPLANATION_CHARS = 300

# Of a schema only what describes parameters is sent. These keywords hold values, which do not help ranking.
_VALUES = frozenset({"default", "example", "examples"})
_NAMES_INSIDE = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class _ToolInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    tool_key: str
    tool_name: str
    server_name: str
    description: str = ""
    input_schema: Any = msgspec.UNSET


class _Question(msgspec.Struct, rename="camel", omit_defaults=True):
    query: Sequence[str]
    tools: Sequence[msgspec.Raw]
    max_results: int
    api_version: str
    context: str | None = None


class _Result(msgspec.Struct, rename="camel"):
    """The fields that are read of a result: names, descriptions and schemas come from our own catalog."""

    tool_key: str
    relevance: float
    explanation: str | None = None
    intents: list[int] | None = None


class _Answer(msgspec.Struct, rename="camel"):
    results: list[_Result]
    api_version: str = API_VERSION
    best_by_query: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Packed:
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Validated:
    hits: SearchHits
    invented: int  # results that named a tool which was not in the request


class Packer:
    """Encodes requests. A tool is encoded once for each definition."""

    def __init__(self) -> None:
        self._encoded: WeakKeyDictionary[ToolDocument, msgspec.Raw] = WeakKeyDictionary()

    def pack(self, request: SearchRequest) -> Packed:
        """Encode the queries and the tools that the caller may use, and nothing else. May run in a thread."""
        question = _Question(
            query=[_without_secrets(query) for query in request.queries],
            context=_without_secrets(request.context) if request.context else None,
            tools=[self._info(tool) for tool in request.tools],
            max_results=min(request.max_results, MAX_RESULTS),
            api_version=API_VERSION,
        )
        headers = {"Content-Type": "application/json"}
        if request.request_id:
            headers["X-Request-Id"] = request.request_id
        if request.project_id is not None:
            headers["X-Pointsman-Project"] = request.project_id
        body = msgspec.json.encode(question)
        if len(body) > PACK_FROM_BYTES:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return Packed(body, headers)

    def _info(self, tool: ToolDocument) -> msgspec.Raw:
        encoded = self._encoded.get(tool)
        if encoded is None:
            schema = _without_values(tool.input_schema) if tool.input_schema else msgspec.UNSET
            info = _ToolInfo(tool.tool_key, tool.tool_name, tool.server_name, tool.description, schema)
            encoded = self._encoded[tool] = msgspec.Raw(msgspec.json.encode(info))
        return encoded


def validate(body: bytes, request: SearchRequest) -> Validated:
    """Best first, each tool of the request at most once, with figures in bounds and short texts.

    Raises:
        CloudError: it is not JSON in UTF-8, or a field has the wrong type.
    """
    answer = _decode(body)
    if answer.api_version != API_VERSION:
        raise malformed(f"apiVersion is not {API_VERSION!r}")
    unseen = {tool.tool_key for tool in request.tools}
    offered = frozenset(unseen)
    hits: list[SearchHit] = []
    for result in sorted(answer.results, key=lambda result: -result.relevance):
        if result.tool_key in unseen and len(hits) < request.max_results:
            unseen.remove(result.tool_key)
            hits.append(_hit(result, len(request.queries)))
    best = answer.best_by_query or []
    ranked = SearchHits(hits, [_bounded(figure) for figure in best] if len(best) == len(request.queries) else ())
    return Validated(ranked, sum(result.tool_key not in offered for result in answer.results))


def _decode(body: bytes) -> _Answer:
    try:
        body.decode()  # the decoder does not check fields that it skips
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(str(error)) from None


def _hit(result: _Result, queries: int) -> SearchHit:
    intents = tuple(sorted({index for index in result.intents or () if 0 <= index < queries}))
    return SearchHit(result.tool_key, _bounded(result.relevance), _explanation(result.explanation), intents)


def _bounded(figure: float) -> float:
    return min(max(figure, 0.0), 1.0)  # JSON has no NaN, and the decoder rejects infinite numbers


def _explanation(text: str | None) -> str | None:
    """One line of visible characters: a model reads it, and a terminal may show it."""
    line = visible_line(text or "", MAX_EXPLANATION_CHARS + 1)
    return (line if len(line) <= MAX_EXPLANATION_CHARS else line[: MAX_EXPLANATION_CHARS - 1] + "…") or None


def _without_secrets(text: str) -> str:
    return SECRET.sub(MASK, text)


def _without_values(schema: Any, *, names: bool = False) -> Any:
    """`names`: the keys of this object are names of parameters, one of which may be `default`."""
    if isinstance(schema, list):
        return [_without_values(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_values(part, names=not names and key in _NAMES_INSIDE)
        for key, part in schema.items()
        if names or key not in _VALUES
    }
