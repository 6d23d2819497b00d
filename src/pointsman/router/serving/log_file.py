"""The daemon's log file: callers queue lines, and one thread masks, writes and rotates them.

The parent of workers, which has no thread, writes its own at once.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.config.secrets import mask_secrets

if TYPE_CHECKING:  # `pointsman log` does without the models
    from pointsman.config.model import Log

FOLDER, NAME = "logs", "pointsman.log"  # beside the logs of servers; no server can have this id
FORMAT = "%(asctime)s %(levelname)-7s %(message)s"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S%z"
MAX_WAITING = 2000  # lines in the queue, while the disk is slow
MAX_CHARS = 16_384  # of one line with its traceback
RETRY_S = 30.0  # after a failure
CLOSE_S = 2.0  # for the last lines, when the daemon ends

logger = logging.getLogger(__name__)


@contextmanager
def logged_to_file(state_dir: Path, settings: Log) -> Iterator[LogFile]:
    """Add the file to the handlers of all loggers. Requires the lock of the folder."""
    handler = LogFile(state_dir, settings)
    with _added(handler):
        yield handler


@contextmanager
def logged_plainly(state_dir: Path, settings: Log) -> Iterator[PlainLogFile]:
    """`logged_to_file` without a thread."""
    handler = PlainLogFile(state_dir, settings)
    with _added(handler):
        yield handler


@contextmanager
def _added(handler: logging.Handler) -> Iterator[None]:
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


class LogFile(logging.Handler):
    """Never blocks and never fails: what cannot be written is counted, and missing."""

    def __init__(self, state_dir: Path, settings: Log, retry_s: float = RETRY_S) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
        self._settings = settings
        self._writer = _Writer(log_path(state_dir), retry_s)
        self._waiting: deque[str] = deque()
        self._left_out = 0  # lines in all that found the queue full
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def configure(self, settings: Log) -> None:
        self._settings = settings

    def emit(self, record: logging.LogRecord) -> None:
        if not self._settings.file:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._left_out += 1
            return
        try:
            self._waiting.append(self.format(record)[:MAX_CHARS])
        except Exception:  # a record that cannot be formatted; the handler of stderr says so
            self._left_out += 1
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log file", daemon=True)
            self._thread.start()
        self._wake.set()

    def say(self, text: str) -> None:
        """Write a line to the file alone, for what stderr has in another form."""
        self.handle(_said(text))

    def close(self) -> None:
        """Write what is in the queue, unless the disk takes too long."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        super().close()

    def _run(self) -> None:
        told = 0
        while not self._closing or self._waiting:
            self._wake.wait()
            self._wake.clear()
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            left_out = self._left_out
            if lines or left_out > told:
                self._writer.write(lines, left_out - told, self._settings)
            told = left_out
        self._writer.close()


class PlainLogFile(logging.Handler):
    """Writes each line at once, without a thread: for a process that forks and logs little. Never fails."""

    def __init__(self, state_dir: Path, settings: Log, retry_s: float = RETRY_S) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
        self._settings = settings
        self._writer = _Writer(log_path(state_dir), retry_s)

    def configure(self, settings: Log) -> None:
        self._settings = settings

    def emit(self, record: logging.LogRecord) -> None:
        if not self._settings.file:
            return
        try:
            line = self.format(record)[:MAX_CHARS]
        except Exception:  # a record that cannot be formatted; the handler of stderr says so
            return
        self._writer.write([line], 0, self._settings)

    def say(self, text: str) -> None:
        """Write a line to the file alone, for what stderr has in another form."""
        self.handle(_said(text))

    def close(self) -> None:
        self._writer.close()
        super().close()


class _Writer:
    """The file itself, used by one thread."""

    def __init__(self, path: Path, retry_s: float) -> None:
        self._path = path
        self._retry_s = retry_s
        self._handle: int | None = None
        self._size = 0
        self._missing = 0  # lines since the last one that was written
        self._retry_at: float | None = None  # None: the last write succeeded

    def write(self, lines: list[str], left_out: int, settings: Log) -> None:
        self._missing += left_out
        if self._retry_at is not None and time.monotonic() < self._retry_at:
            self._missing += len(lines)
            return
        written = 0
        try:
            self._reopen_if_moved()
            if self._missing:
                self._append(
                    f"{time.strftime(TIME_FORMAT)} WARNING {self._missing} earlier lines are missing", settings
                )
                self._missing = 0
            for line in lines:
                self._append(line, settings)
                written += 1
        except OSError as error:
            self._missing += len(lines) - written
            self._fail(error)
        else:
            self._retry_at = None

    def close(self) -> None:
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)
            self._handle = None

    def _append(self, line: str, settings: Log) -> None:
        data = mask_secrets(line).encode(errors="replace")[: settings.max_bytes - 1] + b"\n"
        if self._handle is None:
            self._open()
        if self._size and self._size + len(data) > settings.max_bytes:
            self._rotate(settings.files)
            self._open()
        assert self._handle is not None
        if os.write(self._handle, data) < len(data):
            os.ftruncate(self._handle, self._size)  # no half line
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(data)

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._handle = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._handle).st_size

    def _rotate(self, files: int) -> None:
        self.close()
        for old in self._path.parent.glob(f"{NAME}.*"):
            suffix = old.name.removeprefix(f"{NAME}.")
            if suffix.isdecimal() and int(suffix) >= files - 1:
                old.unlink(missing_ok=True)
        for number in range(files - 2, 0, -1):
            with suppress(FileNotFoundError):
                numbered(self._path, number).rename(numbered(self._path, number + 1))
        if files > 1:
            self._path.rename(numbered(self._path, 1))
        else:
            self._path.unlink()

    def _reopen_if_moved(self) -> None:
        """A person or logrotate may have moved or deleted the file."""
        if self._handle is None:
            return
        try:
            same = os.path.samestat(os.fstat(self._handle), self._path.stat())
        except FileNotFoundError:
            same = False
        if not same:
            self.close()

    def _fail(self, error: OSError) -> None:
        self.close()
        first = self._retry_at is None
        self._retry_at = time.monotonic() + self._retry_s
        if first:
            logger.warning(
                "could not write the log file %s: %s; messages go to stderr only", self._path, error.strerror
            )


def _said(text: str) -> logging.LogRecord:
    return logging.LogRecord("pointsman", logging.INFO, "", 0, "%s", (text,), None)


def log_path(state_dir: Path) -> Path:
    return state_dir / FOLDER / NAME


def numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
