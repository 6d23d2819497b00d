"""Several requests on one connection: what follows a call never changes or replaces the answer to it."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.router.front.http.protocol import GuardedProtocol
from tests.router.front.raw_http import LONG_S, call, modern_call, request
from tests.router.front.served_front import serving


@pytest.mark.parametrize("junk", [b"\0", b"garbage\r\n\r\n", b"POST /mcp HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
@pytest.mark.parametrize("known", [False, True], ids=["first", "known head"])
async def test_a_whole_call_is_answered_before_what_follows_is_refused(junk: bytes, known: bool) -> None:
    """A client that reads 400 as the answer to its call repeats a call that ran."""
    async with serving() as served:
        session = await served.open_session()
        whole = request(served.port, call("echo", {"text": "hi"}), headers=session)
        connection = await served.connect()
        for _ in range(3 * known):
            connection.send(whole)
            assert (await connection.answer()).status == 200
        connection.send(whole + junk)
        assert (await connection.answer()).text == "hi"
        assert await connection.closed() == b""


@pytest.mark.parametrize(
    ("behind", "end"), [(b"garbage\r\n\r\n", b""), (b"POST /mcp HTTP/1.1\r\nHost: ", b"HTTP/1.1 408 ")]
)
async def test_a_long_call_outlasts_what_follows_it(behind: bytes, end: bytes) -> None:
    async with serving() as served:
        session = await served.open_session()
        connection = await served.connect()
        connection.send(request(served.port, call("slow"), headers=session) + behind)
        await served.gateway.entered.acquire()
        [protocol] = served.protocols
        protocol._head_is_late()  # as its timer does
        served.gateway.leave.set()
        assert (await connection.answer()).status == 200
        if end:
            protocol._head_is_late()
        assert (await connection.closed())[: len(b"HTTP/1.1 408 ")] == end


async def test_a_call_is_answered_if_the_body_of_one_behind_it_cannot_be_read() -> None:
    async with serving() as served:
        session = await served.open_session()
        whole = request(served.port, call("slow"), headers=session)
        chunked = request(
            served.port, b"", headers=[*session, ("Transfer-Encoding", "chunked")], without=["Content-Length"]
        )
        connection = await served.connect()
        connection.send(whole + chunked + b"zz\r\n")
        await served.gateway.entered.acquire()
        served.gateway.leave.set()
        assert (await connection.answer()).status == 200
        assert await connection.closed() == b""


async def test_a_client_that_leaves_cancels_its_call_also_with_another_one_behind_it() -> None:
    async with serving() as served:
        calls = [modern_call("slow"), modern_call("echo", {"text": "hi"})]
        connection = await served.connect()
        connection.send(b"".join(request(served.port, body, headers=headers) for body, headers in calls))
        await served.gateway.entered.acquire()
        [protocol] = served.server.server_state.connections
        assert isinstance(protocol, GuardedProtocol)
        protocol.transport.abort()  # as the event loop does where a write fails: it does not read behind two requests
        async with asyncio.timeout(LONG_S):
            await served.gateway.cancelled.acquire()
        assert served.gateway.finished == 0
