"""A small MCP server on stdin and stdout that offers whatever a JSON file says at the moment.

The file holds `tools`, `prompts`, `resources` and `resourceTemplates`, and may hold `instructions` and `era`: `modern`
for one of 2026-07-28. A call of any tool, and getting any prompt, is answered with the server's tag; calling the tool
`announce` also tells that the lists have changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Message = dict[str, Any]
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


class FromFile:
    def __init__(self, file: Path, tag: str) -> None:
        self._file = file
        self._tag = tag

    def serve(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "id" in message and "method" in message:
                self._send({"id": message["id"], **self._answer(message["method"], message.get("params") or {})})

    def _answer(self, method: str, params: Message) -> Message:
        now = json.loads(self._file.read_text())
        more = {"instructions": now["instructions"]} if "instructions" in now else {}
        if method == "server/discover" and now.get("era") == "modern":
            capabilities: Message = {"tools": {}, "prompts": {}, "resources": {}}
            return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, **more}}
        if method == "initialize" and now.get("era") != "modern":
            changing = {"listChanged": True}
            capabilities = {"tools": changing, "prompts": changing, "resources": changing}
            info = {"name": self._tag, "version": "1"}
            version = params["protocolVersion"]
            return {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info, **more}}
        if method in LISTS:
            return {"result": {LISTS[method]: now.get(LISTS[method], [])}}
        text = {"type": "text", "text": self._tag}
        if method == "tools/call":
            if params["name"] == "announce":
                for family in ("tools", "prompts", "resources"):
                    self._send({"method": f"notifications/{family}/list_changed"})
            return {"result": {"content": [text], "structuredContent": {"tag": self._tag, **params}}}
        if method == "prompts/get":
            return {"result": {"messages": [{"role": "user", "content": text}]}}
        if method == "resources/read":
            return {"result": {"contents": [{"uri": params["uri"], "text": self._tag}]}}
        return {"error": {"code": -32601, "message": "Method not found"}}

    def _send(self, message: Message) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    FromFile(Path(sys.argv[1]), sys.argv[2]).serve()
