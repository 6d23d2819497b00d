"""What the headers must be, before anything else is looked at."""

from __future__ import annotations

import asyncio
import json

import pytest

from pointsman.config.model import Listen
from pointsman.router.front.http.headers import HostRules, accepted
from tests.router.front.raw_http import call, initialize, modern_call, request
from tests.router.front.served_front import serving


@pytest.mark.parametrize(
    "header",
    ["Host", "Authorization", "Content-Type", "X-Pointsman-Project", "Origin", "Mcp-Session-Id", "Mcp-Param-City"],
)
async def test_a_header_that_appears_twice_is_refused(header: str) -> None:
    async with serving() as served:
        value = {
            "Host": f"127.0.0.1:{served.port}",
            "Authorization": "Bearer secret-a",
            "Content-Type": "application/json",
            "Origin": f"http://127.0.0.1:{served.port}",
        }.get(header, "research")
        answer = await served.send(initialize(), headers=[(header, value)] * 2, without=[header])
        assert (answer.status, answer.reason) == (400, "bad_request")
        assert answer.code == (-32020 if header.startswith("Mcp-") else -32600)
        assert header.lower() in answer.json["error"]["message"]
        assert served.front.sessions_open == 0


async def test_two_different_tokens_in_two_headers_run_nothing() -> None:
    async with serving() as served:
        answer = await served.send(initialize(), headers=[("authorization", "Bearer secret-b")])
        assert answer.status == 400
        assert b"secret" not in answer.body


async def test_accept_may_come_in_two_lines() -> None:
    async with serving() as served:
        lines = [("Accept", "application/json"), ("Accept", "text/event-stream")]
        assert (await served.send(initialize(), headers=lines, without=["accept"])).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LocalHost:{port}", 200),
        ("[::1]:{port}", 200),
        ("gateway.example", 200),  # allowed by the operator
        ("gateway.example:443", 421),
        ("127.0.0.1", 421),
        ("127.0.0.1:1", 421),
        ("evil.example:{port}", 421),
        ("127.0.0.1:{port}.evil.example", 400),
        ("127.0.0.1:{port}/health?x=", 400),
        ("127.0.0.1:{port}\\@evil.example", 400),
        ("127.0.0.1:99999x", 400),
        ("user@127.0.0.1:{port}", 400),
        ("127.0.0.1:{port}, evil.example", 400),
        ("", 400),
    ],
)
async def test_the_host_is_compared_exactly(host: str, status: int) -> None:
    async with serving(listen=Listen(allowed_hosts=("Gateway.example",))) as served:
        named = [("Host", host.format(port=served.port))]
        answer = await served.send(initialize(), headers=named, without=["host"])
        assert answer.status == status
        if status != 200:
            assert answer.reason == "bad_request"


async def test_a_request_without_host_is_refused() -> None:
    async with serving() as served:
        assert (await served.send(initialize(), without=["host"])).status == 400


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:{port}", 200),
        ("http://localhost:{port}", 200),
        ("https://app.example", 200),  # allowed by the operator
        ("https://127.0.0.1:{port}", 403),
        ("http://localhost:1", 403),
        ("http://localhost:{port}.evil.example", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_only_known_web_pages_may_call(origin: str, status: int) -> None:
    async with serving(listen=Listen(allowed_origins=("https://app.example",))) as served:
        answer = await served.send(initialize(), headers=[("Origin", origin.format(port=served.port))])
        assert answer.status == status
        if status == 403:
            assert answer.reason == "denied"
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("verb", ["OPTIONS", "PUT", "PATCH", "HEAD", "TRACE"])
async def test_other_verbs_are_refused_with_those_that_are_allowed(verb: str) -> None:
    async with serving() as served:
        connection = await served.start(None, verb=verb)
        head = (await connection.head()).lower()
        assert "405 method not allowed" in head
        assert "allow: get, post, delete" in head
        await connection.close()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_of_another_type_is_refused(kind: str) -> None:
    async with serving() as served:
        answer = await served.send(initialize(), headers=[("Content-Type", kind)], without=["content-type"])
        assert (answer.status, answer.reason) == (415, "bad_request")


async def test_parameters_of_the_content_type_do_not_matter() -> None:
    async with serving() as served:
        kind = [("Content-Type", "Application/JSON; charset=utf-8")]
        assert (await served.send(initialize(), headers=kind, without=["content-type"])).status == 200


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "text/html", ""])
async def test_a_client_must_take_both_kinds_of_answer(accept: str) -> None:
    async with serving() as served:
        answer = await served.send(initialize(), headers=[("Accept", accept)], without=["accept"])
        assert (answer.status, answer.reason) == (406, "bad_request")


def test_wildcards_and_weights_in_accept_are_understood() -> None:
    assert accepted(b"*/*") == (True, True)
    assert accepted(b"application/*;q=0.5, TEXT/*") == (True, True)
    assert accepted(b"application/json" + b" " * 300 + b",text/event-stream") == (True, True)
    assert accepted(b"application/jsonp, text/event-stream-x") == (False, False)


def test_the_default_port_goes_without_saying() -> None:
    rules = HostRules.of(Listen(host="192.0.2.7"), 80)
    assert {b"localhost", b"localhost:80", b"192.0.2.7", b"192.0.2.7:80"} <= rules.hosts
    assert b"localhost" not in HostRules.of(Listen(), 3282).hosts
    assert b"[2001:db8::1]:3282" in HostRules.of(Listen(host="2001:db8::1"), 3282).hosts
    assert not any(b"0.0.0.0" in host for host in HostRules.of(Listen(host="0.0.0.0"), 3282).hosts)


async def test_blanks_around_header_values_do_not_matter() -> None:
    async with serving() as served:
        body, headers = modern_call("echo", {"text": "hi"})
        padded = [(name, f"  {value}\t ") for name, value in headers]
        assert (await served.send(body, headers=padded)).text == "hi"


async def test_names_and_limits_are_replaced_while_it_runs() -> None:
    async with serving() as served:
        served.front.hosts = HostRules.of(Listen(allowed_hosts=("late.example",)), served.port)
        late = [("Host", "late.example")]
        assert (await served.send(initialize(), headers=late, without=["host"])).status == 200


async def test_a_request_in_absolute_form_goes_by_its_host_header() -> None:
    async with serving() as served:
        good = await served.send(initialize(), path="http://evil.example/mcp")
        bad = await served.send(
            initialize(),
            path=f"http://127.0.0.1:{served.port}/mcp",
            headers=[("Host", "evil.example")],
            without=["host"],
        )
        assert (good.status, bad.status) == (200, 421)


async def test_both_lengths_in_one_request_are_refused() -> None:
    async with serving() as served:
        session = await served.open_session()
        for smuggled in (
            [("Transfer-Encoding", "chunked")],
            [("Content-Length", "3")],
            [("Transfer-Encoding", "identity, chunked")],
        ):
            connection = await served.connect()
            connection.send(request(served.port, call("echo"), headers=[*session, *smuggled]))
            answer = await connection.closed()
            assert answer.startswith(b"HTTP/1.1 400 "), answer
            await connection.close()
        assert served.gateway.requests == []


async def test_a_trailer_is_no_header() -> None:
    """Whether it comes with the head, or after the head was checked."""
    async with serving() as served:
        session = await served.open_session()
        body = json.dumps(call("echo", {"text": "hello"})).encode()
        chunked = [*session, ("Transfer-Encoding", "chunked")]
        head = request(served.port, b"", headers=chunked, without=["content-length"])
        chunks = b"%x\r\n%b\r\n0\r\nMcp-Session-Id: other\r\nAuthorization: Bearer x\r\n\r\n" % (len(body), body)
        for pieces in ([head + chunks], [head, chunks]):
            connection = await served.connect()
            for piece in pieces:
                connection.send(piece)
                await connection.writer.drain()
                await asyncio.sleep(0.01)
            assert (await connection.answer()).text == "hello"
            await connection.close()


async def test_a_trailer_names_no_caller_on_any_path() -> None:
    async with serving() as served:
        for path in ("/mcp", "/projects/p/mcp"):
            lines = [("Transfer-Encoding", "chunked")]
            head = request(served.port, b"", path=path, headers=lines, token=None, without=["content-length"])
            connection = await served.connect()
            connection.send(head + b"2\r\n{}\r\n0\r\nAuthorization: Bearer secret-a\r\n\r\n")
            assert (await connection.answer()).status == 401
            await connection.close()


async def test_a_connection_of_http_1_0_is_closed_also_if_it_asks_to_be_kept() -> None:
    async with serving() as served:
        session = await served.open_session()
        for asked in ([], [("Connection", "keep-alive")]):
            connection = await served.connect()
            sent = request(served.port, call("echo", {"text": "hello"}), headers=[*session, *asked])
            connection.send(sent.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            answer = await connection.closed()
            assert b"connection: close" in answer
            assert b"hello" in answer
            await connection.close()


async def test_requests_in_a_row_are_answered_in_their_order() -> None:
    async with serving() as served:
        session = await served.open_session()
        connection = await served.connect()
        connection.send(
            b"".join(request(served.port, call("echo", {"text": str(n)}), headers=session) for n in range(5))
        )
        assert [(await connection.answer()).text for _ in range(5)] == list("01234")
        await connection.close()


async def test_large_requests_in_a_row_are_answered_in_their_order() -> None:
    async with serving() as served:
        session = await served.open_session()
        connection = await served.connect()
        bodies = [call("echo", {"text": f"{n}" + "x" * 70_000}) for n in range(5)]
        connection.send(b"".join(request(served.port, body, headers=session) for body in bodies))
        assert [(await connection.answer()).text[0] for _ in range(5)] == list("01234")
        await connection.close()


async def test_an_offer_to_upgrade_is_ignored() -> None:
    """Java's client offers HTTP/2 with each first request."""
    async with serving() as served:
        session = await served.open_session()
        offer = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")]
        for upgrade in (offer, [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]):
            connection = await served.connect()
            connection.send(request(served.port, call("echo", {"text": "hi"}), headers=[*session, *upgrade]))
            assert (await connection.answer()).text == "hi"
            connection.send(request(served.port, call("echo", {"text": "again"}), headers=[*session, *upgrade]))
            assert (await connection.answer()).text == "again"
            await connection.close()


async def test_a_tunnel_is_refused() -> None:
    async with serving() as served:
        connection = await served.connect()
        connection.send(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n")
        assert (await connection.closed()).startswith(b"HTTP/1.1 400 ")
        await connection.close()


async def test_what_is_not_http_is_refused() -> None:
    async with serving() as served:
        connection = await served.connect()
        connection.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not http at all\r\n\r\n")
        assert (await connection.closed()).startswith(b"HTTP/1.1 400 ")
        await connection.close()
