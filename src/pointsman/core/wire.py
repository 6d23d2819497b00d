"""JSON on the wire, with msgspec: it keeps integers beyond 64 bits and rejects NaN."""

from __future__ import annotations

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()

encode = _encoder.encode


class InvalidJsonError(ValueError):
    """Not JSON, or JSON that cannot be represented (too deep, a number with too many digits)."""


def decode(data: bytes | bytearray | memoryview) -> Any:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:  # DecodeError also covers bad UTF-8
        raise InvalidJsonError(str(error)) from None
