"""The archive's server in the test's own process, over real pipes: with tools of the test, for a client of the SDK."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

import anyio
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from pointsman.archive.archive import Archive
from pointsman.archive.server.calls import ToolRunner
from pointsman.archive.server.rate_limits import RateLimits
from pointsman.archive.server.server import StdioServer
from pointsman.archive.tools.base import ArchiveTool, Call
from pointsman.core.model import Json

OBJECT = {"type": "object"}
LONGEST_LINE = 100_000_000


def tool(name: str, run: Callable[[Json], Json]) -> ArchiveTool:
    def answer(archive: Archive, arguments: Json, call: Call) -> Json:
        return run(arguments)

    return ArchiveTool(name, name, name, OBJECT, OBJECT, answer)


def runner_of(*tools: ArchiveTool, limits: Mapping[str, int] | None = None) -> ToolRunner:
    by_name = {entry.name: entry for entry in tools}
    return ToolRunner(Archive({}), by_name, RateLimits(limits or {}, by_name))


def ours(runner: ToolRunner, **settings: Any) -> Callable[[int, int], None]:
    return lambda reading, writing: StdioServer(runner, reading, writing, **settings).run()


@asynccontextmanager
async def wire(serve: Callable[[int, int], None]) -> AsyncIterator[tuple[BinaryIO, asyncio.StreamReader]]:
    """Run `serve` over two pipes on a thread; yield its input, which the test may close, and its output."""
    requests_end, to_server = os.pipe()
    from_server, answers_end = os.pipe()

    def run() -> None:
        try:
            serve(requests_end, answers_end)
        finally:
            os.close(answers_end)
            os.close(requests_end)

    thread = threading.Thread(target=run)
    thread.start()
    requests = os.fdopen(to_server, "wb")
    answers = asyncio.StreamReader(limit=LONGEST_LINE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(answers), os.fdopen(from_server, "rb")
    )
    try:
        yield requests, answers
    finally:
        requests.close()
        await asyncio.to_thread(thread.join)
        transport.close()


@asynccontextmanager
async def _transport(runner: ToolRunner) -> AsyncIterator[tuple[Any, Any]]:
    """Fits the SDK's `Transport`."""
    received, to_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)[::-1]
    to_send, from_client = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(answers: asyncio.StreamReader) -> None:
        async with to_client:
            async for line in answers:
                await to_client.send(SessionMessage(jsonrpc_message_adapter.validate_json(line)))

    async def write(requests: BinaryIO) -> None:
        async with from_client:
            async for message in from_client:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await asyncio.to_thread(send, requests, text.encode())

    async with wire(ours(runner)) as (requests, answers), anyio.create_task_group() as group:
        group.start_soon(read, answers)
        group.start_soon(write, requests)
        yield received, to_send
        group.cancel_scope.cancel()


def send(requests: BinaryIO, line: bytes) -> None:
    requests.write(line + b"\n")
    requests.flush()


def serving(*tools: ArchiveTool, limits: Mapping[str, int] | None = None) -> Client:
    """The real server, with tools of the test's own."""
    return Client(_transport(runner_of(*tools, limits=limits)))
