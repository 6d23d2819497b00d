"""The channel's socket file: created for its owner only, replaced atomically, and reachable at any length of path.

Used by both sides, so it imports nothing that makes a command slow.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE = "owner.sock"
MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103  # of an address, without the final NUL
MAX_REQUEST_BYTES = 1 << 20
BACKLOG = 16
_DESCRIPTORS = "/proc/self/fd"
_LOCAL_PEERCRED = 1  # of macOS and the BSDs, at level 0: struct xucred begins with a version and the uid


class SocketPathError(Exception):
    """The path is too long for a socket. `str(error)` is shown to the operator."""


def listen(folder: Path) -> socket.socket:
    """Return a listening socket, and replace the file of a daemon that was killed. Requires the lock of the folder.

    Raises:
        OSError: it cannot be created there.
        SocketPathError
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fresh = folder / f".{FILE}"
    try:
        os.fchmod(listener.fileno(), 0o600)  # Linux creates the file with this mode
        fresh.unlink(missing_ok=True)
        with _address(fresh) as address:
            listener.bind(address)
        fresh.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        fresh.replace(folder / FILE)  # a client finds the old one, which refuses, or one that is ready
    except BaseException:
        listener.close()
        raise
    return listener


def connect(folder: Path, timeout_s: float) -> socket.socket:
    """Return a connection to the daemon of this folder.

    Raises:
        OSError: nothing listens there, or the file belongs to another user.
        SocketPathError
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with _address(folder / FILE) as address:
            connection.connect(address)
        own = is_own(connection)
    except BaseException:
        connection.close()
        raise
    if own:
        return connection
    connection.close()
    raise PermissionError(f"{folder / FILE} is served by another user")


def is_own(connection: socket.socket) -> bool:
    """Whether the process at the other end runs as the same user as this one."""
    return peer_uid(connection) == os.geteuid()


def peer_uid(connection: socket.socket) -> int:
    if sys.platform == "linux":
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    else:
        _, uid = struct.unpack("2I", connection.getsockopt(0, _LOCAL_PEERCRED, 76)[:8])
    assert isinstance(uid, int)
    return uid


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Return an address for the path. One that is too long is reached through a handle of its folder."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield str(path)
        return
    if not Path(_DESCRIPTORS).is_dir():
        raise SocketPathError(
            f"The path {path} is longer than the {MAX_PATH_BYTES} bytes that a socket may have. "
            "Choose a shorter folder with --state-dir."
        )
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{_DESCRIPTORS}/{handle}/{path.name}"
    finally:
        with suppress(OSError):
            os.close(handle)
