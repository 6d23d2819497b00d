"""How the two tools answer: shapes of `tools/call` results."""

from __future__ import annotations

from typing import Any

from pointsman.catalog.errors import GatewayError
from pointsman.catalog.model import Json
from pointsman.router import wire


def structured(content: Json) -> Json:
    """The same content for programs and, as text, for clients that read only text."""
    return {"content": [{"type": "text", "text": wire.encode(content).decode()}], "structuredContent": content}


def failure(error: GatewayError) -> Json:
    """An error that the model can act on."""
    message = str(error)
    return {
        "content": [{"type": "text", "text": message}],
        "structuredContent": {"error": {"code": error.code, "message": message}},
        "isError": True,
    }


def carried(result: Json) -> Json:
    """A server's result as `tool_execute` answers it: all as it came, structured content under `result`."""
    if "structuredContent" not in result:
        return result
    inner: Any = result["structuredContent"]
    return {**result, "structuredContent": {"result": inner}}
