"""What the benchmark's servers answer: the least that both eras allow, so that the gateway is what is measured."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from bench.servers.tools import PRODUCE, echo_tool, many_tools, produce_tool

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
INFO = {"name": "bench", "version": "1"}
TTL_MS = 60_000
METHOD_NOT_FOUND = -32601

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class Answers:
    """One server's answers. `count` tools besides the two that are called; its lists are good for `ttl_ms`."""

    def __init__(self, server: int = 0, count: int = 0, ttl_ms: int = TTL_MS) -> None:
        self._results: dict[str, dict[str, Any]] = {
            "initialize": {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": INFO},
            "server/discover": {
                "supportedVersions": [MODERN],
                "capabilities": {"tools": {}},
                "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
                **fresh(ttl_ms),
            },
            "tools/list": {"tools": [*many_tools(server, count), echo_tool(), produce_tool()], **fresh(ttl_ms)},
            "ping": {},
        }

    def answer(self, message: dict[str, Any]) -> bytes | None:
        """None for a notification."""
        if "id" not in message:
            return None
        method = message["method"]
        if method == "tools/call" and message["params"]["name"] == PRODUCE:
            return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(message["id"]), _produced(message["params"]))
        if method == "tools/call":
            text = message["params"]["arguments"]["text"]
            result = {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}
        elif method in self._results:
            result = self._results[method]
        else:
            error = {"code": METHOD_NOT_FOUND, "message": f"No method {method}"}
            return encode({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return encode({"jsonrpc": "2.0", "id": message["id"], "result": result})


@lru_cache(maxsize=8)
def _result_of(size: int) -> bytes:
    """Lines as a program prints them, with quotes and line ends that JSON escapes."""
    line = 'GET "/orders/17" 200 in 12 ms; caché hit\n'
    text = (line * (size // len(line) + 1))[:size]
    return encode({"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"})


def _produced(params: dict[str, Any]) -> bytes:
    return _result_of(params["arguments"]["size"])


def fresh(ttl_ms: int) -> dict[str, Any]:
    return {"resultType": "complete", "ttlMs": ttl_ms, "cacheScope": "public"}
