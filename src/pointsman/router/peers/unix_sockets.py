"""The replicas on one machine: each listens on a unix socket in its own folder below the state folder they share."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pointsman.router.peers.peers import Peers
from pointsman.router.peers.replica import Replica, new_id
from pointsman.router.serving import unix_address
from pointsman.router.serving.state_folder import StateFolderError, replica_folders, unwritable
from pointsman.router.serving.unix_address import SocketPathError

BACKLOG: Final = 1024
_SOCKET: Final = re.compile(r"([0-9a-f]{8})\.sock")


def peers_on_this_machine(state_dir: Path, replica_dir: Path, keys: Sequence[str]) -> tuple[Peers, socket.socket]:
    """Return the replicas on a state folder, and the socket of this one. Requires the locks of both folders.

    Raises:
        StateFolderError: the socket cannot be made.
    """
    own, listener = listen(replica_dir, new_id())
    return Peers(own, UnixDirectory(state_dir), keys), listener


class UnixDirectory:
    """Fits `Directory`. A replica lives if it has a socket in a folder whose lock is held."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._own: Path | None = None

    async def announce(self, replica: Replica) -> None:
        """The socket is the announcement."""
        self._own = Path(replica.address.removeprefix("unix:"))

    async def withdraw(self) -> None:
        if self._own is not None:
            self._own.unlink(missing_ok=True)

    def living(self) -> Sequence[Replica]:
        return [replica for folder in replica_folders(self._state_dir) for replica in _sockets_in(folder)]


def listen(folder: Path, replica_id: str) -> tuple[Replica, socket.socket]:
    """Return this replica and its listening socket. Requires the lock of the folder. Raises StateFolderError."""
    for stale in _sockets_in(folder):
        Path(stale.address.removeprefix("unix:")).unlink(missing_ok=True)
    path = folder / f"{replica_id}.sock"
    try:
        listener = unix_address.listen(path, BACKLOG)
    except SocketPathError as error:
        raise StateFolderError(str(error)) from error
    except OSError as error:
        raise unwritable(folder, error) from error
    return Replica(replica_id, f"unix:{path}"), listener


def _sockets_in(folder: Path) -> list[Replica]:
    try:
        found = [match for name in os.listdir(folder) if (match := _SOCKET.fullmatch(name))]
    except OSError:
        return []
    return [Replica(match[1], f"unix:{folder / match.string}") for match in found]
