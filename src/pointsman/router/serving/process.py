"""What applies to the whole process: the event loop, signal handlers, garbage collection, the thresholds of malloc."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

logger = logging.getLogger(__name__)

# From malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MAPPED_BYTES = 384 << 10  # above the 256 KiB that a read of a socket or pipe allocates
_TRIM_BYTES = 4 << 20  # free at the end of the heap before it shrinks: fewer system calls than the default of 128 KiB
_ARENAS = 2
# Few collections, because reference counting frees what a call allocates: the default of 700 is reached too often when
# many calls are under way. The older generations follow soon, so that closed sessions and replaced servers are freed.
_GARBAGE_THRESHOLDS = (5_000, 2, 2)
YOUNG, OLDEST = 1, 2  # generations of garbage


def run_event_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end on uvloop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM and SIGINT; a second signal ends the process at once, also after the block.

    Replaces uvicorn's handlers, which re-raise SIGTERM and do not handle SIGHUP.
    """
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        if stop.is_set():
            logger.warning("second signal: exiting immediately")
            os._exit(128 + number)
        stop.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            if stop.is_set():  # by a signal or by the end of the daemon: either way little is left to do
                signal.signal(number, _exit_at_once)


def _exit_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


@contextmanager
def reload_on_sighup(reload: Callable[[], None]) -> Iterator[None]:
    """Call `reload` on SIGHUP."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def return_large_blocks() -> None:
    """Make glibc's malloc return large blocks to the system as soon as they are freed. No effect on other mallocs.

    By default glibc raises the threshold to the largest block that was ever freed, and keeps such blocks for reuse:
    after sixty concurrent answers of 8 MiB the process stays hundreds of megabytes larger.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_ARENA_MAX, _ARENAS)


def collect_garbage_seldom() -> None:
    """Set the thresholds for a daemon, and exempt what its start has made."""
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    exempt_from_collection()


def exempt_from_collection(generation: int = OLDEST) -> None:
    """Exclude what exists now, above all imported modules, from all further collections of garbage.

    Garbage of older generations than this one is excluded, too, and stays.
    """
    gc.collect(generation)
    gc.freeze()  # without this every full collection traverses all modules, for 30 ms
    gc.collect()  # of nothing: a full collection waits until a quarter of what survived the last one has been added
