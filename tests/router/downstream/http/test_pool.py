"""Connections that return to the pool: only once their exchange is over, and never closed for the call before."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.core.errors import DownstreamError
from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.downstream.http.answer import read_result
from pointsman.router.downstream.http.exchange import HttpConnection
from tests.router.downstream.http_answers import BODY, WHOLE, answers, client_of, get
from tests.router.downstream.http_parts import PATIENCE_S

LARGE = b"{" + b" " * (8 << 20) + b"}"  # more than the buffers of both sockets


async def test_a_call_that_is_cancelled_after_its_answer_does_not_close_the_connection_of_the_next() -> None:
    async with client_of(answers(WHOLE)) as client:
        await get(client)
        released, second = client.released, asyncio.Event()

        async def next_call() -> bytes:
            await second.wait()
            return await get(client)

        first, following = asyncio.create_task(get(client)), asyncio.create_task(next_call())

        def released_and_taken(connection: HttpConnection) -> None:
            """In one round: the next call takes the connection and is written, and the first is cancelled."""
            client.released = released  # type: ignore[method-assign]
            released(connection)
            second.set()
            asyncio.get_running_loop().call_soon(client._writes.flush)
            first.cancel()

        client.released = released_and_taken  # type: ignore[method-assign]
        await asyncio.gather(first, return_exceptions=True)
        assert await following == BODY


async def test_an_answer_before_the_request_was_read_ends_the_connection() -> None:
    """The rest of the request is still to be written: the next call would wait behind it."""
    served: list[int] = []
    over = asyncio.Event()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(id(writer))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(WHOLE)
        await writer.drain()
        if len(served) == 1:
            await over.wait()  # reads no further

    async with client_of(play) as client:
        response = await client.send(client.head("POST"), LARGE)
        assert await response.read() == BODY
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert await get(client) == BODY
        finally:
            over.set()
        assert len(set(served)) == 2


@pytest.mark.parametrize("given", [b"null", b'"server-error"', b"5", b"0", b"1", b"-1"])
async def test_an_error_that_names_no_other_call_is_the_answer(given: bytes) -> None:
    with pytest.raises(DownstreamError, match="broken"):
        await result_of_an_error(given)


async def test_an_error_for_another_call_is_not_the_answer() -> None:
    """It may be a late one, for another caller."""
    with pytest.raises(ConnectionLostError, match="HTTP 400"):
        await result_of_an_error(b"4")


ERROR, RESULT = b'"error": {"code": -32600, "message": "broken"}', b'"result": {}'


@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request"])
@pytest.mark.parametrize("content", [ERROR, RESULT], ids=["error", "result"])
async def test_an_answer_for_another_call_ends_its_connection(status: bytes, content: bytes) -> None:
    """All that follow on it would be one behind."""
    assert not await keeps_connection(status, b'{"jsonrpc": "2.0", "id": 4, %b}' % content)


async def test_an_event_for_another_call_ends_its_connection_if_no_other_answers() -> None:
    event = b'data: {"jsonrpc": "2.0", "id": 4, "result": {}}\n\n'
    assert not await keeps_connection(b"200 OK", event, b"text/event-stream")


@pytest.mark.parametrize(
    "content",
    [
        b'{"id": null, %b}' % ERROR,
        b'{"id": 0, %b}' % RESULT,
        b'{"error": "x"}',
        b"[]",
        b'{"id": 83412, "message": "no route"}',  # an error page, and no JSON-RPC
    ],
)
@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request"])
async def test_what_names_no_other_call_does_not_end_the_connection(status: bytes, content: bytes) -> None:
    """Another call may have taken it."""
    assert await keeps_connection(status, content)


UNNAMED = b'{"jsonrpc": "2.0", "id": null, %b}' % ERROR


async def test_an_error_that_names_no_call_is_passed_on_under_200() -> None:
    with pytest.raises(DownstreamError, match="broken"):
        await result_of(b"200 OK", UNNAMED)
    with pytest.raises(DownstreamError, match="broken"):
        await result_of(b"200 OK", b"data: %b\n\n" % UNNAMED, b"text/event-stream")


async def test_the_answer_to_a_call_counts_whatever_is_before_it() -> None:
    own = b'{"jsonrpc": "2.0", "id": 5, "result": {}}'
    foreign = own.replace(b"5", b"4")
    for other in (UNNAMED, foreign):
        await result_of(b"200 OK", b"[%b, %b]" % (other, own))
    with pytest.raises(DownstreamError, match="mine"):
        await result_of(b"400 No", b"[%b, %b]" % (UNNAMED, UNNAMED.replace(b"null", b"5").replace(b"broken", b"mine")))


async def keeps_connection(status: bytes, body: bytes, kind: bytes = b"application/json") -> bool:
    """Whether the connection of an answer that is none for call 5 can be used again."""
    async with client_of(answers(answer_with(status, body, kind))) as client:
        response = await client.send(client.head("POST"), b"{}")
        await asyncio.sleep(0)
        with pytest.raises((ConnectionLostError, DownstreamError)):
            await read_result(response, 5, 1 << 20, lambda message: None)
        await asyncio.sleep(0)
        return client._take_idle() is not None


async def result_of_an_error(given: bytes) -> None:
    await result_of(b"400 Bad Request", b'{"jsonrpc": "2.0", "id": %b, %b}' % (given, ERROR))


async def result_of(status: bytes, body: bytes, kind: bytes = b"application/json") -> None:
    async with client_of(answers(answer_with(status, body, kind))) as client:
        response = await client.send(client.head("POST"), b"{}")
        await read_result(response, 5, 1 << 20, lambda message: None)


def answer_with(status: bytes, body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
    return head + body
