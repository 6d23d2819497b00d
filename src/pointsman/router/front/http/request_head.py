"""The parsed head of a connection's last call, for the next one that repeats it."""

from __future__ import annotations

from msgspec import Struct

from pointsman.router.front.http.headers import Head
from pointsman.router.serving.repeated_head import RepeatedHead

_LINE = b"POST /mcp HTTP/1.1\r\n"
_PARSED_EACH_TIME = frozenset({b"expect", b"trailer", b"upgrade"})


class RequestHead(Struct, frozen=True, eq=False):
    """The parsed head of a connection's last call, which a client repeats with each of its calls."""

    repeated: RepeatedHead
    headers: list[tuple[bytes, bytes]]
    head: Head

    @classmethod
    def of(cls, data: bytes, headers: list[tuple[bytes, bytes]], head: Head) -> RequestHead | None:
        """Return the head of a request that the parser has accepted; None: parse the next one, too."""
        if not data.startswith(_LINE) or not _PARSED_EACH_TIME.isdisjoint(head):
            return None
        if head.get(b"connection", b"keep-alive").lower() != b"keep-alive":  # which HTTP/1.1 does anyway
            return None
        repeated = RepeatedHead.of(data, head)
        return cls(repeated, headers, head) if repeated is not None else None
