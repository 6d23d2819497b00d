"""An MCP server on stdin and stdout that logs the id of each request it executes, and may crash or change its list.

`python -S server.py --era modern --log FILE [--crash 0.02] [--churn SECONDS]`. Uses the standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
from typing import Any

LEGACY, MODERN = "2025-11-25", "2026-07-28"
INFO = {"name": "soak", "version": "1"}
META = "io.modelcontextprotocol/"

Message = dict[str, Any]


class RefusedError(Exception):
    """The method is not known here."""


class Server:
    def __init__(self, options: argparse.Namespace) -> None:
        self._modern: bool = options.era == "modern"
        self._crash: float = options.crash  # chance of an exit in one request
        self._log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._changes = 0
        self._listening: Any = None  # the id of a modern client's `subscriptions/listen`
        self._writing = threading.Lock()
        if options.churn:
            threading.Thread(target=self._churn, args=(options.churn,), daemon=True).start()

    def serve(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                continue
            params = message.get("params") or {}
            wait_s = (params.get("arguments") or {}).get("wait_s")
            if message["method"] == "tools/call" and wait_s:
                self._execute(params["arguments"]["id"])
                timer = threading.Timer(wait_s, self._answer, (message["id"], said("late")))
                timer.daemon = True
                timer.start()
                continue
            try:
                result = self._result(message["method"], params, message["id"])
            except RefusedError:
                error = {"code": -32601, "message": "Method not found"}
                self._send({"jsonrpc": "2.0", "id": message["id"], "error": error})
                continue
            if result is not None:
                self._answer(message["id"], result)

    def _result(self, method: str, params: Message, number: Any) -> Message | None:
        match method:
            case "server/discover" if self._modern:
                return {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}
            case "initialize" if not self._modern:
                return {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": INFO}
            case "tools/call":
                self._execute(params["arguments"]["id"])
                return said(f"noted {params['arguments']['id']}")
            case "resources/read":
                self._execute(params["uri"].rpartition("/")[2])
                return {"contents": [{"uri": params["uri"], "text": "an item"}]}
            case "prompts/get":
                self._execute(params["arguments"]["id"])
                return {"messages": [{"role": "user", "content": {"type": "text", "text": "note this"}}]}
            case "completion/complete":
                self._execute(params["argument"]["value"])
                return {"completion": {"values": ["one", "two"], "hasMore": False}}
            case "subscriptions/listen":
                self._listening = number
                self._tell("notifications/subscriptions/acknowledged", {"notifications": params["notifications"]})
                return None
            case "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" | "ping":
                return {}
        return self._list(method)

    def _list(self, method: str) -> Message:
        match method:
            case "tools/list":
                extra = [f"extra_{self._changes}_{number}" for number in range(self._changes % 4)]
                return {"tools": [NOTE, *({**NOTE, "name": name} for name in extra)]}
            case "resources/list":
                return {"resources": [{"uri": "soak://item/first", "name": "first"}]}
            case "resources/templates/list":
                return {"resourceTemplates": [{"uriTemplate": "soak://item/{id}", "name": "item"}]}
            case "prompts/list":
                return {"prompts": [{"name": "remember", "arguments": [{"name": "id", "required": True}]}]}
        raise RefusedError

    def _execute(self, request_id: str) -> None:
        """The log line is what the request does: written at once, before the answer. May end the process around it."""
        crash = random.random() < self._crash
        if crash and random.random() < 0.5:
            os._exit(3)
        os.write(self._log, f"{request_id}\n".encode())
        if crash:
            os._exit(4)

    def _churn(self, every_s: float) -> None:
        pause = threading.Event()
        while not pause.wait(every_s * random.uniform(0.5, 1.5)):
            self._changes += 1
            self._tell("notifications/tools/list_changed", {})

    def _answer(self, number: Any, result: Message) -> None:
        if self._modern:
            fresh = {"resultType": "complete", "ttlMs": 5000, "cacheScope": "public"}
            result = {**fresh, "_meta": {META + "serverInfo": INFO}, **result}
        self._send({"jsonrpc": "2.0", "id": number, "result": result})

    def _tell(self, method: str, params: Message) -> None:
        if self._modern:
            if self._listening is None:
                return
            params = {**params, "_meta": {META + "subscriptionId": self._listening}}
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: Message) -> None:
        with self._writing:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()


CAPABILITIES: Message = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True},
    "prompts": {},
    "completions": {},
}
NOTE: Message = {
    "name": "note",
    "description": "Write the id of this request into the server's own log",
    "inputSchema": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "wait_s": {"type": "number"}},
        "required": ["id"],
        "additionalProperties": False,
    },
}


def said(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=("legacy", "modern"), required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--crash", type=float, default=0.0)
    parser.add_argument("--churn", type=float, default=0.0)
    Server(parser.parse_args()).serve()


if __name__ == "__main__":
    main()
