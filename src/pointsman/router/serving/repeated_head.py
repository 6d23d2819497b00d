"""The head that a connection's next message repeats, apart from the digits of Content-Length."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

from msgspec import Struct

_MOST_DIGITS = 9
_LENGTH_LINE = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})\r\n" % _MOST_DIGITS, re.IGNORECASE)
_MOST_BYTES = 4096  # a longer head is parsed each time: a thousand connections must not keep 64 MB of them


class RepeatedHead(Struct, frozen=True, eq=False):
    """The head of a message that a parser has accepted, for the next one that has the same bytes but for the digits of
    Content-Length.
    """

    before: bytes  # the bytes up to the digits
    after: bytes  # those behind them, with the blank line

    @classmethod
    def of(cls, data: bytes, head: Mapping[bytes, bytes]) -> Self | None:
        """Return the head of a whole message, parsed as `head`; None: parse the next one, too.

        Without a bare line feed, a repeated header or a chunked body, the first blank line ends the head for any
        parser, and Content-Length alone says where the body ends.
        """
        if b"content-length" not in head or b"transfer-encoding" in head:
            return None
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH_LINE.search(data, 0, end)
        if length is None or end > _MOST_BYTES:
            return None
        lines = data.count(b"\r\n", 0, end)
        plain = data.count(b"\n", 0, end) == lines and lines == len(head) + 2  # the first line, and the blank one
        whole = head[b"content-length"] == length[1] and len(data) - end == int(length[1])
        return cls(data[: length.start(1)], data[length.end(1) : end]) if plain and whole else None

    def body_in(self, data: bytes) -> bytes | None:
        """Return the body if `data` is one whole message with this head, and nothing else."""
        start = len(self.before)
        end = data.find(b"\r", start, start + _MOST_DIGITS + 1)
        if not data.startswith(self.before) or not data.startswith(self.after, end):
            return None
        length, body = data[start:end], data[end + len(self.after) :]
        return body if length.isdigit() and int(length) == len(body) else None
