"""The state folder: one daemon at a time, and a note for other commands that says where it listens."""

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
_LOOKS = 10_000  # some milliseconds
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StateFolderError(Exception):
    """The state folder cannot be used. `str(error)` is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Running:
    """What `gateway.json` says of the daemon that holds the folder."""

    url: str
    pid: int


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Create the folder if need be and keep every other daemon out of it. Raises StateFolderError."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise unwritable(folder, error) from error
        raise StateFolderError(
            f"The state folder {folder} cannot be used: {error.strerror}. Choose another one with --state-dir."
        ) from error
    try:
        if not _locked(handle):
            raise StateFolderError(_taken(folder))
        _check_space(handle, folder)
        yield
    finally:
        os.close(handle)


@contextmanager
def announced(folder: Path, url: str) -> Iterator[None]:
    """Say where we listen for as long as we do. Only the holder of the folder may call this.

    Raises:
        StateFolderError: the folder cannot be written.
    """
    note = folder / NOTE
    try:
        _write_note(note, url)
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def unwritable(folder: Path, error: OSError) -> StateFolderError:
    step = "Free some space there" if error.errno in NO_SPACE else "Make it writable"
    return StateFolderError(
        f"The state folder {folder} cannot be written: {error.strerror}. "
        f"{step}, or choose another folder with --state-dir."
    )


def running(folder: Path) -> Running | None:
    """The daemon that holds the folder now, or None; a note that a killed one left behind does not count."""
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


def _write_note(note: Path, url: str) -> None:
    fresh = note.with_name(f".{note.name}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode({"url": url, "pid": os.getpid()}))
    fresh.replace(note)  # readers see the old note or the new one, never half of one


def _check_space(handle: int, folder: Path) -> None:
    """Notice a full disk before anything is started. Raises StateFolderError."""
    try:
        os.ftruncate(handle, 0)
        os.write(handle, b"%d\n" % os.getpid())
    except OSError as error:
        raise unwritable(folder, error) from error


def _locked(handle: int) -> bool:
    """Take the lock from nobody but those who only look: `running` has it for a moment, and shares it."""
    for _ in range(_LOOKS):
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


def _read_note(folder: Path) -> Running | None:
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=Running)
    except (OSError, msgspec.MsgspecError):
        return None


def _taken(folder: Path) -> str:
    note = _read_note(folder)
    other = f" on {note.url} (process {note.pid})" if note else ""
    return (
        f"Another pointsman{other} already uses the state folder {folder}. "
        "Stop it first, or give this one its own folder with --state-dir."
    )
