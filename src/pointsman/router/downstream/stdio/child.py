"""Child processes: started in a session of their own, read all the time, and ended with their whole group."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.downstream.repeated_failures import times_text
from pointsman.router.downstream.stderr_log import StderrLog, sanitize
from pointsman.router.downstream.stdio.environment import child_environment, missing_program_hint
from pointsman.router.downstream.stdio.guard import Guard, when_exited
from pointsman.router.downstream.stdio.launch import (
    AS_CONFINED,
    FILTER_HANDLE,
    FREE,
    Confined,
    Launch,
    SandboxRefusedError,
)

logger = logging.getLogger(__name__)

_SIGNALLED = 128  # bubblewrap adds it to the signal that ended the server
_MAX_UNSEEN = 3  # arguments that the reason of an exit names
_LAST_WORDS_S = 0.25  # between a child's exit and the end of its pipes, or the other way round


class ChildEvents(Protocol):
    """What a child reports to its owner."""

    @property
    def stderr(self) -> StderrLog:
        """The log for its stderr; may hold what earlier children wrote."""
        ...

    def received(self, data: bytes) -> None:
        """It wrote `data` to stdout."""
        ...

    def last_words(self) -> str:
        """Why it ended without being asked to, in its own words, for the operator; kept in `stderr`, too."""
        ...

    def exited(self, reason: str) -> None:
        """Called once: it has exited or closed its output, and all that it wrote has been handed in."""
        ...


class Child(Protocol):
    @property
    def pid(self) -> int: ...
    def write(self, data: bytes) -> int:
        """Write to stdin and return how many bytes the child has not taken yet. Never waits."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    async def stop(self) -> None:
        """End it with its whole group: close stdin, then SIGTERM, then SIGKILL. Idempotent."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to its group, without waiting."""
        ...


@dataclass(frozen=True, slots=True)
class StopGrace:
    """How long to wait for a child after closing its stdin, after SIGTERM, and after SIGKILL."""

    stdin_s: float = 1.0
    term_s: float = 1.0
    kill_s: float = 2.0


USUAL_GRACE = StopGrace()


class SystemChild:
    """One child process, leader of its own session and group.

    If it is `wrapped`, the leader is bubblewrap, whose end is the immediate end of all in its sandbox.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        events: ChildEvents,
        guard: Guard | None,
        grace: StopGrace,
        launch: Launch,
    ) -> None:
        self._process = process
        self._launch = launch
        self._events = events
        self._guard = guard
        self._grace = grace
        self._awaited = {"exit", "stdout", "stderr"}  # events before it is over
        self._last_words: asyncio.TimerHandle | None = None
        self._exited = asyncio.Event()
        self._reported = False
        self._stopping: asyncio.Task[None] | None = None
        self._pipes: list[asyncio.BaseTransport] = []
        self._unwritten: list[bytes] = []  # written at the end of this round of the event loop
        self._unwritten_bytes = 0
        if guard is not None:
            guard.watch(process.pid)
        when_exited(process, self._on_exit)

    async def open(self) -> None:
        """Connect its pipes to the event loop."""
        loop = self._loop = asyncio.get_running_loop()
        self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._process.stdin)
        self._pipes.append(self._stdin)
        received, ended = self._events.received, self._on_end_of
        self._stdout, _ = await loop.connect_read_pipe(lambda: _Pipe("stdout", received, ended), self._process.stdout)
        self._pipes.append(self._stdout)
        logged = self._events.stderr.feed
        stderr, _ = await loop.connect_read_pipe(lambda: _Pipe("stderr", logged, ended), self._process.stderr)
        self._pipes.append(stderr)

    # ------------------------------------------------------------------ what happens to it

    def _on_end_of(self, name: str) -> None:
        self._awaited.discard(name)
        if name == "stdout" or self._exited.is_set():
            self._ending()

    def _on_exit(self) -> None:
        # In this order: until the child is reaped, the kernel does not reuse the number of its group.
        self._signal(signal.SIGKILL)  # the rest of the group would keep the pipes open
        if self._guard is not None:
            self._guard.forget(self.pid)
        self._process.poll()
        self._exited.set()
        if self._launch.temporary is not None:
            asyncio.get_running_loop().run_in_executor(None, _delete_unused, self._launch.temporary)
        self._on_end_of("exit")

    # ------------------------------------------------------------------ the end

    def _ending(self) -> None:
        if not self._awaited:
            self._finish()
        elif self._last_words is None:
            self._last_words = asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._finish)

    def _finish(self) -> None:
        if self._reported:
            return
        self._reported = True
        asked_to = self._stopping is not None
        if self._last_words is not None:
            self._last_words.cancel()
        if self._exited.is_set():
            self._close_pipes()  # a process that left the group may still hold the other ends
        else:
            self._start_stop()  # it closed its output and runs on, of no further use
        what = self._what_happened()
        if not asked_to:
            self._log_cause(what)
        self._events.exited(what)

    def _what_happened(self) -> str:
        code = self._process.returncode
        if code is None:
            return "it closed its output"
        if self._launch.wrapped and code > _SIGNALLED:
            code = _SIGNALLED - code
        if code < 0:
            return f"it was ended by {_signal_name(-code)}"
        unseen = "".join(f"; {each}" for each in self._launch.unseen[:_MAX_UNSEEN]) if code else ""
        return f"it exited with code {code}{unseen}"

    def _log_cause(self, what: str) -> None:
        """For the operator only: the reason reaches clients, and stderr may hold anything, including secrets."""
        log = self._events.stderr
        cause = self._events.last_words()
        if cause and (times := log.failures.count(f"{what} {cause}")):
            words = cause if cause.startswith("it wrote ") else f"it wrote: {cause}"
            logger.warning("server %s: %s; %s%s", log.name, what, words, times_text(times))

    # ------------------------------------------------------------------ for its owner

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, data: bytes) -> int:
        """Write the data of one round of the event loop at once: a system call costs more than the rest of a write."""
        if self._stdin.is_closing():
            return 0
        if not self._unwritten:
            self._loop.call_soon(self._flush)
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)
        return self._unwritten_bytes + self._stdin.get_write_buffer_size()

    def _flush(self) -> None:
        data, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        if data and not self._stdin.is_closing():
            self._stdin.write(data[0] if len(data) == 1 else b"".join(data))

    def pause(self) -> None:
        if not self._stdout.is_closing():
            self._stdout.pause_reading()

    def resume(self) -> None:
        if not self._stdout.is_closing():
            self._stdout.resume_reading()

    async def stop(self) -> None:
        await asyncio.shield(self._start_stop())

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _start_stop(self) -> asyncio.Task[None]:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        return self._stopping

    async def _stop(self) -> None:
        if self._exited.is_set():
            return
        self._flush()
        if self._stdin.get_write_buffer_size():
            self._stdin.abort()  # closing would wait for a child that does not read
        else:
            self._stdin.close()
        if not await self._exits_within(self._grace.stdin_s):
            self._signal(signal.SIGTERM)
            if not await self._exits_within(self._grace.term_s):
                self._signal(signal.SIGKILL)
                await self._exits_within(self._grace.kill_s)
        self._close_pipes()

    async def _exits_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group. Its number is ours until the leader has been reaped."""
        if not self._exited.is_set():
            with suppress(ProcessLookupError, PermissionError):
                if self._launch.wrapped and number == signal.SIGTERM:
                    for member in _members(self.pid):
                        os.kill(member, number)
                else:
                    os.killpg(self.pid, number)

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()


class _Pipe(asyncio.Protocol):
    def __init__(self, name: str, take: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._name = name
        self._ended = ended
        self.data_received = take  # type: ignore[assignment,method-assign]  # called for each message, so without a step between

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(self._name)


def _members(group: int) -> list[int]:
    """The processes of a group without its leader."""
    members = []
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{int(name)}/stat").read_bytes().rpartition(b")")[2].split()
            if int(stat[2]) == group != int(name):
                members.append(int(name))
    return members


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, never a shell line."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    cwd: Path | None = None
    inherit: tuple[str, ...] = ()  # names of our variables, in addition to the usual ones
    confined: Confined = FREE

    @property
    def name(self) -> str:
        """The program without its folder: reasons reach clients, and must not show this machine's paths."""
        return sanitize(os.path.basename(self.argv[0]))


class ProcessStarter(Protocol):
    async def __call__(self, command: Command, events: ChildEvents) -> Child:
        """Start a child. Raises ConnectionLostError with a reason that names the command. Safe to cancel."""
        ...


class SystemProcesses:
    """The real `ProcessStarter`."""

    def __init__(
        self,
        guard: Guard | None,
        grace: StopGrace = USUAL_GRACE,
        environment: Mapping[str, str] = os.environ,
        protected: Sequence[Path] = (),  # the state folder and what else no confined server may reach
    ) -> None:
        self._guard = guard
        self._grace = grace
        self._environment = environment
        self._protected = tuple(protected)

    async def __call__(self, command: Command, events: ChildEvents) -> Child:
        env = child_environment(self._environment, command.env, command.argv[0], command.inherit)
        if self._guard is not None:
            name, value = self._guard.mark
            env[name] = value
        try:
            process, launch = await _start(command, env, self._protected)
        except SandboxRefusedError as error:
            events.stderr.forget_last_run()
            raise ConnectionLostError(f"`{command.name}` cannot be started {AS_CONFINED}: {error}") from None
        except (OSError, ValueError) as error:
            events.stderr.forget_last_run()  # a program that was not started wrote nothing
            raise ConnectionLostError(_why_not_started(command, error)) from None
        child = SystemChild(process, events, self._guard, self._grace, launch)
        opening = asyncio.ensure_future(child.open())
        try:
            await asyncio.shield(opening)  # half-connected pipes could not be closed cleanly
        except OSError as error:  # out of file descriptors, for example
            child.kill()
            raise ConnectionLostError(_why_not_started(command, error)) from None
        except BaseException:
            child.kill()
            await asyncio.wait([opening])
            raise
        return child


_Started = tuple[subprocess.Popen[bytes], Launch]


async def _start(command: Command, env: dict[str, str], protected: tuple[Path, ...]) -> _Started:
    """Start on a thread: the kernel suspends it until the child executes its program, long on a busy machine."""
    starting = asyncio.get_running_loop().run_in_executor(None, _popen, command, env, protected)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_discard)
        raise


def _discard(started: asyncio.Future[_Started]) -> None:
    """End a child that has no waiter left."""
    if started.cancelled() or started.exception() is not None:
        return
    process, _ = started.result()
    when_exited(process, lambda: _reap(process))
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.poll()


def _popen(command: Command, env: dict[str, str], protected: tuple[Path, ...]) -> _Started:
    """Not by the event loop: uvloop's children inherit descriptors, and asyncio reports an exit too late."""
    launch = Launch(command.argv, env, command.cwd)
    if command.confined:
        from pointsman.router.downstream.stdio.sandbox import plan, this_host  # imported on demand

        launch = plan(command.argv, env, command.cwd, command.confined, this_host(), protected)
    if launch.temporary is not None:
        _delete_unused(launch.temporary)
    if launch.downloads is not None:
        launch.downloads.mkdir(mode=0o700, parents=True, exist_ok=True)
    handles: tuple[int, ...] = ()
    if launch.filter is not None:
        handles = (_in_memory(launch.filter),)
        argv = tuple(str(handles[0]) if each == FILTER_HANDLE else each for each in launch.argv)
        launch = replace(launch, argv=argv)
    try:
        process = subprocess.Popen(  # noqa: S603 - a list of arguments from the operator's own configuration
            launch.argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=launch.env,
            cwd=launch.cwd,
            start_new_session=True,
            pass_fds=handles,
        )
    finally:
        for handle in handles:
            os.close(handle)
    return process, launch


def _delete_unused(parent: str) -> None:
    from pointsman.router.downstream.stdio.sandbox import delete_unused

    delete_unused(parent)


def _in_memory(data: bytes) -> int:
    """A file handle from which a program can read the data."""
    handle = os.memfd_create("filter")
    os.write(handle, data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _why_not_started(command: Command, error: OSError | ValueError) -> str:
    if command.cwd is not None and not command.cwd.is_dir():
        return f"`{command.name}` cannot be started: its `cwd` is not a folder"
    if isinstance(error, FileNotFoundError):
        hint = "Its arguments go into `args`" if " " in command.name.strip() else "Install it, or correct `command`"
        hint = missing_program_hint(command.name, os.environ) or hint
        return f"`{command.name}` cannot be started: there is no such program. {hint}"
    if isinstance(error, PermissionError):
        return f"`{command.name}` cannot be started: it is not executable"
    if isinstance(error, ValueError):
        return f"`{command.name}` cannot be started: its arguments or environment hold a NUL character"
    return f"`{command.name}` cannot be started: {os.strerror(error.errno) if error.errno else 'the system refused'}"
