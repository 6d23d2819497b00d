"""Waiting for what another thread does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

MOST_S = 60.0  # a bound against hanging


def wait_until(condition: Callable[[], bool]) -> None:
    end = monotonic() + MOST_S
    while not condition():
        assert monotonic() < end, "it did not happen"
        threading.Event().wait(0.01)
