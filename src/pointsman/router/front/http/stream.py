"""Event streams (SSE) as responses: bounded, never blocked by a slow reader, kept alive by comments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from starlette.types import Receive, Send

from pointsman.core.model import Caller
from pointsman.core.seams import Change
from pointsman.router.front.http.responses import PING
from pointsman.router.front.http.unread import UnreadBudget

PENDING_BYTES = 1 << 20  # queued, but not yet written to the connection
_LARGE = 64 << 10  # bytes of an event from which the daemon's budget of unread bytes is enforced
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """`put` queues bytes without waiting and `run` writes them; `protocol.py` disconnects a client that never reads."""

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
        """Queue `data`. Return False if it was dropped, because too much is queued and it is not sent `always`."""
        if self._closed or (self._size + len(data) > PENDING_BYTES and not always):
            return False
        self._add(data)
        return True

    def close(self, last: bytes = b"") -> None:
        """Close the stream after `last`, which is never dropped."""
        self._closed = True
        self._add(last)

    async def run(self) -> None:
        """Write until closed, as a task of its own: `put` is called from callbacks."""
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        finished = False
        while not finished:
            data = await self._next()
            finished = self._closed and not self._pending
            if len(data) > _LARGE:
                await self._until_writable(len(data))
            await self._send({"type": "http.response.body", "body": data, "more_body": not finished})

    async def _until_writable(self, size: int) -> None:
        """Wait for the connection; meanwhile count large data as unread, because no transport buffers it yet."""
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


class OpenStreams:
    """The streams that stay open without a request under way: they end with their caller's rights or the daemon."""

    def __init__(self) -> None:
        self._callers: dict[asyncio.Future[None], Caller] = {}

    @contextmanager
    def track(self, caller: Caller) -> Iterator[asyncio.Future[None]]:
        """Yield a future that is done when the stream must end."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callers[ended] = caller
        try:
            yield ended
        finally:
            del self._callers[ended]

    def count(self, token_id: str) -> int:
        """Return how many streams of a token are open."""
        return sum(caller.token_id == token_id and not ended.done() for ended, caller in self._callers.items())

    def callers(self) -> set[Caller]:
        return set(self._callers.values())

    def end(self, matches: Callable[[Caller], bool]) -> None:
        for ended, caller in list(self._callers.items()):
            if matches(caller) and not ended.done():
                ended.set_result(None)

    def end_all(self) -> None:
        self.end(lambda caller: True)


async def serve_stream(
    stream: EventStream,
    receive: Receive,
    close: Callable[[], None],
    feed: Coroutine[Any, Any, None] | None = None,
    linger_s: float = 0.0,
) -> None:
    """Write `stream` until the client disconnects or `feed`, or without one the stream, ends; then call `close`.

    After a disconnect `feed` goes on for `linger_s`, in case the client resumes the stream.
    """
    writing = asyncio.ensure_future(stream.run())
    disconnect = asyncio.ensure_future(until_disconnected(receive))
    feeding = writing if feed is None else asyncio.ensure_future(feed)
    try:
        try:
            await asyncio.wait((disconnect, feeding), return_when=asyncio.FIRST_COMPLETED)
        finally:
            close()
        if feeding.done():
            await asyncio.wait((disconnect, writing), return_when=asyncio.FIRST_COMPLETED)
            feeding.result()
        else:
            await asyncio.wait((feeding,), timeout=linger_s)
    finally:
        for task in (writing, disconnect, feeding):
            await cancel(task)


async def until_disconnected(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def forward_changes(
    changes: AsyncIterator[Change], notify: Callable[[Change], bool], ended: asyncio.Future[None]
) -> None:
    """Pass each change to `notify` until that returns False or `ended` is done.

    After the last change it waits for `ended`: the client would only reopen a stream that closed.
    """
    step: asyncio.Future[Change] | None = None
    try:
        while True:
            step = asyncio.ensure_future(anext(changes))
            await asyncio.wait((step, ended), return_when=asyncio.FIRST_COMPLETED)
            if not step.done():
                return
            try:
                change = step.result()
            except StopAsyncIteration:
                await asyncio.wait((ended,))
                return
            if not notify(change):
                return
    finally:
        if step is not None:
            await cancel(step)
        close = getattr(changes, "aclose", None)  # a generator releases its resources
        if close is not None:
            await close()


async def cancel(task: asyncio.Future[Any]) -> None:
    """Cancel `task` and wait for its end."""
    if task.done():
        return
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
