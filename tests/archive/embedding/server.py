"""A small embedding server with OpenAI's API over real HTTP, with configurable failures."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMENSION = 32


class EmbeddingServer:
    """`refusals` are answered first, one after another: a status, or a body to be sent with 200."""

    def __init__(self) -> None:
        self.refusals: list[int | bytes] = []
        self.retry_after: str | None = None
        self.says = b'{"error": {"message": "no"}}'  # with a refusal
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.dimension = DIMENSION
        self.url = ""
        self.trickles = False  # every answer comes byte by byte, without end
        self.over = threading.Event()

    @property
    def texts(self) -> list[str]:
        return [text for request in self.asked for text in request["input"]]

    def answer(self, request: dict[str, Any]) -> bytes:
        data = [
            {"index": place, "embedding": vector(text, request.get("dimensions") or self.dimension)}
            for place, text in enumerate(request["input"])
        ]
        return json.dumps({"object": "list", "data": data[::-1], "model": request["model"]}).encode()


def vector(text: str, dimension: int) -> list[float]:
    """Texts with words in common are near each other."""
    found = [0.0] * dimension
    for word in text.lower().split():
        found[zlib.crc32(word.encode()) % dimension] += 2.0
    return found


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    state = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.keys.append(self.headers.get("Authorization"))
            refusal = state.refusals.pop(0) if state.refusals else None
            if isinstance(refusal, int):
                return self._send(refusal, state.says)
            state.asked.append(request)
            return self._send(200, refusal if refusal is not None else state.answer(request))

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if not state.trickles:
                self.send_header("Content-Length", str(len(body)))
            if state.retry_after is not None:
                self.send_header("Retry-After", state.retry_after)
            self.end_headers()
            self._write(body)

        def _write(self, body: bytes) -> None:
            try:
                while state.trickles and not state.over.wait(0.01):
                    self.wfile.write(b" ")
                self.wfile.write(body)
            except OSError:  # who asked has gone
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield state
    finally:
        state.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
