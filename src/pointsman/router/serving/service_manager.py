"""Tells systemd how the daemon is, as sd_notify(3) describes it. Without NOTIFY_SOCKET, nothing is sent."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

_MAX_STATUS = 500


class ServiceManager:
    """The manager that has started this process, if it wants to be told. Sending never blocks and never fails."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_s = watchdog_s  # it ends a process that is silent for longer; 0: never
        self._ready = False

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ServiceManager:
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return cls()
        wanted = environ.get("WATCHDOG_USEC", "")
        return cls(address, int(wanted) / 1e6 if wanted.isdecimal() else 0.0)

    @property
    def supervises(self) -> bool:
        return bool(self._address)

    def ready(self, status: str) -> None:
        """The port is open. The process is named, because `uvx` would be taken for the main one."""
        self._ready = True
        self._send("READY=1", f"MAINPID={os.getpid()}", _status(status))

    def status(self, status: str) -> None:
        self._send(_status(status))

    def stopping(self) -> None:
        self._ready = False
        self._send("STOPPING=1", _status("waiting for calls under way to end"))

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Announce the block as a reload, and its end whatever becomes of it."""
        if not self._ready:
            yield
            return
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            if self._ready:  # it may have begun to stop
                self._send("READY=1")

    async def keep_alive(self) -> None:
        """Say that the event loop runs, twice as often as the watchdog expects it."""
        while self.watchdog_s:
            self.alive()
            await asyncio.sleep(self.watchdog_s / 2)

    def alive(self) -> None:
        """For the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, *assignments: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.setblocking(False)
            connection.sendto("\n".join(assignments).encode(errors="replace"), self._address)


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())[:_MAX_STATUS]}"
