"""Our side of HTTP/1.1 with servers: how responses are framed, packed, cut, too large, or not HTTP at all."""

from __future__ import annotations

import asyncio
import gzip
import random
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.router.downstream.connection import CallNotSentError, ConnectionLostError
from pointsman.router.downstream.http.answer import IncomingAnswer, read_body
from pointsman.router.downstream.http.client import HttpClient
from pointsman.router.downstream.http.exchange import CHALLENGE_BYTES, HEAD_BYTES, HIGH_WATER, KnownHead, response_of
from pointsman.router.downstream.http.failures import FAILURES, UnsentError
from pointsman.router.serving.repeated_head import RepeatedHead
from tests.router.downstream.http_parts import PATIENCE_S

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BODY = b'{"text": "hello"}'
WHOLE = OK + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def client_of(play: Play) -> AsyncIterator[HttpClient]:
    """A client of a server that reads a request head and then does what `play` says."""

    open_connections: dict[asyncio.StreamWriter, asyncio.Event] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = open_connections[writer] = asyncio.Event()
        with suppress(OSError, asyncio.IncompleteReadError):
            await play(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        del open_connections[writer]
        over.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", {})
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield client
    finally:
        await client.close()
        server.close()
        for over in list(open_connections.values()):
            await over.wait()


def answers(*pieces: bytes, close: bool = False) -> Play:
    """Answers each request on a connection with the same pieces, in writes of their own."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if close:
                return

    return play


async def get(client: HttpClient, limit: int = 1 << 20) -> bytes:
    return bytes(await read_body(await client.send(client.head("POST"), b"{}"), IncomingAnswer(limit)))


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
        with suppress(ConnectionLostError):
            await get(client)
        assert [connection._known for connection in client._open if connection._known is not None] == []


async def test_a_response_that_repeats_a_head_is_not_parsed() -> None:
    async with client_of(answers(WHOLE)) as client:
        known: list[KnownHead | None] = []
        for _ in range(3):
            assert await get(client) == BODY
            known.append(next(iter(client._open))._known)
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


LENGTHS = st.one_of(
    st.integers(0, 30).map(lambda number: b"%d" % number),
    st.sampled_from([b"017", b"+17", b"-17", b" 17", b"17 ", b"0x11", b"1,7", b"", b"\xb2", b"17\r\nX: y", b"9" * 30]),
)


@given(
    length=LENGTHS,
    body=st.one_of(st.binary(max_size=20), st.just(BODY), st.just(WHOLE)),
    at=st.integers(0, len(WHOLE)),
    inserted=st.binary(max_size=3),
)
def test_what_is_taken_for_the_same_head_parses_to_it(length: bytes, body: bytes, at: int, inserted: bytes) -> None:
    head = {b"content-type": b"application/json", b"content-length": b"%d" % len(BODY)}
    repeated = RepeatedHead.of(WHOLE, head)
    assert repeated is not None
    data = repeated.before + length + repeated.after + body
    data = data[:at] + inserted + data[at:]
    found = repeated.body_in(data)
    if found is None:
        return
    parsed = Parsed(data)
    assert (parsed.complete, parsed.status, parsed.body) == (1, 200, found)
    assert parsed.head == head | {b"content-length": length}


class Parsed:
    """All that httptools finds in some bytes."""

    def __init__(self, data: bytes) -> None:
        self.head: dict[bytes, bytes] = {}
        self.body = b""
        self.complete = 0
        parser = httptools.HttpResponseParser(self)
        parser.feed_data(data)
        self.status = parser.get_status_code()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head[name.lower()] = value.strip(b" \t")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete += 1


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
