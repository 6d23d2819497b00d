"""What the children of each server wrote to stderr, kept in the state folder, where `pointsman server log` finds it."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from pointsman.router.downstream.stderr_log import StderrLog

FOLDER = "logs"
_EVERY_S = 0.5

logger = logging.getLogger(__name__)


class ServerLogs:
    """One bounded log for each server, which outlives its children. A flood costs one small file each half second."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER
        self._logs: dict[str, StderrLog] = {}
        self._written: dict[str, int] = {}  # `total` of the log when its file was written
        self._complained = False

    def of(self, server_id: str) -> StderrLog:
        return self._logs.setdefault(server_id, StderrLog(server_id))

    async def run(self) -> None:
        """Write what is new, until cancelled; then once more."""
        try:
            while True:
                await asyncio.sleep(_EVERY_S)
                if fresh := self._fresh():
                    await asyncio.to_thread(self._write, fresh)
        finally:
            self._write(self._fresh())

    def _fresh(self) -> dict[str, bytes]:
        fresh = {
            server_id: log for server_id, log in self._logs.items() if log.total != self._written.get(server_id, 0)
        }
        self._written.update({server_id: log.total for server_id, log in fresh.items()})
        return {server_id: log.held() for server_id, log in fresh.items()}

    def _write(self, fresh: dict[str, bytes]) -> None:
        try:
            for server_id, data in fresh.items():
                _replace(log_file(self._folder.parent, server_id), data)
        except OSError as error:
            if not self._complained:  # a full disk must not fill the log as well
                logger.warning("the servers' logs cannot be written: %s", error.strerror)
            self._complained = True
        else:
            self._complained = False


def log_file(state_dir: Path, server_id: str) -> Path:
    return state_dir / FOLDER / f"{server_id}.log"


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = path.with_suffix(".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    fresh.replace(path)
