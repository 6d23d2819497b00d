"""JSON on the wire, with msgspec: it keeps integers beyond 64 bits and rejects NaN."""

from __future__ import annotations

import sys
from itertools import accumulate
from typing import Any

import msgspec

MAX_DEPTH = 900  # nested arrays and objects: about what Python 3.11 can decode
# Up to Python 3.11 the interpreter's recursion limit ends the decoder. Later versions go on for thousands of levels,
# where recursive Python code cannot follow.
_CHECKS_DEPTH = sys.version_info >= (3, 12)
_PIECE_BYTES = 64 << 10  # of a view, which has to be copied to be searched
_OPENING, _CLOSING = b"[{", b"]}"
_OTHER_BYTES = bytes(set(range(256)) - {*_OPENING, *_CLOSING, *b'"'})
_STEPS = bytes.maketrans(_OPENING + _CLOSING, b"\x01\x01\xff\xff")  # as signed bytes: 1, 1, -1, -1

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()

encode = _encoder.encode


class InvalidJsonError(ValueError):
    """Not JSON, or JSON that cannot be represented (too deep, a number with too many digits)."""


def decode(data: bytes | bytearray | memoryview, decoder: msgspec.json.Decoder[Any] = _decoder) -> Any:
    """Decode JSON text. Raises InvalidJsonError, also for a value that is not of the decoder's type."""
    if _CHECKS_DEPTH and is_too_deep(data):
        raise InvalidJsonError(f"nested deeper than {MAX_DEPTH} levels")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:  # DecodeError also covers bad UTF-8
        raise InvalidJsonError(str(error)) from None


def is_too_deep(data: bytes | bytearray | memoryview) -> bool:
    """Whether JSON text is nested deeper than MAX_DEPTH. Costs two scans, unless it has more brackets than that."""
    if isinstance(data, memoryview):
        pieces = (bytes(data[at : at + _PIECE_BYTES]) for at in range(0, len(data), _PIECE_BYTES))
        if sum(piece.count(b"[") + piece.count(b"{") for piece in pieces) <= MAX_DEPTH:
            return False
        text: bytes | bytearray = bytes(data)
    else:
        text = data
        if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
            return False
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    brackets = b"".join(text.translate(None, _OTHER_BYTES).split(b'"')[::2])  # those outside strings
    return max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b")), default=0) > MAX_DEPTH
