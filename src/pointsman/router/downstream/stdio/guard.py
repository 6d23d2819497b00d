"""The daemon's end of the guard process: starts it, reports every process group to it, and restarts it if it dies."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pointsman.router.serving.tasks import Backoff, TaskSet

PROGRAM = Path(__file__).with_name("guard_program.py")
_CLOSE_S = 3.0
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 10.0

logger = logging.getLogger(__name__)


class Guard:
    """The guard of the daemon. Without it, children that ignore the end of their stdin would outlive a kill -9."""

    def __init__(self) -> None:
        self.mark = ("MCP_GATEWAY_RUN", secrets.token_hex(8))  # in the environment of every child
        self.groups: set[int] = set()  # process groups that are alive
        self._pipe: int | None = None  # written unbuffered: a buffer would be lost with the daemon
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
                start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
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
            self._write(b"+%d\n" % group)

    def watch(self, group: int) -> None:
        self.groups.add(group)
        self._write(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        """The group has ended. The kernel may reuse its number, so the guard must not signal it."""
        if group in self.groups:
            self.groups.discard(group)
            self._write(b"-%d\n" % group)

    async def close(self) -> None:
        """End the guard, which first ends all groups that it still knows."""
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

    def _write(self, line: bytes) -> None:
        if self._pipe is None:
            return  # it is being restarted, and gets all groups then
        try:
            os.write(self._pipe, line)
        except BlockingIOError:  # it has not read for thousands of lines: replace it
            if self._process is not None:
                self._process.kill()
        except BrokenPipeError:
            pass  # it died: `_died` is about to be called

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
            self._tasks.start("guard restart", self._restart)

    async def _restart(self) -> None:
        logger.warning("the guard process ended; restarting it")
        while True:
            await self._backoff.wait()
            try:
                await self.start()
            except OSError as error:
                logger.warning("could not start the guard process: %s", error)
            else:
                return


def when_exited(process: subprocess.Popen[bytes], on_exit: Callable[[], None]) -> None:
    """Call `on_exit` on the loop, once, when `process` has exited.

    `on_exit` reaps it (`process.poll()`): until then, the kernel does not reuse its number.
    """
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, or an old kernel
        threading.Thread(target=_wait, args=(process, loop, on_exit), daemon=True).start()
        return

    def ready() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        on_exit()

    loop.add_reader(handle, ready)


def _wait(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]) -> None:
    if hasattr(os, "waitid"):
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(on_exit)
