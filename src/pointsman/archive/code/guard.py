"""The one door to the files of a root: every component is opened by itself, no link is followed unseen.

A path is judged by its form first, so what lies outside a root is never touched, let alone told apart. Then it is
walked from the root's own handle: a link is read and its target walked in the same way, and what was opened is looked
at again through its handle. Whoever swaps a file for a link in between gains nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pointsman.archive.code.secret_names import is_blocked, is_blocked_folder

MAX_BYTES = 1 << 20
_MAX_PATH = 4096
_MAX_NAME = 255
_MAX_LINKS = 40
_SAFE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = _SAFE | os.O_DIRECTORY | getattr(os, "O_PATH", 0)  # a handle to go on from, which need not be readable

# The contract's own texts.
ABSOLUTE = "Absolute paths not allowed"
OUTSIDE = "Path traversal not allowed"
NEVER_READ = "Access to sensitive paths denied"

NOT_A_FILE = "it is not a regular file"
TOO_LARGE = "it is larger than 1 MB"
UNREADABLE = "the system does not let the archive read it"


class AccessDeniedError(Exception):
    """The file is not to be read; the message says why, and is the same whether it exists or not."""


class PathNotFoundError(Exception):
    """There is no such file in the root."""


class IsFolderError(PathNotFoundError):
    """There is one, and it is a folder."""


@dataclass(frozen=True, slots=True)
class GuardedFile:
    path: str  # from the root, without links
    content: bytes
    modified: float


def read(root: Path, path: str) -> GuardedFile:
    """The content of one regular file under a root.

    Raises:
        AccessDeniedError: it leads out, is on the list of secrets, is no regular file or too large.
        PathNotFoundError: there is none.
    """
    with _walked(root, path) as (folder, parts, name):
        handle = os.open(_file(name), _SAFE, dir_fd=folder)
        try:
            return _content(handle, "/".join((*parts, _file(name))))
        finally:
            os.close(handle)


def find(root: Path, path: str) -> str:
    """The path of a file without links. Raises as `read` does, but does not open it: its size is not judged."""
    with _walked(root, path) as (_, parts, name):
        return "/".join((*parts, _file(name)))


def names(root: Path, path: str) -> list[str]:
    """The names in a folder, sorted; those of blocked files are left out. Raises as `read` does."""
    with _walked(root, path, folder=True) as (folder, parts, name):
        if name is not None:
            raise PathNotFoundError
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            return sorted(each for each in os.listdir(handle) if not is_blocked((*parts, each)))
        finally:
            os.close(handle)


def checked_parts(path: str, *, folder: bool = False) -> list[str]:
    """The components of a path that may be asked for, `..` left in.

    Raises:
        AccessDeniedError: by its form alone it is not to be read.
        PathNotFoundError: no file can have such a name.
    """
    if is_absolute(path):
        raise AccessDeniedError(ABSOLUTE)
    if "\0" in path or "\\" in path:
        raise AccessDeniedError(OUTSIDE)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    plain: list[str] = []
    for part in parts:
        if part != "..":
            plain.append(part)
        elif plain:
            plain.pop()
        else:
            raise AccessDeniedError(OUTSIDE)
    if len(path) > _MAX_PATH or any(len(part) > _MAX_NAME for part in parts) or not _encodable(path):
        raise PathNotFoundError
    if any(map(is_blocked_folder, parts)) or (not folder and is_blocked(plain)):
        raise AccessDeniedError(NEVER_READ)
    return parts


def is_absolute(path: str) -> bool:
    """On any system: `/x`, `C:/x` and `\\\\host\\x`."""
    return path.startswith(("/", "\\")) or (path[:1].isalpha() and path[1:2] == ":")


def _encodable(path: str) -> bool:
    """Has it a spelling in UTF-8? JSON can carry halves of surrogate pairs, and names of files can be any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _file(name: str | None) -> str:
    if name is None:
        raise IsFolderError
    return name


@contextmanager
def _walked(root: Path, path: str, *, folder: bool = False) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
    """The handle of the last folder on the way, the names that led to it, and the file's own name, if it is one."""
    parts = checked_parts(path, folder=folder)
    walk = _Walk(root)
    try:
        name = walk.to(parts, folder=folder)
        if name is not None and path.endswith(("/", "/.")):
            raise PathNotFoundError
        yield walk.handles[-1], tuple(walk.parts), name
    except OSError as error:
        raise _meaning(error) from None
    finally:
        walk.close()


class _Walk:
    """A way down from a root: a handle for each folder on it, so that `..` is the one that we came through."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.parts: list[str] = []
        try:
            self.handles = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        except OSError as error:
            raise _meaning(error) from None

    def close(self) -> None:
        for handle in self.handles:
            os.close(handle)

    def to(self, parts: list[str], *, folder: bool) -> str | None:
        """Walk; the name of the file at the end, or None where the end is a folder."""
        ahead = parts[::-1]
        links = 0
        while ahead:
            name = ahead.pop()
            if name == "..":
                self._up()
                continue
            if is_blocked_folder(name) or (not ahead and not folder and is_blocked((*self.parts, name))):
                raise AccessDeniedError(NEVER_READ)
            mode = os.stat(name, dir_fd=self.handles[-1], follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                links += 1
                if links > _MAX_LINKS:
                    raise AccessDeniedError(OUTSIDE)
                ahead += self._target(name)[::-1]
            elif stat.S_ISDIR(mode):
                self._down(name)
            elif ahead:
                raise PathNotFoundError
            elif not stat.S_ISREG(mode):
                raise AccessDeniedError(NOT_A_FILE)  # before it is opened: opening a device may already do something
            else:
                return name
        return None

    def _up(self) -> None:
        if not self.parts:
            raise AccessDeniedError(OUTSIDE)
        self.parts.pop()
        os.close(self.handles.pop())

    def _down(self, name: str) -> None:
        self.handles.append(os.open(name, _FOLDER, dir_fd=self.handles[-1]))
        self.parts.append(name)

    def _target(self, name: str) -> list[str]:
        """The components of a link's target. An absolute one is taken only if it names the root itself."""
        target = os.readlink(name, dir_fd=self.handles[-1])
        if not _encodable(target):
            raise PathNotFoundError  # nobody could be told where it leads
        if target.startswith("/"):
            below = below_root(self.root, target)
            if below is None:
                raise AccessDeniedError(OUTSIDE)
            while self.parts:
                self._up()
            target = below
        return [part for part in target.split("/") if part not in ("", ".")]


def below_root(root: Path, target: str) -> str | None:
    """What an absolute path is below a root, by its form alone; None: it lies elsewhere."""
    for top in {os.path.abspath(root), os.path.realpath(root)}:
        if target == top or target.startswith(top.rstrip("/") + "/"):
            return target[len(top) :]
    return None


def _content(handle: int, path: str) -> GuardedFile:
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise AccessDeniedError(NOT_A_FILE)
    if found.st_size > MAX_BYTES:
        raise AccessDeniedError(TOO_LARGE)
    pieces: list[bytes] = []
    left = found.st_size  # not to the end: a file may grow as we read, and those of /proc have no size at all
    while left and (piece := os.read(handle, left)):
        pieces.append(piece)
        left -= len(piece)
    return GuardedFile(path, b"".join(pieces), found.st_mtime)


def _meaning(error: OSError) -> AccessDeniedError | PathNotFoundError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL):  # EINVAL: no link any more
        return PathNotFoundError()
    if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENODEV):
        return AccessDeniedError(NOT_A_FILE)  # it was swapped while we looked
    return AccessDeniedError(UNREADABLE)
