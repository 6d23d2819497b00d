"""The requests that our front and the SDK's are compared by: valid and malformed, of both eras."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.router.front.raw_http import MODERN, NAMESPACE, Json, call, initialize, modern, modern_call

Header = tuple[str, str]


@dataclass(frozen=True)
class Compared:
    """A request as `Served.send` takes it. `{port}` in a header is filled in."""

    body: Any = None
    headers: list[Header] = field(default_factory=list)
    without: tuple[str, ...] = ()
    verb: str = "POST"
    in_session: bool = False


def plain(method: str, params: Any = None, **more: Any) -> Json:
    message: Json = {"jsonrpc": "2.0", "id": 1, "method": method, **more}
    return message if params is None else {**message, "params": params}


def legacy(body: Any, *headers: Header, **how: Any) -> Compared:
    return Compared(body, list(headers), in_session=True, **how)


def now(request: tuple[Json, list[Header]], *headers: Header, drop: str = "", **how: Any) -> Compared:
    """A modern request, with headers added or dropped."""
    body, own = request
    return Compared(body, [(k, v) for k, v in own if k != drop] + list(headers), **how)


def with_meta(key: str, value: Any = None, *, remove: bool = False) -> tuple[Json, list[Header]]:
    body, headers = modern_call("echo")
    meta = body["params"]["_meta"]
    if remove:
        del meta[key]
    else:
        meta[key] = value
    return body, headers


def raw(text: bytes) -> Compared:
    return legacy(text)


ECHO = modern_call("echo", {"text": "hi"})
VERSION = [("MCP-Protocol-Version", MODERN)]

REQUESTS: dict[str, Compared] = {
    # the handshake
    "initialize 2024-11-05": Compared(initialize("2024-11-05")),
    "initialize 2025-03-26": Compared(initialize("2025-03-26")),
    "initialize 2025-06-18": Compared(initialize("2025-06-18")),
    "initialize 2025-11-25": Compared(initialize("2025-11-25")),
    "initialize unknown version": Compared(initialize("1999-01-01")),
    "initialize modern version": Compared(initialize(MODERN)),
    "initialize without params": Compared(plain("initialize")),
    "initialize without clientInfo": Compared(plain("initialize", {"protocolVersion": "x", "capabilities": {}})),
    "initialize as a notification": Compared({"jsonrpc": "2.0", "method": "initialize", "params": {}}),
    "initialize in a session": legacy(initialize()),
    # legacy requests
    "legacy ping": legacy(plain("ping")),
    "legacy tools/list": legacy(plain("tools/list")),
    "legacy tools/list null params": legacy(plain("tools/list", params=None)),
    "legacy tools/list bad cursor type": legacy(plain("tools/list", {"cursor": 7})),
    "legacy call": legacy(call("echo", {"text": "hi"})),
    "legacy call text id": legacy(call("echo", client_id="x")),
    "legacy call large id": legacy(call("echo", client_id=2**70)),
    "legacy call that tells": legacy(call("tell")),
    "legacy call that fails": legacy(call("fail")),
    "legacy call unknown tool": legacy(call("nope")),
    "legacy call array structuredContent": legacy(call("odd", {"kind": "shared"})),
    "legacy call without name": legacy(plain("tools/call", {})),
    "legacy call name as number": legacy(plain("tools/call", {"name": 7})),
    "legacy call arguments as list": legacy(plain("tools/call", {"name": "echo", "arguments": []})),
    "legacy call progress token as object": legacy(call("echo", meta={"progressToken": {}})),
    "legacy unknown method": legacy(plain("nope/nope")),
    "legacy modern method": legacy(plain("server/discover")),
    "legacy prompts/list not carried": legacy(plain("prompts/list")),
    "legacy resources/read bad uri": legacy(plain("resources/read", {"uri": 7})),
    "legacy setLevel": legacy(plain("logging/setLevel", {"level": "debug"})),
    "legacy setLevel unknown": legacy(plain("logging/setLevel", {"level": "loud"})),
    "legacy notification": legacy({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    "legacy unknown notification": legacy({"jsonrpc": "2.0", "method": "notifications/nope"}),
    "legacy cancelled unknown": legacy(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
    ),
    "legacy unasked response": legacy({"jsonrpc": "2.0", "id": 99, "result": {}}),
    "legacy unasked error": legacy({"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "x"}}),
    "legacy version header": legacy(call("echo"), ("MCP-Protocol-Version", "2025-06-18")),
    "legacy with modern meta": legacy(ECHO[0]),
    # sessions
    "no session": Compared(call("echo")),
    "no session ping": Compared(plain("ping")),
    "unknown session": Compared(call("echo"), [("Mcp-Session-Id", "nope")]),
    "unknown session initialize": Compared(initialize(), [("Mcp-Session-Id", "nope")]),
    "GET without session": Compared(verb="GET"),
    "GET unknown session": Compared(verb="GET", headers=[("Mcp-Session-Id", "nope")]),
    "GET without accept": Compared(verb="GET", headers=[("Accept", "application/json")], without=("accept",)),
    "DELETE without session": Compared(verb="DELETE"),
    "DELETE unknown session": Compared(verb="DELETE", headers=[("Mcp-Session-Id", "nope")]),
    "DELETE": Compared(verb="DELETE", in_session=True),
    "PUT": Compared(verb="PUT"),
    "OPTIONS": Compared(verb="OPTIONS"),
    # bodies
    "empty body": raw(b""),
    "not JSON": raw(b"hello"),
    "cut JSON": raw(b'{"jsonrpc":'),
    "bad UTF-8": raw(b'{"jsonrpc": "2.0", "id": "\xff", "method": "ping"}'),
    "NaN": raw(b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": NaN}}'),
    "too deep": raw(b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b'{"x":' * 5000),
    "null": raw(b"null"),
    "number": raw(b"7"),
    "batch": legacy([call("echo")]),
    "empty batch": legacy([]),
    "no jsonrpc": legacy({"id": 1, "method": "ping"}),
    "wrong jsonrpc": legacy({**plain("ping"), "jsonrpc": "1.0"}),
    "no method": legacy({"jsonrpc": "2.0", "id": 1}),
    "method as number": legacy(plain("ping") | {"method": 7}),
    "null id": legacy(plain("ping") | {"id": None}),
    "true id": legacy(plain("ping") | {"id": True}),
    "fraction id": legacy(plain("ping") | {"id": 1.5}),
    "params as list": legacy(plain("ping", [])),
    "meta as list": legacy(plain("ping", {"_meta": []})),
    "result and error": legacy({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "x"}}),
    # headers
    "text/plain": legacy(call("echo"), ("Content-Type", "text/plain"), without=("content-type",)),
    "no content type": legacy(call("echo"), without=("content-type",)),
    "charset": legacy(call("echo"), ("Content-Type", "application/json; charset=utf-8"), without=("content-type",)),
    "accept JSON only": legacy(call("echo"), ("Accept", "application/json"), without=("accept",)),
    "accept anything": legacy(call("echo"), ("Accept", "*/*"), without=("accept",)),
    "no accept": legacy(call("echo"), without=("accept",)),
    "foreign host": legacy(call("echo"), ("Host", "evil.example"), without=("host",)),
    "no host": legacy(call("echo"), without=("host",)),
    "host with a path": legacy(call("echo"), ("Host", "127.0.0.1:{port}/x"), without=("host",)),
    "own origin": legacy(call("echo"), ("Origin", "http://127.0.0.1:{port}")),
    "foreign origin": legacy(call("echo"), ("Origin", "http://evil.example")),
    # modern requests
    "discover": now(modern("server/discover")),
    "modern tools/list": now(modern("tools/list")),
    "modern call": now(ECHO),
    "modern call that tells": now(modern_call("tell")),
    "modern call that fails": now(modern_call("fail")),
    "modern call unknown tool": now(modern_call("nope")),
    "modern call array structuredContent": now(modern_call("odd", {"kind": "shared"})),
    "modern call without name": now(modern("tools/call")),
    "modern unknown method": now(modern("nope/nope")),
    "modern ping": now(modern("ping")),
    "modern initialize": now(modern("initialize")),
    "modern prompts/list not carried": now(modern("prompts/list")),
    "modern method differs": now(ECHO, ("Mcp-Method", "tools/list"), drop="Mcp-Method"),
    "modern method header missing": now(ECHO, drop="Mcp-Method"),
    "modern name differs": now(ECHO, ("Mcp-Name", "other"), drop="Mcp-Name"),
    "modern name header missing": now(ECHO, drop="Mcp-Name"),
    "modern name base64": now(ECHO, ("Mcp-Name", "=?base64?ZWNobw==?="), drop="Mcp-Name"),
    "modern name twice": now(ECHO, ("Mcp-Name", "echo")),
    "modern version header missing": now(ECHO, drop="MCP-Protocol-Version"),
    "modern version header unknown": now(ECHO, ("MCP-Protocol-Version", "2099-01-01"), drop="MCP-Protocol-Version"),
    "modern version unknown in both": now(
        (with_meta(NAMESPACE + "protocolVersion", "2099-01-01")[0], ECHO[1]),
        ("MCP-Protocol-Version", "2099-01-01"),
        drop="MCP-Protocol-Version",
    ),
    "modern version as number": now(with_meta(NAMESPACE + "protocolVersion", 7)),
    "modern without version": now(with_meta(NAMESPACE + "protocolVersion", remove=True)),
    "modern without capabilities": now(with_meta(NAMESPACE + "clientCapabilities", remove=True)),
    "modern capabilities as list": now(with_meta(NAMESPACE + "clientCapabilities", [])),
    "modern without clientInfo": now(with_meta(NAMESPACE + "clientInfo", remove=True)),
    "modern unknown log level": now(with_meta(NAMESPACE + "logLevel", "loud")),
    "modern without meta": Compared(call("echo"), ECHO[1]),
    "modern notification": Compared({"jsonrpc": "2.0", "method": "notifications/cancelled"}, VERSION),
    "modern response": Compared({"jsonrpc": "2.0", "id": 1, "result": {}}, VERSION),
    "modern batch": Compared([ECHO[0]], ECHO[1]),
    "modern not JSON": Compared(b"hello", ECHO[1]),
    "modern null id": Compared({**ECHO[0], "id": None}, ECHO[1]),
    "modern GET": Compared(verb="GET", headers=VERSION),
    "modern DELETE": Compared(verb="DELETE", headers=VERSION),
    "modern accept JSON only": now(ECHO, ("Accept", "application/json"), without=("accept",)),
    "modern text/plain": now(ECHO, ("Content-Type", "text/plain"), without=("content-type",)),
    "modern listen without filter": now(modern("subscriptions/listen")),
}


def as_bytes(body: Any) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
