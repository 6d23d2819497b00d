"""The legacy session with the gateway: opened by the client's `initialize`, and reopened when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus

from pointsman.core import wire
from pointsman.core.model import Json
from pointsman.router.bridge.gateway_client import Answer, GatewayClient, GatewayClientError, GatewayUnreachableError
from pointsman.router.serving.tasks import Backoff, TaskSet

logger = logging.getLogger(__name__)

_CLOSE_S = 1.0
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.2, 10.0
_REPLAY_S = 15.0  # for the replay to end before a request is sent without it
_STREAM_S = 5.0  # for the event stream to open before the replay is sent without it
_REPLAYS = 10  # while the servers of a new gateway start: about a minute
_OWN_ID = "pointsman-stdio"  # of the bridge's own requests
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class SessionLostError(Exception):
    """The gateway does not know the session, and has not processed the message."""


class LegacySession:
    """A session that survives a restart of the gateway, by replaying what the client set up in it."""

    def __init__(self, gateway: GatewayClient, on_message: Callable[[bytes], Awaitable[None]]) -> None:
        """`on_message` gets what the gateway sends on its own."""
        self._gateway = gateway
        self._on_message = on_message
        self._initialize: Json | None = None  # as the client sent it
        self._replay = SessionReplay()
        self._headers: dict[str, str] = {}
        self._renewing = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._stream_settled = False  # open, or rejected by a gateway that offers none
        self._stream_attempted = asyncio.Event()
        self._retry_stream = asyncio.Event()
        self._tasks = TaskSet()
        self._replaying: asyncio.Task[None] | None = None
        self._first_attempt: asyncio.Future[None]

    @property
    def open(self) -> bool:
        return bool(self._headers)

    @asynccontextmanager
    async def request(self, message: Json, body: bytes) -> AsyncIterator[Answer]:
        """Raises GatewayClientError."""
        if message["method"] == "initialize":
            async with self._gateway.send("POST", {}, body) as answer:
                self._initialize = message
                yield answer
            return
        if self._replay.needed:
            await asyncio.wait((self._start_replay(),), timeout=_REPLAY_S)
        self._replay.remember(message)
        headers = self._headers
        async with self._gateway.send("POST", headers, body) as answer:
            if not self._lost(answer):
                yield answer
                return
        await self._renew(headers)
        async with self._gateway.send("POST", self._headers, body) as answer:
            yield answer

    async def notify(self, body: bytes) -> None:
        """Send a notification or an answer. Raises as `request`, and SessionLostError."""
        if not await self._notify(body):
            raise SessionLostError  # it refers to the lost session

    async def _notify(self, body: bytes) -> bool:
        async with self._gateway.send("POST", self._headers, body) as answer:
            return not self._lost(answer)

    async def close(self) -> None:
        await self._tasks.close()
        if self.open:
            with suppress(GatewayClientError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S), self._gateway.send("DELETE", self._headers):
                    pass

    def _lost(self, answer: Answer) -> bool:
        return self.open and answer.status == HTTPStatus.NOT_FOUND

    def begin(self, session_id: str | None, answer: Json) -> None:
        """Take over the session that `answer` to an `initialize` has opened."""
        result = answer.get("result")
        if session_id is None or not isinstance(result, dict):
            return
        self._headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": str(result.get("protocolVersion"))}
        if self._listening is not None:
            self._listening.cancel()
        self._stream_settled = False
        self._listening = self._tasks.start("events of the gateway", partial(self._listen, self._headers))

    async def _renew(self, lost: dict[str, str]) -> None:
        """Replace the `lost` session, once for all waiting requests. Raises as `request`."""
        async with self._renewing:
            if self._headers is not lost or self._initialize is None:
                return
            logger.info("the gateway lost the session; opening a new one")
            await self._send_again({}, self._initialize)
            if self._headers is lost:
                raise GatewayUnreachableError("The gateway did not open a new session. Restart the client.")
            await self._notify(_INITIALIZED)
            self._replay.require()
            await self._replay_once()

    def _start_replay(self) -> asyncio.Future[None]:
        """Replay in the background. The future is done after the first attempt."""
        if self._replaying is None or self._replaying.done():
            self._first_attempt = asyncio.get_running_loop().create_future()
            self._replaying = self._tasks.spawn(self._replay_with_backoff(self._first_attempt))
        return self._first_attempt

    async def _replay_with_backoff(self, first_attempt: asyncio.Future[None]) -> None:
        backoff = Backoff(_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S)
        try:
            for _ in range(_REPLAYS):
                async with self._renewing:
                    await self._replay_once()
                if not first_attempt.done():
                    first_attempt.set_result(None)
                if self._replay.needed or not self._replay.pending():
                    return
                await backoff.wait()
        except GatewayClientError:
            return  # the next request retries and reports the error
        finally:
            if not first_attempt.done():
                first_attempt.set_result(None)
        for message in self._replay.pending():
            logger.warning("the gateway rejected %s after its restart", message["method"])

    async def _replay_once(self) -> None:
        """Rejected messages stay pending. Raises GatewayClientError."""
        await self._stream_opened()  # an update that a replayed subscription causes needs a stream to arrive on
        for message in self._replay.pending():
            status, accepted = await self._send_again(self._headers, message)
            if status != HTTPStatus.OK:
                return  # the gateway is stopping, or the session is lost: replay later
            if accepted:
                self._replay.done(message)
        self._replay.needed = False

    async def _stream_opened(self) -> None:
        """Open the event stream without waiting for its backoff. Returns after one attempt, successful or not."""
        if self._stream_settled:
            return
        self._stream_attempted.clear()
        self._retry_stream.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STREAM_S):
                await self._stream_attempted.wait()

    async def _send_again(self, headers: dict[str, str], message: Json) -> tuple[int, bool]:
        """Return the status of the answer, and whether it has a result."""
        accepted = False
        async with self._gateway.send("POST", headers, wire.encode({**message, "id": _OWN_ID})) as answer:
            async for body, _ in answer.messages():  # the client got its answer the first time
                received = wire.decode(body) if body else {}
                accepted = accepted or "result" in received
                if message["method"] == "initialize":
                    self.begin(answer.session_id, received)
            return answer.status, accepted

    # ------------------------------------------------------------------ the gateway's own messages

    async def _listen(self, headers: dict[str, str]) -> None:
        backoff, last_id = Backoff(_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S), None
        while True:
            resumed = {**headers} if last_id is None else {**headers, "Last-Event-ID": last_id}
            try:
                async with self._gateway.send("GET", resumed) as answer:
                    self._stream_settled = answer.status != HTTPStatus.SERVICE_UNAVAILABLE
                    self._stream_attempted.set()
                    if self._lost(answer):
                        break
                    if answer.streams:
                        if self._replay.pending():
                            self._start_replay()
                        async for body, event_id in answer.messages():
                            backoff.reset()
                            last_id = event_id or last_id
                            if body:
                                await self._on_message(body)
                    elif self._stream_settled:
                        return
            except GatewayClientError:
                pass  # it may return
            self._stream_settled = False
            self._stream_attempted.set()
            self._replay.require()  # sessions survive a restart, but not what the client set up in them
            await backoff.wait(unless=self._retry_stream)
            self._retry_stream.clear()
        # Beginning a new session cancels this task, so another one does it.
        self._tasks.spawn(self._reopen(headers))

    async def _reopen(self, headers: dict[str, str]) -> None:
        # The next request retries and reports the error.
        with suppress(GatewayClientError):
            await self._renew(headers)


_Key = tuple[str, str]  # method and URI, if it has one


class SessionReplay:
    """The client's requests whose effect lasts for the session, and which of them to send again."""

    def __init__(self) -> None:
        self._lasting: dict[_Key, Json] = {}
        self._pending: dict[_Key, Json] = {}
        self.needed = False  # the gateway may have restarted, and nothing was replayed since

    def remember(self, message: Json) -> None:
        method, params = message["method"], message.get("params")
        uri = params.get("uri") if isinstance(params, dict) else None
        if method == "logging/setLevel":
            self._keep((method, ""), message)
        elif method == "resources/subscribe" and isinstance(uri, str):
            self._keep((method, uri), message)
        elif method == "resources/unsubscribe" and isinstance(uri, str):
            self._lasting.pop(("resources/subscribe", uri), None)
            self._pending.pop(("resources/subscribe", uri), None)

    def _keep(self, key: _Key, message: Json) -> None:
        self._lasting[key] = message
        self._pending.pop(key, None)  # the client is sending it itself

    def require(self) -> None:
        """Mark all of them pending: the gateway may have restarted."""
        self._pending = dict(self._lasting)
        self.needed = bool(self._pending)

    def pending(self) -> list[Json]:
        return list(self._pending.values())

    def done(self, message: Json) -> None:
        for key, pending in list(self._pending.items()):
            if pending is message:
                del self._pending[key]
