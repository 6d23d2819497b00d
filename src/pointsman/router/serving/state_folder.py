"""The state folder: locked by one daemon, with a file that tells other commands its URL."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

NOTE = "gateway.json"
LOCK = "gateway.lock"
_LOCK_ATTEMPTS = 10_000  # some milliseconds
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StateFolderError(Exception):
    """The state folder is not usable. `str(error)` is shown to the operator."""


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """The daemon that holds the folder, as `gateway.json` describes it."""

    url: str
    pid: int
    configuration: str = ""  # the file that it was started with; empty: an earlier version did not say it


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create the folder if needed, and hold its lock. Raises StateFolderError."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise unwritable(folder, error) from error
        raise StateFolderError(
            f"Could not use the state folder {folder}: {error.strerror}. Choose another one with --state-dir."
        ) from error
    try:
        if not _try_lock(handle):
            raise StateFolderError(_in_use(folder))
        _check_space(handle, folder)
        yield
    finally:
        os.close(handle)


@contextmanager
def announced(folder: Path, url: str, configuration: Path) -> Iterator[None]:
    """Publish our URL and configuration file while we listen. Requires the lock of the folder.

    Raises:
        StateFolderError: could not write to the folder.
    """
    note = folder / NOTE
    try:
        _write_note(note, RunningGateway(url, os.getpid(), str(configuration.absolute())))
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def unwritable(folder: Path, error: OSError) -> StateFolderError:
    step = "Free some space there" if error.errno in NO_SPACE else "Make it writable"
    return StateFolderError(
        f"Could not write to the state folder {folder}: {error.strerror}. "
        f"{step}, or choose another folder with --state-dir."
    )


def find_running(folder: Path) -> RunningGateway | None:
    """Return the daemon that holds the lock, or None. Ignores the file that a killed daemon left behind."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_note(folder)
    finally:
        os.close(handle)
    return None


def _write_note(note: Path, gateway: RunningGateway) -> None:
    fresh = note.with_name(f".{note.name}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode(gateway))
    fresh.replace(note)  # atomic: readers see the old file or the new one


def _check_space(handle: int, folder: Path) -> None:
    """Detect a full disk before the daemon starts anything. Raises StateFolderError."""
    try:
        os.ftruncate(handle, 0)
        os.write(handle, b"%d\n" % os.getpid())
    except OSError as error:
        raise unwritable(folder, error) from error


def _try_lock(handle: int) -> bool:
    """Take the lock unless a daemon holds it. `find_running` holds a shared lock for a moment: then retry."""
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            fcntl.flock(handle, fcntl.LOCK_UN)
        else:
            return True
    return False


def _read_note(folder: Path) -> RunningGateway | None:
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=RunningGateway)
    except (OSError, msgspec.MsgspecError):
        return None


def _in_use(folder: Path) -> str:
    note = _read_note(folder)
    other = f" on {note.url} (process {note.pid})" if note else ""
    return (
        f"Another pointsman{other} already uses the state folder {folder}. "
        "Stop it first, or give this one its own folder with --state-dir."
    )
