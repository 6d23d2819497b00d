"""A small MCP server on stdin and stdout whose tools answer with the bytes of the file that the caller names."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("answer", "other")]


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            said = answer(message["method"], message.get("params") or {})
            number = json.dumps(message["id"]).encode()
            sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": %b, %b}\n' % (number, said))
            sys.stdout.buffer.flush()


def answer(method: str, params: dict[str, Any]) -> bytes:
    if method == "tools/call":
        return b'"result": %b' % Path(params["arguments"]["file"]).read_bytes()
    return json.dumps(own_answer(method, params)).encode()[1:-1]


def own_answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "answers", "version": "1"}
        version = params["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    serve()
