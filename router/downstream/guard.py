"""The daemon's end of the guard: starts it, tells it every process group, and starts it again should it die."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

PROGRAM = Path(__file__).with_name("guard_program.py")
_CLOSE_S = 3.0
_MAX_DELAY_S = 10.0

logger = logging.getLogger(__name__)


class Guard:
    """One for the daemon. Without it children that ignore the end of their stdin would outlive a kill -9."""

    def __init__(self) -> None:
        self.mark = ("MCP_GATEWAY_RUN", secrets.token_hex(8))  # every child carries it in its environment
        self._groups: set[int] = set()
        self._pipe: int | None = None  # written directly: what lies in a buffer of ours would die with us
        self._transport: asyncio.SubprocessTransport | None = None
        self._gone = asyncio.Event()
        self._closing = False
        self._restart: asyncio.Task[None] | None = None
        self._delay_s = 0.0

    @property
    def pid(self) -> int | None:
        return self._transport.get_pid() if self._transport is not None else None

    async def start(self) -> None:
        """Raises OSError."""
        name, value = self.mark
        self._gone.clear()
        reading, writing = os.pipe()
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Exit(self._died),
                *(sys.executable, "-I", "-S", str(PROGRAM), f"{name}={value}"),
                stdin=reading,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # the terminal's Ctrl-C is not for it
                env={},
                cwd="/",
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        if self._gone.is_set():
            os.close(writing)
            raise OSError("it ended at once")
        os.set_blocking(writing, False)
        self._transport, self._pipe = transport, writing
        for group in self._groups:
            self._tell(b"+%d\n" % group)

    def watch(self, group: int) -> None:
        self._groups.add(group)
        self._tell(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        """The group is over. Its number may belong to somebody else from now on, so the guard must not touch it."""
        if group in self._groups:
            self._groups.discard(group)
            self._tell(b"-%d\n" % group)

    async def close(self) -> None:
        """End the guard. It ends what it still knows of first."""
        self._closing = True
        if self._restart is not None:
            self._restart.cancel()
        self._drop_pipe()
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._gone.wait()
        except TimeoutError:
            self._transport.kill()
        self._transport.close()
        self._transport = None

    def _tell(self, line: bytes) -> None:
        if self._pipe is None:
            return  # it is being started again, and is told all groups then
        try:
            os.write(self._pipe, line)
        except BlockingIOError:  # it has not read for thousands of lines: another one will
            if self._transport is not None:
                self._transport.kill()
        except BrokenPipeError:
            pass  # it died, which `_died` is about to hear

    def _drop_pipe(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _died(self) -> None:
        self._gone.set()
        if self._pipe is None:
            return  # on purpose, or `start` is about to notice
        self._drop_pipe()
        if not self._closing:
            self._restart = asyncio.get_running_loop().create_task(self._start_again())

    async def _start_again(self) -> None:
        logger.warning("the guard process ended and is started again")
        while True:
            await asyncio.sleep(self._delay_s)
            self._delay_s = min(self._delay_s * 2 + 0.1, _MAX_DELAY_S)
            try:
                await self.start()
            except OSError as error:
                logger.warning("the guard process cannot be started: %s", error)
            else:
                return


class _Exit(asyncio.SubprocessProtocol):
    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard

    def process_exited(self) -> None:
        self._heard()
