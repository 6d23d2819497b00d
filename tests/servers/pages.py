"""A small MCP server on stdin and stdout with an app (extension SEP-1865): `chart` has the page `ui://app/view`.

It names the page, and has the tool `refresh` for it, only if the client declares that it can show pages. With `--take`
it also claims a URI: as its resource, and as the page of a tool. It writes down every request.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

Message = dict[str, Any]
NS = "io.modelcontextprotocol/"
PAGE = "ui://app/view"
TYPE = "text/html;profile=mcp-app"
SETTINGS = {
    "csp": {"connectDomains": ["https://api.example.com"], "resourceDomains": ["ui://app/view"]},
    "permissions": {"clipboardWrite": {}},
    "prefersBorder": True,
}


class RefusedError(Exception):
    pass


class Pages:
    def __init__(self, options: argparse.Namespace) -> None:
        self.tag: str = options.tag
        self.modern: bool = options.era == "modern"
        self.taken: list[str] = options.take
        self.trace = Path(options.trace)
        self.client: Message = {}  # capabilities in the handshake of a legacy client
        self.watched: set[str] = set()
        self.listening: Any = None

    def serve(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                continue
            params = message.get("params") or {}
            with self.trace.open("a") as trace:
                trace.write(json.dumps({"method": message["method"], **params}) + "\n")
            try:
                result = self.result(message["method"], params, message["id"])
            except RefusedError:
                self.send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
                continue
            if result is not None:
                self.send({"id": message["id"], "result": result})

    def result(self, method: str, params: Message, number: Any) -> Message | None:
        capabilities = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}
        match method:
            case "initialize" if not self.modern:
                self.client = params["capabilities"]
                info = {"name": self.tag, "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            case "server/discover" if self.modern:
                return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            case "tools/list":
                return {"tools": self.tools(params)}
            case "resources/list":
                pages = [self.page(uri) for uri in (PAGE, *self.taken)]
                return {"resources": [*pages, {"uri": f"note://{self.tag}", "name": "note"}]}
            case "resources/templates/list":
                return {"resourceTemplates": [{"uriTemplate": "ui://app/{name}", "name": "pages"}]}
            case "prompts/list":
                return {"prompts": [{"name": "show"}]}
        return self.answer(method, params, number)

    def answer(self, method: str, params: Message, number: Any) -> Message | None:
        match method:
            case "resources/read":
                uri = params["uri"]
                page = {**self.page(uri), "text": f"<html>{self.tag} has {uri}</html>"}
                return {"contents": [page, {"uri": PAGE, "text": "beside it"}]}
            case "tools/call" if params["name"] == "touch":
                if params["arguments"]["uri"] in self.watched:
                    self.tell("notifications/resources/updated", {"uri": params["arguments"]["uri"]})
                return {"content": []}
            case "tools/call":
                return {"content": self.blocks(), "_meta": {"ui": {"resourceUri": PAGE}, "vendor/x": PAGE}}
            case "prompts/get":
                return {"messages": [{"role": "user", "content": block} for block in self.blocks()]}
            case "completion/complete":
                return {"completion": {"values": [params["ref"]["uri"]]}}
            case "resources/subscribe":
                self.watched.add(params["uri"])
                return {}
            case "resources/unsubscribe":
                return {}
            case "subscriptions/listen":
                self.listening = number
                self.watched = set(params["notifications"].get("resourceSubscriptions", ()))
                self.tell("notifications/subscriptions/acknowledged", {"notifications": params["notifications"]})
                return None
        raise RefusedError

    def tools(self, params: Message) -> list[Message]:
        client = (params.get("_meta") or {}).get(NS + "clientCapabilities", {}) if self.modern else self.client
        settings = client.get("extensions", {}).get(NS + "ui", {})
        chart: Message = {"name": "chart", "description": "Draw a chart", "inputSchema": {"type": "object"}}
        touch = {**chart, "name": "touch", "description": "Touch a page"}
        if TYPE not in settings.get("mimeTypes", []):
            return [chart, touch]
        ui = {"resourceUri": PAGE, "visibility": ["model", "app"]}
        shown = {**chart, "_meta": {"ui": ui, "ui/resourceUri": PAGE, "vendor/x": PAGE}}
        refresh = {**chart, "name": "refresh", "_meta": {"ui": {"resourceUri": PAGE, "visibility": ["app"]}}}
        claims = [
            {**chart, "name": f"claim{place}", "_meta": {"ui": {"resourceUri": uri}, "ui/resourceUri": uri}}
            for place, uri in enumerate(self.taken)
        ]
        return [shown, touch, refresh, *claims]

    def blocks(self) -> list[Message]:
        return [
            {"type": "text", "text": PAGE},
            {"type": "resource_link", "uri": PAGE, "name": "page"},
            {"type": "resource", "resource": {"uri": PAGE, "mimeType": TYPE, "text": self.tag}},
        ]

    def page(self, uri: str) -> Message:
        return {"uri": uri, "name": "page", "mimeType": TYPE, "_meta": {"ui": SETTINGS}}

    def tell(self, method: str, params: Message) -> None:
        if self.modern:
            params = {**params, "_meta": {NS + "subscriptionId": self.listening}}
        self.send({"method": method, "params": params})

    def send(self, message: Message) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=("legacy", "modern"), default="legacy")
    parser.add_argument("--tag", default="pages")
    parser.add_argument("--take", action="append", default=[])
    parser.add_argument("--trace", required=True)
    Pages(parser.parse_args()).serve()
