"""From the bytes of a request to what the provider is asked. Runs in a thread: bodies may be large."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError

from pointsman.config.model import SearchApiLimits
from pointsman.core import wire
from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.documents import lean, texts_of
from pointsman.router.search_api.complaints import complaint
from pointsman.router.search_api.document_cache import DocumentCache, Documents, digest
from pointsman.router.search_api.messages import DEFAULT_RESULTS, Asked, ToolInfo
from pointsman.router.search_api.refusals import bad, too_large, unsupported_version

_envelope = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entries = msgspec.json.Decoder(list[msgspec.Raw])
_GZIP = 16 + zlib.MAX_WBITS
_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")

MAX_WORDS = 100_000  # different ones, of all tools of a request


@dataclass(frozen=True, slots=True)
class Read:
    request: SearchRequest
    known_list: bool  # the same tools came before


def read(body: bytes, *, gzipped: bool, limits: SearchApiLimits, shelf: DocumentCache) -> Read:
    """Raises ApiError 400, 413."""
    if gzipped:
        body = _unpacked(body, limits.unpacked_bytes)
    fields = _fields(body)
    raw_tools = fields.pop("tools", None)
    asked = _asked(fields)
    if len(asked.queries) > limits.queries:
        raise bad(f"`query` holds {len(asked.queries)} queries; at most {limits.queries} are taken at once.")
    if raw_tools is None:
        raise bad("`tools` is missing: send the list of tools to search in.")
    content = digest(memoryview(raw_tools))
    documents = shelf.known_list(content)
    known = documents is not None
    if documents is None:
        documents = _documents(raw_tools, content, shelf, limits.tools)
    elif len(documents) > limits.tools:  # the limit was lowered since
        raise _too_many(len(documents), limits.tools)
    request = SearchRequest(asked.queries, asked.context or None, documents, asked.maxResults or DEFAULT_RESULTS)
    return Read(request, known)


def _unpacked(body: bytes, limit: int) -> bytes:
    """No more than is allowed is ever unpacked."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error:
        raise bad("The body is not gzip, as Content-Encoding says. Compress it, or leave the header out.") from None
    if len(unpacked) > limit:
        raise too_large(
            f"The body unpacks to more than {limit} bytes. Send fewer or shorter tools; the operator sets "
            "`search_api.limits.unpacked_bytes`."
        )
    if not unpacker.eof or unpacker.unused_data:
        raise bad("The gzip body is cut short, or something follows it. Send one whole gzip member.")
    return unpacked


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _envelope.decode(body)
    except msgspec.ValidationError:
        raise bad("The body must be a JSON object with `query` and `tools`.") from None
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise bad("The body is not JSON.") from None


def _asked(fields: dict[str, msgspec.Raw]) -> Asked:
    try:
        given = {name: _decoded(fields[name], name) for name in Asked.model_fields if name in fields}
        return Asked.model_validate(given)
    except ValidationError as error:
        if any(detail["loc"][0] == "apiVersion" for detail in error.errors()):
            raise unsupported_version() from None
        raise bad(complaint(error, "")) from None


def _documents(raw_tools: msgspec.Raw, content: bytes, shelf: DocumentCache, most: int) -> Documents:
    try:
        entries = _entries.decode(raw_tools)
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise bad("`tools` must be a list of objects.") from None
    if len(entries) > most:
        raise _too_many(len(entries), most)

    def document(place: int) -> ToolDocument:
        return _document(entries[place], f"tools[{place}]")

    documents = shelf.documents([memoryview(entry) for entry in entries], document)
    _check_words(documents)
    shelf.keep_list(content, documents)
    return documents


def _check_words(documents: Documents) -> None:
    """The catalogs of real servers stay far below; each different word costs its stemming."""
    words: set[str] = set()
    for document in documents:
        for text in texts_of(document).values():
            words.update(_WORD.findall(text))
        if len(words) > MAX_WORDS:
            raise too_large(f"The tools hold more than {MAX_WORDS} different words. Send fewer tools.")


def _document(entry: msgspec.Raw, where: str) -> ToolDocument:
    try:
        tool = ToolInfo.model_validate(_decoded(entry, where))
    except ValidationError as error:
        raise bad(complaint(error, where)) from None
    return lean(
        ToolDocument(tool.toolKey, tool.toolName, tool.serverName, tool.description or "", tool.inputSchema or {})
    )


def _decoded(raw: msgspec.Raw, where: str) -> Any:
    try:
        return wire.decode(memoryview(raw))
    except wire.InvalidJsonError:
        raise bad(f"`{where}` holds JSON that cannot be read: bad UTF-8, or nested too deep.") from None


def _too_many(count: int, most: int) -> Exception:
    return too_large(
        f"`tools` holds {count} tools; at most {most} are searched at once. Send fewer; the operator sets "
        "`search_api.limits.tools`."
    )
