"""Which worker runs a server: the one that holds the lock of its file. The others connect to it.

The lock is released with the process, however it ends. Then another worker takes it, and starts the server anew.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from pointsman.config.model import Limits
from pointsman.config.sections.server import Server
from pointsman.router.downstream.connection import Connect, Connection, ConnectionLostError, OnNotification
from pointsman.router.downstream.placement.carried import connect_carried
from pointsman.router.downstream.placement.host import HostedConnection
from pointsman.router.serving.unix_address import SocketPathError, listen

FOLDER: Final = "placement"
PRECEDENCE_S: Final = 0.3  # for the worker that a server is meant for
_POLL_S: Final = 0.05  # while another worker starts or ends
_BACKLOG: Final = 128
_FRAME_BYTES: Final = 1 << 20  # around a result or the parameters of a call


class Placement:
    """The servers that this worker shares with others on the state folder."""

    def __init__(self, replica_dir: Path, workers: int) -> None:
        """`workers`: how many there are by the configuration; 1: that is not known, and a server is for whoever comes
        first."""
        self._folder = replica_dir.parent / FOLDER
        self.own = replica_dir.name
        self._workers = workers
        self._held: dict[str, _Lock] = {}

    def applies(self, server: Server) -> bool:
        """Whether one worker runs this server for all."""
        if server.url is not None or server.isolation == "per-caller":
            return False
        default = "one" if self._workers > 1 and server.bundled is None else "each"
        return (server.placement or default) == "one"

    def runner(self, server_id: str) -> str | None:
        """Return the folder, below `replicas`, of the worker that runs this server for all; None: none does."""
        if server_id in self._held:
            return self.own
        path = self._path(server_id, "lock")
        try:
            handle = self._try_lock(path) if path.exists() else None
            if handle is not None:  # no worker has it
                os.close(handle)
                return None
            return path.read_text().strip() or None
        except OSError:
            return None

    def shared(self, server_id: str, connect: Connect, limits: Limits) -> Connect:
        """Return what opens the server's connection: with `connect` if this worker is to run it, else to its worker."""
        most_bytes = 2 * max(limits.result_bytes, limits.body_bytes) + _FRAME_BYTES

        async def open_connection(on_notification: OnNotification) -> Connection:
            """The supervisor limits the time. Raises ConnectionLostError."""
            first = self._is_meant_for(server_id) or server_id in self._held
            now = asyncio.get_running_loop().time
            patient_until = now() + (0 if first else PRECEDENCE_S)
            while True:
                lock = self._lock(server_id) if now() >= patient_until else None
                if lock is not None:
                    return await lock.host(connect, on_notification, most_bytes)
                try:
                    return await connect_carried(self._path(server_id, "sock"), on_notification, most_bytes)
                except SocketPathError as error:
                    raise ConnectionLostError(str(error)) from None
                except OSError:  # that worker is starting or ending
                    await asyncio.sleep(_POLL_S)

        return open_connection

    def _is_meant_for(self, server_id: str) -> bool:
        """Spread servers over the workers: each waits a moment where another one has precedence."""
        return self._workers == 1 or zlib.crc32(server_id.encode()) % self._workers + 1 == int(self.own)

    def _lock(self, server_id: str) -> _Lock | None:
        """Take the lock once more, or for the first time; None: another worker has it. Raises ConnectionLostError."""
        lock = self._held.get(server_id)
        if lock is None:
            try:
                handle = self._try_lock(self._path(server_id, "lock"))
            except OSError as error:
                raise ConnectionLostError(f"the state folder cannot be written: {error.strerror}") from None
            if handle is None:
                return None
            with suppress(OSError):  # it is for the owner's commands only
                os.ftruncate(handle, 0)
                os.pwrite(handle, self.own.encode(), 0)
            lock = self._held[server_id] = _Lock(self, server_id, handle, self._path(server_id, "sock"))
        lock.uses += 1
        return lock

    def release(self, server_id: str) -> None:
        del self._held[server_id]

    def _try_lock(self, path: Path) -> int | None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def _path(self, server_id: str, kind: str) -> Path:
        return self._folder / f"{server_id}.{kind}"


class _Lock:
    """The lock of one server, held while this worker has a connection to it, or several while one replaces another."""

    def __init__(self, placement: Placement, server_id: str, handle: int, path: Path) -> None:
        self._placement = placement
        self._server_id = server_id
        self._handle = handle
        self._path = path
        self._newest: HostedConnection | None = None
        self.uses = 0

    async def host(self, connect: Connect, on_notification: OnNotification, most_bytes: int) -> Connection:
        """Open the server's own connection, and serve other workers with it. Raises ConnectionLostError."""
        hosted = _Hosted(self, on_notification, most_bytes)
        try:
            await hosted.listen(listen(self._path, _BACKLOG))
            previous, self._newest = self._newest, hosted
            hosted.attach(await connect(hosted.notified))
            if previous is not None:  # it has served until now
                previous.stop_listening("it was replaced by a new connection")
        except SocketPathError as error:
            await hosted.close()
            raise ConnectionLostError(str(error)) from None
        except OSError as error:
            await hosted.close()
            raise ConnectionLostError(f"the state folder cannot be written: {error.strerror}") from None
        except BaseException as error:
            reason = error if isinstance(error, ConnectionLostError) else ConnectionLostError("it did not start")
            hosted.fail(reason)
            await asyncio.shield(hosted.close())
            raise
        return hosted

    def release(self, hosted: HostedConnection) -> None:
        if self._newest is hosted:
            self._newest = None
            with suppress(OSError):
                self._path.unlink()
        self.uses -= 1
        if self.uses == 0:
            self._placement.release(self._server_id)
            os.close(self._handle)


class _Hosted(HostedConnection):
    """Releases its use of the lock once the server has ended."""

    def __init__(self, lock: _Lock, on_notification: OnNotification, most_bytes: int) -> None:
        super().__init__(on_notification, most_bytes)
        self._lock: _Lock | None = lock

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release(self)
