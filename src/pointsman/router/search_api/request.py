"""Parses and validates a search request. Runs in a thread, because bodies may be large."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError

from pointsman.config.model import SearchApiLimits
from pointsman.core import wire
from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.documents import lean, texts_of
from pointsman.router.search_api.document_cache import DocumentCache, Documents, digest
from pointsman.router.search_api.errors import bad_request, too_large, unsupported_version
from pointsman.router.search_api.messages import DEFAULT_RESULTS, SearchQuery, ToolInfo

_envelope = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entries = msgspec.json.Decoder(list[msgspec.Raw])
_GZIP = 16 + zlib.MAX_WBITS
_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")

_SENTENCES: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
    "missing": "is missing",
    "string_type": "must be a string",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "int_type": "must be an integer",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "greater_than_equal": lambda context: f"must be at least {context['ge']}",
    "less_than_equal": lambda context: f"must be at most {context['le']}",
}
_ALTERNATIVES = "query"  # a string or a list of strings: pydantic reports an error for each
_QUERY = "`query` must be a string, or a list of one or more strings"

MAX_WORDS = 100_000  # distinct words in all tools of a request


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    request: SearchRequest
    known_list: bool  # the list of tools was cached


def parse_request(body: bytes, *, gzipped: bool, limits: SearchApiLimits, cache: DocumentCache) -> ParsedRequest:
    """Raises ApiError 400, 413."""
    if gzipped:
        body = _decompress(body, limits.unpacked_bytes)
    fields = _split(body)
    raw_tools = fields.pop("tools", None)
    query = _parse_query(fields)
    if len(query.queries) > limits.queries:
        raise bad_request(f"`query` has {len(query.queries)} queries; the limit is {limits.queries}.")
    if raw_tools is None:
        raise bad_request("`tools` is missing. Send the list of tools to search.")
    content = digest(memoryview(raw_tools))
    documents = cache.get_list(content)
    known = documents is not None
    if documents is None:
        documents = _parse_tools(raw_tools, content, cache, limits.tools)
    elif len(documents) > limits.tools:  # the limit was lowered meanwhile
        raise _too_many(len(documents), limits.tools)
    request = SearchRequest(query.queries, query.context or None, documents, query.maxResults or DEFAULT_RESULTS)
    return ParsedRequest(request, known)


def _decompress(body: bytes, limit: int) -> bytes:
    """Decompress at most `limit` bytes. Raises ApiError 400, 413."""
    decompressor = zlib.decompressobj(_GZIP)
    try:
        unpacked = decompressor.decompress(body, limit + 1)
    except zlib.error:
        raise bad_request(
            "The body is not gzip, although Content-Encoding says so. Compress it, or omit the header."
        ) from None
    if len(unpacked) > limit:
        raise too_large(
            f"The decompressed body exceeds {limit} bytes. Send fewer or shorter tools; the operator sets "
            "`search_api.limits.unpacked_bytes`."
        )
    if not decompressor.eof or decompressor.unused_data:
        raise bad_request("The gzip body is truncated, or has trailing data. Send one complete gzip member.")
    return unpacked


def _split(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _envelope.decode(body)
    except msgspec.ValidationError:
        raise bad_request("The body must be a JSON object with `query` and `tools`.") from None
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise bad_request("The body is not JSON.") from None


def _parse_query(fields: dict[str, msgspec.Raw]) -> SearchQuery:
    try:
        given = {name: _decoded(fields[name], name) for name in SearchQuery.model_fields if name in fields}
        return SearchQuery.model_validate(given)
    except ValidationError as error:
        if any(detail["loc"][0] == "apiVersion" for detail in error.errors()):
            raise unsupported_version() from None
        raise bad_request(_problem(error, "")) from None


def _parse_tools(raw_tools: msgspec.Raw, content: bytes, cache: DocumentCache, limit: int) -> Documents:
    try:
        entries = _entries.decode(raw_tools)
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise bad_request("`tools` must be a list of objects.") from None
    if len(entries) > limit:
        raise _too_many(len(entries), limit)

    def parse(index: int) -> ToolDocument:
        return _parse_tool(entries[index], f"tools[{index}]")

    documents = cache.documents([memoryview(entry) for entry in entries], parse)
    _check_words(documents)
    cache.put_list(content, documents)
    return documents


def _check_words(documents: Documents) -> None:
    """Limit the distinct words, each of which costs its stemming. Real catalogs stay far below the limit."""
    words: set[str] = set()
    for document in documents:
        for text in texts_of(document).values():
            words.update(_WORD.findall(text))
        if len(words) > MAX_WORDS:
            raise too_large(f"The tools have more than {MAX_WORDS} distinct words. Send fewer tools.")


def _parse_tool(entry: msgspec.Raw, where: str) -> ToolDocument:
    try:
        tool = ToolInfo.model_validate(_decoded(entry, where))
    except ValidationError as error:
        raise bad_request(_problem(error, where)) from None
    return lean(
        ToolDocument(tool.toolKey, tool.toolName, tool.serverName, tool.description or "", tool.inputSchema or {})
    )


def _decoded(raw: msgspec.Raw, where: str) -> Any:
    try:
        return wire.decode(memoryview(raw))
    except wire.InvalidJsonError:
        raise bad_request(f"`{where}` is not valid JSON: invalid UTF-8, or nested too deeply.") from None


def _too_many(count: int, limit: int) -> Exception:
    return too_large(
        f"`tools` has {count} tools; the limit is {limit}. Send fewer; the operator sets `search_api.limits.tools`."
    )


def _problem(error: ValidationError, where: str) -> str:
    """Describe the first invalid field without repeating its value; `where` is the path of the model."""
    details = error.errors(include_url=False, include_input=False)
    detail = details[0]
    if detail["loc"][:1] == (_ALTERNATIVES,) and detail["type"] != "missing":
        long = next((each for each in details if each["type"] == "string_too_long"), None)
        return f"{_QUERY}, each of at most {long.get('ctx', {})['max_length']} characters." if long else f"{_QUERY}."
    path = ".".join([where] * bool(where) + [str(step) for step in detail["loc"]])
    known = _SENTENCES.get(detail["type"], "is not valid")
    sentence = known if isinstance(known, str) else known(detail.get("ctx", {}))
    return f"`{path}` {sentence}. See /openapi.json for the format of a request."
