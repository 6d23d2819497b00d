"""Makes the store's files private to their owner, whatever the umask: files 0600, folders 0700."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pointsman.archive.store.errors import StoreUnusableError

_FILE, _FOLDER = 0o600, 0o700
_COMPANIONS = ("-wal", "-shm", "-journal")


def make_private(path: Path) -> None:
    """Create the file and its folders where they are missing, and tighten the mode of a file that exists.

    Folders that exist are left alone. An existing file is never opened here: closing any handle of it would drop the
    locks that SQLite holds on it in this process.

    Raises:
        StoreUnusableError: it cannot be made.
    """
    real = Path(os.path.realpath(path))  # SQLite follows links too, and puts its companions beside the target
    try:
        _make_folders(real.parent)
        if not real.exists():
            _make_file(real)
    except OSError as error:
        raise StoreUnusableError(f"cannot be made: {error.strerror}.") from error
    for each in (real, *(real.with_name(real.name + suffix) for suffix in _COMPANIONS)):
        _tighten(each)


def _make_folders(folder: Path) -> None:
    """Like `mkdir -p`, but parents are private too."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            each.mkdir(mode=_FOLDER)
            each.chmod(_FOLDER)  # the umask may have taken more away


def _make_file(path: Path) -> None:
    """SQLite would create it as the umask says; its companions get the mode of the file itself."""
    with suppress(FileExistsError):  # another process was faster
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _FILE)
        try:
            os.fchmod(handle, _FILE)
        finally:
            os.close(handle)


def _tighten(path: Path) -> None:
    with suppress(FileNotFoundError, PermissionError):  # missing, or another user's, who decides for himself
        if path.is_file() and path.stat().st_mode & 0o777 != _FILE:
            path.chmod(_FILE)
