"""Reads and replaces files safely: regular files only, one writer at a time, each change atomic."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

MAX_REWRITE_BYTES = 32 * 1_048_576
_ATTEMPTS = 10
_BOM = b"\xef\xbb\xbf"
_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFDIR: "directory",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFSOCK: "socket",
}


class NotRegularFileError(OSError):
    """The path names something else than a regular file; `kind` says what."""

    def __init__(self, mode: int) -> None:
        self.kind = _KINDS.get(stat.S_IFMT(mode), "special file")
        super().__init__(f"it is a {self.kind}, not a regular file")


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. A FIFO, a device or a socket could block the reader, so it is rejected.

    Raises:
        NotRegularFileError, OSError
    """
    _require_regular(path.stat())  # before it is opened: opening a device can have side effects
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _require_regular(os.fstat(handle))  # it may have been replaced since
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularFileError(status.st_mode)


class ReplaceError(Exception):
    """The file was not changed. `str(error)` is shown to the person at the terminal."""


class Rewritten(NamedTuple):
    """The text of a file before a change, and after it."""

    before: str
    after: str


def rewrite(path: Path, change: Callable[[str], str], max_bytes: int = MAX_REWRITE_BYTES) -> Rewritten:
    """Replace the text of `path` (or of the file it links to) by `change(text)`; keep mode and owner.

    `change` is called again with the newer text if a program that does not take our lock, such as an editor, saved
    the file in the meantime.

    Raises:
        ReplaceError: it cannot be read or written.
    """
    try:
        target = path.resolve(strict=True)
        for _ in range(_ATTEMPTS):
            with _locked(target) as file:
                before = os.fstat(file.fileno())
                raw = file.read(max_bytes + 1)
                if len(raw) > max_bytes:
                    raise ReplaceError(f"{path} cannot be changed: it is larger than {max_bytes} bytes.")
                mark = _BOM if raw.startswith(_BOM) else b""
                old = raw.removeprefix(_BOM).decode()
                new = change(old)
                if _replace_unchanged(target, mark + new.encode(), before):
                    return Rewritten(old, new)
    except NotRegularFileError as error:
        raise ReplaceError(f"{path} cannot be changed: {error}.") from error
    except OSError as error:
        raise ReplaceError(_reason(path, error)) from error
    except UnicodeDecodeError as error:
        raise ReplaceError(f"{path} cannot be changed: it is not UTF-8 text.") from error
    raise ReplaceError(f"{path} cannot be changed: another program keeps writing it. Try again.")


def preview(path: Path, change: Callable[[str], str], max_bytes: int = MAX_REWRITE_BYTES) -> Rewritten:
    """What `rewrite` would do, without writing anything. Raises ReplaceError."""
    try:
        with open_regular(path) as file:
            raw = file.read(max_bytes + 1)
        if len(raw) > max_bytes:
            raise ReplaceError(f"{path} cannot be changed: it is larger than {max_bytes} bytes.")
        text = raw.removeprefix(_BOM).decode()
    except NotRegularFileError as error:
        raise ReplaceError(f"{path} cannot be changed: {error}.") from error
    except OSError as error:
        raise ReplaceError(_reason(path, error)) from error
    except UnicodeDecodeError as error:
        raise ReplaceError(f"{path} cannot be changed: it is not UTF-8 text.") from error
    return Rewritten(text, change(text))


def take_back(path: Path, change: Rewritten) -> bool:
    """Undo a change; False if the file was changed again since, and stays. Raises ReplaceError."""

    def undo(text: str) -> str:
        return change.before if text == change.after else text

    return rewrite(path, undo).after == change.before


def create(path: Path, content: bytes, mode: int = 0o600) -> None:
    """`write_new` for commands, with a sentence for the person at the terminal.

    Raises:
        FileExistsError: it exists, perhaps because another process was faster; it is not changed.
        ReplaceError: it cannot be written.
    """
    try:
        write_new(path, content, mode)
    except FileExistsError:
        raise
    except OSError as error:
        raise ReplaceError(f"{path} cannot be written: {error.strerror}.") from error


def write_new(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Create a file with its whole content or not at all, and its folder if that is missing.

    Raises:
        FileExistsError: it exists, perhaps because another process was faster; it is not changed.
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _publish(Path(name), path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
    _sync_folder(path.parent)


def _publish(finished: Path, path: Path) -> None:
    """Give the finished file its name unless that is taken: of two processes, exactly one succeeds."""
    try:
        os.link(finished, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # A file system without hard links: take the name first, then replace the empty file.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.replace(finished, path)


@contextmanager
def _locked(target: Path) -> Iterator[BinaryIO]:
    """Lock the file that has this name now, not one that was replaced during the wait for the lock."""
    while True:
        with open_regular(target) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), target.stat()):
                yield file
                return


def _replace_unchanged(target: Path, new: bytes, before: os.stat_result) -> bool:
    """Replace the file atomically; return False if another program wrote it first."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with suppress(PermissionError):  # only root may change the owner
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


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)  # so that the rename survives a power failure
    finally:
        os.close(handle)


def _reason(path: Path, error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return f"{path} cannot be replaced because it is mounted as a single file. Mount its folder instead."
    return f"{path} cannot be changed: {error.strerror}."
