"""Responses that repeat the head of the last one are not parsed again: they must mean what they meant."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import suppress

import pytest

from pointsman.router.downstream.connection import ConnectionLostError, NewConnectionClosedError
from pointsman.router.downstream.http.exchange import HttpConnection
from pointsman.router.downstream.http.failures import FAILURES, UnsentError
from pointsman.router.downstream.http.response_head import ResponseHead
from pointsman.router.serving.write_queue import WriteQueue, Writer
from tests.router.downstream.http_answers import BODY, CHUNKED, OK, WHOLE, answers, client_of, get


def of_length(body: bytes, head: bytes = OK) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


LONGER = b'{"text": "hello, and more of it"}'
OTHERS = {  # pieces of a response after one that the parser has accepted, and their body; None: it fails
    "the same head": ([WHOLE], BODY),
    "another length": ([of_length(LONGER)], LONGER),
    "empty": ([of_length(b"")], b""),
    "head and body apart": ([WHOLE[: -len(BODY)], BODY], BODY),
    "in the middle of the head": ([WHOLE[:20], WHOLE[20:]], BODY),
    "in the middle of the length": ([OK + b"Content-Length: 1", b"7\r\n\r\n" + BODY], BODY),
    "after an interim response": ([b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE], BODY),
    "with an interim response": ([b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE], BODY),
    "another header": ([of_length(LONGER, OK + b"Date: today\r\n")], LONGER),
    "another status": ([WHOLE.replace(b"200 OK", b"404 No")], BODY),
    "packed": ([of_length(gzip.compress(LONGER), OK + b"Content-Encoding: gzip\r\n")], LONGER),
    "chunked": ([CHUNKED + b"2\r\n{}\r\n0\r\n\r\n"], b"{}"),
    "a head in the body": ([of_length(WHOLE)], WHOLE),
    "a length with zeros": ([WHOLE.replace(b": 17", b": 00017")], BODY),
    "a length with a sign": ([WHOLE.replace(b": 17", b": +17")], None),
    "two lengths": ([WHOLE.replace(b"\r\n\r\n", b"\r\nContent-Length: 17\r\n\r\n")], None),
    "a known head within one that has begun": ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: ", WHOLE], None),
    "not HTTP": ([b"\0" + WHOLE], None),
}


@pytest.mark.parametrize("what", OTHERS)
async def test_a_response_that_repeats_a_head_means_what_it_would_mean_alone(what: str) -> None:
    pieces, expected = OTHERS[what]
    asked = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            asked += 1
            for piece in (WHOLE,) if asked % 3 else pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)  # so that each is read by itself

    async with client_of(play) as client:
        for _ in range(2):  # with the head of the last response known, and after the exception from it
            assert await get(client) == BODY
            assert await get(client) == BODY
            if expected is None:
                with pytest.raises((*FAILURES, ConnectionLostError)):
                    await get(client)
            else:
                assert await get(client) == expected


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE.replace(b"200 OK", b"404 No"),
        of_length(gzip.compress(BODY), OK + b"Content-Encoding: gzip\r\n"),
        CHUNKED + b"2\r\n{}\r\n0\r\n\r\n",
        of_length(BODY, OK + b"X-Long: " + b"y" * 4096 + b"\r\n"),
        of_length(BODY, OK + b"Vary: a\r\nVary: b\r\n"),
        of_length(BODY, OK + b"X: a\r\n b\r\n"),
        of_length(BODY, OK + b"Connection: close\r\n"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
        WHOLE + WHOLE,
    ],
)
async def test_no_other_head_than_that_of_a_plain_response_is_remembered(answer: bytes) -> None:
    async with client_of(answers(answer)) as client:
        connections: list[HttpConnection] = []
        connect = client._connect

        async def connect_and_note() -> HttpConnection:
            connections.append(await connect())
            return connections[-1]

        client._connect = connect_and_note  # type: ignore[method-assign]
        with suppress(ConnectionLostError):
            await get(client)
        assert [one._last_head for one in connections] == [None]


async def test_a_response_that_repeats_a_head_is_not_parsed() -> None:
    async with client_of(answers(WHOLE)) as client:
        known: list[ResponseHead | None] = []
        for _ in range(3):
            assert await get(client) == BODY
            known.append(next(iter(client._open))._last_head)
        assert known[0] is not None
        assert known[0] is known[1] is known[2]


async def test_a_request_that_is_not_sent_yet_takes_no_response() -> None:
    async with client_of(answers(WHOLE)) as client:
        await get(client)
        connection = next(iter(client._open))
        answer = connection.send(b"")
        connection.data_received(WHOLE)  # before the queued request is written
        with pytest.raises(UnsentError):
            await answer


async def test_a_call_on_a_new_connection_that_is_closed_at_once_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(answers(WHOLE)) as client:
        add = WriteQueue.add

        def lose(queue: WriteQueue, writer: Writer, data: bytes, loop: asyncio.AbstractEventLoop) -> None:
            add(queue, writer, data, loop)
            assert isinstance(writer, HttpConnection)
            writer.connection_lost(ConnectionResetError())  # before the queue writes

        monkeypatch.setattr(WriteQueue, "add", lose)
        with pytest.raises(NewConnectionClosedError, match="closed the connection") as refused:
            await client.send(client.head("POST"), b"{}")
        monkeypatch.undo()
        assert not refused.value.over
        assert await get(client) == BODY  # the server can still be reached
