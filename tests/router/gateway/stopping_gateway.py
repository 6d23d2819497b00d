"""Lets a test stop a gateway at a point of the gate, to kill it there.

Run first in the gateway's process (`RUN_FIRST` of tests/fork_server.py). A call that reaches the point whose name is in
the file `armed` of the folder that FOLDER names waits there for ever, and adds a line to the file `reached`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pointsman.router.gateway import execute
from pointsman.router.gateway.confirmation import gate
from pointsman.router.gateway.confirmation.approvals import Approvals

ARMED, REACHED = "armed", "reached"
FOLDER = "STOPPING_GATEWAY_FOLDER"


class Stops:
    """Wraps methods of the store, which run in threads, and functions of the gate, which run in the loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reaches(self, point: str) -> bool:
        armed = self._folder / ARMED
        if not armed.exists() or armed.read_text() != point:
            return False
        with (self._folder / REACHED).open("a") as file:
            file.write(f"{point}\n")
        return True

    def around(self, name: str, is_it: Callable[[Any], bool] = lambda result: True) -> None:
        """Points before and after a method of the store; the one after it only if `is_it` holds for its result."""
        original = getattr(Approvals, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **more: Any) -> Any:
            if self.reaches(f"before {name}"):
                threading.Event().wait()
            result = original(*args, **more)
            if is_it(result) and self.reaches(f"after {name}"):
                threading.Event().wait()
            return result

        setattr(Approvals, name, wrapped)

    def around_call(self, module: Any, name: str) -> None:
        original = getattr(module, name)

        @functools.wraps(original)
        async def wrapped(*args: Any, **more: Any) -> Any:
            if self.reaches(f"before {name}"):
                await asyncio.Event().wait()
            result = await original(*args, **more)
            if self.reaches(f"after {name}"):
                await asyncio.Event().wait()
            return result

        setattr(module, name, wrapped)


def install(folder: Path) -> None:
    stops = Stops(folder)
    for name in ("add", "answer", "always", "withdraw", "open_round"):
        stops.around(name)
    stops.around("look", lambda looked: looked.answer == "once")
    stops.around("continue_round", bool)
    stops.around_call(gate, "_ask")
    stops.around_call(execute, "send_to_server")


if FOLDER in os.environ:
    install(Path(os.environ[FOLDER]))
