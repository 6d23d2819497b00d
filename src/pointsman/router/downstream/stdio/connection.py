"""A server as a child process: one JSON-RPC message a line, in and out."""

from __future__ import annotations

from asyncio import Future, Task, TimerHandle, get_running_loop
from collections import deque

from pointsman.config.model import Limits
from pointsman.core.model import Json
from pointsman.router.downstream.connection import BudgetExceededError, Call, ConnectionLostError, Introduction, Noticed
from pointsman.router.downstream.stderr_log import StderrLog
from pointsman.router.downstream.stdio.child import Child, Command, ProcessStarter
from pointsman.router.downstream.stdio.lines import Line, LineAssembler
from pointsman.router.downstream.talk.decoding import HEAD_BYTES, OFF_LOOP_BYTES, id_of_undecoded
from pointsman.router.downstream.talk.handshake import WantedEra, shake_hands
from pointsman.router.downstream.talk.multiplexer import Multiplexer
from pointsman.router.downstream.talk.question_routing import QuestionRouter
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.downstream.talk.unsolicited import FLOODED
from pointsman.router.serving.in_flight import LARGE_BYTES, LEASE_S, AnswerMemory, Lease, unshared

PROBE_S = 5.0
_BATCH = 64  # messages taken in one go, before others get their turn on the loop


async def connect_stdio(
    command: Command,
    *,
    starter: ProcessStarter,
    era: WantedEra,
    limits: Limits,
    noticed: Noticed,
    probe_s: float = PROBE_S,
    stderr: StderrLog | None = None,
    record: ServerRecord | None = None,
    memory: AnswerMemory | None = None,
) -> StdioConnection:
    """Start the child and shake hands. The total time is the caller's to limit.

    `stderr` is the server's log, `record` what it is known to do and `memory` what its large answers may take of the
    daemon's; all outlive its children.

    Raises:
        ConnectionLostError: with the reason. Nothing is left behind then, nor after cancellation.
    """
    connection = StdioConnection(limits, noticed, stderr or StderrLog(), record or ServerRecord(), memory)
    child = await starter(command, connection)
    try:
        connection.attach(child)
        connection.introduced(await shake_hands(connection.mux, era, probe_s))
    except BaseException:
        child.kill()
        raise
    return connection


class StdioConnection:
    """As `Connection` has it; hears of its child as `ChildEvents`."""

    def __init__(
        self,
        limits: Limits,
        noticed: Noticed,
        stderr: StderrLog,
        record: ServerRecord,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.stderr = stderr
        self._memory = memory or unshared(limits.in_flight_bytes)
        self._lease: Future[Lease] | None = None  # of a large line; not done: it waits for room
        self._lease_clock: TimerHandle | None = None
        self.mux = Multiplexer(self._send, limits, noticed, QuestionRouter(record, mixed=True))
        self._unsent_limit = limits.result_bytes
        self._lines = LineAssembler(limits.result_bytes, self._too_long)
        self._backlog: deque[Line] = deque()  # at most what one read brought: reading stands still while it is filled
        self._decoding: Task[None] | None = None
        self._paused = False  # something waits: a large line that is being decoded, or a timer
        self._last_reason: str | None = None
        self._child: Child | None = None
        self._introduction: Introduction | None = None

    def attach(self, child: Child) -> None:
        self._child = child

    def introduced(self, introduction: Introduction) -> None:
        self._introduction = self.mux.introduction = introduction

    # --- Connection

    @property
    def introduction(self) -> Introduction:
        assert self._introduction is not None
        return self._introduction

    async def request(self, call: Call) -> Json:
        return await self.mux.carry(call)

    async def ended(self) -> str:
        return await self.mux.ended()

    async def close(self) -> None:
        self.mux.lost("the connection was closed")
        self._backlog.clear()
        self._release()
        if self._child is not None:
            await self._child.stop()

    def _send(self, data: bytes, number: int | None) -> None:
        child = self._child
        if child is None:
            raise ConnectionLostError("it is not running")
        child.write(data + b"\n")
        if child.unsent > self._unsent_limit:
            reason = f"it does not read its input: more than {self._unsent_limit} bytes wait for it"
            self._give_up(reason)
            raise ConnectionLostError(reason)

    def _give_up(self, reason: str) -> None:
        self._backlog.clear()
        self._release()
        self.mux.lost(reason)
        if self._child is not None:
            self._child.kill()

    # --- ChildEvents

    def said(self, data: bytes) -> None:
        lines = self._lines.feed(data)
        if len(lines) == 1 and not self._paused and len(lines[0]) <= OFF_LOOP_BYTES:
            self.mux.received(lines[0])  # by far the most frequent case: one answer, nothing waiting
        else:
            self._backlog.extend(lines)
        if self._lines.discarding:
            self.mux.stray.charge(len(data), 0)
        if not self._paused and (self._backlog or self.mux.stray.breather()):
            self._work_off()
        if self._lease is not None or self._lines.held > LARGE_BYTES:
            self._settle_lease()

    def gone(self, reason: str) -> None:
        self._last_reason = reason
        if self._decoding is None:
            self._finish(reason)

    def _finish(self, reason: str) -> None:
        while self._backlog:  # what it said before it died still counts
            self.mux.received(self._backlog.popleft())
        self._release()
        self.mux.lost(reason)

    # --- lines that wait

    def _work_off(self) -> None:
        """Take up to a batch; then rest, if there is more or if the server says too much that no call explains."""
        for _ in range(_BATCH):
            if not self._backlog:
                break
            line = self._backlog.popleft()
            if len(line) > OFF_LOOP_BYTES:
                self._start_decoding(line)
                return
            self.mux.received(line)
        if self.mux.stray.hopeless:
            self._give_up(FLOODED)
            return
        pause_s = self.mux.stray.breather()
        if self._backlog or pause_s:
            self._pause()
            get_running_loop().call_later(pause_s, self._work_off)
            return
        if self._lease is not None:
            self._settle_lease()
        if self._paused and (self._lease is None or self._lease.done()):
            self._paused = False
            if self._child is not None:
                self._child.resume()

    def _start_decoding(self, line: Line) -> None:
        self._pause()
        self._decoding = get_running_loop().create_task(self.mux.received_large(line))
        self._decoding.add_done_callback(self._decoded)

    def _decoded(self, task: Task[None]) -> None:
        self._decoding = None
        if self._last_reason is None:
            self._work_off()
        else:
            self._finish(self._last_reason)

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            if self._child is not None:
                self._child.pause()

    # --- the lease of a large line: from its first bytes until it is decoded; without it, reading stands still

    def _settle_lease(self) -> None:
        if self._lines.held <= LARGE_BYTES:
            if not self._backlog and self._decoding is None:
                self._release()
        elif self._lease is None:
            self._lease = self._memory.request(self._unsent_limit)
            if self._lease.done():
                self._lease_clock = get_running_loop().call_later(LEASE_S, self._unfinished)
            else:
                self._pause()
                self._lease.add_done_callback(self._granted)

    def _granted(self, lease: Future[Lease]) -> None:
        if lease is not self._lease:
            return  # it was withdrawn
        self._lease_clock = get_running_loop().call_later(LEASE_S, self._unfinished)
        if self._decoding is None:
            self._work_off()

    def _unfinished(self) -> None:
        """The calls on this pipe have their own deadlines, but memory that others wait for must not be kept."""
        self._lease_clock = None
        if self._lines.held <= LARGE_BYTES:
            return  # it is whole and being decoded
        number = id_of_undecoded(self._lines.beginning(HEAD_BYTES), b"")
        if number is not None:
            self.mux.fail(number, BudgetExceededError(f"it did not finish a large answer within {LEASE_S:g} s"))
        self._lines.discard()
        self._release()

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._memory.withdraw(lease)
        if self._lease_clock is not None:
            self._lease_clock.cancel()
            self._lease_clock = None

    def _too_long(self, head: bytes, tail: bytes) -> None:
        number = id_of_undecoded(head, tail)
        if number is not None or tail:
            self.mux.too_large(number)
