"""Sessions that a client has ended, in files that replicas on one machine share: none restores them from their ids."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pointsman.core.model import WallClock

FILE: Final = "ended_sessions"
MAX_BYTES: Final = 50_000 * 45  # of one file; there are two
_LINE: Final = re.compile(rb"([0-9a-f]{32}) ([0-9]{1,12})")


class EndedSessionsFile:
    """A line for each: the digest of its id, and until when it has to be known. A full file replaces the older one.

    Appended to and read by all replicas, without a lock. All methods raise OSError.
    """

    def __init__(self, folder: Path, clock: WallClock = time.time, max_bytes: int = MAX_BYTES) -> None:
        self._path = folder / FILE
        self._older = folder / f"{FILE}.older"
        self._clock = clock
        self._max_bytes = max_bytes
        self._read_up_to = (0, 0)  # the file's inode, and the position in it

    def add(self, digest: bytes, life_s: float) -> None:
        # It begins with a line break, because a full disk may have cut the line before.
        line = b"\n%b %d\n" % (digest.hex().encode(), self._clock() + life_s)
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, line)
            full = os.fstat(handle).st_size >= self._max_bytes
        finally:
            os.close(handle)
        if full:
            self._rotate()

    def read(self) -> dict[bytes, float]:
        """What was ended since the last time, or in all: each with the seconds for which it is to be known."""
        lines: list[bytes] = []
        inode, position = self._read_up_to
        with _opened(self._path) as current:
            if current is not None and os.fstat(current).st_ino != inode:
                with _opened(self._older) as older:
                    if older is not None:
                        seen = position if os.fstat(older).st_ino == inode else 0
                        lines += _lines(older, seen)[0]
                inode, position = os.fstat(current).st_ino, 0
            if current is not None:
                added, position = _lines(current, position)
                lines += added
                self._read_up_to = inode, position
        now = self._clock()
        found = (match for line in lines if (match := _LINE.fullmatch(line)))
        ended = {bytes.fromhex(match[1].decode()): int(match[2]) - now for match in found}
        return {digest: left_s for digest, left_s in ended.items() if left_s > 0}

    def _rotate(self) -> None:
        """Of several replicas that find the file full, one replaces it."""
        handle = os.open(self._path.with_name(f"{FILE}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._path.stat().st_size >= self._max_bytes:
                self._path.replace(self._older)
        except (BlockingIOError, FileNotFoundError):
            return  # another one does it
        finally:
            os.close(handle)


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _lines(handle: int, start: int) -> tuple[list[bytes], int]:
    """Return the whole lines from a position on, and where they end."""
    size = os.fstat(handle).st_size
    data = os.pread(handle, size - start, start) if size > start else b""
    whole = data[: data.rfind(b"\n") + 1]
    return whole.split(b"\n"), start + len(whole)
