"""The connection to a server that another worker runs: calls are carried to that worker, and answered from there.

All that decides about a call (rights, audit, deadline, the client's answers) stays in the worker that took it.
"""

from __future__ import annotations

import asyncio
import socket
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from pointsman.core.model import Json
from pointsman.core.seams import ClientGoneError
from pointsman.router.downstream.connection import (
    Call,
    CallNotSentError,
    ConnectionLostError,
    Introduction,
    OnNotification,
)
from pointsman.router.downstream.placement.frames import QUESTION_ERRORS, Channel, call_frame, error_frame, error_of
from pointsman.router.serving.tasks import TaskSet
from pointsman.router.serving.unix_address import reachable

LOST: Final = "the worker that runs it has ended"


async def connect_carried(path: Path, on_notification: OnNotification, most_bytes: int) -> CarriedConnection:
    """Connect to the worker that listens at `path`, and wait until its server runs.

    Raises:
        OSError: no worker listens there.
        SocketPathError
        ConnectionLostError: the server could not be started, with the reason.
    """
    channel = await _open(path, most_bytes)
    try:
        return CarriedConnection(channel, _introduction(await channel.receive()), on_notification)
    except BaseException:
        channel.close()
        raise


def _introduction(first: Json | None) -> Introduction:
    """Raises ConnectionLostError, and ConnectionResetError if that worker has ended."""
    if first is None:
        raise ConnectionResetError
    if first["type"] == "failed":
        raise ConnectionLostError(first["reason"])
    return msgspec.convert(first["introduction"], Introduction)


async def _open(path: Path, most_bytes: int) -> Channel:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with reachable(path) as address:
            await asyncio.get_running_loop().sock_connect(connection, address)
        return Channel(*await asyncio.open_unix_connection(sock=connection), most_bytes)
    except BaseException:
        connection.close()
        raise


class CarriedConnection:
    """Fits `Connection`."""

    def __init__(self, channel: Channel, introduction: Introduction, on_notification: OnNotification) -> None:
        self.introduction = introduction
        self._channel = channel
        self._on_notification = on_notification
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._pending: dict[int, tuple[Call, asyncio.Future[Json]]] = {}
        self._questions: dict[int, tuple[int, asyncio.Task[None]]] = {}  # with the call that each belongs to
        self._over: asyncio.Future[str] = self._loop.create_future()
        self._tasks = TaskSet()
        self._tasks.spawn(self._read())

    async def request(self, call: Call) -> Json:
        if self._over.done():
            raise CallNotSentError(self._over.result())
        number, answer = next(self._numbers), self._loop.create_future()
        self._pending[number] = call, answer
        try:
            self._channel.send(call_frame(number, call))
            result: Json = await answer
            return result
        finally:
            if self._pending.pop(number, None) is not None:  # our caller was cancelled
                self._channel.send({"type": "cancel", "call": number})
            for question_of, task in [*self._questions.values()]:
                if question_of == number:
                    task.cancel()
            del answer  # a reference cycle with the error that it may have

    async def ended(self) -> str:
        return await asyncio.shield(self._over)

    async def close(self) -> None:
        self._lost("the connection was closed")
        self._channel.close()
        await self._tasks.close()

    # ------------------------------------------------------------------ frames in

    async def _read(self) -> None:
        try:
            while (frame := await self._channel.receive()) is not None:
                self._handle(frame)
        finally:
            self._lost(LOST)
            self._channel.close()

    def _handle(self, frame: Json) -> None:
        kind = frame.get("type")
        if kind is None:
            self._done(frame)
        elif kind in ("note", "clock"):
            self._tell_call(frame)
        elif kind == "ask":
            self._start_question(frame)
        elif kind == "unask":
            _, task = self._questions.get(frame["question"], (0, None))
            if task is not None:
                task.cancel()
        elif kind == "notice":
            self._on_notification(frame["method"], frame["params"])
        elif kind == "over":
            self._end(frame["reason"])

    def _done(self, frame: Json) -> None:
        _, answer = self._pending.pop(frame["id"], (None, None))
        if answer is None or answer.done():
            return
        if "result" in frame:
            answer.set_result(frame["result"])
        else:
            answer.set_exception(error_of(frame["error"]))

    def _tell_call(self, frame: Json) -> None:
        call = self._call(frame["call"])
        if call is None:
            return
        if frame["type"] == "clock":
            if call.clock is not None:
                (call.clock.pause if frame["paused"] else call.clock.resume)()
        elif call.back is not None:
            call.back.notify(frame["method"], frame["params"])

    def _call(self, number: int) -> Call | None:
        call, _ = self._pending.get(number, (None, None))
        return call

    def _start_question(self, frame: Json) -> None:
        question = frame["question"]
        task = self._tasks.spawn(self._ask(question, self._call(frame["call"]), frame["method"], frame["params"]))
        self._questions[question] = frame["call"], task
        task.add_done_callback(lambda _: self._questions.pop(question, None))

    async def _ask(self, question: int, call: Call | None, method: str, params: Json) -> None:
        try:
            if call is None or call.back is None:
                raise ClientGoneError
            answer: Json = {"result": await call.back.ask(method, params)}
        except QUESTION_ERRORS as error:
            answer = {"error": error_frame(error)}
        self._channel.send({"type": "answer", "question": question, **answer})

    # ------------------------------------------------------------------ the end

    def _end(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_result(reason)

    def _lost(self, reason: str) -> None:
        """Nothing more can come: every call under way fails, and may have run."""
        self._end(reason)
        pending, self._pending = self._pending, {}
        for _, answer in pending.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError(reason))
