"""Large results: `tool_execute` answers with a preview and a handle, and `pointsman:result` reads the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeGuard, TypeVar
from weakref import WeakValueDictionary

from msgspec import Raw, Struct

from pointsman.catalog.service import ToolCatalogService
from pointsman.config.model import RESERVED_SERVER_ID
from pointsman.core.errors import InvalidArgumentsError, RateLimitedError, UnknownResultError
from pointsman.core.model import Caller, Json, ToolKey
from pointsman.core.seams import FrontRequest
from pointsman.core.wire import InvalidJsonError
from pointsman.router.downstream.talk.request_meta import OWN_NAMESPACE
from pointsman.router.gateway.large_results.pieces import LargeText, json_pieces, text_pieces
from pointsman.router.gateway.large_results.preview import preview_of
from pointsman.router.gateway.large_results.slices import MAX_PATH_CHARS, MAX_WORDS_CHARS, Matches, View
from pointsman.router.gateway.large_results.store import NewResult, ResultStore, new_handle, owner_of
from pointsman.router.gateway.results import open_blocks

RESULT_KEY = f"{RESERVED_SERVER_ID}:result"
WHOLE_KEY = OWN_NAMESPACE + "whole"  # in `_meta` of a request: no preview, please
SWEEP_S = 60.0
WAIT_S = 10.0  # for the thread; a result that cannot be stored in time is answered whole
MAX_PENDING_BYTES = 64 << 20  # of results that wait for the thread
SMALL_BYTES = 1_000  # a preview is not shorter than a result of that size
DEFAULT_CHARS = 40_000  # for slices while previews are off
MIN_SLICE_CHARS = 1_000
MAX_OFFSET_DIGITS = 18
_ARGUMENTS = ("handle", "offset", "select", "search")

T = TypeVar("T")


class LargeResults:
    """One thread does the work on disk, and each token has at most one job in its queue, so that tokens take turns."""

    def __init__(self, catalog: ToolCatalogService, store: ResultStore) -> None:
        self._catalog = catalog
        self._store = store
        self._thread = ThreadPoolExecutor(1, "results")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by token id
        self._pending = 0
        self._reconfigured = asyncio.Event()

    def may_be_large(self, result_bytes: int) -> bool:
        """Whether a result of that encoded size needs a closer look. Characters never exceed bytes."""
        limit = self._catalog.rights.config.limits.result_preview_chars
        return result_bytes > limit > 0

    async def shorten(self, request: FrontRequest, tool_key: str, result: Json, size: int) -> Json:
        """Return `tool_execute`'s result with a preview for text and structured content, if they are over the limit.

        A result that cannot be stored stays whole. `size` is its encoded size.
        """
        meta = request.params.get("_meta")
        if isinstance(meta, dict) and meta.get(WHOLE_KEY) is True:
            return result
        if self._pending + size > MAX_PENDING_BYTES:
            return result
        self._pending += size
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._run(request.caller.token_id, lambda: self._shorten(result, tool_key, request.caller))
        except TimeoutError:
            return result
        finally:
            self._pending -= size

    async def read(self, caller: Caller, arguments: Json) -> Json:
        """`pointsman:result`. Raises InvalidArgumentsError, UnknownResultError, RateLimitedError."""
        asked = _Asked.of(arguments)
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._run(caller.token_id, lambda: self._read(caller, asked))
        except TimeoutError:
            message = "Too many stored results are being read. Try again in a few seconds."
            raise RateLimitedError(message, retry_after_s=5) from None

    def reconfigured(self) -> None:
        """Delete the results of removed tokens soon."""
        self._reconfigured.set()

    async def run(self) -> None:
        """Delete old results, periodically and after a reload."""
        while True:
            self._reconfigured.clear()
            tokens = self._catalog.rights.config.tokens
            owners = {owner_of(token_id, token.sha256) for token_id, token in tokens.items()}
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.sweep, owners)
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_S):
                    await self._reconfigured.wait()

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def _run(self, token_id: str, job: Callable[[], T]) -> T:
        async with self._turns.setdefault(token_id, asyncio.Lock()):
            return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    # On the thread

    def _shorten(self, result: Json, tool_key: str, caller: Caller) -> Json:
        owner = self._owner(caller)
        if owner is None:  # revoked during the call
            return result
        try:
            large = _Large.of(result, tool_key, caller)
        except InvalidJsonError:
            return result
        limit = self._catalog.rights.config.limits.result_preview_chars
        if large.chars <= limit:
            return result
        handle = new_handle(self._store.replica)
        preview = large.preview(handle, limit)
        if 2 * len(preview) >= large.chars or not self._store.put(owner, handle, large.stored):
            return result
        return large.replaced(preview, handle)

    def _read(self, caller: Caller, asked: _Asked) -> Json:
        owner = self._owner(caller)
        stored = self._store.get(owner, asked.handle) if owner is not None else None
        if stored is None or stored.project_id != caller.project_id or not self._may_use(caller, stored.tool_key):
            raise UnknownResultError(asked.handle, elsewhere=self._store.is_elsewhere(asked.handle))
        view, most = View(stored), _slice_chars(self._catalog.rights.config.limits.result_preview_chars)
        if asked.select is not None:
            view = view.select(asked.select)
        if asked.search is not None:
            _check_offset(asked.offset, len(view.text))
            return _found(view.search(asked.search, asked.offset, most), asked, len(view.text))
        return _slice(view.text, asked, most)

    def _owner(self, caller: Caller) -> str | None:
        token = self._catalog.rights.token_of(caller.token_id)
        return owner_of(caller.token_id, token.sha256) if token is not None else None

    def _may_use(self, caller: Caller, tool_key: str) -> bool:
        key = ToolKey.parse(tool_key)
        return key is not None and self._catalog.may_use(caller, key)


class _Large(Struct, frozen=True):
    """A result of `tool_execute` and what of it counts: text and structured content."""

    result: Json
    blocks: list[object]
    stored: NewResult
    chars: int

    @classmethod
    def of(cls, result: Json, tool_key: str, caller: Caller) -> _Large:
        """Raises InvalidJsonError: a number in undecoded content is out of range."""
        blocks, content = _blocks(result), result.get("structuredContent")
        texts = [block["text"] for block in blocks if _is_text(block)]
        text = LargeText(text_pieces(texts), sum(map(_length, texts)))
        structured = LargeText()
        if content is not None:
            structured = LargeText(json_pieces(content["result"]), _length(content["result"]))
        chars = text.chars - max(len(texts) - 1, 0) + structured.chars  # line ends between texts do not count
        return cls(result, blocks, NewResult(caller.project_id, tool_key, text, structured), chars)

    def preview(self, handle: str, limit: int) -> str:
        content = self.result.get("structuredContent", {}).get("result")
        return preview_of(self.stored.text, self.stored.structured, content, handle, limit, _slice_chars(limit))

    def replaced(self, preview: str, handle: str) -> Json:
        """The result with the preview in place of its text blocks and structured content; other blocks stay."""
        blocks = self.blocks
        first = next((index for index, block in enumerate(blocks) if _is_text(block)), 0)
        others = [block for block in blocks[first:] if not _is_text(block)]
        content = [*blocks[:first], {"type": "text", "text": preview}, *others]
        return {**self.result, "content": content, "structuredContent": {"result": preview, "handle": handle}}


class _Asked(Struct, frozen=True):
    """The arguments of `pointsman:result`. `select` chooses what is read, and `offset` where to begin in it."""

    handle: str
    offset: int
    select: str | None
    search: str | None

    @classmethod
    def of(cls, given: Json) -> _Asked:
        """Raises InvalidArgumentsError."""
        for name in given:
            if name not in _ARGUMENTS:
                shown = ", ".join(f"`{known}`" for known in _ARGUMENTS)
                raise InvalidArgumentsError(f"{RESULT_KEY} has no argument `{name[:80]}`; it takes {shown}.")
        handle, offset = given.get("handle"), _whole_number(given.get("offset"))
        handle = handle.strip() if isinstance(handle, str) else None
        if not handle:
            raise InvalidArgumentsError("`handle` must be the handle that the preview of a large result shows.")
        if offset is not None and (type(offset) is not int or offset < 0):
            raise InvalidArgumentsError("`offset` must be an integer from 0: the first character to read.")
        select = _text(given, "select", MAX_PATH_CHARS, "a path such as `items[0].name` or `items[*].name`")
        return cls(handle, offset or 0, select, _text(given, "search", MAX_WORDS_CHARS, "the text to find"))


def _whole_number(value: object) -> object:
    """`"5"` and `5.0`, which models write, as 5."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= MAX_OFFSET_DIGITS:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(given: Json, name: str, most: int, meaning: str) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise InvalidArgumentsError(f"`{name}` must be {meaning}, of at most {most} characters.")
    return value


def _slice_chars(limit: int) -> int:
    """A slice is in the answer twice, as text and structured, so it takes half of the limit."""
    return max((limit or DEFAULT_CHARS) // 2, MIN_SLICE_CHARS)


def _slice(text: str, asked: _Asked, most: int) -> Json:
    """Raises InvalidArgumentsError."""
    begin, total = asked.offset, len(text)
    _check_offset(begin, total)
    end = min(begin + most, total)
    more = f"; continue with offset {end}" if end < total else ""
    note = f"[characters {begin:,} to {end:,} of {total:,}{more}]"
    return _answer(text[begin:end], [text[begin:end], note], asked, end if end < total else None, total)


def _check_offset(begin: int, total: int) -> None:
    """Raises InvalidArgumentsError."""
    if begin > total or (begin == total and begin > 0):
        raise InvalidArgumentsError(f"`offset` {begin} is behind the end: there are {total:,} characters.")


def _found(found: Matches, asked: _Asked, total: int) -> Json:
    lines = [f"line {match['line']}, offset {match['offset']}: {match['text']}" for match in found.matches]
    if not lines:
        lines = [f"No line from offset {asked.offset} on contains that text."]
    if found.next_offset is not None:
        lines.append(f"[there may be more; continue with offset {found.next_offset}]")
    return _answer(found.matches, ["\n".join(lines)], asked, found.next_offset, total)


def _answer(result: object, texts: list[str], asked: _Asked, next_offset: int | None, total: int) -> Json:
    content: Json = {"result": result, "handle": asked.handle, "offset": asked.offset, "chars": total}
    if next_offset is not None:
        content["nextOffset"] = next_offset
    return {"content": [{"type": "text", "text": text} for text in texts], "structuredContent": content}


def _blocks(result: Json) -> list[object]:
    """The content blocks; large members of undecoded content stay undecoded. Raises InvalidJsonError."""
    content = result.get("content")
    blocks = open_blocks(content) if type(content) is Raw else content
    return blocks if isinstance(blocks, list) else []


def _is_text(block: object) -> TypeGuard[Json]:
    return isinstance(block, dict) and block.get("type") == "text" and _is_string(block.get("text"))


def _length(value: object) -> int:
    return len(memoryview(value)) if type(value) is Raw else len(value) if isinstance(value, str) else 0


def _is_string(value: object) -> bool:
    return memoryview(value)[0] == ord('"') if type(value) is Raw else isinstance(value, str)
