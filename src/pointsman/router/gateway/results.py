"""How tools answer: shapes of `tools/call` results."""

from __future__ import annotations

from pointsman.core import wire
from pointsman.core.errors import GatewayError, RateLimitedError
from pointsman.core.model import Json

SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"


def structured(content: Json) -> Json:
    """The same content for programs and, as text, for clients that read only text."""
    return {"content": [{"type": "text", "text": wire.encode(content).decode()}], "structuredContent": content}


def failure(error: GatewayError) -> Json:
    """An error that the model can act on."""
    message = str(error)
    shown: Json = {"code": error.code, "message": message}
    if isinstance(error, RateLimitedError):
        shown["retryAfterS"] = error.retry_after_s
    return {"content": [{"type": "text", "text": message}], "structuredContent": {"error": shown}, "isError": True}


def carried(result: Json) -> Json:
    """A server's result as `tool_execute` answers it: all as it came, structured content under `result`."""
    if "structuredContent" in result:
        result = {**result, "structuredContent": {"result": result["structuredContent"]}}
    return own_result(result)


def own_result(result: Json) -> Json:
    """A server's result, whole, as an answer of ours: the client speaks with us, not with that server."""
    meta = result.get("_meta")
    if isinstance(meta, dict) and SERVER_INFO_KEY in meta:
        result = {**result, "_meta": {key: value for key, value in meta.items() if key != SERVER_INFO_KEY}}
    return result
