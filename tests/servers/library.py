"""A small MCP server on stdin and stdout with resources, templates, prompts, completions, changes and subscriptions.

It speaks one era, and writes down what it was asked, so that a test can see what reached it.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MODERN, LEGACY = "2026-07-28", "2025-11-25"
NS = "io.modelcontextprotocol/"
INFO = {"name": "library", "version": "1"}
WAV = base64.b64encode(b"RIFF....WAVE").decode()
PNG = "iVBORw0KGgo="
HALF_A_PAIR = "A smile (\ud83d) that was cut in two"  # `json.dumps` writes it without complaint
MEDIA = [
    {"type": "text", "text": "all kinds", "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "image", "data": PNG, "mimeType": "image/png", "_meta": {"vendor/key": [1, None]}},
    {"type": "audio", "data": WAV, "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "book://shelf/2", "mimeType": "text/plain", "text": "inside"}},
    {"type": "resource", "resource": {"uri": "book://shelf/3", "mimeType": "image/png", "blob": PNG}},
    {"type": "resource_link", "uri": "note://hidden", "name": "hidden", "mimeType": "text/plain", "size": 7},
]

Message = dict[str, Any]


class RefusedError(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({"data": data} if data is not None else {})}


class Library:
    def __init__(self, options: argparse.Namespace) -> None:
        self.tag: str = options.tag
        self.modern: bool = options.era == "modern"
        self.page: int = options.page
        self.ttl_ms: int | None = options.ttl_ms
        self.listen_s: float = options.listen_s
        self.trace = Path(options.trace) if options.trace else None
        self.books = [f"book://shelf/{number}" for number in range(1, options.books + 1)]
        self.prompts = ["greet"]
        self.watched: set[str] = set()
        self.listening: Any = None  # the id of a modern client's `subscriptions/listen`
        self.asking: Any = None  # the id of the call that waits for an answer
        self.asking_for = ""  # and its method

    def serve(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                self.answered(message)
            elif "id" in message:
                self.requested(message)
            elif message["method"] == "notifications/cancelled":
                self.note("cancelled", message["params"])

    # --- protocol

    def requested(self, message: Message) -> None:
        method, params = message["method"], message.get("params") or {}
        self.note(method, params)
        try:
            result = self.result(method, params, message["id"])
        except RefusedError as refused:
            self.send({"jsonrpc": "2.0", "id": message["id"], "error": refused.error})
            return
        if result is not None:
            self.answer(message["id"], result)

    def answer(self, number: Any, result: Message) -> None:
        if self.modern:
            result = {"resultType": "complete", "_meta": {NS + "serverInfo": INFO}, **result}
        self.send({"jsonrpc": "2.0", "id": number, "result": result})

    def result(self, method: str, params: Message, number: Any) -> Message | None:
        match method:
            case "server/discover" if self.modern:
                return {"supportedVersions": [MODERN], "capabilities": self.capabilities()}
            case "initialize" if not self.modern:
                return {"protocolVersion": LEGACY, "capabilities": self.capabilities(), "serverInfo": INFO}
            case "resources/read":
                return self.read(params["uri"])
            case "prompts/get":
                return self.prompt(params, number)
            case "completion/complete":
                ref = params["ref"].get("name") or params["ref"].get("uri")
                return {"completion": {"values": [f"{self.tag}:{ref}:{params['argument']['value']}"], "hasMore": False}}
            case "tools/call":
                return self.call(params, number)
            case "subscriptions/listen" | "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel":
                return self.watch(method, params, number)
        return self.list_of(method, params)

    def list_of(self, method: str, params: Message) -> Message:
        match method:
            case "tools/list":
                names = ("media", "big", "list", "confirm", "add_book", "add_prompt", "touch", "add_tool")
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
                tools[0]["description"] = HALF_A_PAIR
                return self.listed("tools", tools, {})
            case "resources/list":
                books = [{"uri": uri, "name": uri[-8:], "description": self.tag} for uri in self.books]
                return self.listed("resources", books, params)
            case "resources/templates/list":
                templates = ("book://shelf/{number}{?edition}", "note://{+path}")
                return self.listed(
                    "resourceTemplates", [{"uriTemplate": one, "name": one[:4]} for one in templates], {}
                )
            case "prompts/list":
                return self.listed("prompts", [{"name": name, "description": self.tag} for name in self.prompts], {})
        raise RefusedError(-32601, "Method not found")

    def watch(self, method: str, params: Message, number: Any) -> Message | None:
        if method == "resources/subscribe":
            self.watched.add(params["uri"])
        elif method == "resources/unsubscribe":
            self.watched.discard(params["uri"])
        elif method == "subscriptions/listen":
            self.listening = number
            self.watched = set(params["notifications"].get("resourceSubscriptions", ()))
            time.sleep(self.listen_s)
            self.tell("notifications/subscriptions/acknowledged", {"notifications": params["notifications"]})
            return None
        return {}

    def capabilities(self) -> Message:
        return {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
        }

    def listed(self, field: str, entries: list[Message], params: Message) -> Message:
        start = int(params.get("cursor", "0"))
        page: Message = {field: entries[start : start + self.page]}
        if start + self.page < len(entries):
            page["nextCursor"] = str(start + self.page)
        if self.modern:
            page |= {"ttlMs": self.ttl_ms or 0, "cacheScope": "public"}
        return page

    def read(self, uri: str) -> Message | None:
        if uri == "note://hang":
            return None
        if uri == "note://crash":
            os._exit(3)
        if not uri.startswith(("book://shelf/", "note://")):
            raise RefusedError(-32602 if self.modern else -32002, "Resource not found", {"uri": uri})
        hints = {"ttlMs": 1234, "cacheScope": "public"} if self.modern else {}
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"{self.tag} has {uri}"}], **hints}

    def prompt(self, params: Message, number: Any) -> Message | None:
        if params["name"] == "confirm":
            return self.confirm(params, number, "prompts/get")
        if params["name"] not in self.prompts:
            raise RefusedError(-32602, f"Unknown prompt {params['name']}")
        who = (params.get("arguments") or {}).get("who", "you")
        content = {"type": "resource", "resource": {"uri": "note://prompt", "text": f"{self.tag} greets {who}"}}
        return {"messages": [{"role": "user", "content": content}]}

    # --- tools

    def call(self, params: Message, number: Any) -> Message | None:
        name, arguments = params["name"], params.get("arguments") or {}
        if name == "media":
            return {"content": MEDIA, "structuredContent": {"kinds": 6}, "_meta": {"vendor/total": 6}}
        if name == "big":
            return {"content": [{"type": "text", "text": "x" * arguments["bytes"]}]}
        if name == "list":
            return {"content": [{"type": "text", "text": "[1,2]"}], "structuredContent": [1, 2]}
        if name == "confirm":
            return self.confirm(params, number, "tools/call")
        if name == "add_book":
            self.books.append(arguments["uri"])
            self.tell("notifications/resources/list_changed", {})
        if name == "add_prompt":
            self.prompts.append(arguments["name"])
            self.tell("notifications/prompts/list_changed", {})
        if name == "add_tool":
            self.tell("notifications/tools/list_changed", {})
        if name == "touch" and arguments["uri"] in self.watched:
            self.tell("notifications/resources/updated", {"uri": arguments["uri"]})
        return {"content": [{"type": "text", "text": f"{self.tag} did {name}"}]}

    def confirm(self, params: Message, number: Any, method: str) -> Message | None:
        """Asks the client, each era in its way."""
        question = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
        if not self.modern:
            self.asking, self.asking_for = number, method
            self.send({"jsonrpc": "2.0", "id": "sure", "method": "elicitation/create", "params": question})
            return None
        answer = (params.get("inputResponses") or {}).get("sure")
        if answer is None:
            asked = {"sure": {"method": "elicitation/create", "params": question}}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "state-of-the-library"}
        return said_in(method, f"{answer['action']} {params.get('requestState')}")

    def answered(self, message: Message) -> None:
        said = message.get("result", {}).get("action") or message.get("error", {}).get("message")
        self.answer(self.asking, said_in(self.asking_for, f"{said}"))

    # --- out

    def tell(self, method: str, params: Message) -> None:
        if self.modern:
            params = {**params, "_meta": {NS + "subscriptionId": self.listening}}
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: Message) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def note(self, method: str, params: Message) -> None:
        if self.trace is not None:
            with self.trace.open("a") as file:
                file.write(json.dumps({"method": method, "pid": os.getpid(), **params}) + "\n")


def said_in(method: str, text: str) -> Message:
    content = {"type": "text", "text": text}
    return {"messages": [{"role": "user", "content": content}]} if method == "prompts/get" else {"content": [content]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=("legacy", "modern"), default="legacy")
    parser.add_argument("--tag", default="library")
    parser.add_argument("--books", type=int, default=3)
    parser.add_argument("--page", type=int, default=1000)
    parser.add_argument("--ttl-ms", type=int)
    parser.add_argument("--listen-s", type=float, default=0.0)  # until `subscriptions/listen` is acknowledged
    parser.add_argument("--trace")
    Library(parser.parse_args()).serve()


if __name__ == "__main__":
    main()
