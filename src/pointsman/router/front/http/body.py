"""Reads a request's body, bounded in size. Its time is bounded in `protocol.py`, also where nobody reads it."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Receive

from pointsman.router.front.http.headers import Head
from pointsman.router.front.http.refusal import ClientDisconnectedError, too_large
from pointsman.router.serving.in_flight import LARGE_BYTES

_LONGEST_LENGTH = 18  # digits; more is too large in any case


MakeRoom = Callable[[int], None]
"""Called with the size of a large body, before it is read. Raises HttpError 503."""


async def read_body(head: Head, receive: Receive, limit: int, make_room: MakeRoom | None = None) -> bytes:
    """Raises HttpError 413, ClientDisconnectedError, and what `make_room` raises."""
    length = head.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > _LONGEST_LENGTH or (expected := int(length)) > limit:
        raise too_large(limit)
    if expected > LARGE_BYTES and make_room is not None:
        make_room(expected)
        make_room = None
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
        if size > LARGE_BYTES and make_room is not None:
            make_room(limit)  # its length is not known
            make_room = None
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()
    raise ClientDisconnectedError
