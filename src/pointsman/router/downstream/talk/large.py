"""Large JSON is read on a thread, in pieces: one C call over all of it would hold the interpreter, and so the loop."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Raw

from pointsman.core import wire
from pointsman.router.downstream.talk.mending import decode

OFF_LOOP_BYTES = 1 << 20  # larger than this is not decoded on the event loop
_PIECE_BYTES = 128 * 1024
_LEVELS = 6  # each level is one more pass over the bytes, so a deep answer is not taken apart all the way down

_shallow = msgspec.json.Decoder(dict[str, Raw] | list[Raw] | str | int | float | bool | None)


async def decode_off_loop(data: bytes | bytearray) -> Any:
    """Decode on a thread.

    Raises:
        InvalidJsonError: as `mending.decode`.
    """
    return await asyncio.get_running_loop().run_in_executor(None, decode, data, decode_in_pieces)


def decode_in_pieces(data: bytes | bytearray | memoryview | Raw) -> Any:
    """The same value as `wire.decode(data)`, made by many short calls with room for other threads between them."""
    return _decode(data, _LEVELS)


def _decode(data: bytes | bytearray | memoryview | Raw, levels: int) -> Any:
    if levels == 0 or len(memoryview(data)) <= _PIECE_BYTES:
        return wire.decode(memoryview(data))
    try:
        value = _shallow.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise wire.InvalidJsonError(str(error)) from None
    if isinstance(value, list):
        return [_decode(item, levels - 1) for item in value]
    if isinstance(value, dict):
        return {key: _decode(item, levels - 1) for key, item in value.items()}
    return value
