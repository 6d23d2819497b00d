"""The state folder: locked by one daemon, with a file that tells other commands its URL.

Replicas share the lock of the folder. Each of them has a folder of its own below it, `replicas/N`, which it locks: for
its URL, its logs and its sockets.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

NOTE = "gateway.json"
LOCK = "gateway.lock"
REPLICAS = "replicas"
WORKERS = "workers"  # in `replicas`: locked by the process that starts workers
MAX_REPLICAS = 64
_LOCK_ATTEMPTS = 10_000  # some milliseconds
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StateFolderError(Exception):
    """The state folder is not usable. `str(error)` is shown to the operator."""


class RunningGateway(msgspec.Struct, frozen=True):
    """The daemon that holds the folder, as `gateway.json` describes it."""

    url: str
    pid: int
    configuration: str = ""  # the file that it was started with; empty: an earlier version did not say it


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Create the folder if needed, and hold its lock, or as a replica a share of it. Raises StateFolderError."""
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
        if not (_try_share(handle) if shared else _try_lock(handle)):
            raise StateFolderError(_in_use(folder, _how_to_share(folder, shared=shared)))
        _check_space(handle, folder)
        yield
    finally:
        os.close(handle)


@contextmanager
def workers_folder(folder: Path) -> Iterator[None]:
    """Hold the state folder for the parent of workers, which share it with one another. Raises StateFolderError."""
    refuse_replica_folder(folder)
    with locked(folder, shared=True):
        own = folder / REPLICAS / WORKERS
        if own.is_dir() and is_held(own):
            raise StateFolderError(_in_use(folder))
        with locked(own):
            yield


@contextmanager
def replica_folder(folder: Path, wanted: int = 0) -> Iterator[Path]:
    """Hold the `wanted` one of `replicas/1`, `replicas/2`, ... for a replica, or else the first that is free.

    Raises StateFolderError.
    """
    for number in sorted(range(1, MAX_REPLICAS + 1), key=lambda number: number != wanted):
        own = folder / REPLICAS / str(number)
        if own.is_dir() and is_held(own):
            continue
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(own))
            except StateFolderError:
                if is_held(own):  # another replica was faster
                    continue
                raise
            yield own
            return
    raise StateFolderError(
        f"{MAX_REPLICAS} replicas use the state folder {folder}. Stop one, or choose another folder with --state-dir."
    )


def refuse_replica_folder(folder: Path) -> None:
    """Refuse the folder of one replica where that of all is meant. Raises StateFolderError."""
    own = folder.resolve()
    shared = own.parent.parent
    if own.parent.name == REPLICAS and own.name.isdecimal() and (shared / LOCK).exists():
        raise StateFolderError(
            f"{folder} is the folder of one replica. The state of all of them is in {shared}: pass that one with "
            "--state-dir."
        )


def replica_folders(folder: Path) -> list[Path]:
    """Return the folders of the replicas that run, in the order of their numbers."""
    try:
        numbers = sorted(int(name) for name in os.listdir(folder / REPLICAS) if name.isdecimal())
    except OSError:
        return []
    return [own for number in numbers if is_held(own := folder / REPLICAS / str(number))]


def is_held(folder: Path) -> bool:
    """Whether a daemon holds the lock of this folder for itself."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def holder(folder: Path) -> int | None:
    """The process that last took the lock of this folder for itself, as it has written there."""
    try:
        text = (folder / LOCK).read_text()
    except OSError:
        return None
    return int(text) if text.strip().isdecimal() else None


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for the lock of this file and hold it, for a moment: what replicas must not do at the same time."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def announced(folder: Path, url: str, configuration: Path, pid: int | None = None) -> Iterator[None]:
    """Publish our URL, configuration file and process, or its parent, while we listen. Requires the lock of the folder.

    Raises:
        StateFolderError: could not write to the folder.
    """
    note = folder / NOTE
    try:
        _write_note(note, RunningGateway(url, pid or os.getpid(), str(configuration.absolute())))
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
    """Return the daemon that holds the lock, or the first replica, or None. Ignores the file of a killed daemon."""
    if is_held(folder):
        return _read_note(folder)
    for own in replica_folders(folder):
        if (note := _read_note(own)) is not None:
            return note
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


def _try_share(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_note(folder: Path) -> RunningGateway | None:
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=RunningGateway)
    except (OSError, msgspec.MsgspecError):
        return None


def _in_use(folder: Path, how_to_share: str = "") -> str:
    note = find_running(folder)
    other = f" on {note.url} (process {note.pid})" if note else ""
    return (
        f"Another pointsman{other} already uses the state folder {folder}. "
        f"Stop it first, or give this one its own folder with --state-dir{how_to_share}."
    )


def _how_to_share(folder: Path, *, shared: bool) -> str:
    if shared:
        return "; with `state.replicas: true` in the configuration of both, they share it"
    if replica_folders(folder):
        return "; with `state.replicas: true` in its configuration, it shares this one"
    return ""
