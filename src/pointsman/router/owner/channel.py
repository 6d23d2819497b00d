"""Serves the owner's channel: one request and one answer on each connection, both a line of JSON.

A request is `{"operation": NAME, "parameters": {...}}`; an answer is `{"result": {...}}` or
`{"error": {"code": ..., "message": ...}}`. The daemon works without the channel, so its faults only end a connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from pointsman.core import wire
from pointsman.core.model import Json
from pointsman.router.owner.socket_file import FILE, MAX_REQUEST_BYTES, listen
from pointsman.router.serving.unix_address import SocketPathError, is_own

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 16
REQUEST_S = 10.0  # to send the request
ANSWER_S = 10.0  # to read the answer
STOP_S = 1.0  # to read that the gateway is stopping
STOPPING = (
    "The gateway was stopped before this was finished. What was under way may have taken effect: "
    "look before you repeat it."
)

Operation = Callable[[Json], Awaitable[Json]]


class OwnerError(Exception):
    """An operation cannot be carried out. `str(error)` is shown to the person at the terminal."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@asynccontextmanager
async def owner_channel(folder: Path, operations: Mapping[str, Operation]) -> AsyncGenerator[Channel]:
    """Serve the channel inside the block; `drain` it at its end. Requires the lock of the folder."""
    channel = Channel(operations)
    try:
        listener = listen(folder)
    except (OSError, SocketPathError) as error:
        logger.warning("no channel for the owner's commands: %s", error)
        yield channel
        return
    server = await asyncio.start_unix_server(channel.serve, sock=listener, limit=MAX_REQUEST_BYTES)
    try:
        yield channel
    finally:
        (folder / FILE).unlink(missing_ok=True)
        server.close()
        await channel.close()


class Channel:
    """The connections, each in a task of its own."""

    def __init__(self, operations: Mapping[str, Operation]) -> None:
        self._operations = operations
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: set[asyncio.Future[Json]] = set()  # operations

    @property
    def running(self) -> int:
        """How many operations are under way."""
        return len(self._under_way)

    async def drain(self, grace_s: float) -> None:
        """Let operations finish for `grace_s`, then end them with an answer that says why."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=grace_s)
        cut = list(self._under_way)
        for operation in cut:
            operation.cancel()
        answers = [task for task in self._tasks if not task.done()] if cut else []
        if answers:
            await asyncio.wait(answers, timeout=STOP_S)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = writer.get_extra_info("socket")
        if len(self._tasks) >= MAX_CONNECTIONS or not is_own(connection):
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            answer = await self._answer_unless_gone(reader)
            if answer is not None:
                async with asyncio.timeout(ANSWER_S):
                    writer.write(wire.encode(answer) + b"\n")
                    await writer.drain()
                    writer.write_eof()
                    await reader.read(1)  # the client closes once it has read everything
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the client is gone or does not read, or the daemon ends
        except Exception:
            logger.exception("a request on the owner's channel failed")
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer_unless_gone(self, reader: asyncio.StreamReader) -> Json | None:
        """Answer one request; None: the client left before it had its answer."""
        try:
            async with asyncio.timeout(REQUEST_S):
                line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            return _failure("invalid_request", f"The request is longer than {MAX_REQUEST_BYTES} bytes.")
        operation = asyncio.ensure_future(self._answer(line))
        self._under_way.add(operation)
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((operation, gone), return_when=asyncio.FIRST_COMPLETED)
            if operation.cancelled():
                return _failure("stopping", STOPPING)
            return operation.result() if operation.done() else None
        finally:
            self._under_way.discard(operation)
            operation.cancel()
            gone.cancel()
            await asyncio.gather(operation, gone, return_exceptions=True)

    async def _answer(self, line: bytes) -> Json:
        try:
            request = wire.decode(line)
        except wire.InvalidJsonError:
            return _failure("invalid_request", "The request is not JSON.")
        name = request.get("operation") if isinstance(request, dict) else None
        parameters = request.get("parameters", {}) if isinstance(request, dict) else None
        if not isinstance(name, str) or not isinstance(parameters, dict):
            return _failure("invalid_request", "A request is an object with `operation` and `parameters`.")
        operation = self._operations.get(name)
        if operation is None:
            return _failure("unknown_operation", f"This gateway has no operation `{name[:64]}`. Is it another version?")
        try:
            return {"result": await operation(parameters)}
        except OwnerError as error:
            return _failure(error.code, str(error))
        except Exception:
            logger.exception("the owner's operation `%s` failed", name)
            return _failure("internal", "The operation failed inside the gateway; its log has the reason.")


def _failure(code: str, message: str) -> Json:
    return {"error": {"code": code, "message": message}}
