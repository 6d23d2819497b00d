"""Our side of HTTP/1.1 with servers: how responses are framed, packed, cut, too large, or not HTTP at all."""

from __future__ import annotations

import asyncio
import gzip
import random
import tracemalloc
import zlib
from collections.abc import Sequence

import pytest

from pointsman.router.downstream.connection import CallNotSentError, ConnectionLostError
from pointsman.router.downstream.http.exchange import (
    CHALLENGE_BYTES,
    HEAD_BYTES,
    HIGH_WATER,
    UNPACKED_BYTES,
    response_of,
)
from pointsman.router.downstream.http.failures import FAILURES
from tests.router.downstream.http_answers import BODY, CHUNKED, OK, WHOLE, Play, answers, client_of, get


async def challenges(*lines: bytes) -> str | None:
    """What a response with these lines of `WWW-Authenticate` says."""
    head = b"".join(b"WWW-Authenticate: %s\r\n" % line for line in lines)
    async with client_of(answers(b"HTTP/1.1 401 No\r\n" + head + b"Content-Length: 0\r\n\r\n")) as client:
        response = await client.send(client.head("POST"), b"{}")
        assert response.status == 401
        return response.text(b"www-authenticate")


async def test_all_challenges_of_a_response_are_read_within_a_bound() -> None:
    assert await challenges() is None
    assert (
        await challenges(b"Basic a=b", b' Bearer scope="x" ', b"Negotiate") == 'Basic a=b, Bearer scope="x", Negotiate'
    )
    many = await challenges(b"Bearer scope=x", *[b"x"] * 3000)
    assert many is not None
    assert many.startswith("Bearer scope=x, x")
    assert len(many) <= CHALLENGE_BYTES
    assert await challenges(b"Bearer scope=x", b"y" * 9000, b"z") == "Bearer scope=x, z"


def one_by_one(data: bytes) -> Sequence[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE,
        CHUNKED + chunks(BODY),
        CHUNKED + chunks(*one_by_one(BODY)),
        CHUNKED + chunks(BODY)[:-2] + b"Trailer: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3 + WHOLE,
        WHOLE.replace(b"Content-Length", b"cOnTeNt-LeNgTh"),
        OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(BODY)) + gzip.compress(BODY),
        OK + b"Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(zlib.compress(BODY)),
        OK
        + b"Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunks(zlib.compress(BODY, wbits=-15)),
        OK + b"Content-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(BODY),
    ],
)
@pytest.mark.parametrize("pieces", ["whole", "bytes"])
async def test_a_response_is_read_however_it_is_framed_and_the_connection_is_kept(answer: bytes, pieces: str) -> None:
    connections = 0
    play = answers(*([answer] if pieces == "whole" else one_by_one(answer)))

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await play(reader, writer)

    async with client_of(counted) as client:
        for _ in range(3):
            assert await get(client) == BODY
        assert connections == 1


@pytest.mark.parametrize("head", [OK, OK.replace(b"1.1", b"1.0"), OK + b"Connection: close\r\n"])
async def test_a_body_without_a_length_ends_with_the_connection(head: bytes) -> None:
    async with client_of(answers(head + b"\r\n", BODY[:5], BODY[5:], close=True)) as client:
        for _ in range(2):
            assert await get(client) == BODY


async def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    async with client_of(
        answers(WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1), close=True)
    ) as client:
        for _ in range(5):
            assert await get(client) == BODY


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed the connection before it answered"),
        (b"HTTP/1.1 200", "closed the connection before it answered"),
        (WHOLE[:-1], "cut off"),
        (CHUNKED + b"5\r\n", "cut off"),
        (CHUNKED + b"zz\r\n", "cut off"),
        (CHUNKED + chunks(BODY)[:-5], "cut off"),
        (b"nonsense\r\n\r\n", "not HTTP"),
        (b"HTTP/9.9 200 OK\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "not HTTP"),
        (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "not HTTP"),
        (OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(b"{}"), "not HTTP"),
        (CHUNKED + chunks(b" " * 1_000_000)[:-2] + b"X: y\r\n" * 500_000 + b"\r\n", "not HTTP"),
        (OK + b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\n{}", "could not be unpacked"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope", "could not be unpacked"),
        (
            OK + b"Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + gzip.compress(BODY * 9)[:20],
            "could not be unpacked",
        ),
    ],
)
async def test_a_broken_response_fails_with_the_reason(answer: bytes, reason: str) -> None:
    async with client_of(answers(answer, close=True)) as client:
        with pytest.raises((ConnectionLostError, *FAILURES), match=reason) as failed:
            await get(client)
        assert not isinstance(failed.value, CallNotSentError)


async def test_bytes_after_a_response_close_the_connection_and_never_answer_the_next_request() -> None:
    injected = WHOLE.replace(b"hello", b"wrong")
    async with client_of(answers(WHOLE + injected)) as client:
        for _ in range(3):
            assert await get(client) == BODY


PACKED = OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"


def endless(first: bytes, more: bytes) -> tuple[Play, list[int]]:
    sent = [0]

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        while not writer.is_closing():
            writer.write(more)
            sent[0] += len(more)
            await writer.drain()

    return play, sent


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (OK + b"X-Long: ", b"x" * 8000),
        (OK, b"X-Many: %b\r\n" % (b"x" * 80) * 50),
        (b"HTTP/1.1 200 ", b"x" * 8000),
        (CHUNKED + b"2;extension=", b"x" * 8000),
        (CHUNKED + b"0\r\nX-Trailer: ", b"x" * 8000),
        (CHUNKED + b"0\r\n", b"X-Trailer: %b\r\n" % (b"x" * 80) * 50),
        (PACKED + chunks(gzip.compress(BODY))[:-5], b"1f40\r\n" + b"x" * 8000 + b"\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 300),
    ],
)
async def test_an_endless_head_or_framing_is_cut_at_a_limit(first: bytes, more: bytes) -> None:
    play, sent = endless(first, more)
    async with client_of(play) as client:
        with pytest.raises((ConnectionLostError, *FAILURES), match=r"not HTTP|cut off"):
            await get(client)
    assert sent[0] < HEAD_BYTES + 16_000_000  # the kernel's buffers are most of it


async def test_a_small_packed_body_cannot_fill_the_memory() -> None:
    bomb = gzip.compress(bytes(200_000_000))
    answer = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    async with client_of(answers(answer)) as client:
        response = await client.send(client.head("POST"), b"{}")
        await response.read()
        tracemalloc.start()
        size = 0
        while size < 20_000_000:
            size += len(await response.read())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 5_000_000


async def test_raw_deflate_of_any_length_is_unpacked_whole() -> None:
    for size in range(UNPACKED_BYTES - 8, UNPACKED_BYTES + 600, 7):
        packer = zlib.compressobj(wbits=-15)
        packed = packer.compress(b"a" * size) + packer.flush()
        head = OK + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(packed)
        async with client_of(answers(head + packed)) as client:
            assert len(await get(client)) == size


async def test_a_packed_body_is_received_no_faster_than_it_is_read() -> None:
    packer = zlib.compressobj(wbits=31)
    first, more = (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(2))
    play, sent = endless(PACKED + chunks(first)[:-5], chunks(more * 20)[:-5])
    async with client_of(play) as client:
        response = await client.send(client.head("POST"), b"{}")
        for _ in range(1_000):
            assert await response.read()
        assert sent[0] < 16_000_000  # the kernel's buffers are most of it
        tracemalloc.start()
        for _ in range(1_000):
            assert await response.read()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 5_000_000
        response.close()


async def test_other_work_goes_on_between_the_parts_of_a_packed_body() -> None:
    bomb = gzip.compress(bytes(20_000_000))
    answer = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    others = 0

    async def work() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    async with client_of(answers(answer)) as client:
        response = await client.send(client.head("POST"), b"{}")
        await response.read()
        working = asyncio.create_task(work())
        for part in range(1, 40):
            assert await response.read()
            assert others >= part
        working.cancel()


async def test_a_large_body_waits_in_the_socket_until_it_is_read() -> None:
    play, sent = endless(CHUNKED, b"10000\r\n" + bytes(0x10000) + b"\r\n")
    async with client_of(play) as client:
        response = await client.send(client.head("POST"), b"{}")
        await response.read()
        while True:  # until the server cannot write any more
            before = sent[0]
            await asyncio.sleep(0.2)
            if sent[0] == before:
                break
        assert sum(map(len, response._parts)) < HIGH_WATER + (1 << 20)
        for _ in range(100):
            assert await response.read()
        assert sent[0] > before


async def test_a_kept_connection_reads_on_after_a_body_that_nobody_read() -> None:
    large = CHUNKED + chunks(bytes(2 * HIGH_WATER))
    async with client_of(answers(large)) as client:
        for _ in range(3):
            response = await client.send(client.head("POST"), b"{}")
            while not response.ended:
                await response.read()


async def test_a_cancelled_request_closes_its_connection() -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        while await reader.read(1000):
            pass
        closed.set()

    async with client_of(play) as client:
        request = asyncio.create_task(client.send(client.head("POST"), b"{}"))
        await arrived.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await closed.wait()


async def test_whatever_a_server_sends_ends_in_a_body_or_a_reason() -> None:
    """Mutated responses, in random pieces."""
    dice = random.Random(16)
    bases = [WHOLE, CHUNKED + chunks(BODY, BODY), b"HTTP/1.1 103 X\r\n\r\n" + WHOLE, OK + b"\r\n" + BODY]
    packed = gzip.compress(BODY)
    bases.append(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)
    current: list[bytes] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)  # unread bytes would make the close a reset
        for piece in current:
            writer.write(piece)
            await asyncio.sleep(0)

    async with client_of(play) as client:
        outcomes = set()
        for _ in range(1500):
            current[:] = _mutated(dice, bases)
            try:
                await get(client)
                outcomes.add("body")
            except (ConnectionLostError, *FAILURES) as error:
                outcomes.add(str(error))
        assert "body" in outcomes
        assert len(outcomes) > 3


def _mutated(dice: random.Random, bases: Sequence[bytes]) -> list[bytes]:
    data = bytearray(dice.choice(bases))
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(data))
        match dice.randrange(4):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at : at + dice.randrange(1, 8)]
            case 2:
                data[at:at] = dice.randbytes(dice.randrange(1, 8))
            case _:
                del data[at:]
        if not data:
            return [b""]
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(5)))
    return [bytes(data[start:end]) for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def test_a_response_says_what_it_is() -> None:
    response = response_of(None, 200, {b"content-type": b"Text/Event-Stream; charset=utf-8", b"x": b"\xff"})  # type: ignore[arg-type]
    assert response.kind == "text/event-stream"
    assert response.text(b"x") == "\udcff"
    assert response.text(b"y") is None
    assert response.length is None
