"""Limits on what clients send, open and leave unread."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from contextlib import suppress

import pytest

from pointsman.config.model import GatewayConfig, Limits
from pointsman.router.front.http.protocol import MOST_QUEUED
from pointsman.router.front.http.responses import HEAD_LINES
from tests.router.front.raw_http import LONG_S, Connection, Json, call, initialize, modern_call, request
from tests.router.front.served_front import Served, serving

BRIEF = 0.5  # more than a busy machine needs for a request that is sent in one piece
HURRIED = Limits(header_s=BRIEF, body_s=BRIEF)


async def is_healthy(served: Served) -> bool:
    return (await served.send(initialize())).status == 200


async def until_no_connection(served: Served) -> None:
    async with asyncio.timeout(LONG_S):
        while served.connections:
            await asyncio.sleep(0.01)


async def test_a_body_over_the_limit_is_a_413() -> None:
    async with serving(limits=Limits(body_bytes=1000)) as served:
        connection = await served.connect()
        connection.send(request(served.port, initialize(meta={"x": "y" * 300_000})))
        answer = await connection.answer()
        assert (answer.status, answer.reason) == (413, "too_large")
        assert "1000 bytes" in answer.json["error"]["message"]
        connection.send(request(served.port, initialize()))
        assert (await connection.answer()).status == 200, "the rest of the large body was skipped"
        await connection.close()


async def test_a_body_without_a_length_is_counted_as_it_comes() -> None:
    async with serving(limits=Limits(body_bytes=1000)) as served:
        chunked = [("Transfer-Encoding", "chunked")]
        connection = await served.connect()
        head = request(served.port, b"", headers=chunked, without=["content-length"])
        connection.send(head + b"800\r\n" + b" " * 0x800 + b"\r\n")
        assert (await connection.answer()).status == 413
        await connection.close()
        body = request(served.port, initialize()).partition(b"\r\n\r\n")[2]
        connection = await served.connect()
        for piece in (head, b"%x\r\n%b\r\n" % (10, body[:10]), b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) - 10, body[10:])):
            connection.send(piece)
            await asyncio.sleep(0)
        assert (await connection.answer()).status == 200
        await connection.close()


async def test_a_slow_header_is_cut_however_steadily_it_trickles() -> None:
    async with serving(limits=HURRIED) as served:
        connection = await served.connect()
        connection.send(b"POST /mcp HTTP/1.1\r\n")
        answer = asyncio.ensure_future(connection.closed())
        while not answer.done():
            connection.send(b"X-Slow: 1\r\n")
            await asyncio.sleep(BRIEF / 5)
        # Our last line may meet a closed socket, whose reset takes the answer away from us.
        assert answer.result() == b"" or answer.result().startswith(b"HTTP/1.1 408 ")
        await connection.close()
        assert await is_healthy(served)


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with serving(limits=HURRIED) as served:
        connection = await served.connect()
        assert await connection.closed() == b""
        await connection.close()


async def test_blank_lines_do_not_hold_a_connection_open() -> None:
    async with serving(limits=HURRIED) as served:
        connection = await served.connect()
        connection.send(request(served.port, initialize()))
        assert (await connection.answer()).status == 200
        rest = asyncio.ensure_future(connection.closed())
        while not rest.done():
            connection.send(b"\r\n")
            await asyncio.sleep(BRIEF / 5)
        await connection.close()


async def test_a_second_request_has_its_own_time_for_its_header() -> None:
    async with serving(limits=HURRIED) as served:
        connection = await served.connect()
        connection.send(request(served.port, initialize()))
        assert (await connection.answer()).status == 200
        connection.send(b"POST /mcp HTTP/1.1\r\n")
        assert (await connection.closed()).startswith(b"HTTP/1.1 408 ")
        await connection.close()


async def test_a_slow_body_is_cut_however_steadily_it_trickles() -> None:
    async with serving(limits=HURRIED) as served:
        connection = await served.connect()
        whole = request(served.port, initialize())
        connection.send(whole[:-50])
        answer = asyncio.ensure_future(connection.closed())
        for byte in whole[-50:-1]:
            if answer.done():
                break
            connection.send(bytes([byte]))
            await asyncio.sleep(BRIEF / 5)
        await answer
        if answer.result():  # as above
            assert answer.result().startswith(b"HTTP/1.1 408 ")
            assert b"bad_request" in answer.result()
        await connection.close()
        assert served.front.sessions_open == 0
        assert await is_healthy(served)


async def test_a_body_that_nobody_reads_any_more_is_cut_too() -> None:
    async with serving(limits=HURRIED) as served:
        connection = await served.connect()
        connection.send(request(served.port, initialize(), headers=[("Accept", "text/html")], without=["accept"])[:-20])
        assert (await connection.answer()).status == 406
        assert await connection.closed() == b""
        await connection.close()


async def test_a_long_call_outlives_the_limits_of_its_request() -> None:
    async with serving(limits=HURRIED) as served:
        session = await served.open_session()
        connection = await served.start(call("slow"), headers=session)
        await served.gateway.entered.acquire()
        await asyncio.sleep(3 * BRIEF)
        served.gateway.leave.set()
        assert (await connection.answer()).status == 200
        await connection.close()


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_large_header_is_refused(at_once: bool) -> None:
    async with serving() as served:
        connection = await served.connect()
        large = request(served.port, initialize(), headers=[("X-Large", "x" * 1000)] * 70)
        if at_once:
            connection.send(large)
        else:
            for start in range(0, 66_000, 1000):
                connection.send(large[start : start + 1000])
                await asyncio.sleep(0)
        assert (await connection.closed()).startswith(b"HTTP/1.1 431 ")
        await connection.close()


@pytest.mark.parametrize("pieces", [1, 2])
async def test_a_large_header_is_refused_behind_a_whole_call(pieces: int) -> None:
    async with serving() as served:
        session = await served.open_session()
        whole = request(served.port, call("echo", {"text": "hi"}), headers=session)
        large = request(served.port, call("echo"), headers=[*session, *[("X-Large", "x" * 1000)] * 70])
        connection = await served.connect()
        connection.send(whole + large[: -100 * (pieces - 1) or None])
        assert (await connection.answer()).text == "hi"
        if pieces == 2:
            connection.send(large[-100:])
        assert (await connection.closed())[:13] in (b"", b"HTTP/1.1 431 ")
        assert len(served.gateway.requests) == 1


async def test_what_follows_a_large_header_behind_a_call_is_not_kept() -> None:
    async with serving() as served:
        session = await served.open_session()
        connection = await served.connect()
        head = b"POST /mcp HTTP/1.1\r\n"
        connection.send(request(served.port, call("slow"), headers=session) + head)
        await served.gateway.entered.acquire()
        [protocol] = served.protocols
        for _ in range(200):
            protocol.data_received(b"a:\r\n" * 1_000)  # as after `receive` has resumed reading
        assert len(protocol.headers) <= HEAD_LINES
        served.gateway.leave.set()
        assert (await connection.answer()).status == 200
        assert await connection.closed() == b""


async def test_a_connection_has_a_bounded_number_of_queued_requests() -> None:
    """Each costs a hundred times its own bytes. Those in the queue are answered, and the connection closes."""
    async with serving() as served:
        session = await served.open_session()
        connection = await served.connect()
        short = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.send(request(served.port, call("slow"), headers=session))
        await served.gateway.entered.acquire()
        [protocol] = served.protocols
        for _ in range(10):
            protocol.data_received(short * MOST_QUEUED)
        assert len(protocol.pipeline) == MOST_QUEUED
        served.gateway.leave.set()
        assert (await connection.answer()).status == 200
        assert (await connection.closed()).count(b"HTTP/1.1 ") == MOST_QUEUED


async def test_an_answer_admits_no_more_requests_while_others_are_queued() -> None:
    async with serving() as served:
        session = await served.open_session()
        connection = await served.connect()
        connection.send(request(served.port, call("slow"), headers=session) * 3)
        await served.gateway.entered.acquire()
        [protocol] = served.protocols
        assert protocol.flow.read_paused
        protocol.on_response_complete()
        assert protocol.flow.read_paused
        protocol.on_response_complete()
        assert not protocol.flow.read_paused
        served.gateway.leave.set()


@pytest.mark.parametrize("path", ["/mcp", "/projects/p/mcp"])
@pytest.mark.parametrize("trailer", [b"a:\r\n", b"a" * 1000 + b": " + b"b" * 1000 + b"\r\n"], ids=["many", "long"])
async def test_trailers_have_the_bound_of_a_header_and_are_not_kept(path: str, trailer: bytes) -> None:
    """A client without a token could otherwise fill the memory within `body_s`."""
    async with serving() as served:
        connection = await served.connect()
        lines = [("Transfer-Encoding", "chunked")]
        head = request(served.port, b"", path=path, headers=lines, token=None, without=["content-length"])
        connection.send(head + b"0\r\n")
        tracemalloc.start()
        try:
            with suppress(ConnectionError):
                for _ in range(400):
                    connection.send(trailer * (20_000 // len(trailer)))
                    await connection.writer.drain()
            end = await connection.closed()
            assert tracemalloc.get_traced_memory()[1] < 4_000_000  # of 8 MB
        finally:
            tracemalloc.stop()
        assert end[:13] in (b"", b"HTTP/1.1 401 ", b"HTTP/1.1 431 ")
        assert end.count(b"HTTP/1.1 ") <= 1


@pytest.mark.parametrize("path", ["/mcp", "/projects/p/mcp"])
async def test_a_request_that_is_answered_early_has_no_second_answer_for_its_broken_body(path: str) -> None:
    async with serving() as served:
        connection = await served.connect()
        lines = [("Transfer-Encoding", "chunked"), ("Accept", "text/html")]
        head = request(served.port, b"", path=path, headers=lines, without=["accept", "content-length"])
        connection.send(head + b"2\r\n{}\r\n")
        assert (await connection.answer()).status >= 400
        connection.send(b"zz\r\n")
        assert await connection.closed() == b""


async def never_reading(served: Served, data: bytes) -> socket.socket:
    """A client with a tiny window that sends and then sleeps."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", served.port))
    await loop.sock_sendall(sock, data)
    return sock


async def test_a_client_that_never_reads_its_answer_is_cut() -> None:
    async with serving(read_s=BRIEF) as served:
        session = await served.open_session()
        await until_no_connection(served)
        body = request(served.port, call("huge", {"bytes": 20_000_000}), headers=session)
        sock = await never_reading(served, body)
        async with asyncio.timeout(LONG_S):
            while not served.gateway.requests:
                await asyncio.sleep(0.01)
        await until_no_connection(served)
        sock.close()
        assert await is_healthy(served)


async def test_a_client_that_never_reads_its_stream_loses_notices_not_memory() -> None:
    async with serving(read_s=0.5) as served:
        body, headers = modern_call("tell", {"times": 1000, "size": 100_000, "paced": True, "slowly": True})
        sock = await never_reading(served, request(served.port, body, headers=headers))
        await served.gateway.entered.acquire()  # 100 MB were said by now, without waiting
        await served.gateway.cancelled.acquire()  # the connection was cut, and the call with it
        await until_no_connection(served)
        sock.close()


async def test_a_slow_reader_gets_all_of_a_large_answer() -> None:
    async with serving(read_s=0.5) as served:
        session = await served.open_session()
        size = 3_000_000
        connection = await served.start(call("huge", {"bytes": size}), headers=session)
        await connection.head()
        total = 0
        async with asyncio.timeout(LONG_S):
            while total < size:
                total += len(await connection.reader.read(100_000))
                await asyncio.sleep(0.01)
        await connection.close()


async def test_a_stream_says_all_to_a_client_that_reads() -> None:
    async with serving() as served:
        session = await served.open_session()
        answer = await served.send(call("tell", {"times": 200, "size": 2000}), headers=session)
        assert len(answer.messages) == 201


MUCH: Json = {"experimental": {"x": "x" * 2000}}
"""Capabilities that do not fit into a session id, so that a session that is let go is gone."""


async def test_the_oldest_idle_session_makes_room() -> None:
    async with serving(limits=Limits(sessions=3)) as served:
        first, second, third = [await served.open_session(MUCH) for _ in range(3)]
        assert (await served.send(call("echo"), headers=first)).status == 200  # now `second` is the oldest
        await served.open_session()
        assert served.front.sessions_open == 3
        states = [(await served.send(call("echo"), headers=session)).status for session in (first, second, third)]
        assert states == [200, 404, 200]


async def test_sessions_with_calls_or_streams_are_never_thrown_out() -> None:
    async with serving(limits=Limits(sessions=2)) as served:
        calling, listening = await served.open_session(), await served.open_session()
        running = await served.start(call("slow"), headers=calling)
        stream = await served.start(None, verb="GET", headers=listening)
        await served.gateway.entered.acquire()
        await served.gateway.listening.acquire()
        answer = await served.send(initialize())
        assert answer.status == 503
        assert "retry-after" in answer.headers
        served.gateway.leave.set()
        assert (await running.answer()).status == 200
        assert (await served.send(initialize())).status == 200
        await running.close()
        await stream.close()


async def test_a_lower_cap_holds_for_the_next_session() -> None:
    async with serving(limits=Limits(sessions=5)) as served:
        for _ in range(5):
            await served.open_session()
        served.current.replace(GatewayConfig(limits=Limits(sessions=2)))
        await served.open_session()
        assert served.front.sessions_open == 2


async def test_an_idle_session_expires_to_the_second() -> None:
    now = 1000.0
    async with serving(limits=Limits(session_idle_s=600), clock=lambda: now) as served:
        session = await served.open_session(MUCH)
        now += 599
        assert (await served.send(call("echo"), headers=session)).status == 200
        now += 599
        assert (await served.send(call("echo"), headers=session)).status == 200
        now += 601
        assert (await served.send(call("echo"), headers=session)).status == 404
        assert served.front.sessions_open == 0


async def test_a_session_with_a_running_call_does_not_expire() -> None:
    now = 1000.0
    async with serving(limits=Limits(session_idle_s=600), clock=lambda: now) as served:
        session = await served.open_session()
        running = await served.start(call("slow"), headers=session)
        await served.gateway.entered.acquire()
        now += 10_000
        assert (await served.send(call("echo"), headers=session)).status == 200
        served.gateway.leave.set()
        assert (await running.answer()).status == 200
        await running.close()


async def test_a_thousand_abandoned_sessions_are_forgotten_and_had_no_tasks() -> None:
    now = 1000.0
    async with serving(limits=Limits(sessions=1000, session_idle_s=600), clock=lambda: now) as served:
        before = len(asyncio.all_tasks())
        connection = await Connection.open(served.port)
        for _ in range(1000):
            connection.send(request(served.port, initialize()))
            assert (await connection.answer()).status == 200
        assert served.front.sessions_open == 1000
        assert len(asyncio.all_tasks()) <= before + 1
        now += 601
        async with asyncio.timeout(LONG_S):
            while served.front.sessions_open:
                await asyncio.sleep(0.05)
        await connection.close()


async def test_a_refused_initialize_leaves_no_session() -> None:
    async with serving() as served:
        for body in (
            {**initialize(), "params": {}},
            {**initialize(), "params": {"protocolVersion": 1, "capabilities": {}, "clientInfo": {}}},
            initialize(capabilities={"x": "y" * 5000}),
        ):
            answer = await served.send(body)
            assert (answer.status, answer.code, answer.reason) == (400, -32602, "bad_request")
        assert served.front.sessions_open == 0
