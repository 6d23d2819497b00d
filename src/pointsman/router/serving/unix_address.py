"""Unix sockets at a path of any length, for their owner only. Imports nothing that makes a command slow."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103  # of an address, without the final NUL
_DESCRIPTORS = "/proc/self/fd"
_LOCAL_PEERCRED = 1  # of macOS and the BSDs, at level 0: struct xucred begins with a version and the uid


class SocketPathError(Exception):
    """The path is too long for a socket. `str(error)` is shown to the operator."""


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yield an address for the path. One that is too long is reached through a handle of its folder."""
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


def listen(path: Path, backlog: int) -> socket.socket:
    """Return a listening socket for this user only, which replaces one at the same path atomically.

    Raises:
        OSError: it cannot be created there.
        SocketPathError
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fresh = path.with_name(f".{path.name}")
    try:
        os.fchmod(listener.fileno(), 0o600)  # Linux creates the file with this mode
        fresh.unlink(missing_ok=True)
        with reachable(fresh) as address:
            listener.bind(address)
        fresh.chmod(0o600)
        listener.listen(backlog)
        listener.setblocking(False)
        fresh.replace(path)  # a client finds the old one, which refuses, or one that is ready
    except BaseException:
        listener.close()
        raise
    return listener


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
