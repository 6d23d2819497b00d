"""Changes a file as a whole: one editor at a time, and readers see the old text or the new one, never half of it."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pointsman.config.regular_file import NotRegularFileError, open_regular

_ATTEMPTS = 10
_BOM = b"\xef\xbb\xbf"


class ReplaceError(Exception):
    """The file could not be changed. `str(error)` is for the person at the terminal."""


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    """Replace the text of `path` (or of what it links to) by `change(text)`; mode and owner stay.

    `change` may be called again with a newer text when a program that knows nothing of our lock, such as a person's
    editor, saved the file meanwhile.

    Raises:
        ReplaceError: it cannot be read or written.
    """
    try:
        target = path.resolve(strict=True)
        for _ in range(_ATTEMPTS):
            with _locked(target) as file:
                before = os.fstat(file.fileno())
                raw = file.read()
                mark = _BOM if raw.startswith(_BOM) else b""
                new = mark + change(raw.removeprefix(_BOM).decode()).encode()
                if _put(target, new, before):
                    return
    except NotRegularFileError as error:
        raise ReplaceError(f"{path} cannot be changed: {error}.") from error
    except OSError as error:
        raise ReplaceError(_reason(path, error)) from error
    except UnicodeDecodeError as error:
        raise ReplaceError(f"{path} cannot be changed: it is not text in UTF-8.") from error
    raise ReplaceError(f"{path} keeps changing under our hands. Try again.")


@contextmanager
def _locked(target: Path) -> Iterator[BinaryIO]:
    """Hold the lock on the file that has this name now, and not on one that was replaced while we waited."""
    while True:
        with open_regular(target) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), target.stat()):
                yield file
                return


def _put(target: Path, new: bytes, before: os.stat_result) -> bool:
    """Whether the new text took the old one's place; not if somebody else wrote there first."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with suppress(PermissionError):  # only root may give files away
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            os.fchmod(file.fileno(), before.st_mode & 0o7777)
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        if _version(target.stat()) != _version(before):
            return False
        os.replace(name, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
    _sync_folder(target.parent)
    return True


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)  # the new name survives a power cut
    finally:
        os.close(handle)


def _reason(path: Path, error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return f"{path} cannot be replaced, because it is mounted as a single file. Mount its folder instead."
    return f"{path} cannot be changed: {error.strerror}."
