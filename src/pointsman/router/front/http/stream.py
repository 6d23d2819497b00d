"""A stream of events as the answer to one request: bounded, never waiting for a slow reader, kept alive by comments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from starlette.types import Receive, Send

from pointsman.core.seams import Change
from pointsman.router.front.http.answers import PING
from pointsman.router.front.http.unread import UnreadBudget

PENDING_BYTES = 1 << 20  # said, but not yet taken by the connection
_LARGE = 64 << 10  # bytes after which the budget for the whole daemon is looked at
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """Whoever speaks puts bytes in and goes on; `run` writes them. `protocol.py` cuts a client that never reads."""

    __slots__ = ("__weakref__", "_closed", "_pending", "_ping_s", "_send", "_size", "_unread", "_wake")

    def __init__(self, send: Send, ping_s: float, unread: UnreadBudget) -> None:
        self._send = send
        self._ping_s = ping_s
        self._pending: list[bytes] = []
        self._size = 0
        self._wake = asyncio.Event()
        self._closed = False
        self._unread = unread
        unread.hold(self)

    @property
    def pending_bytes(self) -> int:
        return self._size

    def put(self, data: bytes, *, always: bool = False) -> bool:
        """False where too much is waiting already: the reader loses this message, unless it must have it."""
        if self._closed or (self._size + len(data) > PENDING_BYTES and not always):
            return False
        self._add(data)
        return True

    def close(self, last: bytes = b"") -> None:
        """After `last`, which is never dropped, nothing more is taken."""
        self._closed = True
        self._add(last)

    async def run(self) -> None:
        """Write until closed. Runs as a task of its own, because `put` is called from callbacks."""
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        over = False
        while not over:
            data = await self._next()
            over = self._closed and not self._pending
            if len(data) > _LARGE:
                await self._until_writable(len(data))
            await self._send({"type": "http.response.body", "body": data, "more_body": not over})

    async def _until_writable(self, size: int) -> None:
        """Large data counts as unread from here on: until the connection takes it, it is in no transport's buffer."""
        self._size += size
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        self._size -= size

    def _add(self, data: bytes) -> None:
        self._pending.append(data)
        self._size += len(data)
        self._wake.set()
        if len(data) > _LARGE:
            self._unread.enforce()

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(self._ping_s):
                await self._wake.wait()
        except TimeoutError:
            return PING
        self._wake.clear()
        data = b"".join(self._pending)
        self._pending.clear()
        self._size = 0
        return data


async def until_left(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def forward(changes: AsyncIterator[Change], say: Callable[[Change], bool], ended: asyncio.Future[None]) -> None:
    """Say each change until the listener takes no more or `ended` is done, also after the last change."""
    step: asyncio.Future[Change] | None = None
    try:
        while True:
            step = asyncio.ensure_future(anext(changes))
            await asyncio.wait((step, ended), return_when=asyncio.FIRST_COMPLETED)
            if not step.done():
                return
            try:
                change = step.result()
            except StopAsyncIteration:  # a stream that closed now would only be opened again
                await asyncio.wait((ended,))
                return
            if not say(change):
                return
    finally:
        if step is not None:
            await stop(step)
        close = getattr(changes, "aclose", None)  # a generator frees what it holds
        if close is not None:
            await close()


async def stop(task: asyncio.Future[Any]) -> None:
    if task.done():
        return
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
