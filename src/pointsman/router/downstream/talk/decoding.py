"""Decodes what servers send: leaves large content as it came, repairs lone surrogates, and decodes off the event loop.

Content and structured content of a tool's result over `RAW_BYTES` are checked and stay undecoded, as `Raw`: clients get
the server's bytes. Only the range of numbers is not checked in them.

A lone half of a surrogate pair is invalid JSON text, but some servers write it. It becomes the replacement character,
so that one bad character does not cost the whole answer. Any other message over `OFF_LOOP_BYTES` is decoded on a
thread, in pieces: one C call over all of it would hold the interpreter lock, and so the event loop.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec import Raw

from pointsman.core import wire
from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.core.rounds import long_turn
from pointsman.core.seams import INTERNAL_ERROR

RAW_BYTES = 32 * 1024
OFF_LOOP_BYTES = 1 << 20  # a larger message is not decoded on the event loop
_PIECE_BYTES = 128 * 1024
_CHECKED_BYTES = 32 * 1024  # at a time; malloc maps larger blocks anew each time
_LEVELS = 6  # each level is one more pass over the bytes, so a deep answer is not taken apart all the way down

# Matches every escape, so that an escaped backslash is not taken for the start of one.
_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_RAW_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")  # a surrogate in UTF-8, where it is forbidden
_SURROGATE_MARKS = (rb"\ud", rb"\uD", b"\xed")

NO_RESULT = "it answered with neither a result nor an error"

_RAW_BEGIN = {
    "content": ord("["),
    "structuredContent": ord("{"),
}  # members of a result that stay undecoded if they are large
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


Message = bytes | bytearray | memoryview


class _Text(Enum):
    """What a message is as text."""

    ONE_LINE = auto()
    SEVERAL_LINES = auto()
    NOT_UTF8 = auto()


class _Answer(msgspec.Struct):
    """A message with a result. Reading it checks the syntax of all of it, but the encoding only of what is decoded."""

    id: Raw
    result: dict[str, Raw]
    method: Raw | msgspec.UnsetType = msgspec.UNSET


_answer = msgspec.json.Decoder(_Answer)
_shallow = msgspec.json.Decoder(dict[str, Raw] | list[Raw] | str | int | float | bool | None)


def decode(data: Message, decode_json: Callable[[Message], Any] = wire.decode) -> Any:
    """Decode one message; decode it a second time only where lone surrogates were replaced.

    Raises:
        InvalidJsonError: it is not JSON for another reason.
    """
    if len(data) > RAW_BYTES and (answer := _tool_answer(data)) is not None:
        message = _tool_result(answer, _text_of(data))
        if message is not None:
            return message
    try:
        return decode_json(data)
    except wire.InvalidJsonError:
        data = bytes(data)
        if not any(mark in data for mark in _SURROGATE_MARKS):
            raise  # nearly always, and without a second pass over all of it
        repaired = _RAW_HALF.sub("\ufffd".encode(), _ESCAPE.sub(_replace_half, data))
        if repaired == data:
            raise
    return decode_json(repaired)


def _tool_answer(data: Message) -> _Answer | None:
    """Read a message with a result; None: it is something else."""
    try:
        answer: _Answer = wire.decode(data, _answer)
    except wire.InvalidJsonError:
        return None
    return answer if answer.method is msgspec.UNSET else None


def _tool_result(answer: _Answer, text_of_answer: _Text) -> Json | None:
    """Decode a message with a large tool result and leave its content undecoded. None: it is something else."""
    if text_of_answer is _Text.NOT_UTF8:
        return None
    several_lines = text_of_answer is _Text.SEVERAL_LINES
    try:
        result: Json = {}
        decoded_bytes = 0
        for name, value in answer.result.items():
            text = memoryview(value)
            if len(text) > RAW_BYTES and text[0] == _RAW_BEGIN.get(name):
                # A line end would end an event's line; in JSON text it is between values, never in a string.
                result[name] = Raw(bytes(text).translate(_LINE_ENDS)) if several_lines else value
                continue
            decoded_bytes += len(text)
            if decoded_bytes > RAW_BYTES:
                return None
            result[name] = wire.decode(text)
        return {"id": wire.decode(memoryview(answer.id)), "result": result}
    except wire.InvalidJsonError:
        return None


def _text_of(data: Message) -> _Text:
    """Check the encoding and look for line ends, in one pass."""
    view, begin, text = memoryview(data), 0, _Text.ONE_LINE
    try:
        while begin < len(view):  # a whole text could take four times its bytes
            end = begin + _CHECKED_BYTES
            piece = bytes(view[begin:end])
            if b"\n" in piece or b"\r" in piece:
                text = _Text.SEVERAL_LINES
            begin += codecs.utf_8_decode(piece, "strict", end >= len(view))[1]
    except UnicodeDecodeError:
        return _Text.NOT_UTF8
    return text


def _replace_half(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape["half"] else escape[0]


async def decode_off_loop(data: Message) -> Any:
    """Decode on a thread, unless the content stays undecoded.

    Raises:
        InvalidJsonError: as `decode`.
    """
    await long_turn()
    answer = _tool_answer(data)
    if answer is not None:
        await long_turn()  # the step before took some milliseconds, and so does the next
        message = _tool_result(answer, _text_of(data))
        if message is not None:
            await long_turn()
            return message
    return await asyncio.get_running_loop().run_in_executor(None, decode, data, decode_in_pieces)


def decode_in_pieces(data: Message | Raw) -> Any:
    """Return the same value as `wire.decode(data)`, from many short calls that let other threads run in between."""
    return _decode_levels(data, _LEVELS)


def _decode_levels(data: Message | Raw, levels: int) -> Any:
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
