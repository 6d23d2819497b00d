"""The archive as an MCP server: its tools, and the loop that serves them over stdio in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

import pointsman
from pointsman.archive.archive import open_archive
from pointsman.archive.server.calls import Answer, ToolRunner
from pointsman.archive.server.rate_limits import RateLimits
from pointsman.archive.settings import ArchiveSettings
from pointsman.archive.tools.base import ArchiveTool
from pointsman.archive.tools.registry import TOOLS

CALLER = "pointsman/caller"  # the key in `_meta` for the caller, set by the gateway
THREADS = 16
THREADS_OF_ONE_TOOL = 4

Result = TypeVar("Result")


def make_runner(settings: ArchiveSettings) -> ToolRunner:
    """Open the archive and start to prepare it. Raises SettingsError."""
    tools = {tool.name: tool for tool in TOOLS}
    archive = open_archive(settings)
    archive.prepare()
    return ToolRunner(archive, tools, RateLimits(settings.rate_limits, tools))


async def serve(runner: ToolRunner) -> None:
    """Serve over stdio until the input ends."""
    server = build_server(runner)
    try:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        runner.close()


def build_server(runner: ToolRunner) -> Server:
    workers = Workers()
    tools = [_as_mcp_tool(tool) for tool in runner.tools.values()]

    async def list_tools(_: ServerRequestContext, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
        name, arguments = params.name, params.arguments or {}
        if name not in runner.tools:
            message = f"Unknown tool: {name[:100]}. The archive has {', '.join(runner.tools)}."
            raise MCPError(INVALID_PARAMS, message, {"tool": name[:100]})
        caller = _caller(params.meta)
        return _as_result(await workers.run(name, lambda: runner.call(name, arguments, caller)))

    return Server(
        "pointsman-archive",
        version=pointsman.__version__,
        title="Pointsman archive",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _caller(meta: Mapping[str, object] | None) -> str:
    """Empty if the gateway did not start us."""
    caller = (meta or {}).get(CALLER)
    return caller if isinstance(caller, str) else ""


def _as_mcp_tool(tool: ArchiveTool) -> Tool:
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=False,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def _as_result(answer: Answer) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(text=answer.text)], structured_content=answer.structured, is_error=answer.failed
    )


class Workers:
    """A bounded thread pool: a slow tool delays neither the protocol nor the other tools.

    A cancelled call is no longer awaited; its thread stays busy until the tool returns.
    """

    def __init__(self, threads: int = THREADS, of_one_tool: int = THREADS_OF_ONE_TOOL) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tool")
        self._of_one_tool = of_one_tool
        self._slots: dict[str, asyncio.Semaphore] = {}

    async def run(self, tool: str, work: Callable[[], Result]) -> Result:
        slots = self._slots.setdefault(tool, asyncio.Semaphore(self._of_one_tool))
        await slots.acquire()
        loop = asyncio.get_running_loop()
        running = self._pool.submit(work)

        def release(_: object) -> None:
            with suppress(RuntimeError):  # the loop ended before the tool
                loop.call_soon_threadsafe(slots.release)

        running.add_done_callback(release)
        return await asyncio.wrap_future(running)
