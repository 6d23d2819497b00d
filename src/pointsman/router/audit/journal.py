"""The append-only journal: one write call for each record, checked, and never a half line left behind."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from pointsman.router.audit.segments import RunLock, Segment, last_seq

SEGMENT_BYTES = 1_048_576
Write = Callable[[int, bytes], int]
Truncate = Callable[[int, int], None]


class Journal:
    """The journal of one run. Used from one thread.

    Nothing is synced to the disk: what the kernel has taken survives the end of the process, also by SIGKILL,
    but not a power cut.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seen_seq: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
        write: Write = os.write,
        truncate: Truncate = os.ftruncate,
    ) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._write = write
        self._truncate = truncate
        self._lock: RunLock | None = None
        self._segment: Segment | None = None
        self._fd = -1
        self._end = 0  # bytes of the segment that are whole lines
        self._torn = False  # the segment ends in half a line that could not be taken back
        self._closed = False
        self._next_seq = seen_seq + 1

    def open(self) -> None:
        """Start a run. `next_seq` and `append` do it by themselves; calling it early tells early that it fails.

        Raises:
            OSError: the folder cannot be read or written.
        """
        if self._fd >= 0:
            return
        if self._closed:
            raise OSError(errno.EBADF, "the journal is closed")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._lock is None:
            self._next_seq = max(self._next_seq, last_seq(self._folder) + 1)
            self._lock = RunLock(self._folder, self._next_seq)
        self._open_segment(Segment.named(self._folder, self._lock.run, 0, self._next_seq))

    def next_seq(self) -> int:
        """The seq of the next intent; a full segment is closed before it. Raises OSError."""
        if self._fd < 0:
            self.open()
        elif self._end >= self._segment_bytes:
            self._try_to_rotate()
        return self._next_seq

    def append(self, lines: bytes, *, intents: int = 0) -> None:
        """Write whole lines, all or nothing. `intents` of them use up a seq.

        Raises:
            OSError: they are not in the journal (disk full, short write, read-only, input/output error).
        """
        if self._fd < 0:
            self.open()
        if self._torn:
            self._mend()
        try:
            written = self._write(self._fd, lines)
        except OSError:
            self._take_back()
            raise
        if written != len(lines):
            self._take_back()
            raise OSError(errno.ENOSPC, f"only {written} of {len(lines)} bytes could be written")
        self._end += written
        self._next_seq += intents

    def rotate(self) -> None:
        """Close the present segment, if it holds anything, so that it can be moved to the database.

        Raises:
            OSError: no new segment could be opened; the present one stays in use.
        """
        if self._fd < 0 or self._segment is None:
            return
        if os.fstat(self._fd).st_nlink == 0:  # somebody deleted the folder: what we write there is lost
            self._end_run()
            self.open()
        elif self._end > 0:
            segment = self._segment
            self._open_segment(Segment.named(self._folder, segment.run, segment.number + 1, self._next_seq))

    @property
    def position(self) -> tuple[str, int] | None:
        """Run and number of the segment in use. Those of the same run with lower numbers change no more."""
        return (self._segment.run, self._segment.number) if self._segment else None

    def close(self) -> None:
        """End the run. Its last segment stays, because the next run takes its seq from it."""
        self._closed = True
        self._end_run()

    def _open_segment(self, segment: Segment) -> None:
        fd = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._segment, self._end, self._torn = fd, segment, 0, False

    def _try_to_rotate(self) -> None:
        with contextlib.suppress(OSError):  # the present segment can still grow
            self.rotate()

    def _take_back(self) -> None:
        try:
            self._truncate(self._fd, self._end)
        except OSError:
            self._torn = True

    def _mend(self) -> None:
        """End the half line, so that the next record stands on a line of its own. Raises OSError."""
        size = os.fstat(self._fd).st_size
        if size > self._end:
            if self._write(self._fd, b"\n") != 1:
                raise OSError(errno.ENOSPC, "the journal ends in half a line, which could not be ended")
            self._end = size + 1
        self._torn = False

    def _end_run(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        if self._lock is not None:
            self._lock.close()
        self._fd, self._segment, self._lock = -1, None, None
