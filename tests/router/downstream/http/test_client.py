"""What our HTTP client promises, and what it relies on in aiohttp's connector and parser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from pointsman.router.downstream.connection import CallNotSentError, ConnectionLostError
from pointsman.router.downstream.http.answer import IncomingAnswer, read_body
from pointsman.router.downstream.http.client import HttpClient
from tests.router.downstream.http_parts import PATIENCE_S
from tests.servers.http_mcp import serving

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class OneAnswerServer:
    """In a thread of its own: answers one request on each connection, then closes it without having said so.

    With `waits`, it closes a connection only once `may_close` is released.
    """

    def __init__(self, answer: bytes = ANSWER, *, waits: bool = False) -> None:
        self.may_close = threading.Semaphore(0)
        self._waits = waits
        self.requests: list[bytes] = []
        self.closed = threading.Semaphore(0)
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/mcp"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self.requests.append(connection.recv(65536))
                    connection.sendall(self._answer)
                    if self._waits:
                        self.may_close.acquire()
                self.closed.release()

    def stop(self) -> None:
        self.may_close.release()
        with contextlib.suppress(OSError):  # it may have been stopped before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def server() -> Iterator[OneAnswerServer]:
    found = OneAnswerServer()
    yield found
    found.stop()


async def post(client: HttpClient, body: bytes = b"{}") -> bytes:
    return bytes(await read_body(await client.send(client.head("POST"), body), IncomingAnswer(1000)))


async def test_a_kept_connection_that_the_server_has_closed_meanwhile_is_not_sent_into(server: OneAnswerServer) -> None:
    client = HttpClient(server.url, {})
    for _ in range(20):
        assert await post(client) == b"{}"
        # Blocks the event loop on purpose: the connection is closed, and the loop has no chance to notice.
        assert server.closed.acquire(timeout=PATIENCE_S)
    assert len(server.requests) == 20
    await client.close()


async def test_a_connection_that_the_server_closes_while_a_request_waits_to_be_written_is_not_sent_into() -> None:
    server = OneAnswerServer(waits=True)
    client = HttpClient(server.url, {})

    def close() -> None:
        server.may_close.release()
        assert server.closed.acquire(timeout=PATIENCE_S)

    try:
        assert await post(client) == b"{}"
        again = asyncio.ensure_future(post(client))
        asyncio.get_running_loop().call_soon(close)  # after the request was queued, and before the queue is written
        assert await again == b"{}"
        assert len(server.requests) == 2
    finally:
        await client.close()
        server.stop()


async def test_a_request_is_one_piece_with_its_length_and_the_operators_headers(server: OneAnswerServer) -> None:
    client = HttpClient(server.url, {"X-Key": "k", "content-length": "999", "Accept": "text/plain"})
    await post(client, b'{"a":1}')
    await client.close()
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /mcp HTTP/1.1"
    assert "X-Key: k" in lines
    assert "Content-Length: 7" in lines
    assert "Accept: application/json, text/event-stream" in lines
    assert body == b'{"a":1}'


async def test_a_credential_in_the_url_becomes_a_header(server: OneAnswerServer) -> None:
    client = HttpClient(server.url.replace("http://", "http://user:pass@"), {})
    await post(client)
    await client.close()
    assert b"Authorization: Basic dXNlcjpwYXNz" in server.requests[0]
    assert b"\r\nHost: 127.0.0.1:" in server.requests[0]


async def test_a_header_with_a_line_break_is_refused_and_its_value_not_repeated() -> None:
    client = HttpClient("http://127.0.0.1:9/", {"X-Key": "secret\r\nX-Other: 1"})
    with pytest.raises(ConnectionLostError, match="header `X-Key` holds a line break") as refusal:
        client.head("POST")
    assert "secret" not in str(refusal.value)
    await client.close()


async def test_interim_responses_are_passed_over() -> None:
    early = OneAnswerServer(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ANSWER)
    client = HttpClient(early.url, {})
    assert await post(client) == b"{}"
    await client.close()
    early.stop()


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_many_calls_in_a_row_use_one_connection(answers: str) -> None:
    async with asyncio.timeout(PATIENCE_S), serving("legacy") as http:
        http.keeps_sessions = False
        http.answers = "sse" if answers == "sse" else "json"
        client = HttpClient(http.url, {})
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}
        for _ in range(5):
            await read_body(await client.send(client.head("POST"), json.dumps(body).encode()), IncomingAnswer(1000))
        assert len(http.peers) == 1
        await client.close()


async def test_a_closed_client_says_so() -> None:
    client = HttpClient("http://127.0.0.1:9/", {})
    await client.close()
    with pytest.raises(ConnectionLostError, match="was closed"):
        await client.send(client.head("POST"), b"{}")
    assert await client.unreachable() == "its connection was closed"


@pytest.mark.parametrize("kind", ["new", "kept"])
async def test_a_request_that_no_connection_takes_was_not_sent_and_the_server_is_unreachable_at_once(
    kind: str, server: OneAnswerServer
) -> None:
    client = HttpClient(server.url, {}, rechecks_s=(PATIENCE_S,))
    if kind == "kept":  # the server has closed it, and the event loop does not know
        assert await post(client) == b"{}"
        assert server.closed.acquire(timeout=PATIENCE_S)
    server.stop()
    with pytest.raises(CallNotSentError, match="it refused the connection"):
        await post(client)
    async with asyncio.timeout(PATIENCE_S / 2):
        assert await client.unreachable() == "it refused the connection"
    await client.close()


async def test_a_request_whose_tls_handshake_fails_was_not_sent(server: OneAnswerServer) -> None:
    client = HttpClient(server.url.replace("http:", "https:"), {})
    with pytest.raises(CallNotSentError, match="TLS"):
        await post(client)
    assert not any(b"POST" in request for request in server.requests)
    await client.close()
