"""A legacy server (up to 2025-11-25) over HTTP: one session for all callers, opened again when the server loses it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from pointsman.config.model import Limits
from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.core.wire import encode
from pointsman.router.downstream.connection import BudgetExceededError, Call, ConnectionLostError, Introduction, Noticed
from pointsman.router.downstream.http.answer import (
    EVENT_STREAM,
    StreamCutError,
    TakeMessage,
    error_in,
    read_error,
    read_result,
    read_stream,
)
from pointsman.router.downstream.http.client import HANDSHAKE_NUMBER, HttpClient, HttpResponse, with_headers
from pointsman.router.downstream.http.server_messages import HttpServerMessages
from pointsman.router.downstream.talk.envelope import with_envelope
from pointsman.router.downstream.talk.question_routing import QuestionRouter
from pointsman.router.downstream.talk.questions import SET_LEVEL
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.downstream.talk.subscriptions import subscribe_again
from pointsman.router.serving.in_flight import AnswerMemory
from pointsman.router.serving.tasks import Backoff, TaskSet

_CLOSE_S = 1.0  # how long a server may take to hear that its session is over
_CANCEL_S = 10.0
_HEARD_S = 2.0
_RESUMES = 100  # of one call; each needs an event from the server, so this only bounds one that plays
_RESUME_PAUSE_S = 60.0
_LISTS = ("tools", "prompts", "resources")


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """What the server gave us when we introduced ourselves. Replaced as a whole, never changed."""

    introduction: Introduction
    has_id: bool  # the server keeps sessions, and its id is in the heads
    post: bytes
    get: bytes
    delete: bytes

    @classmethod
    def of(cls, client: HttpClient, introduction: Introduction, session_id: str | None) -> Session:
        named = {} if session_id is None else {"Mcp_Session_Id": session_id}
        post, get, delete = (
            client.head(method, MCP_Protocol_Version=introduction.version, **named)
            for method in ("POST", "GET", "DELETE")
        )
        return cls(introduction, session_id is not None, post, get, delete)


OpenSession = Callable[[], Awaitable[Session]]
"""Shakes hands, `notifications/initialized` included. Raises ConnectionLostError."""


class _SessionLostError(Exception):
    """The server does not know the session: it has not looked at the request."""


class LegacyHttp:
    """Fits `Connection`."""

    def __init__(
        self,
        client: HttpClient,
        session: Session,
        open_session: OpenSession,
        limits: Limits,
        noticed: Noticed,
        record: ServerRecord,
        pauses: Backoff | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self._client = client
        self._session = session
        self._open_session = open_session
        self._limits = limits
        self._memory = memory
        self._noticed = noticed
        self._numbers = itertools.count(HANDSHAKE_NUMBER + 1)
        self._watched: set[str] = set()  # resources that this session is subscribed to
        self._log_level: Json | None = None  # what the session was last told
        self._login: asyncio.Task[Session] | None = None
        self._tasks = TaskSet()
        self._crowd = QuestionRouter(record, mixed=False)
        self._talk = HttpServerMessages(limits, noticed, self._tasks, self._reply, self._crowd)
        self._pauses = pauses or Backoff()
        self._listening = self._tasks.spawn(self._listen())

    @property
    def introduction(self) -> Introduction:
        return self._session.introduction

    async def request(self, call: Call) -> Json:
        turn = self._crowd.enter(call)
        try:
            if turn is not None:
                await self._crowd.wait_for(turn, call)
            result = await self._request(call)
            call.answered = True
        except DownstreamError:
            call.answered = True
            raise
        finally:
            if call.answered or not self._crowd.linger(call):
                self._crowd.leave(call)
            else:
                self._tasks.spawn(self._leave_when_heard(call))
        if call.method == "resources/subscribe":
            self._watched.add(str(call.params.get("uri")))
        elif call.method == "resources/unsubscribe":
            self._watched.discard(str(call.params.get("uri")))
        elif call.method == SET_LEVEL:
            self._log_level = call.params
        return result

    async def _request(self, call: Call) -> Json:
        session = self._session if self._login is None else await self._renewed(self._session)
        try:
            return await self._carry(call, session)
        except _SessionLostError:
            session = await self._renewed(session)
        try:
            return await self._carry(call, session)
        except _SessionLostError:
            raise ConnectionLostError("it lost our session twice in a row") from None

    async def ended(self) -> str:
        return await self._client.gone()

    async def close(self) -> None:
        self._crowd.close("the connection was closed")
        self._talk.close()
        await self._tasks.close()
        if self._login is not None:
            self._login.cancel()
            await asyncio.gather(self._login, return_exceptions=True)
        if self._session.has_id:
            with suppress(ConnectionLostError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    (await self._client.send(self._session.delete)).close()
        await self._client.close()

    # ------------------------------------------------------------------ one call

    async def _carry(self, call: Call, session: Session) -> Json:
        number = call.number = next(self._numbers)
        params = with_envelope(call, "legacy", session.introduction.version, number)
        body = encode({"jsonrpc": "2.0", "id": number, "method": call.method, "params": params})
        take = self._talk.begin(number, call)
        try:
            response = await self._client.send(session.post, body)
            if session.has_id and response.status == HTTPStatus.NOT_FOUND:
                response.close()
                raise _SessionLostError
            try:
                return await read_result(response, number, self._limits.result_bytes, take, self._memory)
            except StreamCutError as cut:
                return await self._resume(cut, number, session, take)
            except DownstreamError as refusal:
                if session.has_id and response.status == HTTPStatus.BAD_REQUEST and _names_session(refusal):
                    raise _SessionLostError from None
                raise
        except ConnectionLostError:
            self._client.doubt()
            raise
        except (asyncio.CancelledError, BudgetExceededError):
            self._tasks.spawn(self._cancel_at_server(number, session))
            raise
        finally:
            self._talk.end(number)

    async def _resume(self, cut: StreamCutError, number: int, session: Session, take: TakeMessage) -> Json:
        """The server ended the stream on purpose (to free the connection) and keeps the answer for us."""
        for _ in range(_RESUMES):
            await asyncio.sleep(min((cut.retry_ms or 0) / 1000, _RESUME_PAUSE_S))
            head = with_headers(session.get, {"Last-Event-ID": cut.last_event_id})
            try:
                return await read_result(
                    await self._client.send(head), number, self._limits.result_bytes, take, self._memory
                )
            except StreamCutError as again:
                if again.last_event_id == cut.last_event_id and not again.retry_ms and not cut.retry_ms:
                    break  # nothing new and no word of when to come back
                cut = again
        raise ConnectionLostError(str(cut))

    async def _cancel_at_server(self, number: int, session: Session) -> None:
        with suppress(ConnectionLostError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self._notify("notifications/cancelled", {"requestId": number}, session)

    async def _leave_when_heard(self, call: Call) -> None:
        """The call was given up: the server may be asking in it until it has heard of that."""
        try:
            with suppress(ConnectionLostError, DownstreamError, BudgetExceededError, TimeoutError):
                async with asyncio.timeout(_HEARD_S):
                    await self._request(Call("ping", {}))
        finally:
            self._crowd.leave(call)

    async def _notify(self, method: str, params: Json, session: Session) -> None:
        await self._tell(encode({"jsonrpc": "2.0", "method": method, "params": params}), session)

    async def _reply(self, answer: Json) -> None:
        await self._tell(encode(answer), self._session)

    async def _tell(self, body: bytes, session: Session) -> None:
        (await self._client.send(session.post, body)).close()

    # ------------------------------------------------------------------ a lost session

    async def _renewed(self, lost: Session) -> Session:
        """The session after `lost`: opened once, however many calls have found out.

        It is not used by anybody before `notifications/initialized` has been taken by the server, because until then
        the server may refuse every other request.
        """
        if self._session is not lost:
            return self._session
        if self._login is None:
            self._login = asyncio.get_running_loop().create_task(self._log_in())
            self._login.add_done_callback(self._logged_in)
        return await asyncio.shield(self._login)

    async def _log_in(self) -> Session:
        try:
            return await self._open_session()
        except ConnectionLostError as error:
            self._client.give_up(f"it lost our session and gave no new one: {error}")
            raise

    def _logged_in(self, done: asyncio.Task[Session]) -> None:
        self._login = None
        if done.cancelled() or done.exception() is not None:
            return  # those who wait have the error; the connection ends with it
        self._session = done.result()
        self._listening.cancel()
        self._listening = self._tasks.spawn(self._listen())
        self._tasks.spawn(subscribe_again(self, lambda: self._watched))
        if self._log_level is not None:
            self._tasks.spawn(self._set_level_again(self._log_level))
        for name in _LISTS:  # a server that forgot us was probably restarted, and may offer other things now
            if name in self._session.introduction.capabilities:
                self._noticed(f"notifications/{name}/list_changed", {})

    async def _set_level_again(self, level: Json) -> None:
        with suppress(ConnectionLostError, DownstreamError, BudgetExceededError):
            await self._request(Call(SET_LEVEL, level))

    # ------------------------------------------------------------------ the standing stream

    async def _listen(self) -> None:
        session = self._session
        while True:
            try:
                if not await self._listen_once(session):
                    return
            except _SessionLostError:
                with suppress(ConnectionLostError):
                    await self._renewed(session)
                return  # the new session has its own
            except ConnectionLostError:
                self._client.doubt()
            except BudgetExceededError:
                pass  # an event without end; the stream is opened again, after a pause
            await self._pauses.wait()

    async def _listen_once(self, session: Session) -> bool:
        """Returns at the stream's end; False where the server has no such stream."""
        response = await self._client.send(session.get)
        if response.status == HTTPStatus.OK and response.kind == EVENT_STREAM:
            self._pauses.reset()
            await read_stream(response, self._limits.result_bytes, self._talk.at_large, self._talk.stray.breather)
            return True
        lost = session.has_id and await _says_session_lost(response)
        response.close()
        if lost:
            raise _SessionLostError
        # 405 says that there is none; 409 that a stream of ours is still open, and 5xx that it is not well.
        return response.status == HTTPStatus.CONFLICT or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR


async def _says_session_lost(response: HttpResponse) -> bool:
    """404 is the specification's word for it; some servers answer 400 and say so in the error."""
    if response.status == HTTPStatus.NOT_FOUND:
        return True
    if response.status != HTTPStatus.BAD_REQUEST:
        return False
    refusals = [error_in(message) for message in await read_error(response)]
    return any(refusal is not None and _names_session(refusal) for refusal in refusals)


def _names_session(refusal: DownstreamError) -> bool:
    return "session" in refusal.message.lower()
