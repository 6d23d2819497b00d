"""The legacy era's session with the gateway: opened by the client's `initialize`, and again when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from pointsman.catalog.model import Json
from pointsman.router import wire
from pointsman.router.bridge.link import Answer, Cut, Link, NoGateway, NotSent

logger = logging.getLogger(__name__)

_CLOSE_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_OWN_ID = "pointsman-stdio"  # of the requests that we make ourselves
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class SessionLost(Exception):
    """The gateway does not know the session: it has not looked at the message."""


class LegacySession:
    """Repeats in a new session what the client has said of itself in the old one."""

    def __init__(self, link: Link, told: Callable[[bytes], Awaitable[None]]) -> None:
        self._link = link
        self._told = told
        self._initialize: Json | None = None  # as the client sent it
        self._standing: dict[tuple[str, str], Json] = {}  # requests whose effect lasts as long as the session
        self._headers: dict[str, str] = {}
        self._renewing = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._reopening: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        return bool(self._headers)

    @asynccontextmanager
    async def request(self, message: Json, body: bytes) -> AsyncIterator[Answer]:
        """Raises NoGateway, NotSent, Cut."""
        if message["method"] == "initialize":
            async with self._link.send("POST", {}, body) as answer:
                self._initialize = message
                yield answer
            return
        self._remember(message)
        headers = self._headers
        async with self._link.send("POST", headers, body) as answer:
            if not self._lost(answer):
                yield answer
                return
        await self._renew(headers)
        async with self._link.send("POST", self._headers, body) as answer:
            yield answer

    async def tell(self, body: bytes) -> None:
        """A notification or an answer. Raises NoGateway, NotSent, Cut, SessionLost."""
        if not await self._tell(body):
            raise SessionLost  # what it was about went with the session

    async def _tell(self, body: bytes) -> bool:
        async with self._link.send("POST", self._headers, body) as answer:
            return not self._lost(answer)

    async def close(self) -> None:
        tasks = [task for task in (self._listening, self._reopening) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.open:
            with suppress(NoGateway, NotSent, Cut, TimeoutError):
                async with asyncio.timeout(_CLOSE_S), self._link.send("DELETE", self._headers):
                    pass

    def _lost(self, answer: Answer) -> bool:
        return self.open and answer.status == HTTPStatus.NOT_FOUND

    def _remember(self, message: Json) -> None:
        method, params = message["method"], message.get("params")
        uri = params.get("uri") if isinstance(params, dict) else None
        if method == "logging/setLevel":
            self._standing[method, ""] = message
        elif method == "resources/subscribe" and isinstance(uri, str):
            self._standing[method, uri] = message
        elif method == "resources/unsubscribe" and isinstance(uri, str):
            self._standing.pop(("resources/subscribe", uri), None)

    def begin(self, session_id: str | None, answer: Json) -> None:
        """The session that `answer`, to an `initialize`, has opened."""
        result = answer.get("result")
        if session_id is None or not isinstance(result, dict):
            return
        self._headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": str(result.get("protocolVersion"))}
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.get_running_loop().create_task(self._listen(self._headers))

    async def _renew(self, lost: dict[str, str]) -> None:
        """Open a session in place of `lost`, once for all who have found out. Raises NoGateway, NotSent, Cut."""
        async with self._renewing:
            if self._headers is not lost or self._initialize is None:
                return
            logger.info("the gateway has forgotten the session: opening another one")
            await self._repeat({}, self._initialize)
            if self._headers is lost:
                raise NoGateway("The gateway opens no new session. Restart the client.")
            await self._tell(_INITIALIZED)
            for message in list(self._standing.values()):
                await self._repeat(self._headers, message)

    async def _repeat(self, headers: dict[str, str], message: Json) -> None:
        async with self._link.send("POST", headers, wire.encode({**message, "id": _OWN_ID})) as answer:
            async for body, _ in answer.messages():  # the client had its answer when it asked
                if message["method"] == "initialize":
                    self.begin(answer.session_id, wire.decode(body))

    # ------------------------------------------------------------------ what the gateway says on its own

    async def _listen(self, headers: dict[str, str]) -> None:
        pause_s, last_id = _FIRST_PAUSE_S, None
        while True:
            resumed = {**headers} if last_id is None else {**headers, "Last-Event-ID": last_id}
            try:
                async with self._link.send("GET", resumed) as answer:
                    if self._lost(answer):
                        break
                    if not answer.streams:
                        return
                    async for body, event_id in answer.messages():
                        pause_s, last_id = _FIRST_PAUSE_S, event_id or last_id
                        if body:
                            await self._told(body)
            except (NoGateway, NotSent, Cut):
                pass  # it may come back
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        # Beginning the new session ends this task, so another one has to do it.
        self._reopening = asyncio.get_running_loop().create_task(self._reopen(headers))

    async def _reopen(self, headers: dict[str, str]) -> None:
        with suppress(NoGateway, NotSent, Cut):  # the next request tries again, and says what is wrong
            await self._renew(headers)
