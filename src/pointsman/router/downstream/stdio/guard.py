"""The daemon's end of the guard: starts it, tells it every process group, and starts it again should it die."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import subprocess
import sys
from pathlib import Path

from pointsman.router.downstream.stdio.exit_watch import when_exited
from pointsman.router.serving.tasks import Backoff, TaskSet

PROGRAM = Path(__file__).with_name("guard_program.py")
_CLOSE_S = 3.0
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 10.0

logger = logging.getLogger(__name__)


class Guard:
    """One for the daemon. Without it children that ignore the end of their stdin would outlive a kill -9."""

    def __init__(self) -> None:
        self.mark = ("MCP_GATEWAY_RUN", secrets.token_hex(8))  # every child carries it in its environment
        self.groups: set[int] = set()  # that live
        self._pipe: int | None = None  # written directly: what lies in a buffer of ours would die with us
        self._process: subprocess.Popen[bytes] | None = None
        self._gone = asyncio.Event()
        self._closing = False
        self._tasks = TaskSet()
        self._backoff = Backoff(_FIRST_DELAY_S, _LONGEST_DELAY_S)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Raises OSError."""
        name, value = self.mark
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own program; returns as soon as it runs
                (sys.executable, "-I", "-S", str(PROGRAM), f"{name}={value}"),
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # the terminal's Ctrl-C is not for it
                env={},
                cwd="/",
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        os.set_blocking(writing, False)
        self._process, self._pipe = process, writing
        self._gone.clear()
        when_exited(process, self._died)
        for group in self.groups:
            self._tell(b"+%d\n" % group)

    def watch(self, group: int) -> None:
        self.groups.add(group)
        self._tell(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        """The group is over. Its number may belong to somebody else from now on, so the guard must not touch it."""
        if group in self.groups:
            self.groups.discard(group)
            self._tell(b"-%d\n" % group)

    async def close(self) -> None:
        """End the guard. It ends what it still knows of first."""
        self._closing = True
        await self._tasks.close()
        self._drop_pipe()
        if self._process is None or self._gone.is_set():
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._gone.wait()
        except TimeoutError:
            self._process.kill()

    def _tell(self, line: bytes) -> None:
        if self._pipe is None:
            return  # it is being started again, and is told all groups then
        try:
            os.write(self._pipe, line)
        except BlockingIOError:  # it has not read for thousands of lines: another one will
            if self._process is not None:
                self._process.kill()
        except BrokenPipeError:
            pass  # it died, which `_died` is about to hear

    def _drop_pipe(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _died(self) -> None:
        if self._process is not None:
            self._process.poll()
        self._gone.set()
        self._drop_pipe()
        if not self._closing:
            self._tasks.start("guard restart", self._start_again)

    async def _start_again(self) -> None:
        logger.warning("the guard process ended and is started again")
        while True:
            await self._backoff.wait()
            try:
                await self.start()
            except OSError as error:
                logger.warning("the guard process cannot be started: %s", error)
            else:
                return
