"""Formats rows as a table or as JSON lines. Escapes what could move the cursor, hide text or forge a line."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain, islice

import msgspec

from pointsman.router.audit.rows import Row

# Control characters, line and paragraph separators, and characters that are invisible or change the direction.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U0010ffff]"
)
_COLUMNS = (("TIME", 24), ("OUTCOME", 14), ("MS", 9), ("TOKEN", 16), ("PROJECT", 16), ("CLIENT", 16), ("WHAT", 100))
_RIGHT = frozenset({"MS"})
_LOOK_AHEAD = 200  # rows that determine the column widths
_encode = msgspec.json.Encoder().encode


def json_line(row: Row) -> str:
    """Encode a row as one JSON object, with terminal control characters escaped."""
    encoded = _encode(row)
    if encoded.isascii() and b"\x7f" not in encoded:  # the encoder has escaped the other control characters
        return encoded.decode()
    return _UNSAFE.sub(_json_escape, encoded.decode())


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


def visible(text: str) -> str:
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)


def _cells(row: Row) -> list[str]:
    what = _what(row)
    if row.code:
        what = f"[{row.code}] {what}"
    if row.repeats is not msgspec.UNSET:
        what = f"{what} ({row.repeats} times)"
    if row.read_as is not msgspec.UNSET:
        what = f"{what} (read as {row.read_as})"
    outcome = row.outcome or "(under way)"
    ms = "" if row.ms is None else f"{row.ms:.1f}"
    cells = (row.time, outcome, ms, row.token or "-", row.project or "-", row.client or "-", what)
    return [visible(cell) for cell in cells]


def _what(row: Row) -> str:
    if row.kind == "read":
        return f"{row.method} {row.tool_key or row.server_id or ''}".rstrip()
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


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
