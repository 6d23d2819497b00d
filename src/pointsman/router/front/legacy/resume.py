"""The streams that a legacy client reads by GET: the changes of its session, and the rest of a stream it has lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.types import Receive, Send

from pointsman.core.seams import Change
from pointsman.core.wire import encode
from pointsman.router.front.http.answers import PING
from pointsman.router.front.http.stream import EventStream, forward, stop, until_left
from pointsman.router.front.http.unread import UnreadBudget
from pointsman.router.front.legacy.replay import EventLog


async def serve_rest(
    receive: Receive, send: Send, log: EventLog, after: int, unread: UnreadBudget, *, ping_s: float, wait_s: float
) -> None:
    """All that came after an event of a request's stream, and all that still comes, to the answer."""
    stream = EventStream(send, ping_s, unread)
    stream.put(PING)  # the client learns at once that the stream is open
    log.attach(stream, after)
    writing = asyncio.ensure_future(stream.run())
    leaving = asyncio.ensure_future(until_left(receive))
    try:
        await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        log.lost(stream, wait_s)
        await stop(writing)
        await stop(leaving)


async def serve_changes(
    receive: Receive,
    send: Send,
    log: EventLog,
    after: int | None,
    changes: AsyncIterator[Change],
    wanted: Callable[[Change], bool],
    ended: asyncio.Future[None],
    unread: UnreadBudget,
    *,
    ping_s: float,
    wait_s: float,
) -> None:
    """All changes until `ended` is done. Of a client that leaves they are kept for `wait_s`, in case it comes back."""
    stream = EventStream(send, ping_s, unread)
    stream.put(PING)  # the client learns at once that the stream is open
    log.attach(stream, after)
    log.prime()

    def say(change: Change) -> bool:
        if not wanted(change):
            return True
        return log.add(encode({"jsonrpc": "2.0", "method": change.method, "params": change.params}))

    writing = asyncio.ensure_future(stream.run())
    leaving = asyncio.ensure_future(until_left(receive))
    forwarding = asyncio.ensure_future(forward(changes, say, ended))
    try:
        await asyncio.wait((leaving, forwarding), return_when=asyncio.FIRST_COMPLETED)
        log.lost(stream, wait_s)
        if forwarding.done():
            await asyncio.wait((leaving, writing), return_when=asyncio.FIRST_COMPLETED)
            forwarding.result()
        else:
            await asyncio.wait((forwarding,), timeout=wait_s)
    finally:
        for task in (writing, leaving, forwarding):
            await stop(task)
