"""Children: started with a small environment in a session of their own, always read, and gone when they should be."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from pointsman.router.downstream.connection import ConnectionLost
from pointsman.router.downstream.guard import Guard
from pointsman.router.downstream.stderr_log import StderrLog

_INHERITED = frozenset({"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"})
_PATH_LIKE = re.compile(r"(?:/[^\s/:'\"]+)+/([^\s/:'\"]+)")
_LAST_WORDS_S = 0.25  # between a child's exit and the end of its pipes, or the other way round


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. Never a shell line."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    cwd: Path | None = None

    @property
    def name(self) -> str:
        """Without its folder: reasons reach clients, who need not know this machine's paths."""
        return os.path.basename(self.argv[0])


class ChildEvents(Protocol):
    """Who owns a child hears this of it."""

    def said(self, data: bytes) -> None: ...

    def gone(self, reason: str) -> None:
        """Once: it is dead or as good as dead, and all that it wrote has been handed in."""
        ...


class Child(Protocol):
    @property
    def pid(self) -> int: ...
    @property
    def stderr(self) -> StderrLog: ...
    @property
    def unsent(self) -> int:
        """Bytes written that the child has not taken."""
        ...

    def write(self, data: bytes) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    async def stop(self) -> None:
        """Ask it to go, then make it go, with all its group. Idempotent."""
        ...

    def kill(self) -> None:
        """The same at once and without waiting."""
        ...


class ProcessStarter(Protocol):
    async def __call__(self, command: Command, events: ChildEvents) -> Child:
        """Raises ConnectionLost with a sentence that names the command. Cancelling it leaves no process behind."""
        ...


@dataclass(frozen=True, slots=True)
class StopGrace:
    """How long a child is waited for: after its stdin was closed, and after SIGTERM. Then comes SIGKILL."""

    stdin_s: float = 1.0
    term_s: float = 1.0
    kill_s: float = 2.0


USUAL_GRACE = StopGrace()


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
        child = SystemChild(events, self._guard, self._grace)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: child, *command.argv, env=env, cwd=command.cwd, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise ConnectionLost(_why_not_started(command, error)) from None
        except BaseException:
            child.kill()
            raise
        return child


def child_environment(ours: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """What a program needs to run at all, and what its entry says. No secret of ours is among it."""
    env = {name: value for name, value in ours.items() if name in _INHERITED or name.startswith("LC_")}
    env.update(configured)
    return env


def _why_not_started(command: Command, error: OSError | ValueError) -> str:
    if command.cwd is not None and not command.cwd.is_dir():
        return f"cannot start `{command.name}`: its `cwd` is not a folder"
    if isinstance(error, FileNotFoundError):
        return f"cannot start `{command.name}`: there is no such program. Install it, or correct `command`"
    if isinstance(error, PermissionError):
        return f"cannot start `{command.name}`: it is not executable"
    if isinstance(error, ValueError):
        return f"cannot start `{command.name}`: an argument or variable holds a character that no program can be given"
    return f"cannot start `{command.name}`: {os.strerror(error.errno) if error.errno else 'the system refused'}"


class SystemChild(asyncio.SubprocessProtocol):
    """One child process, leader of its own session and group."""

    def __init__(self, events: ChildEvents, guard: Guard | None, grace: StopGrace) -> None:
        self._events = events
        self._guard = guard
        self._grace = grace
        self._stderr = StderrLog()
        self._open: set[str | int] = {"exit", 1, 2}  # what is still to come before it is over
        self._last_words: asyncio.TimerHandle | None = None
        self._exited = asyncio.Event()
        self._doomed = False
        self._told = False
        self._stopping: asyncio.Task[None] | None = None
        self._pid = 0
        self._transport: asyncio.SubprocessTransport | None = None

    # --- what the loop tells us

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Casts, because uvloop's transports fit these classes by shape only.
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._pid = self._transport.get_pid()
        if self._guard is not None:
            self._guard.watch(self._pid)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        self._stdout = cast(asyncio.ReadTransport, self._transport.get_pipe_transport(1))
        if self._doomed:
            self.kill()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._events.said(data)
        else:
            self._stderr.feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            return
        self._open.discard(fd)
        if fd == 1 or "exit" not in self._open:
            self._ending()

    def process_exited(self) -> None:
        self._signal(signal.SIGKILL)  # what is left of its group would hold the pipes, and be nobody's
        self._exited.set()
        if self._guard is not None:
            self._guard.forget(self._pid)
        self._open.discard("exit")
        self._ending()

    # --- the end

    def _ending(self) -> None:
        if not self._open:
            self._finish()
        elif self._last_words is None:
            self._last_words = asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._finish)

    def _finish(self) -> None:
        if self._told:
            return
        self._told = True
        if self._last_words is not None:
            self._last_words.cancel()
        if "exit" in self._open:
            self._start_stop()  # it closed its output and lives on, of no use to anybody
        elif self._transport is not None:
            self._transport.close()  # somebody who left the group may still hold the other end
        self._events.gone(self._reason())

    def _reason(self) -> str:
        code = self._transport.get_returncode() if self._transport is not None else None
        if code is None:
            what = "closed its output"
        elif code < 0:
            what = f"was ended by {_signal_name(-code)}"
        else:
            what = f"exited with code {code}"
        last = _PATH_LIKE.sub(r"…/\1", self._stderr.last_line()).rstrip(" .")
        return f"{what}: {last}" if last else what

    # --- what its owner wants

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def stderr(self) -> StderrLog:
        return self._stderr

    @property
    def unsent(self) -> int:
        return self._stdin.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        self._stdin.write(data)

    def pause(self) -> None:
        if not self._stdout.is_closing():
            self._stdout.pause_reading()

    def resume(self) -> None:
        if not self._stdout.is_closing():
            self._stdout.resume_reading()

    async def stop(self) -> None:
        await asyncio.shield(self._start_stop())

    def kill(self) -> None:
        self._doomed = True
        self._signal(signal.SIGKILL)

    def _start_stop(self) -> asyncio.Task[None]:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        return self._stopping

    async def _stop(self) -> None:
        if self._exited.is_set():
            return
        if self.unsent:
            self._stdin.abort()  # closing would wait for a child that does not read
        else:
            self._stdin.close()
        if not await self._exits_within(self._grace.stdin_s):
            self._signal(signal.SIGTERM)
            if not await self._exits_within(self._grace.term_s):
                self._signal(signal.SIGKILL)
                await self._exits_within(self._grace.kill_s)

    async def _exits_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group. Its number is ours as long as we have not heard of the leader's exit."""
        if self._pid and not self._exited.is_set():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
