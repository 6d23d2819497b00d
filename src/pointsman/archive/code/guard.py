"""The only access to the files of a root: every path component is opened separately, and symlinks are checked.

The text of a path is validated first, so that files outside a root are never touched, and answers do not reveal whether
they exist. Then the path is walked from the root's own handle: the target of a symlink is walked in the same way, and
what was opened is checked again through its handle. Replacing a file by a symlink in between gains nothing.
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
from pointsman.archive.text.lines import is_encodable

MAX_BYTES = 1 << 20
_MAX_PATH = 4096
_MAX_NAME = 255
_MAX_LINKS = 40
_SAFE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = _SAFE | os.O_DIRECTORY | getattr(os, "O_PATH", 0)  # a handle to walk on from; need not be readable

# Texts that the contract of the tools prescribes.
ABSOLUTE = "Absolute paths not allowed"
OUTSIDE = "Path traversal not allowed"
NEVER_READ = "Access to sensitive paths denied"

NOT_A_FILE = "it is not a regular file"
TOO_LARGE = "it is larger than 1 MB"
UNREADABLE = "the operating system denies the archive read access"


class AccessDeniedError(Exception):
    """The file may not be read; the message says why, and is the same whether it exists or not."""


class PathNotFoundError(Exception):
    """There is no such file in the root."""


class IsFolderError(PathNotFoundError):
    """The path names a folder."""


@dataclass(frozen=True, slots=True)
class GuardedFile:
    path: str  # from the root, without links
    content: bytes
    modified: float


def read(root: Path, path: str) -> GuardedFile:
    """The content of one regular file under a root.

    Raises:
        AccessDeniedError: it leads outside, is on the list of secrets, is not a regular file or too large.
        PathNotFoundError: it does not exist.
    """
    with _walk(root, path) as (folder, parts, name):
        handle = os.open(_require_file(name), _SAFE, dir_fd=folder)
        try:
            return _read_handle(handle, "/".join((*parts, _require_file(name))))
        finally:
            os.close(handle)


def resolve(root: Path, path: str) -> str:
    """The path of a file without links. Raises like `read`, but does not open the file, so its size is not checked."""
    with _walk(root, path) as (_, parts, name):
        return "/".join((*parts, _require_file(name)))


def list_names(root: Path, path: str) -> list[str]:
    """The names in a folder, sorted, without blocked files. Raises like `read`."""
    with _walk(root, path, folder=True) as (folder, parts, name):
        if name is not None:
            raise PathNotFoundError
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            return sorted(each for each in os.listdir(handle) if not is_blocked((*parts, each)))
        finally:
            os.close(handle)


def checked_parts(path: str, *, folder: bool = False) -> list[str]:
    """Validate the text of a path; its components, `..` included.

    Raises:
        AccessDeniedError: such a path may not be read.
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
    if len(path) > _MAX_PATH or any(len(part) > _MAX_NAME for part in parts) or not is_encodable(path):
        raise PathNotFoundError
    if any(map(is_blocked_folder, parts)) or (not folder and is_blocked(plain)):
        raise AccessDeniedError(NEVER_READ)
    return parts


def is_absolute(path: str) -> bool:
    """On any system: `/x`, `C:/x` and `\\\\host\\x`."""
    return path.startswith(("/", "\\")) or (path[:1].isalpha() and path[1:2] == ":")


def _require_file(name: str | None) -> str:
    if name is None:
        raise IsFolderError
    return name


@contextmanager
def _walk(root: Path, path: str, *, folder: bool = False) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
    """The handle of the last folder, the components that led to it, and the name of the file, if it is one."""
    parts = checked_parts(path, folder=folder)
    walk = _Walk(root)
    try:
        name = walk.to(parts, folder=folder)
        if name is not None and path.endswith(("/", "/.")):
            raise PathNotFoundError
        yield walk.handles[-1], tuple(walk.parts), name
    except OSError as error:
        raise _translate(error) from None
    finally:
        walk.close()


class _Walk:
    """A walk from a root: keeps a handle for each folder on the way, so that `..` is the folder it came from."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.parts: list[str] = []
        try:
            self.handles = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        except OSError as error:
            raise _translate(error) from None

    def close(self) -> None:
        for handle in self.handles:
            os.close(handle)

    def to(self, parts: list[str], *, folder: bool) -> str | None:
        """Walk the components; the name of the file at the end, or None if the end is a folder."""
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
                raise AccessDeniedError(NOT_A_FILE)  # before it is opened: opening a device can have effects
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
        """The components of a link's target. An absolute one must lie below the root."""
        target = os.readlink(name, dir_fd=self.handles[-1])
        if not is_encodable(target):
            raise PathNotFoundError  # its path could not be shown
        if target.startswith("/"):
            below = below_root(self.root, target)
            if below is None:
                raise AccessDeniedError(OUTSIDE)
            while self.parts:
                self._up()
            target = below
        return [part for part in target.split("/") if part not in ("", ".")]


def below_root(root: Path, target: str) -> str | None:
    """The part of an absolute path below a root, by its text alone; None: it lies elsewhere."""
    for top in {os.path.abspath(root), os.path.realpath(root)}:
        if target == top or target.startswith(top.rstrip("/") + "/"):
            return target[len(top) :]
    return None


def _read_handle(handle: int, path: str) -> GuardedFile:
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise AccessDeniedError(NOT_A_FILE)
    if found.st_size > MAX_BYTES:
        raise AccessDeniedError(TOO_LARGE)
    pieces: list[bytes] = []
    left = found.st_size  # not to the end: a file may grow meanwhile, and files of /proc report no size
    while left and (piece := os.read(handle, left)):
        pieces.append(piece)
        left -= len(piece)
    return GuardedFile(path, b"".join(pieces), found.st_mtime)


def _translate(error: OSError) -> AccessDeniedError | PathNotFoundError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL):  # EINVAL: no longer a link
        return PathNotFoundError()
    if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENODEV):
        return AccessDeniedError(NOT_A_FILE)  # it was replaced meanwhile
    return AccessDeniedError(UNREADABLE)
