"""Formats rows as a table or as JSON lines, with the characters escaped that could forge what a terminal shows."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import msgspec

from pointsman.core.escape import escaped, escaped_json
from pointsman.router.audit.rows import Row

_COLUMNS = (("TIME", 24), ("OUTCOME", 14), ("MS", 9), ("TOKEN", 16), ("PROJECT", 16), ("CLIENT", 16), ("WHAT", 100))
_RIGHT = frozenset({"MS"})
_LOOK_AHEAD = 200  # rows that determine the column widths
_BLOCK_ROWS = 1_000
_BLOCK_S = 0.1  # after which a block is complete with fewer rows
_encode_lines = msgspec.json.Encoder().encode_lines


def json_line(row: Row) -> str:
    """Encode a row as one JSON object, with terminal control characters escaped."""
    return json_lines([row]).decode().removesuffix("\n")


def json_lines(rows: Sequence[Row]) -> bytes:
    """Encode rows as `json_line` does, each with its line end."""
    block = _encode_lines(rows)
    if _is_plain(block):
        return block
    lines = block.splitlines(keepends=True)
    return b"".join([line if _is_plain(line) else escaped_json(line.decode()).encode() for line in lines])


def _is_plain(encoded: bytes) -> bool:
    """Of the ASCII characters that need an escape, DEL is the only one that the encoder leaves as it is."""
    return encoded.isascii() and b"\x7f" not in encoded


def in_blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Group rows to be written together. The first is alone, so that it shows at once; later blocks are larger."""
    block: list[Row] = []
    room, began = 1, time.monotonic()
    for row in rows:
        block.append(row)
        if len(block) >= room or time.monotonic() - began > _BLOCK_S:
            yield block
            block, room, began = [], min(2 * room, _BLOCK_ROWS), time.monotonic()
    if block:
        yield block


class Table:
    """Aligned lines under a header. The first rows determine the column widths; with `steady` they are the maximum."""

    def __init__(self, *, steady: bool = False) -> None:
        self._widths = [limit for _, limit in _COLUMNS] if steady else []
        self._headed = False

    def lines(self, rows: Iterable[Row]) -> Iterator[str]:
        cells = map(_cells, rows)
        first = list(islice(cells, _LOOK_AHEAD))
        if not first:
            return
        if not self._headed:
            self._headed = True
            self._widths = self._widths or _widths(first)
            yield _line([name for name, _ in _COLUMNS], self._widths)
        for each in chain(first, cells):
            yield _line(each, self._widths)


def _cells(row: Row) -> list[str]:
    what = what_of(row)
    if row.code:
        what = f"[{row.code}] {what}"
    if row.repeats is not msgspec.UNSET:
        what = f"{what} ({row.repeats} times)"
    if row.read_as is not msgspec.UNSET:
        what = f"{what} (read as {row.read_as})"
    if row.confirmed is not msgspec.UNSET:
        what = f"{what} (confirmation: {row.confirmed})"
    outcome = row.outcome or "(under way)"
    ms = "" if row.ms is None else f"{row.ms:.1f}"
    cells = (row.time, outcome, ms, row.token or "-", row.project or "-", row.client or "-", what)
    return [escaped(cell) for cell in cells]


def what_of(row: Row) -> str:
    """The tool, the queries or the method of a row, in a few words."""
    if row.kind == "read":
        return f"{row.method} {row.tool_key or row.server_id or ''}".rstrip()
    if row.kind == "change":  # such as the owner's yes, no or always, each of a tool
        return f"{row.method} {row.tool_key or ''}".rstrip()
    return row.tool_key or ", ".join(f"“{query}”" for query in row.queries or ()) or row.method


def _widths(rows: list[list[str]]) -> list[int]:
    columns = list(zip(*rows, strict=True))
    return [
        min(limit, max(len(name), *map(_width, cells))) for (name, limit), cells in zip(_COLUMNS, columns, strict=True)
    ]


def _line(cells: list[str], widths: list[int]) -> str:
    padded = (
        _fit(cell, width, right=name in _RIGHT) for cell, width, (name, _) in zip(cells, widths, _COLUMNS, strict=True)
    )
    return "  ".join(padded).rstrip()


def _fit(text: str, width: int, *, right: bool) -> str:
    used = _width(text)
    if used > width:
        text = _cut(text, width - 1) + "…"
        used = _width(text)
    room = " " * (width - used)
    return room + text if right else text + room


def _cut(text: str, width: int) -> str:
    for at, char in enumerate(text):
        width -= _char_width(char)
        if width < 0:
            return text[:at]
    return text


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
