"""Forwards messages between a client on stdin and stdout and the gateway, in either protocol era."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from pointsman.core import wire
from pointsman.core.lines import Line
from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from pointsman.router.bridge.gateway_client import (
    Answer,
    GatewayClient,
    GatewayClientError,
    GatewayUnreachableError,
    NotSentError,
    StreamCutError,
)
from pointsman.router.bridge.legacy_session import LegacySession, SessionLostError
from pointsman.router.bridge.pipes import LineTooLongError
from pointsman.router.downstream.talk.request_meta import NAMESPACE
from pointsman.router.serving.tasks import TaskSet

if TYPE_CHECKING:
    from pointsman.router.bridge.modern_headers import ModernHeaders

logger = logging.getLogger(__name__)

LAST_ANSWERS_S = 1.0  # for requests in progress when the client closes stdin
_LOST = (
    "The connection to the gateway was lost during this request, which may have been executed. "
    "Check before you repeat it."
)
_KINDS = ("method", "result", "error")  # a request or notification, and the two kinds of response
_CANCEL_PAUSES_S = (0.2, 1.0, 5.0)  # a cancellation may overtake its request, which uses another connection


class Out(Protocol):
    async def write(self, message: bytes) -> None: ...


class Bridge:
    """Serves one client. Each message has its own task, so that none waits for another."""

    def __init__(self, gateway: GatewayClient, out: Out) -> None:
        self._gateway = gateway
        self._out = out
        self._modern: ModernHeaders | None = None
        self._session = LegacySession(gateway, out.write)
        self._under_way: dict[tuple[type, Any], asyncio.Task[None]] = {}
        self._cancelled: set[tuple[type, Any]] = set()
        self._tasks = TaskSet()

    async def run(self, lines: AsyncIterator[Line | LineTooLongError]) -> None:
        """Run until the client closes stdin, then end the requests in progress."""
        try:
            async for line in lines:
                self._dispatch(line)
            await self._tasks.drain(LAST_ANSWERS_S)
        finally:
            await self._tasks.close()
            await self._session.close()

    # ------------------------------------------------------------------ from the client

    def _dispatch(self, line: Line | LineTooLongError) -> None:
        if isinstance(line, LineTooLongError):
            self._tasks.spawn(self._refuse(line.id, INVALID_REQUEST, f"{line}."))
            return
        try:
            message = wire.decode(line)
        except wire.InvalidJsonError:
            self._tasks.spawn(
                self._refuse(
                    None, PARSE_ERROR, "Parse error: this line is not JSON. Send one JSON-RPC message on each line."
                )
            )
            return
        if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
            self._tasks.spawn(self._refuse(None, INVALID_REQUEST, "A line must be one JSON-RPC message."))
        elif message.keys().isdisjoint(_KINDS):
            text = "A message must have a `method`, a `result` or an `error`."
            self._tasks.spawn(self._refuse(_hashable(message.get("id")), INVALID_REQUEST, text))
        elif "method" in message and "id" in message:
            self._request(message, bytes(line))
        elif message.get("method") == "notifications/cancelled":
            self._cancel(message, bytes(line))
        else:
            self._tasks.spawn(self._notify(message, bytes(line)))

    def _request(self, message: Json, body: bytes) -> None:
        key = (type(message["id"]), _hashable(message["id"]))
        task = self._tasks.spawn(self._forward(message, body, key))
        self._under_way[key] = task
        task.add_done_callback(lambda _: self._forget(key, task))

    def _cancel(self, message: Json, body: bytes) -> None:
        params = message.get("params")
        number = params.get("requestId") if isinstance(params, dict) else None
        key = (type(number), _hashable(number))
        task = self._under_way.get(key)
        if task is None:
            return
        self._cancelled.add(key)  # drop its answer, if any
        if self._session.open:
            self._tasks.spawn(self._cancel_in_session(task, body))
        else:
            task.cancel()  # closes the connection, which cancels a modern request

    async def _cancel_in_session(self, task: asyncio.Task[None], body: bytes) -> None:
        with suppress(GatewayClientError, SessionLostError):
            for pause_s in _CANCEL_PAUSES_S:
                await self._session.notify(body)
                done, _ = await asyncio.wait((task,), timeout=pause_s)
                if done:
                    return
        task.cancel()

    # ------------------------------------------------------------------ to the gateway

    async def _forward(self, message: Json, body: bytes, key: tuple[type, Any]) -> None:
        """Forward a request. The client gets an answer, or an error in its place."""
        try:
            answered = await self._exchange(message, body, key)
        except GatewayUnreachableError as reason:
            await self._refuse(message["id"], INTERNAL_ERROR, str(reason))
        except NotSentError:
            await self._refuse(message["id"], INTERNAL_ERROR, "Could not reach the gateway. Retry later.")
        except StreamCutError:
            await self._refuse(message["id"], INTERNAL_ERROR, _LOST)
        else:
            if not answered and key not in self._cancelled:
                await self._refuse(message["id"], INTERNAL_ERROR, _LOST)

    async def _exchange(self, message: Json, body: bytes, key: tuple[type, Any]) -> bool:
        version = _modern_version(message)
        if version is not None:
            async with self._gateway.send("POST", self._headers().of(message, version), body) as answer:
                return await self._relay(answer, message, key)
        async with self._session.request(message, body) as answer:
            return await self._relay(answer, message, key)

    def _headers(self) -> ModernHeaders:
        if self._modern is None:
            from pointsman.router.bridge.modern_headers import ModernHeaders  # deferred: imports the SDK

            self._modern = ModernHeaders()
        return self._modern

    async def _relay(self, answer: Answer, request: Json, key: tuple[type, Any]) -> bool:
        """Write all messages of the HTTP answer; return whether the response to `request` was one of them."""
        answered = False
        async for body, _ in answer.messages():
            received = _decoded(body)
            if received is None:
                continue
            if "method" in received:
                await self._out.write(body)
                continue
            answered = True
            if key in self._cancelled:
                continue
            if request["method"] == "tools/list" and self._modern is not None:
                self._modern.learn(received)
            elif request["method"] == "initialize":
                self._session.begin(answer.session_id, received)
            if received.get("id") != request["id"]:  # an error before the request was parsed has no id
                body = wire.encode({**received, "id": request["id"]})
            await self._out.write(body)
        return answered

    async def _notify(self, message: Json, body: bytes) -> None:
        """Forward a notification or the answer to a question. A failure is only logged: the client expects no reply."""
        if not self._session.open:
            return  # the modern era has neither over HTTP
        try:
            await self._session.notify(body)
        except (GatewayClientError, SessionLostError):
            logger.warning("%s did not reach the gateway", message.get("method", "an answer"))

    # ------------------------------------------------------------------ to the client

    async def _refuse(self, number: Any, code: int, text: str) -> None:
        error = {"code": code, "message": text}
        await self._out.write(wire.encode({"jsonrpc": "2.0", "id": number, "error": error}))

    def _forget(self, key: tuple[type, Any], task: asyncio.Task[None]) -> None:
        self._cancelled.discard(key)
        if self._under_way.get(key) is task:
            del self._under_way[key]


def _decoded(body: bytes) -> Json | None:
    try:
        message = wire.decode(body) if body else None
    except wire.InvalidJsonError:
        return None
    return message if isinstance(message, dict) else None


def _hashable(number: object) -> object:
    return number if isinstance(number, str | int | float) else None


def _modern_version(message: Json) -> str | None:
    """Return the protocol version in the envelope of a modern request; None for the legacy era."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(NAMESPACE + "protocolVersion") if isinstance(meta, dict) else None
    return version if isinstance(version, str) else None
