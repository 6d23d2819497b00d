"""The parsed head of a connection's last call, for the next one that repeats it."""

from __future__ import annotations

import re

from msgspec import Struct

from pointsman.router.front.http.headers import Head

_LINE = b"POST /mcp HTTP/1.1\r\n"
_LENGTH_LINE = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})\r\n", re.IGNORECASE)
_MOST_DIGITS = 9
_KNOWN_BYTES = 4096  # a longer head is parsed each time: a thousand connections must not keep 64 MB of them
_FRAMING_HEADERS = frozenset({b"expect", b"transfer-encoding", b"trailer", b"upgrade"})


class KnownHead(Struct, frozen=True, eq=False):
    """The parsed head of a connection's last call.

    A client sends the same bytes with each of its calls, apart from the digits of Content-Length.
    """

    before: bytes  # the bytes up to the digits
    after: bytes  # those behind them, with the blank line
    headers: list[tuple[bytes, bytes]]
    head: Head

    @classmethod
    def of(cls, data: bytes, headers: list[tuple[bytes, bytes]], head: Head) -> KnownHead | None:
        """Return the head of a request that the parser has accepted; None: parse the next one, too.

        Without a bare line feed, a repeated header, or one that has to do with framing, the first blank line ends the
        head for any parser, and Content-Length alone says where the body ends.
        """
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH_LINE.search(data, 0, end)
        if length is None or end > _KNOWN_BYTES or len(headers) != len(head) or not _FRAMING_HEADERS.isdisjoint(head):
            return None
        plain = data.startswith(_LINE) and data.count(b"\n", 0, end) == data.count(b"\r\n", 0, end)
        whole = head.get(b"content-length") == length[1] and len(data) - end == int(length[1])
        kept = head.get(b"connection", b"keep-alive").lower() == b"keep-alive"  # which HTTP/1.1 does anyway
        if not (plain and whole and kept):
            return None
        return cls(data[: length.start(1)], data[length.end(1) : end], headers, head)

    def body_in(self, data: bytes) -> bytes | None:
        """Return the body if `data` is one whole request with this head, and nothing else."""
        digits = len(self.before)
        end = data.find(b"\r", digits, digits + _MOST_DIGITS + 1)
        if not data.startswith(self.before) or not data.startswith(self.after, end):
            return None
        length, body = data[digits:end], data[end + len(self.after) :]
        return body if length.isdigit() and int(length) == len(body) else None
