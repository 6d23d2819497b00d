"""The parsed head of a connection's last response, for the next one that repeats it."""

from __future__ import annotations

from http import HTTPStatus

from msgspec import Struct

from pointsman.router.serving.repeated_head import RepeatedHead


class ResponseHead(Struct, frozen=True, eq=False):
    """Most servers repeat it until their `Date` changes, once a second."""

    repeated: RepeatedHead
    head: dict[bytes, bytes]  # without the length, which differs
    kind: str

    @classmethod
    def of(cls, data: bytes, status: int, head: dict[bytes, bytes], kind: str) -> ResponseHead | None:
        """Return the head of a whole response that the parser has accepted; None: parse the next one, too."""
        if status != HTTPStatus.OK or b"content-encoding" in head:
            return None
        repeated = RepeatedHead.of(data, head)
        if repeated is None:
            return None
        return cls(repeated, {name: value for name, value in head.items() if name != b"content-length"}, kind)
