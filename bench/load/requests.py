"""Requests as bytes: what a client of either era sends, ready to be written with a number in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from bench.servers.answers import INFO, LEGACY, MODERN, encode

Era = Literal["legacy", "modern"]
FIRST_ID = 1_000_000_000  # always ten digits, so that the length of a request is constant
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": INFO,
}


@dataclass(frozen=True)
class Template:
    """A request in two halves, with its id between them."""

    before: bytes
    after: bytes

    def numbered(self, number: int) -> bytes:
        return b"%b%d%b" % (self.before, number, self.after)


def call_body(era: Era, tool: str, arguments: Mapping[str, Any]) -> bytes:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if era == "modern":
        params["_meta"] = META
    return encode({"jsonrpc": "2.0", "id": FIRST_ID, "method": "tools/call", "params": params})


def http_list(url: str, headers: Mapping[str, str]) -> bytes:
    """`tools/list` of a modern client."""
    body = encode({"jsonrpc": "2.0", "id": FIRST_ID, "method": "tools/list", "params": {"_meta": META}})
    return http_post(url, body, {"mcp-protocol-version": MODERN, "mcp-method": "tools/list", **headers})


def template(data: bytes) -> Template:
    before, _, after = data.partition(b"%d" % FIRST_ID)
    return Template(before, after)


def http_call(url: str, era: Era, tool: str, body: bytes, headers: Mapping[str, str], session: str | None) -> bytes:
    extra = {"mcp-protocol-version": MODERN if era == "modern" else LEGACY, **headers}
    if era == "modern":
        extra |= {"mcp-method": "tools/call", "mcp-name": tool}
    if session is not None:
        extra["mcp-session-id"] = session
    return http_post(url, body, extra)


def http_post(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    fixed = {
        "host": parts.netloc,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": str(len(body)),
    }
    lines = [f"POST {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in (fixed | dict(headers)).items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def initialize_body() -> bytes:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}
    return encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})


def initialized_body() -> bytes:
    return encode({"jsonrpc": "2.0", "method": "notifications/initialized"})
