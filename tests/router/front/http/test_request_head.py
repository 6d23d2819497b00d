"""Calls that repeat the head of their connection's last one are not parsed again: they must mean what they meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
import pytest

from pointsman.config.model import GatewayConfig, Limits
from pointsman.router.front.http.headers import HostRules
from pointsman.router.front.http.protocol import GuardedProtocol
from pointsman.router.front.http.request_head import RequestHead
from pointsman.router.front.http.responses import HEAD_LINES
from tests.router.front.raw_http import Connection, Json, call, request
from tests.router.front.served_front import Served, serving
from tests.router.serving.parsed_head import Parsed

PORT = 3282
SETTLE_S = 0.2  # for a second answer that must not come
CALL = request(PORT, b'{"a":1}', headers=[("Mcp-Session-Id", "x")])


def known(data: bytes) -> RequestHead | None:
    """The head of a request that the parser accepts, as the protocol remembers it."""
    parsed = Parsed(httptools.HttpRequestParser, data)
    return (
        RequestHead.of(data, parsed.headers, dict(parsed.headers))
        if parsed.complete == 1 and parsed.keep_alive
        else None
    )


def with_line(line: bytes, data: bytes = CALL) -> bytes:
    return data.replace(b"\r\nAccept:", b"\r\n" + line + b"\r\nAccept:")


@pytest.mark.parametrize(
    "data",
    [
        with_line(b"Expect: 100-continue"),
        with_line(b"Connection: keep-alive, te"),
        with_line(b"Connection: close"),
        with_line(b"Mcp-Session-Id: y"),
        with_line(b"Trailer: x"),
        CALL.replace(b"HTTP/1.1", b"HTTP/1.0"),
        CALL.replace(b"Content-Length: 7", b"Content-Length: 7 "),
        CALL.replace(b"\r\nContent-Length: 7", b""),
        b"\r\n" + CALL,
        CALL + CALL,
        with_line(b"X-Long: " + b"y" * 4096),
        CALL.replace(b"\r\n", b"\n"),
        CALL.replace(b"POST /mcp ", b"POST /mcp?a=1 "),
        CALL.replace(b"POST ", b"PUT "),
        # The head ends before the first blank line that has carriage returns, and the body has a head in it.
        b"POST /mcp HTTP/1.1\nHost: a\nContent-Length: 24\n\n\r\ncontent-length: 1\r\n\r\n12",
    ],
)
def test_only_the_head_of_a_plain_call_is_remembered(data: bytes) -> None:
    assert known(data) is None


@pytest.mark.parametrize("kept", [[], [("Connection", "keep-alive")], [("Connection", "Keep-Alive")]])
def test_a_remembered_head_finds_bodies_of_any_length(kept: list[tuple[str, str]]) -> None:
    head = known(request(PORT, b"{}", headers=kept))
    assert head is not None
    for body in (b"", b"{}", b"x" * 12_345):
        assert head.repeated.body_in(request(PORT, body, headers=kept)) == body


def after_a_call(port: int, session: list[tuple[str, str]], second: Json) -> dict[str, list[bytes]]:
    """Pieces that follow a call, most of them with its head."""
    whole = request(port, second, headers=session)
    head, _, body = whole.partition(b"\r\n\r\n")
    length = b"Content-Length: %d" % len(body)
    assert length in head
    return {
        "the same head": [whole],
        "another body": [request(port, call("echo", {"text": "longer than before"}), headers=session)],
        "head and body apart": [head + b"\r\n\r\n", body],
        "in the middle of the length": [whole[: head.index(length) + 17], whole[head.index(length) + 17 :]],
        "two at once": [whole + whole],
        "one and a half": [whole + whole[:40], whole[40:]],
        "blank lines before": [b"\r\n\r\n" + whole],
        "a length with zeros": [whole.replace(length, b"Content-Length: 000%d" % len(body))],
        "a length with a sign": [whole.replace(length, b"Content-Length: +%d" % len(body))],
        "a length too small": [whole.replace(length, b"Content-Length: %d" % (len(body) - 1))],
        "two lengths": [whole.replace(length, length + b"\r\n" + length)],
        "chunked besides": [whole.replace(length, length + b"\r\nTransfer-Encoding: chunked")],
        "another token": [whole.replace(b"Bearer secret-a", b"Bearer secret-b")],
        "no token": [whole.replace(b"Bearer secret-a", b"Bearer secret-x")],
        "another host": [whole.replace(b"Host: 127.0.0.1", b"Host: 127.0.0.2")],
        "another version": [whole.replace(length, length + b"\r\nMCP-Protocol-Version: 1")],
        "another path": [whole.replace(b"/mcp ", b"/projects/research/mcp ")],
        "a project": [whole.replace(length, length + b"\r\nX-Pointsman-Project: none")],
        "closing": [whole.replace(length, length + b"\r\nConnection: close")],
        "not JSON": [head.replace(length, b"Content-Length: 3") + b"\r\n\r\n{{{"],
        "empty": [head.replace(length, b"Content-Length: 0") + b"\r\n\r\n"],
        "not HTTP": [b"\x00" + whole],
    }


async def answers_to(connection: Connection, pieces: list[bytes]) -> list[Any]:
    """Status and body of all answers, and whether the connection was closed after them."""
    for piece in pieces:
        connection.send(piece)
        await asyncio.sleep(0.02)  # so that it arrives as a piece of its own
    found: list[Any] = []
    try:
        while True:
            async with asyncio.timeout(SETTLE_S if found else None):
                answer = await connection.answer()
            found.append((answer.status, answer.body))
    except TimeoutError:
        pass
    except (asyncio.IncompleteReadError, ConnectionError):
        found.append("closed")
    return found


async def a_warm_connection(served: Served, whole: bytes) -> Connection:
    """One that knows the head of its calls: that of the first is not remembered, as nothing was answered before."""
    connection = await served.connect()
    for _ in range(3):
        connection.send(whole)
        assert (await connection.answer()).status == 200
    return connection


@pytest.mark.parametrize("name", list(after_a_call(PORT, [], {})))
async def test_a_connection_that_knows_its_head_answers_as_one_that_does_not(name: str) -> None:
    async with serving() as served:
        session = await served.open_session()
        pieces = after_a_call(served.port, session, call("echo", {"text": "hello"}))[name]
        warm = await a_warm_connection(served, request(served.port, call("echo", {"text": "hi"}), headers=session))
        assert await answers_to(warm, pieces) == await answers_to(await served.connect(), pieces)


async def test_a_call_with_a_repeated_head_reaches_the_gateway_as_its_first_one_did() -> None:
    async with serving() as served:
        session = await served.open_session()
        await a_warm_connection(served, request(served.port, call("echo", {"text": "hi"}), headers=session))
        first, *others = served.gateway.requests
        assert len(others) == 2
        assert {(one.method, one.caller, one.client.name) for one in others} == {
            (first.method, first.caller, first.client.name)
        }


async def test_a_refused_call_with_a_repeated_head_is_recorded_whatever_was_before_it() -> None:
    """The head was remembered of a larger call than is read for the audit."""
    async with serving() as served:
        session = await served.open_session()
        large = request(served.port, call("echo", {"text": "x" * 65_500}), headers=session, token="wrong")
        small = request(served.port, call("echo", {"text": "hi"}), headers=session, token="wrong")
        connection = await served.connect()
        for piece in (large, large, large, small):
            connection.send(piece)
            answer = await connection.answer()
            assert answer.status == 401
        assert [one.method for one in served.gateway.refusals][-1] == "tools/call"
        assert answer.json["id"] == 1


@pytest.mark.parametrize("verb", ["POST", "DELETE"])  # one goes straight to the front, the other through ASGI
async def test_an_idle_connection_does_not_keep_its_last_head(verb: str) -> None:
    async with serving() as served:
        connection = await served.connect()
        lines = [("X-Large", "x" * 60_000)]
        connection.send(request(served.port, verb=verb, headers=lines))
        await connection.answer()
        [protocol] = served.server.server_state.connections
        assert isinstance(protocol, GuardedProtocol)
        kept = [
            *protocol.headers,
            *(getattr(protocol.cycle, "headers", None) or protocol.cycle.scope.get("headers", ())),
        ]
        assert sum(len(value) for _, value in kept) < 1_000


async def test_an_idle_connection_keeps_no_large_head_of_a_known_caller() -> None:
    async with serving() as served:
        session = await served.open_session()
        large = request(served.port, call("echo", {"text": "hi"}), headers=[*session, ("X-Large", "x" * 60_000)])
        await a_warm_connection(served, large)
        connections = served.server.server_state.connections
        identities = [one.identity for one in connections if isinstance(one, GuardedProtocol) and one.identity]
        assert identities
        assert not any(b"x-large" in (identity.head or ()) for identity in identities)


async def test_a_header_of_very_many_fields_is_refused() -> None:
    async with serving() as served:
        connection = await served.connect()
        connection.send(request(served.port, {}, headers=[(f"X-{number}", "") for number in range(HEAD_LINES)]))
        assert (await connection.closed()).startswith(b"HTTP/1.1 431 ")


def reload_with_other_hosts(served: Served) -> None:
    served.front.hosts = HostRules(frozenset({b"elsewhere:1"}), frozenset())


def reload_with_a_lower_limit(served: Served) -> None:
    served.current.replace(GatewayConfig(limits=Limits(body_bytes=10)))


def revoke_the_token(served: Served) -> None:
    served.gateway.revoked.add("secret-a")


@pytest.mark.parametrize(
    ("change", "status"), [(reload_with_other_hosts, 421), (reload_with_a_lower_limit, 413), (revoke_the_token, 401)]
)
async def test_what_changes_between_two_calls_holds_for_a_repeated_head(
    change: Callable[[Served], None], status: int
) -> None:
    async with serving() as served:
        session = await served.open_session()
        whole = request(served.port, call("echo", {"text": "hi"}), headers=session)
        connection = await a_warm_connection(served, whole)
        change(served)
        connection.send(whole)
        assert (await connection.answer()).status == status


async def test_the_rest_of_a_refused_body_is_not_taken_for_a_repeated_head() -> None:
    """The gateway answers before the body has come; what follows belongs to that body."""
    async with serving(limits=Limits(body_bytes=1000)) as served:
        session = await served.open_session()
        whole = request(served.port, call("echo", {"text": "hi"}), headers=session)
        connection = await a_warm_connection(served, whole)
        large = request(served.port, b"x" * 5000, headers=session)
        connection.send(large[: len(large) - len(whole)])
        assert (await connection.answer()).status == 413
        connection.send(whole)  # the last bytes of the body
        connection.send(request(served.port, call("echo", {"text": "after"}), headers=session))
        answer = await connection.answer()
        assert (answer.status, answer.text) == (200, "after")
