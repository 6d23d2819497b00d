"""All that httptools finds in the bytes of a message."""

from __future__ import annotations

from typing import Any

import httptools


class Parsed:
    def __init__(self, parser_type: Any, data: bytes) -> None:
        """`parser_type`: `HttpRequestParser` or `HttpResponseParser`."""
        self.urls: list[bytes] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.complete = 0  # messages; -1: it is not HTTP
        self.keep_alive = False
        parser = parser_type(self)
        try:
            parser.feed_data(data)
            self.keep_alive = parser.should_keep_alive()
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.complete = -1
        self.status = parser.get_status_code() if isinstance(parser, httptools.HttpResponseParser) else None

    def on_url(self, url: bytes) -> None:
        self.urls.append(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete += 1
