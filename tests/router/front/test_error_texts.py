"""Every JSON-RPC error that a client can get says what is wrong and what to do next.

The texts are read from the source, so that a new one without an entry here fails.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import pointsman
from pointsman.core import seams
from pointsman.core.model import Json
from pointsman.core.sdk import HEADER_MISMATCH
from pointsman.router.gateway.reads import RESOURCE_NOT_FOUND
from tests.gateway_process import gateway_process
from tests.router.conftest import Shop, from_file, workshop

ROUTER = Path(pointsman.__file__).parent / "router"
LONG_S = 60.0  # against hanging
# The functions and errors that take a text for a client, and which of their arguments it is.
TAKERS = {
    "ProtocolError": 1,
    "HttpError": 1,
    "error_message": 2,
    "invalid": 0,
    "_unknown": 2,
    "_refuse": 2,
    "forbidden": 0,
    "unauthorized": 0,
    "overloaded": 0,
    "_at_capacity": 0,
}
# Texts that are made elsewhere: by a server, by an error that test_no_silent_nothing.py walks, or by a caller that is
# itself in the list.
PASSED_ON = {
    "message",
    "self.message",
    "error.message",
    "outcome.message",
    "rejection.message",
    "refusal.message",
    "str(error)",
    "str(reason)",
    "f'{line}.'",
    "INTERNAL",
    "str(error.get('message', ''))",
}
TO_SERVERS = {"The client's answer is malformed"}  # a server cannot do anything about it
# What is wrong and what to do, for each text of the source. `{}` stands for what is filled in.
TEXTS: tuple[tuple[str, str], ...] = (
    (
        "The header X-Pointsman-Peer is not from a replica of this gateway.",
        "Leave it out; if this is one, compare the clocks and `state.request_keys` of the replicas.",
    ),
    (
        "The question that this answers is from a replica that cannot be reached now, so the answer was not delivered.",
        "Send it again in a few seconds; if that replica has ended, its call has, too: make the call again.",
    ),
    (
        "The replica that this belongs to does not accept messages of this one, so nothing was carried out.",
        "Make the call again; the operator compares the clocks and `state.request_keys` of the replicas.",
    ),
    (
        "The replica that this belongs to ended before it answered. It may have been carried out all the same:",
        "check before you repeat it.",
    ),
    ("A line", "must be one JSON-RPC message."),
    ("A message", "must have a `method`, a `result` or an `error`."),
    ("A message with `method`", "must not have `result` or `error`."),
    ("A newer retry has replaced this one.", "Read the answer to that."),
    ("Accept", "must name both application/json and text/event-stream."),
    ("Accept", "must name text/event-stream."),
    ("At most {} resources can be subscribed to at once.", "Unsubscribe from some first."),
    ("Content-Type", "must be application/json."),
    ("Could not reach the gateway.", "Retry later."),
    ("Directory not found.", "Give the URI of a skill without `/SKILL.md`, or of a folder in it."),
    ("Internal error.", "Try again later; the operator finds the reason in the gateway's log."),
    ("Invalid or expired requestState.", "Make the call again without it."),
    ("Method not allowed.", "Use {}."),
    ("Method not found.", "The gateway's `capabilities` say what it supports."),
    ("Nobody answered within {} s, so this requestState has expired.", "Make the call again without it."),
    ("Parse error: the body is not JSON.", "Send one JSON-RPC message."),
    ("Parse error: this line is not JSON.", "Send one JSON-RPC message on each line."),
    ("Prompt not found.", "Call `prompts/list` to see the prompts you can use."),
    ("Request cancelled by the client.", "Send it again if you still need it."),
    ("Resource not found.", "Call `resources/list` to see the resources you can use."),
    ("Session not found.", "Open a new one with `initialize`."),
    ("Skill not found.", "Call `skills/list` to see the skills you can use."),
    ("The Authorization header and `_meta.token` are two different tokens.", "Send one."),
    ("The Host header is missing or malformed.", "Send the host and port of the gateway's address."),
    ("The MCP-Protocol-Version header does not match the version in `_meta`.", "Send the same in both."),
    ("The Mcp-Session-Id header is missing.", "Open a session with `initialize`."),
    ("The body is larger than {} bytes.", "Send less; the operator sets `limits.body_bytes`."),
    ("The body", "must be a JSON-RPC request or notification: a modern client is never asked."),
    ("The body", 'must be one JSON-RPC message, an object with "jsonrpc": "2.0".'),
    (
        "The connection to the gateway was lost during this request, which may have been executed.",
        "Check before you repeat it.",
    ),
    ("The events after this Last-Event-ID are no longer stored.", "Make the request again."),
    (
        "The gateway has as many requests in progress as it accepts.",
        "Try again in a moment; the operator sets `limits.calls`.",
    ),
    (
        "The gateway holds as many large messages as it accepts.",
        "Try again in a moment, or send less at once; the operator sets `limits.in_flight_bytes`.",
    ),
    ("The gateway is not known by this Host.", "The operator allows more in `listen.allowed_hosts`."),
    ("The gateway is shutting down.", "Try again in a moment."),
    (
        "The gateway is stopping and could not wait for this request to end.",
        "It may have been carried out all the same: check before you repeat it.",
    ),
    ("The header {} appears more than once.", "Send it once."),
    ("The list ends here: the next cursor of server `{}` is too long.", "Use what is listed so far."),
    ("The message", "must be a request (`method`) or a response (`result` or `error`)."),
    ("The path and the header X-Pointsman-Project name two different projects.", "Name one."),
    ("The request body took longer than `limits.body_s`.", "Send the request again, without pauses."),
    ("The request header is larger than {} bytes or has more than {} fields.", "Send fewer or shorter header fields."),
    ("The request header took longer than `limits.header_s`.", "Send the request again, without pauses."),
    ("The server's error cannot be shown, because its text is not valid.", "Try again later."),
    ("This `cursor` has expired, because the list has changed.", "Begin again without one."),
    ("This `cursor` is not from this list.", "Begin again without one."),
    ("This is not HTTP.", "Send an HTTP/1.1 request."),
    ("This session is initialized already.", "Leave out Mcp-Session-Id to open another one."),
    ("This session is initialized already.", "Open another stream for another session."),
    ("This session is not initialized.", "Send `initialize` first."),
    (
        "This token has {} streams open, which is its share: a quarter of `limits.connections`.",
        "Close some of them, then open this one again.",
    ),
    ("This token has {} subscriptions open, which is the limit.", "Close one, then try again."),
    ("This token is no longer valid.", "Ask the operator for another."),
    ("This web page may not use the gateway.", "The operator allows pages in `listen.allowed_origins`."),
    (
        "Too many connections are open from this address.",
        "Close some of them, or try again later; the operator names proxies in `listen.trusted_proxies`.",
    ),
    ("Too many connections are open.", "Try again later; the operator sets `limits.connections`."),
    ("Too many sessions are open.", "Try again later."),
    ("Tool not found.", "Ask the operator for the keys that {} takes."),
    ("Tool not found.", "Call `tools/list` to see the tools you can use."),
    ("Tool not found.", "Find it with {} and run it with {}."),
    ("`_meta.progressToken`", "must be a string or an integer"),
    ("`_meta.projectId` and the header or path name two different projects.", "Name one."),
    ("`_meta.{}`", "must be a string."),
    ("`capabilities`", "must not be larger than {} bytes."),
    ("`id`", "must be a string or an integer."),
    ("`initialize`", "needs `protocolVersion` (a string), `capabilities` and `clientInfo` (objects)."),
    ("`inputResponses.{}`: {}.", "The question is still open: repeat the request with a proper answer."),
    (
        "`inputResponses` must be an object that has an object for each answer.",
        "The question is still open: repeat the request with a proper answer.",
    ),
    ("`method`", "must be a string."),
    ("`notifications`", "must be an object"),
    ("`params._meta`", "must be an object."),
    ("`params`", "must be an object."),
    ("`ref`", "must be a `ref/prompt` with a `name` or a `ref/resource` with a `uri`"),
    ("`resourceSubscriptions`", "may name at most {} resources"),
    ("`resourceSubscriptions`", "must be a list of strings"),
    ("`{}`", "must be an object"),
    ("`{}`", "must be one of {}"),
    ("`{}`", "must be {}"),
    ("tools/call", "needs a `name` and, if any, `arguments` as an object"),
)


PATTERNS = [re.compile(re.escape(f"{what} {step}").replace(r"\{\}", ".+")) for what, step in TEXTS]


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("gateway")
    lists: Json = {"tools": [], "resources": [], "prompts": []}
    servers = {
        "lists": from_file(folder / "lists.json", "lists", lists),
        "shop": workshop(folder / "trace"),
        "gone": {"command": "no-such-program-anywhere"},
    }
    async with (
        gateway_process(folder, {"servers": servers}) as gateway,
        httpx2.AsyncClient(timeout=LONG_S) as http,
    ):
        yield Shop(gateway, http, folder / "trace")


def texts_of(file: Path) -> Iterator[tuple[str, int]]:
    """The texts for clients in a file, with their lines."""
    tree = ast.parse(file.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > (place := TAKERS.get(_name(node.func), 99)):
            around = [one for one in functions if one.lineno <= node.lineno <= (one.end_lineno or 0)]
            assigned = _assigned(tree.body) | _assigned([each for one in around for each in ast.walk(one)])
            for given in _meant(node.args[place], assigned):
                yield _shape(given, assigned), node.lineno


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """The texts that names stand for."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant | ast.Dict):
                found[target.id] = node.value.values if isinstance(node.value, ast.Dict) else [node.value]
    return found


def _meant(given: ast.expr, assigned: dict[str, list[ast.expr]]) -> list[ast.expr]:
    match given:
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)) if name in assigned:
            return assigned[name]
    return [given]


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _shape(given: ast.expr, assigned: dict[str, list[ast.expr]]) -> str:
    """The text with `{}` for what is filled in; of anything else, its source."""
    match given:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[*values]) if len(values) != 2 or isinstance(values[0], ast.Constant):
            return "".join(_shape(value, assigned) for value in values)
        case ast.FormattedValue(value=ast.Name(id=name)) if name in assigned:
            return _shape(assigned[name][0], assigned)
        case ast.FormattedValue() | ast.Constant():
            return "{}"
        case ast.BinOp(left=left, op=ast.Add()):
            return _shape(left, assigned) + "{}"
    return ast.unparse(given)


def all_texts() -> dict[str, str]:
    """Each text, and where it is."""
    files = [file for part in ("front", "gateway", "bridge") for file in sorted((ROUTER / part).rglob("*.py"))]
    return {text: f"{file.name}:{line}" for file in files for text, line in texts_of(file)}


def test_every_text_says_what_is_wrong_and_what_to_do() -> None:
    found = {text: place for text, place in all_texts().items() if text not in PASSED_ON | TO_SERVERS}
    known = {f"{what} {step}" for what, step in TEXTS if what and step}
    assert {text: place for text, place in found.items() if text not in known} == {}
    assert known - found.keys() == set()


def modern(method: str, **params: Any) -> Json:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}


def routed(message: Json) -> dict[str, str]:
    """The headers of a modern request."""
    params = message["params"]
    name = params.get("name") or params.get("uri")
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": message["method"]}
    return headers | ({"Mcp-Name": name} if isinstance(name, str) else {})


INITIALIZE: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
LEGACY_PARAMS: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
# The code, the beginning of the text, the body, and headers. A modern body brings its own.
CASES: tuple[tuple[int, str, str | Json, dict[str, str]], ...] = (
    (seams.PARSE_ERROR, "Parse error: the body is not JSON.", "{", {}),
    (seams.INVALID_REQUEST, "The body must be one JSON-RPC message", "[]", {}),
    (seams.INVALID_REQUEST, "`method` must be", {"jsonrpc": "2.0", "id": 1, "method": 7}, {}),
    (seams.INVALID_REQUEST, "`id` must be", {"jsonrpc": "2.0", "id": [], "method": "ping"}, {}),
    (seams.INVALID_REQUEST, "`params` must be", {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": 7}, {}),
    (seams.INVALID_REQUEST, "The message must be a request", {"jsonrpc": "2.0", "id": 1}, {}),
    (seams.INVALID_REQUEST, "A message with `method` must not", INITIALIZE | {"result": {}}, {}),
    (seams.INVALID_REQUEST, "Content-Type must be", INITIALIZE, {"Content-Type": "text/plain"}),
    (seams.INVALID_REQUEST, "Accept must name both", INITIALIZE, {"Accept": "text/html"}),
    (seams.INVALID_REQUEST, "The gateway is not known by this Host.", INITIALIZE, {"Host": "elsewhere.example"}),
    (seams.INVALID_REQUEST, "The Host header is missing or malformed.", INITIALIZE, {"Host": "a b"}),
    (seams.INVALID_REQUEST, "This web page may not use", INITIALIZE, {"Origin": "https://elsewhere.example"}),
    (seams.INVALID_REQUEST, "Session not found.", modern("ping") | {"params": {}}, {"Mcp-Session-Id": "none"}),
    (seams.INVALID_REQUEST, "The Mcp-Session-Id header is missing.", modern("ping") | {"params": {}}, {}),
    (seams.INVALID_PARAMS, "`initialize` needs", INITIALIZE, {}),
    (
        seams.INVALID_PARAMS,
        "`capabilities` must not be larger",
        INITIALIZE | {"params": LEGACY_PARAMS | {"capabilities": {"experimental": {"x": "y" * 5_000}}}},
        {},
    ),
    (seams.INVALID_PARAMS, "`name` must be", modern("tools/call"), {}),
    (seams.INVALID_PARAMS, "Tool not found.", modern("tools/call", name="nothing", arguments={}), {}),
    (seams.INVALID_PARAMS, "Prompt not found.", modern("prompts/get", name="nothing"), {}),
    (seams.INVALID_PARAMS, "Resource not found.", modern("resources/read", uri="file:///nothing"), {}),
    (seams.INVALID_PARAMS, "Skill not found.", modern("skills/get", uri="skill://nothing/SKILL.md"), {}),
    (seams.INVALID_PARAMS, "Directory not found.", modern("resources/directory/read", uri="skill://nothing"), {}),
    (seams.INVALID_PARAMS, "This `cursor` is not from this list.", modern("tools/list", cursor="none"), {}),
    (seams.INVALID_PARAMS, "`ref` must be", modern("completion/complete", ref={}, argument={}), {}),
    (seams.METHOD_NOT_FOUND, "Method not found.", modern("nothing/here"), {}),
)


@pytest.mark.parametrize(("code", "beginning", "body", "headers"), CASES, ids=[case[1] for case in CASES])
async def test_a_request_that_is_wrong_gets_the_code_and_the_text(
    shop: Shop, code: int, beginning: str, body: str | Json, headers: dict[str, str]
) -> None:
    is_modern = isinstance(body, dict) and isinstance(body.get("params"), dict) and "_meta" in body["params"]
    answer = await shop.post(body, (routed(body) if isinstance(body, dict) and is_modern else {}) | headers)
    error = answer.json()["error"]
    assert error["code"] == code
    assert error["message"].startswith(beginning)
    assert any(pattern.fullmatch(error["message"]) for pattern in PATTERNS)


async def open_session(shop: Shop) -> dict[str, str]:
    opened = await shop.post(INITIALIZE | {"params": LEGACY_PARAMS})
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    await shop.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    return session


async def missing_resource(shop: Shop) -> Json:
    """Of the legacy era, which has a code for it."""
    message = {"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": "file:///nothing"}}
    error: Json = (await shop.post(message, await open_session(shop))).json()["error"]
    return error


async def unavailable_server(shop: Shop) -> Json:
    message = modern("resources/read", uri="pointsman+gone+file:///notes.txt")
    error: Json = (await shop.post(message, routed(message))).json()["error"]
    return error


async def cancelled_call(shop: Shop) -> Json:
    session = await open_session(shop)
    call = {"name": "tool_execute", "arguments": {"toolKey": "shop:hang", "arguments": {}}}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}
    waiting = asyncio.create_task(shop.post(message, session))
    async with asyncio.timeout(LONG_S):
        while not shop.ran():
            await asyncio.sleep(0.02)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    await shop.post(cancel, session)
    text = (await waiting).text
    error: Json = json.loads(text[text.index("{") :])["error"]
    return error


async def repeated_header(shop: Shop) -> Json:
    twice = [("Mcp-Method", "ping"), ("Mcp-Method", "ping"), *shop.gateway.headers.items()]
    error: Json = (await shop.http.post(shop.gateway.url, headers=twice, content=b"{}")).json()["error"]
    return error


# Codes that take more than one request to cause, with what is said.
CAUSES: dict[int, tuple[Callable[[Shop], Awaitable[Json]], str]] = {
    RESOURCE_NOT_FOUND: (
        missing_resource,
        "Resource not found. Call `resources/list` to see the resources you can use.",
    ),
    seams.INTERNAL_ERROR: (unavailable_server, "Try again later, or use another tool."),
    seams.REQUEST_CANCELLED: (cancelled_call, "Request cancelled by the client. Send it again if you still need it."),
    HEADER_MISMATCH: (repeated_header, "The header mcp-method appears more than once. Send it once."),
}


@pytest.mark.parametrize("code", CAUSES)
async def test_an_error_with_a_code_of_its_own_says_what_to_do(shop: Shop, code: int) -> None:
    cause, said = CAUSES[code]
    error = await cause(shop)
    assert error["code"] == code
    assert error["message"].endswith(said)


def test_every_code_is_caused_by_a_request() -> None:
    codes = {value for name, value in vars(seams).items() if name.isupper() and isinstance(value, int)}
    assert codes <= {code for code, *_ in CASES} | CAUSES.keys()


async def test_another_verb_is_refused_with_a_next_step(shop: Shop) -> None:
    verb = await shop.http.put(shop.gateway.url, headers=shop.gateway.headers)
    assert verb.json()["error"]["message"].startswith("Method not allowed. Use ")
