"""`python -m bench.traced_daemon SOCKET ... pointsman serve ...`: the daemon, with a recorder of its function calls.

A control socket switches the recorder: `start` empties it and switches it on, `stop` switches it off and sends what it
has. The daemon itself runs as usual, in this process.

A task that was already running when the recorder was switched on (the HTTP server's tick, for example) is not part of
the call: what it does while the call is under way is left out.
"""

from __future__ import annotations

import dis
import inspect
import socket
import sys
import threading
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

import pointsman

PACKAGE = str(Path(pointsman.__file__).parent) + "/"


class Called(msgspec.Struct, frozen=True):
    """One function, and how many frames of ours were on the stack when it was called, its own among them."""

    file: str
    function: str
    depth: int


class Recorder:
    """Keeps every function of the package that is called while it is on, in the order of the first calls."""

    def __init__(self) -> None:
        self._on = False
        self._depths: dict[CodeType, int] = {}
        self._started: set[int] = set()  # ids of the frames that were entered since then

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._on or event != "call" or not _is_ours(frame.f_code):
            return
        if frame.f_lasti <= _entry(frame.f_code):
            self._started.add(id(frame))
        stack = _our_frames(frame)
        if all(id(each) in self._started for each in stack if each.f_code.co_flags & inspect.CO_COROUTINE):
            self._depths[frame.f_code] = max(len(stack), self._depths.get(frame.f_code, 0))

    def start(self) -> None:
        self._depths = {}
        self._started = set()
        self._on = True

    def stop(self) -> list[Called]:
        self._on = False
        return [
            Called(code.co_filename.removeprefix(PACKAGE), code.co_qualname, depth)
            for code, depth in self._depths.items()
        ]


def _is_ours(code: CodeType) -> bool:
    """A comprehension counts as part of its function, as newer versions of Python run it."""
    named = not code.co_name.startswith("<") or code.co_name == "<lambda>"
    return named and code.co_filename.startswith(PACKAGE)


@cache
def _entry(code: CodeType) -> int:
    """Where a function begins; a coroutine that is resumed continues behind it."""
    return next(step.offset for step in dis.get_instructions(code) if step.opname == "RESUME")


def _our_frames(frame: FrameType) -> list[FrameType]:
    """The frames of ours on the stack, innermost first."""
    frames = []
    above: FrameType | None = frame
    while above is not None:
        if _is_ours(above.f_code):
            frames.append(above)
        above = above.f_back
    return frames


def _serve_control(listener: socket.socket, recorder: Recorder) -> None:
    connection, _ = listener.accept()
    with connection, connection.makefile("rwb") as stream:
        for line in stream:
            if line == b"start\n":
                recorder.start()
                answer: list[Called] = []
            else:
                answer = recorder.stop()
            stream.write(msgspec.json.encode(answer) + b"\n")
            stream.flush()


def main() -> None:
    path, command = sys.argv[1], sys.argv[2:]
    recorder = Recorder()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    threading.Thread(target=_serve_control, args=(listener, recorder), daemon=True).start()
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
    from pointsman.router.cli.main import main as pointsman_main

    sys.argv = command[command.index("pointsman") :]
    pointsman_main()


if __name__ == "__main__":
    main()
