"""Starts children: with a small environment, in a session of their own, known to the guard from their first moment."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.downstream.stderr_log import harmless
from pointsman.router.downstream.stdio.child import USUAL_GRACE, Child, ChildEvents, StopGrace, SystemChild
from pointsman.router.downstream.stdio.guard import Guard

_INHERITED = frozenset({"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"})


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. Never a shell line."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    cwd: Path | None = None

    @property
    def name(self) -> str:
        """Without its folder: reasons reach clients, who need not know this machine's paths."""
        return harmless(os.path.basename(self.argv[0]))


class ProcessStarter(Protocol):
    async def __call__(self, command: Command, events: ChildEvents) -> Child:
        """Raises ConnectionLostError with a sentence that names the command. Cancelling it leaves no process behind."""
        ...


class SystemProcesses:
    """The real `ProcessStarter`."""

    def __init__(
        self, guard: Guard | None, grace: StopGrace = USUAL_GRACE, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._guard = guard
        self._grace = grace
        self._environment = environment

    async def __call__(self, command: Command, events: ChildEvents) -> Child:
        env = child_environment(self._environment, command.env)
        if self._guard is not None:
            name, value = self._guard.mark
            env[name] = value
        try:
            process = _start(command, env)
        except (OSError, ValueError) as error:
            raise ConnectionLostError(_why_not_started(command, error)) from None
        child = SystemChild(process, events, self._guard, self._grace)
        opening = asyncio.ensure_future(child.open())
        try:
            await asyncio.shield(opening)  # half-joined pipes could not be closed cleanly
        except OSError as error:  # out of handles, say
            child.kill()
            raise ConnectionLostError(_why_not_started(command, error)) from None
        except BaseException:
            child.kill()
            await asyncio.wait([opening])
            raise
        return child


def _start(command: Command, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Not by the event loop: uvloop's children inherit handles, and asyncio reports a child only some turns later."""
    return subprocess.Popen(  # noqa: S603 - a list of arguments from the operator's own configuration
        command.argv,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=command.cwd,
        start_new_session=True,
    )


def child_environment(ours: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """What a program needs to run at all, and what its entry says. No secret of ours is among it."""
    env = {name: value for name, value in ours.items() if name in _INHERITED or name.startswith("LC_")}
    env.update(configured)
    return env


def _why_not_started(command: Command, error: OSError | ValueError) -> str:
    if command.cwd is not None and not command.cwd.is_dir():
        return f"`{command.name}` cannot be started: its `cwd` is not a folder"
    if isinstance(error, FileNotFoundError):
        hint = "Its arguments go into `args`" if " " in command.name.strip() else "Install it, or correct `command`"
        return f"`{command.name}` cannot be started: there is no such program. {hint}"
    if isinstance(error, PermissionError):
        return f"`{command.name}` cannot be started: it is not executable"
    if isinstance(error, ValueError):
        return f"`{command.name}` cannot be started: its arguments or environment hold a NUL character"
    return f"`{command.name}` cannot be started: {os.strerror(error.errno) if error.errno else 'the system refused'}"
