"""JSON on the wire. msgspec, because it keeps integers beyond 64 bits and refuses NaN."""

from __future__ import annotations

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()

encode = _encoder.encode


class InvalidJsonError(ValueError):
    """Not JSON, or JSON that cannot be held (too deep, a number with too many digits)."""


def decode(data: bytes | bytearray | memoryview) -> Any:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:  # DecodeError also covers bad UTF-8
        raise InvalidJsonError(str(error)) from None
