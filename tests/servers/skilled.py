"""A small MCP server on stdin and stdout with skills (extension SEP-2640), described by a JSON file at each request.

The file has `files` (text by URI), `skills` (the entries of `skills/list`), and if wanted `gets` (entries that
`skills/get` gives besides or instead), `directoryRead`, `page` (children in one page of a directory) and `era`. Every
request is noted in the file beside it that ends with `.trace`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Message = dict[str, Any]
EXTENSION = "io.modelcontextprotocol/skills"


class RefusedError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message}


class Skilled:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._trace = file.with_suffix(".trace")

    def serve(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                continue
            params = message.get("params") or {}
            with self._trace.open("a") as trace:
                trace.write(json.dumps([message["method"], params.get("uri")]) + "\n")
            try:
                answer: Message = {
                    "result": self._result(message["method"], params, json.loads(self._file.read_text()))
                }
            except RefusedError as refused:
                answer = {"error": refused.error}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
            sys.stdout.flush()

    def _result(self, method: str, params: Message, now: Message) -> Message:
        if method in ("initialize", "server/discover"):
            return self._introduction(method, now)
        if method == "skills/list":
            return {"skills": now["skills"], "ttlMs": now.get("ttlMs", 0), "cacheScope": "public"}
        if method == "skills/get":
            return {"skill": _found([*now.get("gets", []), *now["skills"]], params["uri"])}
        if method == "resources/read":
            if params["uri"] not in now["files"]:
                raise RefusedError(-32602, "Resource not found")
            return {
                "contents": [{"uri": params["uri"], "mimeType": "text/markdown", "text": now["files"][params["uri"]]}]
            }
        if method == "resources/directory/read":
            return self._directory(params, now)
        if method == "resources/list":
            return {"resources": []}
        raise RefusedError(-32601, "Method not found")

    def _introduction(self, method: str, now: Message) -> Message:
        settings = {"directoryRead": True} if now.get("directoryRead") else {}
        declared: Message = {
            "resources": {},
            **({"extensions": {EXTENSION: settings}} if now.get("declared", True) else {}),
        }
        if now.get("era", "legacy") == "legacy" and method == "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": declared,
                "serverInfo": {"name": "s", "version": "1"},
            }
        if now.get("era") == "modern" and method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": declared}
        raise RefusedError(-32601, "Method not found")

    def _directory(self, params: Message, now: Message) -> Message:
        folder = params["uri"] + "/"
        names = dict.fromkeys(uri[len(folder) :].split("/")[0] for uri in now["files"] if uri.startswith(folder))
        if not now.get("directoryRead") or not names:
            raise RefusedError(-32602, "Not a directory")
        children = [
            {
                "uri": folder + name,
                "name": name,
                **({} if folder + name in now["files"] else {"mimeType": "inode/directory"}),
            }
            for name in names
        ]
        start, size = int(params.get("cursor", "0")), now.get("page", 100)
        page: Message = {"resources": children[start : start + size]}
        if start + size < len(children):
            page["nextCursor"] = str(start + size)
        return page


def _found(entries: list[Message], uri: str) -> Message:
    for entry in entries:
        if entry["uri"] == uri:
            return entry
    raise RefusedError(-32602, "No such skill")


if __name__ == "__main__":
    Skilled(Path(sys.argv[1])).serve()
