"""A legacy server (up to 2025-11-25) over HTTP: one session for all callers, renewed when the server loses it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from pointsman.config.model import Limits
from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.core.wire import encode
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    Call,
    CallNotSentError,
    ConnectionLostError,
    Introduction,
    OnNotification,
    SessionRenewedError,
    SignInNeededError,
)
from pointsman.router.downstream.http.answer import (
    EVENT_STREAM,
    OnMessage,
    StreamCutError,
    read_error,
    read_result,
    read_stream,
)
from pointsman.router.downstream.http.client import HANDSHAKE_NUMBER, HttpClient, with_headers
from pointsman.router.downstream.http.exchange import HttpResponse
from pointsman.router.downstream.talk.decoding import error_in
from pointsman.router.downstream.talk.question_routing import QuestionRouter
from pointsman.router.downstream.talk.request_meta import with_meta
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.downstream.talk.server_messages import SET_LEVEL, ServerMessages
from pointsman.router.downstream.talk.subscriptions import resubscribe
from pointsman.router.serving.in_flight import AnswerMemory
from pointsman.router.serving.tasks import Backoff, TaskSet

_CLOSE_S = 1.0  # how long a server may take to end its session
_SEND_S = 10.0  # for a cancellation or a reply to a question
_PING_S = 2.0
_RENEW_S = 10.0  # for the handshake of a new session; after that the supervisor connects anew
_RESUMES = 100  # of one call; each needs an event from the server, so this only bounds a malicious one
_RESUME_PAUSE_S = 60.0
_LISTS = ("tools", "prompts", "resources")
_CALL_TOOL = "tools/call"


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """What a handshake yielded: the introduction, and the head of each request. Replaced as a whole, never changed."""

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
"""Does the handshake, including `notifications/initialized`. Raises ConnectionLostError."""


class _SessionLostError(Exception):
    """The server does not know the session, so it has not processed the request."""


class LegacyHttp:
    """Fits `Connection`."""

    def __init__(
        self,
        client: HttpClient,
        session: Session,
        open_session: OpenSession,
        limits: Limits,
        on_notification: OnNotification,
        record: ServerRecord,
        backoff: Backoff | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self._client = client
        self._session = session
        self._open_session = open_session
        self._result_bytes = limits.result_bytes
        self._memory = memory
        self._on_notification = on_notification
        self._numbers = itertools.count(HANDSHAKE_NUMBER + 1)
        self._subscribed: set[str] = set()  # URIs of resources
        self._log_level: Json | None = None  # the params of the last `logging/setLevel`
        self._renewal: asyncio.Task[Session] | None = None
        self._tasks = TaskSet()
        self._router = QuestionRouter(record, shared_stream=False)
        self._messages = ServerMessages(limits, on_notification, self._reply, self._router)
        self._backoff = backoff or Backoff()
        self._listening = self._tasks.spawn(self._listen())

    @property
    def introduction(self) -> Introduction:
        return self._session.introduction

    async def request(self, call: Call) -> Json:
        session = self._session  # whose tools the caller knows
        turn, sent = self._router.enter(call), True
        try:
            if turn is not None:
                await self._router.wait_for(turn, call)
            result = await self._request(call, session)
            call.answered = True
        except DownstreamError:
            call.answered = True
            raise
        except CallNotSentError:
            sent = False
            raise
        finally:
            if call.answered or not sent or not self._router.linger(call):
                self._router.leave(call)
            else:
                self._tasks.spawn(self._leave_after_ping(call))
        if call.method == "resources/subscribe":
            self._subscribed.add(str(call.params.get("uri")))
        elif call.method == "resources/unsubscribe":
            self._subscribed.discard(str(call.params.get("uri")))
        elif call.method == SET_LEVEL:
            self._log_level = call.params
        return result

    async def _request(self, call: Call, session: Session) -> Json:
        """Send `call`, once more if the session is lost. Raises as `Connection.request`.

        A call of a tool is not repeated: the tool may have changed with the session. Nor is it sent in a later session
        than it was meant for. Raises SessionRenewedError for both.
        """
        if self._renewal is None and self._session is session:
            try:
                return await self._send(call, session)
            except _SessionLostError:
                pass
        session = await self._renewed(session)
        if call.method == _CALL_TOOL:
            raise SessionRenewedError("it lost our session, probably in a restart")
        try:
            return await self._send(call, session)
        except _SessionLostError:
            raise ConnectionLostError("it lost our session twice in a row") from None

    async def ended(self) -> str:
        return await self._client.unreachable()

    async def close(self) -> None:
        self._messages.close("the connection was closed")
        try:
            await self._tasks.close()
            if self._renewal is not None:
                self._renewal.cancel()
                await asyncio.gather(self._renewal, return_exceptions=True)
            if self._session.has_id:
                with suppress(ConnectionLostError, TimeoutError):
                    async with asyncio.timeout(_CLOSE_S):
                        (await self._client.send(self._session.delete)).close()
        finally:  # a daemon that ends may cancel the DELETE
            await self._client.close()

    # ------------------------------------------------------------------ one call

    async def _send(self, call: Call, session: Session) -> Json:
        number = call.number = next(self._numbers)
        params = with_meta(call, "legacy", session.introduction.version, number)
        body = encode({"jsonrpc": "2.0", "id": number, "method": call.method, "params": params})
        self._messages.calls[number] = call
        on_message = partial(self._messages.receive_in_call, call)
        try:
            head = session.post
            if call.request is not None and call.request.span is not None:
                head = with_headers(head, call.request.span.context)
            response = await self._client.send(head, body)
            if session.has_id and response.status == HTTPStatus.NOT_FOUND:
                response.close()
                raise _SessionLostError
            try:
                return await read_result(response, number, self._result_bytes, on_message, self._memory)
            except StreamCutError as cut:
                return await self._resume(cut, number, session, on_message)
            except DownstreamError as refusal:
                if session.has_id and response.status == HTTPStatus.BAD_REQUEST and _names_session(refusal):
                    raise _SessionLostError from None
                raise
        except ConnectionLostError:
            self._client.check_reachable()
            raise
        except (asyncio.CancelledError, BudgetExceededError):
            self._cancel_at_server(number, session)
            raise
        finally:
            del self._messages.calls[number]
            if self._messages.open_questions:
                self._messages.end(call)

    async def _resume(self, cut: StreamCutError, number: int, session: Session, on_message: OnMessage) -> Json:
        """The server ended the stream on purpose (to free the connection) and keeps the answer for us."""
        for _ in range(_RESUMES):
            await asyncio.sleep(min((cut.retry_ms or 0) / 1000, _RESUME_PAUSE_S))
            head = with_headers(session.get, {"Last-Event-ID": cut.last_event_id})
            try:
                return await read_result(
                    await self._client.send(head), number, self._result_bytes, on_message, self._memory
                )
            except StreamCutError as again:
                if again.last_event_id == cut.last_event_id and not again.retry_ms and not cut.retry_ms:
                    break  # no new event, and no hint when to retry
                cut = again
            except CallNotSentError as error:
                raise ConnectionLostError(str(error)) from None  # the call itself was sent
        raise ConnectionLostError(str(cut))

    async def _leave_after_ping(self, call: Call) -> None:
        """`call` was cancelled: until the server has read that, it may still ask for it."""
        try:
            with suppress(ConnectionLostError, DownstreamError, BudgetExceededError, TimeoutError):
                async with asyncio.timeout(_PING_S):
                    await self._request(Call("ping", {}), self._session)
        finally:
            self._router.leave(call)

    def _cancel_at_server(self, number: int, session: Session) -> None:
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
        self._tasks.spawn(self._post(cancelled, session))

    def _reply(self, answer: Json) -> None:
        self._tasks.spawn(self._post(answer, self._session))

    async def _post(self, message: Json, session: Session) -> None:
        """Deliver a message that has no answer, if the server takes it: a failure shows in the calls."""
        with suppress(ConnectionLostError, TimeoutError):
            async with asyncio.timeout(_SEND_S):
                (await self._client.send(session.post, encode(message))).close()

    # ------------------------------------------------------------------ a lost session

    async def _renewed(self, lost: Session) -> Session:
        """The session after `lost`, opened once for all calls that found it lost (single-flight).

        No call uses it before the server has accepted `notifications/initialized`, because until then the server may
        refuse every other request.
        """
        if self._session is not lost:
            return self._session
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_task(self._renew())
            self._renewal.add_done_callback(self._restore)
        return await asyncio.shield(self._renewal)

    async def _renew(self) -> Session:
        """Raises CallNotSentError: the connection is over, and no call that waits for the session was processed."""
        try:
            async with asyncio.timeout(_RENEW_S):
                return await self._open_session()
        except TimeoutError:
            reason = f"it lost our session and gave no new one within {_RENEW_S:g} s"
        except SignInNeededError:
            raise  # the connection is over already
        except ConnectionLostError as error:
            reason = f"it lost our session and gave no new one: {error}"
        self._client.give_up(reason)
        raise CallNotSentError(reason)

    def _restore(self, done: asyncio.Task[Session]) -> None:
        """Restore in the new session what the lost one had: stream, subscriptions, log level."""
        self._renewal = None
        if done.cancelled() or done.exception() is not None:
            return  # the waiting calls get the error; the connection ends with it
        before, self._session = self._session, done.result()
        self._listening.cancel()
        self._listening = self._tasks.spawn(self._listen())
        self._tasks.spawn(resubscribe(self, lambda: self._subscribed))
        if self._log_level is not None:
            self._tasks.spawn(self._set_level(self._log_level))
        for name in _LISTS:  # a server that lost the session was probably restarted, and its lists may have changed
            if name in before.introduction.capabilities or name in self._session.introduction.capabilities:
                self._on_notification(f"notifications/{name}/list_changed", {})

    async def _set_level(self, level: Json) -> None:
        with suppress(ConnectionLostError, DownstreamError, BudgetExceededError):
            await self._request(Call(SET_LEVEL, level), self._session)

    # ------------------------------------------------------------------ the standalone stream

    async def _listen(self) -> None:
        session = self._session
        while True:
            try:
                if not await self._listen_once(session):
                    return
            except _SessionLostError:
                with suppress(ConnectionLostError):
                    await self._renewed(session)
                return  # the new session has its own stream
            except ConnectionLostError:
                self._client.check_reachable()
            except BudgetExceededError:
                pass  # an endless event; the stream is reopened after a delay
            await self._backoff.wait()

    async def _listen_once(self, session: Session) -> bool:
        """Read the stream to its end. False: the server has no such stream."""
        response = await self._client.send(session.get)
        if response.status == HTTPStatus.OK and response.kind == EVENT_STREAM:
            self._backoff.reset()
            messages = self._messages
            await read_stream(response, self._result_bytes, messages.receive_standalone, messages.unsolicited.pause_s)
            return True
        lost = session.has_id and await _says_session_lost(response)
        response.close()
        if lost:
            raise _SessionLostError
        # 405: there is none; 409: an earlier stream of ours is still open; 5xx: the server has a problem.
        return response.status == HTTPStatus.CONFLICT or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR


async def _says_session_lost(response: HttpResponse) -> bool:
    """The specification says 404; some servers answer 400 and say so in the error."""
    if response.status == HTTPStatus.NOT_FOUND:
        return True
    if response.status != HTTPStatus.BAD_REQUEST:
        return False
    refusals = [error_in(message) for message in await read_error(response)]
    return any(refusal is not None and _names_session(refusal) for refusal in refusals)


def _names_session(refusal: DownstreamError) -> bool:
    return "session" in refusal.message.lower()
