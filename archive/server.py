"""The archive as an MCP server: its tools, and the loop that serves them over stdio in both eras."""

from __future__ import annotations

import json

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
from pointsman.archive.settings import ArchiveSettings
from pointsman.archive.status import ArchiveStatus, read_status

STATUS = Tool(
    name="archive_status",
    title="Archive status",
    description=(
        "Says what the bundled archive can do at present: whether it can search, whether its index exists, "
        "and which of its folders (roots) can be found. Takes no arguments."
    ),
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    output_schema={
        "type": "object",
        "properties": {
            "version": {"type": "string"},
            "searchable": {"type": "boolean"},
            "message": {"type": "string"},
            "database": {"enum": ["not configured", "missing", "present"]},
            "roots": {"type": "object", "additionalProperties": {"enum": ["missing", "present"]}},
        },
        "required": ["version", "searchable", "message", "database", "roots"],
    },
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)


async def serve(settings: ArchiveSettings) -> None:
    """Serve over stdio until the input ends."""
    server = build_server(settings)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def build_server(settings: ArchiveSettings) -> Server:
    async def list_tools(_: ServerRequestContext, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[STATUS])

    async def call_tool(_: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
        if params.name != STATUS.name:
            raise MCPError(INVALID_PARAMS, f"No tool `{params.name}`. The archive has one tool: {STATUS.name}.")
        return _as_result(read_status(settings))

    return Server(
        "pointsman-archive",
        version=pointsman.__version__,
        title="Pointsman archive",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _as_result(status: ArchiveStatus) -> CallToolResult:
    content = status.as_json()
    return CallToolResult(content=[TextContent(text=json.dumps(content))], structured_content=content)
