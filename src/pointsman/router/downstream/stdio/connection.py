"""A server as a child process: one JSON-RPC message a line, in and out."""

from __future__ import annotations

from asyncio import Future, Task, TimerHandle, get_running_loop
from collections import deque

from pointsman.config.model import Limits
from pointsman.core.lines import HEAD_BYTES, Line, LineAssembler, id_of_undecoded
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    ConnectionLostError,
    Introduction,
    OnNotification,
)
from pointsman.router.downstream.stderr_log import StderrLog
from pointsman.router.downstream.stdio.child import Child, Command, ProcessStarter
from pointsman.router.downstream.stdio.plain_output import PlainOutput
from pointsman.router.downstream.talk.decoding import OFF_LOOP_BYTES
from pointsman.router.downstream.talk.handshake import WantedEra, negotiate
from pointsman.router.downstream.talk.multiplexer import Multiplexer
from pointsman.router.downstream.talk.question_routing import QuestionRouter
from pointsman.router.downstream.talk.server_memory import ServerRecord
from pointsman.router.downstream.talk.server_messages import FLOODED
from pointsman.router.serving.in_flight import LARGE_BYTES, LEASE_S, AnswerMemory, Lease, unshared

PROBE_S = 5.0
LAST_WORDS_S = 5.0  # before the end of a server that ran: what it wrote earlier does not say why it ended
_BATCH = 64  # messages handled in one go, before other work gets its turn on the loop


async def connect_stdio(
    command: Command,
    *,
    starter: ProcessStarter,
    era: WantedEra,
    limits: Limits,
    on_notification: OnNotification,
    probe_s: float = PROBE_S,
    stderr: StderrLog | None = None,
    record: ServerRecord | None = None,
    memory: AnswerMemory | None = None,
    apps: bool = False,
) -> StdioConnection:
    """Start the child and negotiate the version. The caller limits the total time.

    `stderr` is the server's log, `record` what it was seen to do, and `memory` the budget for its large answers; all
    outlive its children. With `apps`, support for apps is declared.

    Raises:
        ConnectionLostError: with the reason. The child is gone then, also after a cancellation.
    """
    connection = StdioConnection(limits, on_notification, stderr or StderrLog(), record or ServerRecord(), memory)
    child = await starter(command, connection)
    try:
        connection.attach(child)
        connection.introduced(await negotiate(connection.mux, era, probe_s, apps=apps))
    except BaseException:
        connection.last_words()  # now, because its exit is noticed a moment later
        child.kill()
        raise
    return connection


class StdioConnection:
    """Fits `Connection`, and `ChildEvents` for its child."""

    def __init__(
        self,
        limits: Limits,
        on_notification: OnNotification,
        stderr: StderrLog,
        record: ServerRecord,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.stderr = stderr
        self._stderr_begin = stderr.total  # of this child
        self._plain_output = PlainOutput(stderr)
        self._memory = memory or unshared(limits.in_flight_bytes)
        self._lease: Future[Lease] | None = None  # of a large line; not done: it waits for memory
        self._lease_clock: TimerHandle | None = None
        router = QuestionRouter(record, shared_stream=True)
        self.mux = Multiplexer(self._send, limits, on_notification, router, self._plain_output.add)
        self.request = self.mux.request
        self.ended = self.mux.ended
        self._unsent_limit = limits.result_bytes
        self._lines = LineAssembler(limits.result_bytes, self._too_long)
        self._backlog: deque[Line] = deque()  # at most what one read brought: reading is paused while it is filled
        self._decoding: Task[None] | None = None
        self._paused = False  # a large line is being decoded, or a timer runs
        self._exit_reason: str | None = None
        self._child: Child | None = None
        self.introduction: Introduction
        self._introduced = False

    def attach(self, child: Child) -> None:
        self._child = child

    def introduced(self, introduction: Introduction) -> None:
        self.introduction = introduction
        self._introduced = True
        self.stderr.forget_last_run()
        self.mux.introduced(introduction)

    async def close(self) -> None:
        self.mux.lost("the connection was closed")
        self._backlog.clear()
        self._release()
        if self._child is not None:
            await self._child.stop()

    def _send(self, data: bytes, number: int | None) -> None:
        if self._child is None:
            raise ConnectionLostError("it is not running")
        if self._child.write(data + b"\n") > self._unsent_limit:
            reason = f"it does not read its input: more than {self._unsent_limit} bytes wait for it"
            self._give_up(reason)
            raise ConnectionLostError(reason)

    def _give_up(self, reason: str) -> None:
        self._backlog.clear()
        self._release()
        self.mux.lost(reason)
        if self._child is not None:
            self._child.kill()

    # ------------------------------------------------------------------ ChildEvents

    def received(self, data: bytes) -> None:
        lines = self._lines.feed(data)
        if len(lines) == 1 and not self._paused and len(lines[0]) <= OFF_LOOP_BYTES:
            self.mux.receive(lines[0])
            if lines[0] is data and self._lease is None and not self.mux.unsolicited.over:
                return  # by far the most frequent case: one whole line, and nothing else to do
        else:
            self._backlog.extend(lines)
        if self._lines.discarding:
            self.mux.unsolicited.charge(len(data), 0)
        if not self._paused and (self._backlog or self.mux.unsolicited.over):
            self._process_backlog()
        if self._lease is not None or self._lines.held > LARGE_BYTES:
            self._adjust_lease()

    def last_words(self) -> str:
        """Of a start that failed all that it wrote counts, of a server that ran only the last seconds."""
        log, begin = self.stderr, self._stderr_begin
        if self._introduced:
            begin = max(begin, log.total_before(LAST_WORDS_S))
            cause = log.cause(begin)
        else:
            parts = (self._plain_output.sentence(self._lines.beginning(HEAD_BYTES)), log.cause(begin))
            cause = "; ".join(filter(None, parts))
        log.run_ended(begin, cause)
        return cause

    def exited(self, reason: str) -> None:
        self._exit_reason = reason
        if self._decoding is None:
            self._finish(reason)

    def _finish(self, reason: str) -> None:
        while self._backlog:  # what it wrote before it exited still counts
            self.mux.receive(self._backlog.popleft())
        self._release()
        self.mux.lost(reason)

    # ------------------------------------------------------------------ lines that wait

    def _process_backlog(self) -> None:
        """Handle up to a batch; then pause, if there is more or if unsolicited messages exceed their rate."""
        for _ in range(_BATCH):
            if not self._backlog:
                break
            line = self._backlog.popleft()
            if len(line) > OFF_LOOP_BYTES:
                self._start_decoding(line)
                return
            self.mux.receive(line)
        if self.mux.unsolicited.flooding:
            self._give_up(FLOODED)
            return
        pause_s = self.mux.unsolicited.pause_s()
        if self._backlog or pause_s:
            self._pause()
            get_running_loop().call_later(pause_s, self._process_backlog)
            return
        if self._lease is not None:
            self._adjust_lease()
        if self._paused and (self._lease is None or self._lease.done()):
            self._paused = False
            if self._child is not None:
                self._child.resume()

    def _start_decoding(self, line: Line) -> None:
        self._pause()
        self._decoding = get_running_loop().create_task(self.mux.receive_large(line))
        self._decoding.add_done_callback(self._decoded)

    def _decoded(self, task: Task[None]) -> None:
        self._decoding = None
        if self._exit_reason is None:
            self._process_backlog()
        else:
            self._finish(self._exit_reason)

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            if self._child is not None:
                self._child.pause()

    # ------------------------------------------------------------------ the lease of a large line
    # It is held from the first bytes until the line is decoded; while it is not granted, reading is paused.

    def _adjust_lease(self) -> None:
        if self._lines.held <= LARGE_BYTES:
            if not self._backlog and self._decoding is None:
                self._release()
        elif self._lease is None:
            self._lease = self._memory.request(self._unsent_limit)
            if self._lease.done():
                self._lease_clock = get_running_loop().call_later(LEASE_S, self._discard_unfinished)
            else:
                self._pause()
                self._lease.add_done_callback(self._granted)

    def _granted(self, lease: Future[Lease]) -> None:
        if lease is not self._lease:
            return  # it was withdrawn
        self._lease_clock = get_running_loop().call_later(LEASE_S, self._discard_unfinished)
        if self._decoding is None:
            self._process_backlog()

    def _discard_unfinished(self) -> None:
        """Free the memory, for which other servers wait; the calls of this one have their own deadlines."""
        self._lease_clock = None
        if self._lines.held <= LARGE_BYTES:
            return  # the line is complete and being decoded
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
