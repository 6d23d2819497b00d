"""Decodes what servers send: repairs lone surrogates, and keeps large messages off the event loop.

A lone half of a surrogate pair is invalid JSON text, but some servers write it. It becomes the replacement character,
so that one bad character does not cost the whole answer. A message over `OFF_LOOP_BYTES` is decoded on a thread, in
pieces: one C call over all of it would hold the interpreter lock, and so the event loop.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from pointsman.core import wire
from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR

OFF_LOOP_BYTES = 1 << 20  # a larger message is not decoded on the event loop
_PIECE_BYTES = 128 * 1024
_LEVELS = 6  # each level is one more pass over the bytes, so a deep answer is not taken apart all the way down

# Matches every escape, so that an escaped backslash is not taken for the start of one.
_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_RAW_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")  # a surrogate in UTF-8, where it is forbidden
_SURROGATE_MARKS = (rb"\ud", rb"\uD", b"\xed")

NO_RESULT = "it answered with neither a result nor an error"

_shallow = msgspec.json.Decoder(dict[str, Raw] | list[Raw] | str | int | float | bool | None)


def decode(data: bytes | bytearray, decode_json: Callable[[bytes | bytearray], Any] = wire.decode) -> Any:
    """Decode one message; decode it a second time only where lone surrogates were replaced.

    Raises:
        InvalidJsonError: it is not JSON for another reason.
    """
    try:
        return decode_json(data)
    except wire.InvalidJsonError:
        if not any(mark in data for mark in _SURROGATE_MARKS):
            raise  # nearly always, and without a second pass over all of it
        repaired = _RAW_HALF.sub("\ufffd".encode(), _ESCAPE.sub(_replace_half, data))
        if repaired == data:
            raise
    return decode_json(repaired)


def _replace_half(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape["half"] else escape[0]


async def decode_off_loop(data: bytes | bytearray) -> Any:
    """Decode on a thread.

    Raises:
        InvalidJsonError: as `decode`.
    """
    return await asyncio.get_running_loop().run_in_executor(None, decode, data, decode_in_pieces)


def decode_in_pieces(data: bytes | bytearray | memoryview | Raw) -> Any:
    """Return the same value as `wire.decode(data)`, from many short calls that let other threads run in between."""
    return _decode_levels(data, _LEVELS)


def _decode_levels(data: bytes | bytearray | memoryview | Raw, levels: int) -> Any:
    if levels == 0 or len(memoryview(data)) <= _PIECE_BYTES:
        return wire.decode(memoryview(data))
    try:
        value = _shallow.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise wire.InvalidJsonError(str(error)) from None
    if isinstance(value, list):
        return [_decode_levels(item, levels - 1) for item in value]
    if isinstance(value, dict):
        return {key: _decode_levels(item, levels - 1) for key, item in value.items()}
    return value


def error_in(message: Json) -> DownstreamError | None:
    """The JSON-RPC error that a message holds, if any."""
    error: Any = message.get("error")
    if type(error) is not dict:
        return None
    code, text = error.get("code"), error.get("message")
    return DownstreamError(
        code if type(code) is int else INTERNAL_ERROR, text if type(text) is str else "", error.get("data")
    )
