"""Large text and JSON in pieces: one C call over all of it would hold the interpreter lock, and so the event loop.

Pieces are small enough for memory that is in use already. A copy of all of it would cost more than the work on it,
because the system clears each of its pages.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from pointsman.core import wire
from pointsman.core.large_block import LargeBlock

PIECE_BYTES = 64 << 10
PAUSE_S = 0.0001  # after a piece: a thread that only releases the lock often takes it back before others wake up
_LEVELS = 6  # of arrays and objects; each is one more pass over the bytes
_ESCAPE_BYTES = 6
_LOW_HALF = re.compile(rb"\\u[dD][c-fC-F]")  # the second escape of a surrogate pair
_QUOTE = ord('"')
_BACKSLASH = b"\\"

_string = msgspec.json.Decoder(str)
_members = msgspec.json.Decoder(dict[str, Raw] | list[Raw] | str | int | float | bool | None)


class LargeText:
    """UTF-8 text that is made, counted and read in pieces."""

    __slots__ = ("chars", "data")

    def __init__(self, pieces: Iterable[str] = (), expected: int = 0) -> None:
        """`expected`: about how many bytes it will have, if that is known."""
        block = LargeBlock(expected)
        self.chars = 0
        paused = 0
        for piece in pieces:
            block.add(piece.encode())
            self.chars += len(piece)
            if len(block) - paused > PIECE_BYTES // 2:
                paused = len(block)
                time.sleep(PAUSE_S)
        self.data = block.view()

    def __len__(self) -> int:
        return len(self.data)

    def pieces(self, begin: int = 0, overlap: int = 0) -> Iterator[bytes]:
        """The text from `begin` on; each piece has the first bytes of the next at its end, as many as `overlap`."""
        for at in range(begin, len(self.data), PIECE_BYTES):
            yield bytes(self.data[at : at + PIECE_BYTES + overlap])

    def begin(self, chars: int, at: int = 0) -> str:
        """The first characters, or those from a byte on."""
        return str(self.data[at : at + 4 * chars], "utf-8", "ignore")[:chars]

    def count(self, what: bytes) -> int:
        """How often one byte occurs."""
        return sum(piece.count(what) for piece in self.pieces())

    def find(self, what: bytes, begin: int) -> int:
        """Where some bytes begin, at `begin` or behind it; -1: nowhere."""
        last = what[-1:]
        for piece in self.pieces(begin, len(what) - 1):
            if last in piece and (found := piece.find(what)) >= 0:  # a single byte is found much faster
                return begin + found
            begin += PIECE_BYTES
        return -1


def text_pieces(texts: Iterable[str | Raw]) -> Iterator[str]:
    """Texts, one per line; those that are undecoded JSON strings are decoded."""
    for number, text in enumerate(texts):
        if number:
            yield "\n"
        yield from string_pieces(text)


def json_pieces(value: Any) -> Iterator[str]:
    """The same text as `wire.encode` of the decoded value. Raises InvalidJsonError: a number is out of range."""
    pieces = _json_pieces(memoryview(value), _LEVELS) if type(value) is Raw else (wire.encode(value),)
    return (piece.decode() for piece in pieces)


def string_pieces(text: str | Raw) -> Iterator[str]:
    """A text in pieces. `Raw` is a JSON string that has been checked."""
    if isinstance(text, str):
        for at in range(0, len(text), PIECE_BYTES):
            yield text[at : at + PIECE_BYTES]
        return
    yield from _json_string_pieces(memoryview(text))


def opened(value: Any) -> Any:
    """A value; of undecoded JSON an array or object whose members are undecoded. Raises InvalidJsonError."""
    if type(value) is not Raw:
        return value
    text = memoryview(value)
    if text[0] == _QUOTE and len(text) > PIECE_BYTES:
        return "".join(string_pieces(value))
    return wire.decode(text, _members)


def _json_string_pieces(text: memoryview) -> Iterator[str]:
    inside = text[1:-1]
    at = 0
    while at < len(inside):
        window = bytes(inside[at : at + PIECE_BYTES + _ESCAPE_BYTES])
        end = _cut(window) if at + len(window) < len(inside) else len(window)
        yield _string.decode(b'"%b"' % window[:end])
        at += end


def _cut(window: bytes) -> int:
    """Where to cut the inside of a JSON string, which begins between two characters: so that it ends between two."""
    most = len(window) - _ESCAPE_BYTES
    escape = window.rfind(_BACKSLASH, most - _ESCAPE_BYTES, most)
    if escape >= 0:
        run = escape + 1 - len(window[: escape + 1].rstrip(_BACKSLASH))
        if run % 2:  # the backslash is not itself escaped
            return escape - _ESCAPE_BYTES if _LOW_HALF.match(window, escape) else escape
    while window[most] & 0xC0 == 0x80:  # inside of a character
        most -= 1
    return most


def _json_pieces(data: memoryview, levels: int) -> Iterator[bytes]:
    if levels == 0 or len(data) <= PIECE_BYTES:
        yield wire.encode(wire.decode(data))
    elif data[0] == _QUOTE:
        yield b'"'
        for piece in _json_string_pieces(data):
            yield wire.encode(piece)[1:-1]
        yield b'"'
    else:
        yield from _container_pieces(data, levels)


def _container_pieces(data: memoryview, levels: int) -> Iterator[bytes]:
    """An array or object: large members one by one, small ones together."""
    members = wire.decode(data, _members)
    if not isinstance(members, (list, dict)):  # a long number
        yield wire.encode(members)
        return
    named = isinstance(members, dict)
    before, end = (b"{", b"}") if named else (b"[", b"]")
    small: dict[Any, Raw] = {}
    size = 0
    for key, member in members.items() if isinstance(members, dict) else enumerate(members):
        text = memoryview(member)
        if len(text) <= PIECE_BYTES:
            small[key] = member
            size += len(text)
            if size <= PIECE_BYTES:
                continue
        if small:
            yield before + _encoded(small, named)
            before, small, size = b",", {}, 0
        if len(text) > PIECE_BYTES:
            yield before + wire.encode(key) + b":" if named else before
            before = b","
            yield from _json_pieces(text, levels - 1)
    if small:
        yield before + _encoded(small, named)
    elif before != b",":
        yield before
    yield end


def _encoded(members: dict[Any, Raw], named: bool) -> bytes:
    """The members without the brackets around them."""
    undecoded = wire.encode(members if named else list(members.values()))
    return wire.encode(wire.decode(undecoded))[1:-1]
