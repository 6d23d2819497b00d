"""Reads a request's body, bounded in size. Its time is bounded in `protocol.py`, also where nobody reads it."""

from __future__ import annotations

from starlette.types import Receive

from pointsman.router.front.checks import Head
from pointsman.router.front.refusal import ClientLeft, too_large

_LONGEST_LENGTH = 18  # digits; more is too large in any case


async def read_body(head: Head, receive: Receive, limit: int) -> bytes:
    """Raises Refusal 413, ClientLeft."""
    length = head.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > _LONGEST_LENGTH or int(length) > limit:
        raise too_large(limit)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise too_large(limit)
        return body
    pieces: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise too_large(limit)
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()
    raise ClientLeft
