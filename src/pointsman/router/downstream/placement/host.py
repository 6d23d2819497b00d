"""The connection to a server in the worker that runs it, which the other workers share.

One server process has one stream: the numbers of all calls and the turns of calls that may ask are those of its own
connection (`talk/multiplexer.py`), whichever worker took a call. What a worker sets for the whole connection is put
together here: log level, subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from itertools import count
from typing import Final

import msgspec

from pointsman.core.model import Json
from pointsman.router.downstream.connection import Call, CallNotSentError, Connection, Introduction, OnNotification
from pointsman.router.downstream.placement.frames import CALL_ERRORS, Channel, error_frame, error_of, request_of
from pointsman.router.downstream.talk.server_messages import LOG_LEVELS, SET_LEVEL
from pointsman.router.downstream.talk.subscriptions import LISTEN, SUBSCRIPTION_ID
from pointsman.router.serving.tasks import TaskSet
from pointsman.router.serving.unix_address import is_own

DRAIN_S: Final = 8.0  # for the calls of other workers, before the connection is closed
MAX_LINKS: Final = 128
_MOST_SESSIONS: Final = 4096
_SUBSCRIBE, _UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
_COMMON: Final = frozenset({SET_LEVEL, LISTEN, _SUBSCRIBE, _UNSUBSCRIBE})
_ENDED: Final = "the worker that runs it closed the connection"

logger = logging.getLogger(__name__)


class HostedConnection:
    """Fits `Connection`. Serves other workers as soon as it is attached to the server's connection."""

    def __init__(self, on_notification: OnNotification, most_bytes: int) -> None:
        self._on_notification = on_notification
        self._most_bytes = most_bytes
        self._connection: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self._links: set[Link] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._tasks = TaskSet()
        self._closing = False
        self._level = len(LOG_LEVELS)  # the lowest that any worker asked for
        self._subscribers: dict[str, set[Link | None]] = {}  # None: this worker
        self._listening: dict[Call, Link | None] = {}  # `subscriptions/listen` under way
        self._sessions: dict[str, Json] = {}  # the capabilities of a legacy session: one object, which identifies it

    # ------------------------------------------------------------------ Connection

    def attach(self, connection: Connection) -> None:
        self._connection.set_result(connection)

    @property
    def introduction(self) -> Introduction:
        return self._connection.result().introduction

    async def request(self, call: Call) -> Json:
        """As `Connection.request`, for a call that this worker took."""
        if call.method in _COMMON:
            return await self._request_common(call, None)
        return await self._connection.result().request(call)

    async def ended(self) -> str:
        return await self._connection.result().ended()

    async def close(self) -> None:
        self.stop_listening(_ENDED)
        await self._tasks.drain(DRAIN_S)
        for link in [*self._links]:
            link.channel.close()
        await self._tasks.close()
        if self._connection.done() and not self._connection.cancelled() and self._connection.exception() is None:
            await self._connection.result().close()

    # ------------------------------------------------------------------ other workers

    async def listen(self, listener: socket.socket) -> None:
        """Serve other workers at this socket. They wait for the server as this one does."""
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    def fail(self, error: Exception) -> None:
        """The server could not be started."""
        self._connection.set_exception(error)
        self._connection.exception()

    def stop_listening(self, reason: str) -> None:
        """Take no more calls of other workers; those under way may end."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._closing = True
        for link in self._links:
            link.channel.send({"type": "over", "reason": reason})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(reader, writer, self._most_bytes)
        if self._closing or len(self._links) >= MAX_LINKS or not is_own(writer.get_extra_info("socket")):
            channel.close()
            return
        link = Link(self, channel)
        try:
            connection = await asyncio.shield(self._connection)
            channel.send({"type": "hello", "introduction": msgspec.to_builtins(connection.introduction)})
            self._links.add(link)
            await link.run()
        except CALL_ERRORS as error:
            channel.send({"type": "failed", "reason": str(error)})
            with suppress(OSError):
                await writer.drain()
            writer.close()
        except asyncio.CancelledError:
            pass
        except (KeyError, TypeError, ValueError):
            logger.exception("another worker sent what this one does not understand")  # it has another version
        finally:
            self._links.discard(link)
            link.end()
            self._tasks.spawn(self._unsubscribe_all(link))

    async def request_for(self, call: Call, link: Link) -> Json:
        """As `request`, for a call that another worker took."""
        if self._closing:
            raise CallNotSentError(_ENDED)
        if call.method in _COMMON:
            return await self._request_common(call, link)
        return await self._connection.result().request(call)

    def capabilities_of(self, session: str, declared: Json) -> Json:
        """The object that stands for a session; each modern request has its own."""
        if not session:
            return declared
        while len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return self._sessions.setdefault(session, declared)

    # ------------------------------------------------------------------ what concerns the whole connection

    async def _request_common(self, call: Call, link: Link | None) -> Json:
        connection, method = self._connection.result(), call.method
        if method == LISTEN:
            self._listening[call] = link
            try:
                return await connection.request(call)
            finally:
                del self._listening[call]
        if method == SET_LEVEL:
            rank = LOG_LEVELS.get(call.params.get("level", ""), 0)
            if rank >= self._level:
                return {}  # each client gets the part that it asked for
            self._level = rank
            return await connection.request(call)
        uri = str(call.params.get("uri"))
        if method == _SUBSCRIBE:
            return await self._subscribe(connection, call, uri, link)
        if self._has_other_subscribers(uri, link):
            return {}
        return await connection.request(call)

    async def _subscribe(self, connection: Connection, call: Call, uri: str, link: Link | None) -> Json:
        subscribers = self._subscribers.setdefault(uri, set())
        known = link in subscribers
        subscribers.add(link)
        try:
            return await connection.request(call)
        except BaseException:
            if not known:
                self._has_other_subscribers(uri, link)
            raise

    def _has_other_subscribers(self, uri: str, link: Link | None) -> bool:
        """Remove one subscriber, and return whether others are left."""
        left = self._subscribers.get(uri, set()) - {link}
        if left:
            self._subscribers[uri] = left
        else:
            self._subscribers.pop(uri, None)
        return bool(left)

    async def _unsubscribe_all(self, link: Link) -> None:
        for uri in [uri for uri, subscribers in self._subscribers.items() if link in subscribers]:
            if not self._has_other_subscribers(uri, link) and not self._closing:
                with suppress(*CALL_ERRORS):
                    await self._connection.result().request(Call(_UNSUBSCRIBE, {"uri": uri}))

    def notified(self, method: str, params: Json) -> None:
        """Pass on a notification that belongs to no call: to the worker that listens for it, or to all."""
        meta = params.get("_meta")
        named = str(meta.get(SUBSCRIPTION_ID)) if isinstance(meta, dict) else ""
        for call, link in self._listening.items():
            if named and str(call.number) == named:
                self._notify(link, method, params)
                return
        for one in (None, *self._links):
            self._notify(one, method, params)

    def _notify(self, link: Link | None, method: str, params: Json) -> None:
        if link is None:
            self._on_notification(method, params)
        else:
            link.channel.send({"type": "notice", "method": method, "params": params})


class Link:
    """One other worker: its calls, each in a task of its own, and the questions in them."""

    def __init__(self, host: HostedConnection, channel: Channel) -> None:
        self.channel = channel
        self._host = host
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._questions: dict[int, asyncio.Future[Json]] = {}
        self._numbers = count(1)

    async def run(self) -> None:
        while (frame := await self.channel.receive()) is not None:
            if frame["type"] == "call":
                self._start(frame)
            elif frame["type"] == "answer":
                self._answered(frame)
            elif (task := self._calls.get(frame["call"])) is not None:  # it is cancelled
                task.cancel()

    def end(self) -> None:
        """The other worker has ended, or its connection: its calls are cancelled at the server."""
        for task in self._calls.values():
            task.cancel()
        self.channel.close()

    def _start(self, frame: Json) -> None:
        number = frame["call"]
        task = self._calls[number] = self._host._tasks.spawn(self._call(number, frame))
        task.add_done_callback(lambda _: self._calls.pop(number, None))

    async def _call(self, number: int, frame: Json) -> None:
        method, told = frame["method"], frame.get("request")
        call = Call(method, frame["params"])
        if told is not None:
            capabilities = self._host.capabilities_of(told["session"], told["capabilities"])
            call.request = request_of(method, told, capabilities)
            call.back, call.clock = _Back(self, number), _Clock(self.channel, number)
        try:
            answer: Json = {"result": await self._host.request_for(call, self)}
        except CALL_ERRORS as error:
            answer = {"error": error_frame(error)}
        self.channel.send({"id": number, **answer})

    async def ask(self, number: int, method: str, params: Json) -> Json:
        """Ask the client of a call. Raises what `BackChannel.ask` does."""
        question = next(self._numbers)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._questions[question] = answer
        self.channel.send({"type": "ask", "question": question, "call": number, "method": method, "params": params})
        try:
            return await answer
        except asyncio.CancelledError:
            self.channel.send({"type": "unask", "question": question})
            raise
        finally:
            del self._questions[question]

    def _answered(self, frame: Json) -> None:
        answer = self._questions.get(frame["question"])
        if answer is None or answer.done():
            return
        if "result" in frame:
            answer.set_result(frame["result"])
        else:
            answer.set_exception(error_of(frame["error"], question=True))


class _Back:
    """Fits `BackChannel`: the client of a call that another worker took."""

    def __init__(self, link: Link, number: int) -> None:
        self._link = link
        self._number = number

    def notify(self, method: str, params: Json) -> None:
        self._link.channel.send({"type": "note", "call": self._number, "method": method, "params": params})

    async def ask(self, method: str, params: Json) -> Json:
        return await self._link.ask(self._number, method, params)

    def reachable(self) -> bool:
        return True  # the worker that took the call knows, and cancels it


class _Clock:
    """Fits `Clock`: the deadline of a call that another worker took."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        self._number = number

    def pause(self) -> None:
        self._channel.send({"type": "clock", "call": self._number, "paused": True})

    def resume(self) -> None:
        self._channel.send({"type": "clock", "call": self._number, "paused": False})
