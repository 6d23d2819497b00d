"""The append-only journal: one write call per record, and no partial line after a failed write."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pointsman.router.audit.redaction import CUT, SHORTER_QUERY_CHARS, clean_queries
from pointsman.router.audit.rows import Intent, Outcome
from pointsman.router.audit.segments import RunLock, Segment, last_seq

MAX_LINE_BYTES = 8192
SEGMENT_BYTES = 1_048_576
_encode = msgspec.json.Encoder().encode

Write = Callable[[int, bytes], int]
Truncate = Callable[[int, int], None]


def encode_line(entry: Intent | Outcome) -> bytes:
    """Encode an entry as a line of at most MAX_LINE_BYTES."""
    try:
        line = _encode(entry) + b"\n"
    except UnicodeEncodeError:
        line = _encode_any(entry)
    if len(line) <= MAX_LINE_BYTES or isinstance(entry, Outcome):  # outcomes have only short names and numbers
        return line
    return next(line for line in map(_encode_any, _smaller(entry)) if len(line) <= MAX_LINE_BYTES)


class Journal:
    """The journal of one run. Used from one thread.

    Writes are not synced to disk: they survive the end of the process, also by SIGKILL, but not a power failure.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seen_seq: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
        write: Write = os.write,
        truncate: Truncate = os.ftruncate,
        lowest_seq: Callable[[], int] | None = None,
        replica: str | None = None,
    ) -> None:
        """`lowest_seq`: the seq of the next intent is at least that; None: one more than the last.

        `replica`: the id of this gateway among several.
        """
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._write = write
        self._truncate = truncate
        self._lowest_seq = lowest_seq
        self._replica = replica
        self._lock: RunLock | None = None
        self._segment: Segment | None = None
        self._fd = -1
        self._end = 0  # bytes of complete lines in the segment
        self._torn = False  # the segment ends in a partial line that could not be truncated
        self._closed = False
        self._next_seq = seen_seq + 1

    def open(self) -> None:
        """Start a run. `next_seq` and `append` do so implicitly; calling this first reports a failure early.

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
            self._lock = RunLock(self._folder, self._next_seq, self._replica)
        self._open_segment(Segment.named(self._folder, self._lock.run, 0, self._next_seq))

    def next_seq(self) -> int:
        """Return the seq of the next intent, after closing a full segment. Raises OSError."""
        if self._fd < 0:
            self.open()
        elif self._end >= self._segment_bytes:
            self._try_to_rotate()
        if self._lowest_seq is not None:
            self._next_seq = max(self._next_seq, self._lowest_seq())
        return self._next_seq

    @property
    def last_seq(self) -> int:
        return self._next_seq - 1

    @property
    def written(self) -> tuple[int, int]:
        """The last seq, and the end of the present segment."""
        return self.last_seq, self._end

    def append(self, lines: bytes, *, intents: int = 0) -> None:
        """Write complete lines, all or none. `intents` of them use up a seq.

        Raises:
            OSError: nothing was written (disk full, short write, read-only, I/O error).
        """
        if self._fd < 0:
            self.open()
        if self._torn:
            self._end_partial_line()
        try:
            written = self._write(self._fd, lines)
        except OSError:
            self._roll_back()
            raise
        if written != len(lines):
            self._roll_back()
            raise OSError(errno.ENOSPC, f"wrote only {written} of {len(lines)} bytes")
        self._end += written
        self._next_seq += intents

    def rotate(self) -> None:
        """Close the current segment unless it is empty, so that it can be moved to the database.

        Raises:
            OSError: no new segment could be opened; the current one stays in use.
        """
        if self._fd < 0 or self._segment is None:
            return
        if os.fstat(self._fd).st_nlink == 0:  # the folder was deleted, so writes to this file are lost
            self._end_run()
            self.open()
        elif self._end > 0:
            segment = self._segment
            self._open_segment(Segment.named(self._folder, segment.run, segment.number + 1, self._next_seq))

    @property
    def position(self) -> tuple[str, int] | None:
        """Run and number of the current segment. Lower numbers of the same run are final."""
        return (self._segment.run, self._segment.number) if self._segment else None

    def close(self) -> None:
        """End the run. Its last segment stays, because the next run derives its seq from it."""
        self._closed = True
        self._end_run()

    def _open_segment(self, segment: Segment) -> None:
        fd = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._segment, self._end, self._torn = fd, segment, 0, False

    def _try_to_rotate(self) -> None:
        with contextlib.suppress(OSError):  # the current segment can still grow
            self.rotate()

    def _roll_back(self) -> None:
        try:
            self._truncate(self._fd, self._end)
        except OSError:
            self._torn = True

    def _end_partial_line(self) -> None:
        """Terminate the partial line, so that the next record starts on a new one. Raises OSError."""
        size = os.fstat(self._fd).st_size
        if size > self._end:
            if self._write(self._fd, b"\n") != 1:
                raise OSError(errno.ENOSPC, "the journal ends in a partial line that could not be terminated")
            self._end = size + 1
        self._torn = False

    def _end_run(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        if self._lock is not None:
            self._lock.close()
        self._fd, self._segment, self._lock = -1, None, None


def _encode_any(entry: Intent | Outcome) -> bytes:
    try:
        return _encode(entry) + b"\n"
    except UnicodeEncodeError:
        return _encode(_without_surrogates(msgspec.to_builtins(entry))) + b"\n"


def _smaller(intent: Intent) -> Iterator[Intent]:
    """Drop arguments first, then shorten queries. Escaped text is up to six times longer; names always fit."""
    if intent.arguments is not msgspec.UNSET:
        intent = msgspec.structs.replace(intent, arguments=CUT)
        yield intent
    queries = intent.queries or []
    for limit in SHORTER_QUERY_CHARS:
        yield msgspec.structs.replace(intent, queries=clean_queries(queries, limit))
    yield msgspec.structs.replace(intent, queries=None)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value
