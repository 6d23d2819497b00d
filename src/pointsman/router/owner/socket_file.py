"""The channel's socket file: created for its owner only, replaced atomically, and reachable at any length of path.

Used by both sides, so it imports nothing that makes a command slow.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from pointsman.router.serving import unix_address
from pointsman.router.serving.unix_address import is_own, reachable

FILE = "owner.sock"
REPLICAS = "replicas"  # as in `state_folder.py`, which takes longer to import
MAX_REQUEST_BYTES = 1 << 20
BACKLOG = 16


def listen(folder: Path) -> socket.socket:
    """Return a listening socket, and replace the file of a daemon that was killed. Requires the lock of the folder.

    Raises:
        OSError: it cannot be created there.
        SocketPathError
    """
    return unix_address.listen(folder / FILE, BACKLOG)


def connect(folder: Path, timeout_s: float) -> socket.socket:
    """Return a connection to the daemon of this folder; where replicas share it, to the first one that answers.

    Raises:
        OSError: nothing listens there, or the file belongs to another user.
        SocketPathError
    """
    try:
        return _connect(folder, timeout_s)
    except (FileNotFoundError, ConnectionRefusedError):
        for replica in _replicas(folder):
            try:
                return _connect(replica, timeout_s)
            except (FileNotFoundError, ConnectionRefusedError):
                continue
        raise


def places(folder: Path) -> list[Path]:
    """Where gateways of this folder may listen: in it, or where replicas share it, in the folder of each."""
    found = [folder, *_replicas(folder)]
    return [place for place in found if (place / FILE).exists()] or [folder]


def _replicas(folder: Path) -> Iterator[Path]:
    try:
        names = os.listdir(folder / REPLICAS)
    except OSError:
        return
    yield from (folder / REPLICAS / name for name in sorted(names, key=lambda name: (len(name), name)))


def _connect(folder: Path, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with reachable(folder / FILE) as address:
            connection.connect(address)
        own = is_own(connection)
    except BaseException:
        connection.close()
        raise
    if own:
        return connection
    connection.close()
    raise PermissionError(f"{folder / FILE} is served by another user")
