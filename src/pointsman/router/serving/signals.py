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
def stopping(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`, and a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        if stop.is_set():
            logger.warning("second signal: ending at once")
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


@contextmanager
def reloading(reload: Callable[[], None]) -> Iterator[None]:
    """SIGHUP calls `reload`."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
