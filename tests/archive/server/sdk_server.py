"""The archive's tools behind the SDK's server: the oracle for our own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import anyio
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
from pointsman.archive.server.calls import ToolRunner
from pointsman.archive.tools.base import ArchiveTool
from pointsman.core.seams import EXAMPLE_REQUESTS


def theirs(runner: ToolRunner) -> Callable[[int, int], None]:
    def serve(reading: int, writing: int) -> None:
        asyncio.run(_serve(runner, reading, writing))

    return serve


async def _serve(runner: ToolRunner, reading: int, writing: int) -> None:
    server = _build_server(runner)
    incoming = anyio.wrap_file(os.fdopen(os.dup(reading), encoding="utf-8", errors="replace"))
    outgoing = anyio.wrap_file(os.fdopen(os.dup(writing), "w", encoding="utf-8"))
    async with incoming, outgoing, stdio_server(incoming, outgoing) as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


def _build_server(runner: ToolRunner) -> Server:
    tools = [_as_mcp_tool(tool) for tool in runner.tools.values()]

    async def list_tools(_: ServerRequestContext, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(_: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
        name, arguments = params.name, params.arguments or {}
        if name not in runner.tools:
            message = f"Unknown tool: {name[:100]}. The archive has {', '.join(runner.tools)}."
            raise MCPError(INVALID_PARAMS, message, {"tool": name[:100]})
        caller = (params.meta or {}).get("pointsman/caller")
        answer = await asyncio.to_thread(runner.call, name, arguments, caller if isinstance(caller, str) else "")
        return CallToolResult(
            content=[TextContent(text=answer.text)], structured_content=answer.structured, is_error=answer.failed
        )

    return Server(
        "pointsman-archive",
        version=pointsman.__version__,
        title="Pointsman archive",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


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
        _meta={EXAMPLE_REQUESTS: list(tool.example_requests)} if tool.example_requests else None,
    )
