"""Opens regular files only: a FIFO, a device or a socket in a file's place could block the reader or never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFDIR: "directory",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFSOCK: "socket",
}


class NotRegularFileError(OSError):
    """Something else has the file's name; `kind` says what."""

    def __init__(self, mode: int) -> None:
        self.kind = _KINDS.get(stat.S_IFMT(mode), "special file")
        super().__init__(f"it is a {self.kind}, and only regular files are read")


def open_regular(path: Path) -> BinaryIO:
    """Raises NotRegularFileError and other kinds of OSError. Never waits for a writer."""
    _check(path.stat())  # before it is opened: opening a device can have effects of its own
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check(os.fstat(handle))  # another file may have taken its place since
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularFileError(found.st_mode)
