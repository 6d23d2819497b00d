"""The legacy era's session with the gateway: opened by the client's `initialize`, and again when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus

from pointsman.core import wire
from pointsman.core.model import Json
from pointsman.router.bridge.link import Answer, GatewayUnreachableError, Link, NotSentError, StreamCutError
from pointsman.router.bridge.session_replay import SessionReplay
from pointsman.router.serving.tasks import Backoff, TaskSet

logger = logging.getLogger(__name__)

_CLOSE_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_RESTORE_S = 15.0  # for the gateway to come back and take what stands, before a request goes on without it
_REPEATS = 10  # of what a new gateway refuses, for its servers may still be starting: a minute, all in all
_OWN_ID = "pointsman-stdio"  # of the requests that we make ourselves
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class SessionLostError(Exception):
    """The gateway does not know the session: it has not looked at the message."""


class LegacySession:
    """Repeats to a gateway that has started anew what the client has told the one before."""

    def __init__(self, link: Link, told: Callable[[bytes], Awaitable[None]]) -> None:
        self._link = link
        self._told = told
        self._initialize: Json | None = None  # as the client sent it
        self._standing = SessionReplay()
        self._headers: dict[str, str] = {}
        self._renewing = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._tasks = TaskSet()
        self._restoring: asyncio.Task[None] | None = None
        self._tried: asyncio.Future[None]

    @property
    def open(self) -> bool:
        return bool(self._headers)

    @asynccontextmanager
    async def request(self, message: Json, body: bytes) -> AsyncIterator[Answer]:
        """Raises GatewayUnreachableError, NotSentError, StreamCutError."""
        if message["method"] == "initialize":
            async with self._link.send("POST", {}, body) as answer:
                self._initialize = message
                yield answer
            return
        if self._standing.in_doubt:
            await asyncio.wait((self._restore(),), timeout=_RESTORE_S)
        self._standing.remember(message)
        headers = self._headers
        async with self._link.send("POST", headers, body) as answer:
            if not self._lost(answer):
                yield answer
                return
        await self._renew(headers)
        async with self._link.send("POST", self._headers, body) as answer:
            yield answer

    async def tell(self, body: bytes) -> None:
        """Send a notification or an answer. Raises as `request`, and SessionLostError."""
        if not await self._tell(body):
            raise SessionLostError  # what it was about went with the session

    async def _tell(self, body: bytes) -> bool:
        async with self._link.send("POST", self._headers, body) as answer:
            return not self._lost(answer)

    async def close(self) -> None:
        await self._tasks.close()
        if self.open:
            with suppress(GatewayUnreachableError, NotSentError, StreamCutError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S), self._link.send("DELETE", self._headers):
                    pass

    def _lost(self, answer: Answer) -> bool:
        return self.open and answer.status == HTTPStatus.NOT_FOUND

    def begin(self, session_id: str | None, answer: Json) -> None:
        """The session that `answer`, to an `initialize`, has opened."""
        result = answer.get("result")
        if session_id is None or not isinstance(result, dict):
            return
        self._headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": str(result.get("protocolVersion"))}
        if self._listening is not None:
            self._listening.cancel()
        self._listening = self._tasks.start("events of the gateway", partial(self._listen, self._headers))

    async def _renew(self, lost: dict[str, str]) -> None:
        """Open a session in place of `lost`, once for all waiting requests. Raises as `request`."""
        async with self._renewing:
            if self._headers is not lost or self._initialize is None:
                return
            logger.info("the gateway has forgotten the session: opening another one")
            await self._repeat({}, self._initialize)
            if self._headers is lost:
                raise GatewayUnreachableError("The gateway opens no new session. Restart the client.")
            await self._tell(_INITIALIZED)
            self._standing.doubt()
            await self._repeat_standing()

    def _restore(self) -> asyncio.Future[None]:
        """See to it that what stands is said again. Done when it was tried once."""
        if self._restoring is None or self._restoring.done():
            loop = asyncio.get_running_loop()
            self._tried = loop.create_future()
            self._restoring = self._tasks.spawn(self._keep_restoring(self._tried))
        return self._tried

    async def _keep_restoring(self, tried: asyncio.Future[None]) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        try:
            for _ in range(_REPEATS):
                async with self._renewing:
                    await self._repeat_standing()
                if not tried.done():
                    tried.set_result(None)
                if self._standing.in_doubt or not self._standing.owed():
                    return
                await backoff.wait()
        except (GatewayUnreachableError, NotSentError, StreamCutError):
            return  # the next request tries again, and says what is wrong
        finally:
            if not tried.done():
                tried.set_result(None)
        for message in self._standing.owed():
            logger.warning("the gateway does not take %s again", message["method"])

    async def _repeat_standing(self) -> None:
        """What is refused stays owed. Raises GatewayUnreachableError, NotSentError, StreamCutError."""
        for message in self._standing.owed():
            status, accepted = await self._repeat(self._headers, message)
            if status != HTTPStatus.OK:
                return  # the gateway is on its way out, or the session is lost: still in doubt
            if accepted:
                self._standing.settle(message)
        self._standing.in_doubt = False

    async def _repeat(self, headers: dict[str, str], message: Json) -> tuple[int, bool]:
        """The status of its answer, and whether there is a result."""
        accepted = False
        async with self._link.send("POST", headers, wire.encode({**message, "id": _OWN_ID})) as answer:
            async for body, _ in answer.messages():  # the client had its answer when it asked
                said = wire.decode(body) if body else {}
                accepted = accepted or "result" in said
                if message["method"] == "initialize":
                    self.begin(answer.session_id, said)
            return answer.status, accepted

    # ------------------------------------------------------------------ what the gateway says on its own

    async def _listen(self, headers: dict[str, str]) -> None:
        backoff, last_id = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), None
        while True:
            resumed = {**headers} if last_id is None else {**headers, "Last-Event-ID": last_id}
            try:
                async with self._link.send("GET", resumed) as answer:
                    if self._lost(answer):
                        break
                    if answer.streams:
                        if self._standing.owed():
                            self._restore()
                        async for body, event_id in answer.messages():
                            backoff.reset()
                            last_id = event_id or last_id
                            if body:
                                await self._told(body)
                    elif answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
                        return
            except (GatewayUnreachableError, NotSentError, StreamCutError):
                pass  # it may come back
            self._standing.doubt()  # its sessions survive a restart, but not what was said in them
            await backoff.wait()
        # Beginning the new session ends this task, so another one has to do it.
        self._tasks.spawn(self._reopen(headers))

    async def _reopen(self, headers: dict[str, str]) -> None:
        with suppress(
            GatewayUnreachableError, NotSentError, StreamCutError
        ):  # the next request tries again, and says what is wrong
            await self._renew(headers)
