"""A small MCP server on stdin and stdout whose calls leave a trace: a test can see what ran and what did not."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

TOOLS = [
    {
        "name": "paint",
        "description": "Paint an object in a colour",
        "inputSchema": {
            "type": "object",
            "properties": {"object": {"type": "string"}, "coats": {"type": "integer", "minimum": 1}},
            "required": ["object"],
            "additionalProperties": False,
        },
        "annotations": {"destructiveHint": True},
    },
    {"name": "erase", "description": "Erase everything in the workshop", "inputSchema": {"type": "object"}},
    {"name": "colour", "description": "Say which colour this workshop uses", "inputSchema": {"type": "object"}},
    {"name": "wait", "description": "Wait until a file is there", "inputSchema": {"type": "object"}},
    {"name": "hang", "description": "Never answer", "inputSchema": {"type": "object"}},
    {"name": "break", "description": "Fail in an orderly way", "inputSchema": {"type": "object"}},
    {"name": "refuse", "description": "Answer with a protocol error", "inputSchema": {"type": "object"}},
    {"name": "crash", "description": "End the process in the middle of a call", "inputSchema": {"type": "object"}},
]


def serve(trace: Path) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call" or message.get("method") == "notifications/cancelled":
            with trace.open("a") as file:
                file.write(line)
        if "id" not in message or "method" not in message:
            continue
        if message.get("params", {}).get("name") == "wait":
            threading.Thread(target=reply, args=(message,), daemon=True).start()
        else:
            reply(message)


def reply(message: dict[str, Any]) -> None:
    said = answer(message)
    if said is not None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
        sys.stdout.flush()


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        info = {"name": "workshop", "version": "1"}
        return {
            "result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        }
    if method == "tools/list":
        more = os.environ.get("MORE_TOOLS")  # a JSON file
        return {"result": {"tools": TOOLS + (json.loads(Path(more).read_text()) if more else [])}}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    return {"error": {"code": -32601, "message": "Method not found"}}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    if name == "hang":
        return None
    if name == "colour":
        return {"result": {"content": [{"type": "text", "text": os.environ.get("COLOUR", "none")}]}}
    if name == "wait":
        while not os.path.exists(arguments["object"]):
            time.sleep(0.01)
    if name == "crash":
        os._exit(3)
    if name == "refuse":
        return {"error": {"code": -32000, "message": "the workshop is closed", "data": {"until": "morning"}}}
    if name == "break":
        broken = {"content": [{"type": "text", "text": "it broke"}], "isError": True}
        return {"result": {**broken, "structuredContent": arguments} if arguments else broken}
    image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    painted = {"painted": arguments.get("object"), "coats": arguments.get("coats", 1)}
    return {"result": {"content": [{"type": "text", "text": f"{name} done"}, image], "structuredContent": painted}}


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
