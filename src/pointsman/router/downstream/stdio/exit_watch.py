"""Hears of a child's exit before anybody has collected it, so that its number cannot belong to another process yet."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress


def when_exited(process: subprocess.Popen[bytes], heard: Callable[[], None]) -> None:
    """Call `heard` on the loop, once, when `process` is over. Collecting it (`process.poll()`) is up to `heard`."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, or an old one
        threading.Thread(target=_wait, args=(process, loop, heard), daemon=True).start()
        return

    def ready() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        heard()

    loop.add_reader(handle, ready)


def _wait(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, heard: Callable[[], None]) -> None:
    if hasattr(os, "waitid"):
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()
    with suppress(RuntimeError):  # the loop is closed: nobody wants to hear it any more
        loop.call_soon_threadsafe(heard)
