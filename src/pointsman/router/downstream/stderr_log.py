"""What a child wrote to stderr: always taken, the last 64 KiB kept, harmless when shown."""

from __future__ import annotations

from collections import deque

from pointsman.providers.visible import visible

RING_BYTES = 64 * 1024
_LINE_SHOWN = 500
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "�")
# Direction marks and line separators could make a log line say what it does not.
_CONTROLS |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0x200E, 0x200F), "�")
_CONTROLS[9] = " "


def harmless(text: str, limit: int = _LINE_SHOWN) -> str:
    """One line that cannot move a cursor, forge another line, hide anything or fill a page."""
    cut = visible(text[: limit + 1].translate(_CONTROLS))
    return cut if len(cut) <= limit else cut[:limit] + "…"


class StderrLog:
    """A ring of bytes. Whole chunks fall out at its far end, so that a flood costs almost nothing."""

    def __init__(self, name: str = "", limit_bytes: int = RING_BYTES) -> None:
        self.name = name  # of the server
        self._limit = limit_bytes
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self.total = 0  # bytes ever taken

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        if len(data) >= self._limit:
            self._chunks.clear()
            self._chunks.append(data[-self._limit :])
            self._held = self._limit
            return
        if self._chunks and len(self._chunks[-1]) + len(data) <= 1024:
            self._chunks[-1] += data  # many tiny writes must not become many objects
        else:
            self._chunks.append(data)
        self._held += len(data)
        while self._held > self._limit:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._chunks.popleft()
        surplus = self._held - self._limit
        if len(oldest) > surplus:
            self._chunks.appendleft(oldest[surplus:])
            self._held -= surplus
        else:
            self._held -= len(oldest)

    def tail(self, lines: int) -> list[str]:
        return last_lines(self.held(), lines)

    def held(self) -> bytes:
        """All that is kept, as it came."""
        return b"".join(self._chunks)

    def last_line(self) -> str:
        return next(iter(self.tail(1)), "")


def last_lines(data: bytes, lines: int) -> list[str]:
    """The last `lines` lines that are not blank, oldest first, fit to be shown."""
    if lines <= 0:
        return []
    found = [line for line in data.splitlines() if line.strip()]
    return [harmless(line.decode(errors="replace").strip()) for line in found[-lines:]]
