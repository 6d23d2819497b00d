"""What a bad server does over HTTP costs the one request that it did it to, with a reason in plain words."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest

from pointsman.config.model import Limits
from pointsman.router.downstream.connection import BudgetExceededError, CallNotSentError, ConnectionLostError
from pointsman.router.downstream.http.connect import connect_http
from tests.router.downstream.http_parts import PATIENCE_S, Back, Notices, call_of, connected, front_request, text_of
from tests.servers.http_faults import HttpFaults, Misbehave, json_answer, misbehaving
from tests.servers.http_mcp import serving

Writer = asyncio.StreamWriter
STREAM = (
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def sends(data: bytes) -> Misbehave:
    async def misbehave(request: dict[str, Any], writer: Writer) -> None:
        writer.write(data)

    return misbehave


async def reset(request: dict[str, Any], writer: Writer) -> None:
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def foreign_answer(request: dict[str, Any], writer: Writer) -> None:
    writer.write(json_answer({"jsonrpc": "2.0", "id": request["id"] + 1, "result": {"secret": "of another"}}))


REDIRECT = b"HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"


@pytest.mark.parametrize(
    ("misbehave", "reason"),
    [
        (sends(b""), "closed the connection before it answered"),
        (reset, "reset the connection"),
        (sends(b"this is not HTTP\r\n\r\n"), "not HTTP"),
        (sends(JSON_HEAD % 500 + b'\r\n{"jsonrpc"'), "cut off"),
        (sends(STREAM + b"5\r\ndata:\r\n"), "cut off"),
        (sends(STREAM + b"0\r\n\r\n"), "ended its answer before the result"),
        (sends(JSON_HEAD % 4 + b"\r\n{no}"), "not JSON"),
        (sends(JSON_HEAD % 3 + b"\r\nNaN"), "not JSON"),
        (sends(JSON_HEAD % 200_000 + b"\r\n" + b"[" * 200_000), "not JSON"),
        (sends(JSON_HEAD % 4 + b"Content-Encoding: gzip\r\n\r\nnope"), "could not be unpacked"),
        (sends(JSON_HEAD.replace(b"application/json", b"text/html") % 2 + b"\r\nhi"), "`text/html`"),
        (sends(json_answer("boo", "500 Oops")), "HTTP 500"),
        (sends(json_answer({}, "401 Unauthorized")), "did not accept our credential"),
        (sends(REDIRECT), "not followed"),
        (foreign_answer, "not the result of this call"),
    ],
)
async def test_a_bad_answer_fails_its_own_call_with_the_reason_and_is_not_asked_for_twice(
    misbehave: Misbehave, reason: str
) -> None:
    async with misbehaving(misbehave) as faults, connected(faults.url) as connection:
        with pytest.raises(ConnectionLostError, match=reason) as lost:
            await connection.request(call_of("anything"))
        assert not isinstance(lost.value, CallNotSentError)
        assert faults.requests == 1
        with pytest.raises(ConnectionLostError, match=reason):  # it is still there, and the next call is a new chance
            await connection.request(call_of("anything"))


async def test_others_go_on_while_one_answer_is_cut() -> None:
    halfway, cut = asyncio.Event(), asyncio.Event()

    async def misbehave(request: dict[str, Any], writer: Writer) -> None:
        if request["params"]["name"] == "cut":
            writer.write(STREAM)
            halfway.set()
            return
        await cut.wait()
        writer.write(json_answer({"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}}))

    async with misbehaving(misbehave) as faults, connected(faults.url) as connection:
        others = [asyncio.create_task(connection.request(call_of("good"))) for _ in range(3)]
        with pytest.raises(ConnectionLostError):
            await connection.request(call_of("cut"))
        cut.set()
        assert await asyncio.gather(*others) == [{"content": []}] * 3


async def test_bytes_that_trickle_in_for_ever_end_with_the_callers_deadline() -> None:
    async def trickle(request: dict[str, Any], writer: Writer) -> None:
        writer.write(STREAM)
        while not writer.is_closing():
            writer.write(b"2\r\n: \r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with misbehaving(trickle) as faults, connected(faults.url) as connection:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await connection.request(call_of("anything"))


@pytest.mark.parametrize("line", [b"data: x\n", b"x" * 64])
async def test_a_stream_that_never_ends_an_event_is_cut_at_the_limit(line: bytes) -> None:
    async def endless(request: dict[str, Any], writer: Writer) -> None:
        writer.write(STREAM)
        while not writer.is_closing():
            writer.write(b"%x\r\n%s\r\n" % (len(line) * 1000, line * 1000))
            await writer.drain()

    limits = Limits(result_bytes=1_000_000)
    async with misbehaving(endless) as faults, connected(faults.url, limits=limits) as connection:
        with pytest.raises(BudgetExceededError, match="1000000 bytes"):
            await connection.request(call_of("anything"))


async def test_a_flood_of_messages_is_cut_at_the_limit() -> None:
    async with serving("modern") as server, connected(server.url, limits=Limits(messages=10)) as connection:
        back = Back()
        with pytest.raises(BudgetExceededError, match="more than 10 messages"):
            await connection.request(call_of("flood", back, front_request(progress_token=1)))
        assert len(back.told) <= 10
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'


async def test_a_server_that_is_back_soon_after_it_cut_a_call_keeps_its_connection() -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        call = asyncio.create_task(connection.request(call_of("wait")))
        await server.arrived.acquire()
        await server.stop()
        with pytest.raises(ConnectionLostError):
            await call
        await server.start()
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'
        over = asyncio.create_task(connection.ended())
        await asyncio.wait([over], timeout=1.0)
        assert not over.done()
        over.cancel()


async def test_a_server_that_takes_no_more_connections_counts_as_gone_after_one_failed_call() -> None:
    async with serving("modern") as server, connected(server.url) as connection:
        await server.stop()
        with pytest.raises(ConnectionLostError):
            await connection.request(call_of("echo"))
        assert await connection.ended() == "it refused the connection"


async def test_a_legacy_server_that_dies_while_nobody_calls_counts_as_gone() -> None:
    async with serving("legacy") as server, connected(server.url) as connection:
        await server.stream_opened.acquire()
        await server.stop()
        assert await connection.ended() == "it refused the connection"


async def test_a_connect_to_nobody_fails_with_the_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"  # ours and not listening, so that nobody else can
        with pytest.raises(ConnectionLostError, match="refused the connection"):
            async with connected(url):
                pass


async def test_a_url_without_a_host_fails_with_the_reason() -> None:
    with pytest.raises(ConnectionLostError, match="`url` is not valid"):
        async with connected("http:///mcp"):
            pass


async def test_a_connect_that_hangs_can_be_cancelled_and_leaves_no_socket_behind() -> None:
    inside, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: Writer) -> None:
        inside.set()
        while await reader.read(1000):
            pass
        writer.close()
        closed.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    connecting = asyncio.create_task(connect_http(url, {}, "auto", 5.0, Limits(), Notices()))
    await inside.wait()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    async with asyncio.timeout(PATIENCE_S):
        await closed.wait()
    server.close()


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with serving("modern") as server, connected(server.url) as connection:
        assert text_of(await connection.request(call_of("echo", a=1))) == '{"a": 1}'


async def test_a_cookie_is_not_kept() -> None:
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head.decode().lower())
        writer.write(b"HTTP/1.1 500 No\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    faults = HttpFaults(reset)
    faults.port = server.sockets[0].getsockname()[1]
    for _ in range(2):
        with pytest.raises(ConnectionLostError):
            async with connected(faults.url):
                pass
    assert not any("cookie" in head for head in seen)
    server.close()
