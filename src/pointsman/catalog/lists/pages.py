"""Reads all pages of one server's list, robust against whatever the server sends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from pointsman.core.errors import DownstreamError
from pointsman.core.kinds import TOOLS, ListKind
from pointsman.core.model import Json
from pointsman.providers.visible import is_visible_name

MAX_PAGES = 500
MAX_ITEMS = 10_000

_INVALID_PARAMS = -32602  # a server's error for an expired cursor

_DAY_MS = 86_400_000.0

Page = Callable[[str | None], Awaitable[Json]]


class MalformedListError(Exception):
    """The server answered, but not with a list."""


class Walked(Struct, frozen=True):
    """The entries of all pages."""

    items: dict[str, Json]  # by name or URI, in the server's order
    ttl_s: float | None  # the shortest of all pages; None: no page has one
    skipped: int  # entries that cannot be used
    cut: bool  # the list is longer than the limit
    unreadable: tuple[str, ...] = ()  # names with invisible characters, whose entries are skipped


async def walk(page: Page, kind: ListKind = TOOLS, *, max_pages: int = MAX_PAGES, max_items: int = MAX_ITEMS) -> Walked:
    """Read all pages from the first. If a cursor expires on the way, start again, once.

    Raises:
        MalformedListError: no page had a list.
        ServerUnavailableError, CallTimeoutError, DownstreamError: as `page` does.
    """
    try:
        return await _Walk(page, kind, max_pages, max_items).run()
    except _CursorExpiredError:
        pass
    try:
        return await _Walk(page, kind, max_pages, max_items).run()
    except _CursorExpiredError as expired:
        raise expired.error from None


class _CursorExpiredError(Exception):
    def __init__(self, error: DownstreamError) -> None:
        self.error = error


class _Walk:
    def __init__(self, page: Page, kind: ListKind, max_pages: int, max_items: int) -> None:
        self._page = page
        self._kind = kind
        self._max_pages = max_pages
        self._max_items = max_items
        self._items: dict[str, Json] = {}
        self._ttl_s: float | None = None
        self._skipped = 0
        self._lists = 0
        self._unreadable: list[str] = []

    async def run(self) -> Walked:
        cut = await self._read_pages()
        if not self._lists:
            raise MalformedListError(f"it sent no list of {self._kind.words}")
        return Walked(self._items, self._ttl_s, self._skipped, cut, tuple(self._unreadable))

    async def _read_pages(self) -> bool:
        """Returns whether entries were left unread."""
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self._max_pages):
            page = await self._read_page(cursor)
            if not isinstance(page, dict):
                return True
            if not self._take(page):
                return True
            cursor = page.get("nextCursor")
            if not cursor:
                return False
            if not isinstance(cursor, str) or cursor in seen:
                return True  # it would loop
            seen.add(cursor)
        return True

    async def _read_page(self, cursor: str | None) -> Any:
        try:
            return await self._page(cursor)
        except DownstreamError as error:
            if cursor is not None and error.code == _INVALID_PARAMS:
                raise _CursorExpiredError(error) from None
            raise

    def _take(self, page: Json) -> bool:
        """Add the entries of a page; return False if the list is full."""
        ttl_s = _ttl_of(page)
        if ttl_s is not None:
            self._ttl_s = ttl_s if self._ttl_s is None else min(self._ttl_s, ttl_s)
        entries = page.get(self._kind.field)
        if not isinstance(entries, list):
            self._skipped += 1
            return True
        self._lists += 1
        for entry in entries:
            if not self._kind.is_usable(entry) or entry[self._kind.key] in self._items:  # of two, the first counts
                self._skipped += 1
            elif not is_visible_name(entry[self._kind.key]):
                if len(self._unreadable) < self._max_items:
                    self._unreadable.append(entry[self._kind.key])
            elif len(self._items) >= self._max_items:
                return False
            else:
                self._items[entry[self._kind.key]] = entry
        return True


def _ttl_of(page: Json) -> float | None:
    ttl_ms = page.get("ttlMs")
    if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int | float):
        return None
    return min(max(0.0, ttl_ms), _DAY_MS) / 1000
