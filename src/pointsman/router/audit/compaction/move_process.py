"""The daemon's end of the process that moves a long journal: a thread would take turns with the event loop."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pointsman.router.audit.compaction.move_program import MOVED

IDLE_TIME_S = 2.0  # how long a move uses only the time that the machine has left; then it has a low priority
ANSWER_S = 60.0
_PROGRAM = "pointsman.router.audit.compaction.move_program"

logger = logging.getLogger(__name__)


class MoveProcess:
    """Starts with the first journal that is long, and exits when idle. Used from one thread, except `interrupt`."""

    def __init__(
        self,
        state_dir: Path,
        environment: Mapping[str, str] | None = None,
        *,
        idle_time_s: float = IDLE_TIME_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`environment`: names the database, if it is not that of the state folder."""
        self._state_dir = state_dir
        self._environment = environment
        self._idle_time_s = idle_time_s
        self._answer_s = answer_s
        self._process: subprocess.Popen[bytes] | None = None
        self._interrupted = False
        self.added = 0  # rows that it has committed

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def move(self, position: tuple[str, int]) -> None:
        """Move the segments before `position`. Never raises: whatever goes wrong, the journal keeps the rest."""
        try:
            self.reap()
            if self._process is None:
                self._process = self._start()
            if self._interrupted or not self._ask(self._process, position):  # the former: it was started too late
                self.close()
        except OSError as error:
            if not self._interrupted:
                logger.warning("the process that moves audit rows failed; this one moves them: %s", error)
            self.close()

    def reap(self) -> None:
        """Release what is left of a process that has exited."""
        if self._process is not None and self._process.poll() is not None:
            self.close()

    def interrupt(self) -> None:
        """End the process. A `move` that waits for it in another thread returns."""
        self._interrupted = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):
                process.communicate()  # closes the pipes and reaps it

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own program
            (
                sys.executable,
                "-P",
                "-m",
                "pointsman.router.audit.compaction.move_program",
                str(self._state_dir.absolute()),
            ),
            bufsize=0,
            env={**os.environ, **self._environment} if self._environment else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C does not reach it; in a session of its own, its niceness would not count
        )

    def _ask(self, process: subprocess.Popen[bytes], position: tuple[str, int]) -> bool:
        """Return whether it has moved them. Raises OSError."""
        assert process.stdin is not None
        assert process.stdout is not None
        _use_idle_time_only(process.pid, True)
        process.stdin.write("{} {}\n".format(*position).encode())
        waiting = select.poll()  # `select.select` fails with more than 1024 open files
        waiting.register(process.stdout, select.POLLIN)
        if not waiting.poll(self._idle_time_s * 1000):
            _use_idle_time_only(process.pid, False)
        answer = b"\n"
        while not answer.endswith(b"\n\n"):
            data = os.read(process.stdout.fileno(), 65_536) if waiting.poll(self._answer_s * 1000) else b""
            if not data:
                return False
            answer += data
        for line in filter(None, answer.decode(errors="replace").splitlines()):
            if line.startswith(MOVED):
                self.added += int(line.removeprefix(MOVED))
            else:
                logger.error("%s", line)
        return True


def _use_idle_time_only(pid: int, only: bool) -> None:
    """Raises OSError."""
    if sys.platform == "linux":
        os.sched_setscheduler(pid, os.SCHED_IDLE if only else os.SCHED_OTHER, os.sched_param(0))
