"""Names of span attributes, from the semantic conventions of OpenTelemetry and our own.

Copied as text: those for MCP and GenAI are in a module of the SDK that may move (`semconv._incubating`).
"""

from __future__ import annotations

from typing import Final

# MCP, JSON-RPC and GenAI
METHOD: Final = "mcp.method.name"
PROTOCOL_VERSION: Final = "mcp.protocol.version"
JSONRPC_ID: Final = "jsonrpc.request.id"
STATUS_CODE: Final = "rpc.response.status_code"  # of a JSON-RPC error
OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"  # the value of OPERATION for tools/call
TOOL: Final = "gen_ai.tool.name"
PROMPT: Final = "gen_ai.prompt.name"

# General
ERROR_TYPE: Final = "error.type"
TOOL_ERROR: Final = "tool_error"  # the value of ERROR_TYPE for a result with `isError`
OTHER: Final = "_OTHER"  # stands for a value that is not well known
TRANSPORT: Final = "network.transport"
NETWORK_PROTOCOL: Final = "network.protocol.name"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"

# Ours
TOKEN: Final = "pointsman.token.id"  # noqa: S105 - the name of an attribute
PROJECT: Final = "pointsman.project.id"
REQUEST: Final = "pointsman.request.id"
CLIENT_NAME: Final = "pointsman.client.name"
SERVER: Final = "pointsman.server.id"
INPUT_REQUIRED: Final = "pointsman.input_required"

METHODS: Final = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/directory/read",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "skills/get",
        "skills/list",
        "subscriptions/listen",
        "tools/call",
        "tools/list",
    }
)
"""Methods that spans name. A client may send any other text as one."""
