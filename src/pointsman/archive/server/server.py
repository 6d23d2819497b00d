"""The archive as an MCP server: its tools, and the loop that serves them over stdio in both eras."""

from __future__ import annotations

from collections.abc import Mapping

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
from pointsman.archive.server.calls import Answer, Calling
from pointsman.archive.server.rate_limits import RateLimits
from pointsman.archive.server.workers import Workers
from pointsman.archive.settings import ArchiveSettings
from pointsman.archive.tools.base import ArchiveTool
from pointsman.archive.tools.registry import TOOLS

CALLER = "pointsman/caller"  # the key in `_meta` under which the gateway says who calls


def calling(settings: ArchiveSettings) -> Calling:
    """The tools over one archive. Raises SettingsError."""
    tools = {tool.name: tool for tool in TOOLS}
    archive = open_archive(settings)
    archive.prepare()
    return Calling(archive, tools, RateLimits(settings.rate_limits, tools))


async def serve(calls: Calling) -> None:
    """Serve over stdio until the input ends."""
    server = build_server(calls)
    try:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        calls.close()


def build_server(calls: Calling) -> Server:
    workers = Workers()
    listed = [_listed(tool) for tool in calls.tools.values()]

    async def list_tools(_: ServerRequestContext, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(context: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
        name, arguments = params.name, params.arguments or {}
        if name not in calls.tools:
            said = f"Unknown tool: {name[:100]}. The archive has {', '.join(calls.tools)}."
            raise MCPError(INVALID_PARAMS, said, {"tool": name[:100]})
        caller = _caller(params.meta)
        return _as_result(await workers.run(name, lambda: calls.call(name, arguments, caller)))

    return Server(
        "pointsman-archive",
        version=pointsman.__version__,
        title="Pointsman archive",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _caller(meta: Mapping[str, object] | None) -> str:
    """Empty where nobody says: whoever started us by hand."""
    caller = (meta or {}).get(CALLER)
    return caller if isinstance(caller, str) else ""


def _listed(tool: ArchiveTool) -> Tool:
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
