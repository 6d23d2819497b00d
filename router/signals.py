"""Signals are our own: uvicorn re-raises SIGTERM and dies of SIGHUP."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


@contextmanager
def handled(stop: asyncio.Event, reload: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`, and a second one ends the process at once; SIGHUP calls `reload`."""
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        if stop.is_set():
            logger.warning("second signal: ending at once")
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)
