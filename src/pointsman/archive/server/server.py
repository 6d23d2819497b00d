"""The archive's stdio server: one thread reads requests, and a bounded pool of threads runs the tools."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pointsman.archive.archive import open_archive
from pointsman.archive.server.calls import ToolRunner
from pointsman.archive.server.protocol import Session, ToolCall
from pointsman.archive.server.rate_limits import RateLimits
from pointsman.archive.settings import ArchiveSettings, PostgresStore
from pointsman.archive.tools.registry import TOOLS
from pointsman.core import wire
from pointsman.core.lines import HEAD_BYTES, TAIL_BYTES, Line, LineAssembler, id_of_undecoded
from pointsman.core.model import Json
from pointsman.core.seams import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, ProtocolError

if TYPE_CHECKING:
    from pointsman.archive.server.shared_windows import SharedWindows

THREADS = 16
THREADS_OF_ONE_TOOL = 4
MAX_PENDING = 1_000  # calls that run or wait for a thread
MAX_LINE_BYTES = 64 << 20
CONNECTION_CLOSED = -32000
_READ_BYTES = 1 << 18

logger = logging.getLogger(__name__)

RequestId = str | int


def make_runner(settings: ArchiveSettings) -> ToolRunner:
    """Open the archive and start to prepare it. Raises SettingsError."""
    tools = {tool.name: tool for tool in TOOLS}
    archive = open_archive(settings)
    archive.prepare()
    return ToolRunner(archive, tools, RateLimits(settings.rate_limits, tools, _shared_windows(settings)))


def _shared_windows(settings: ArchiveSettings) -> SharedWindows | None:
    """Rate limits are counted where the store is: by all archives on it. Connects with the first call."""
    if not isinstance(settings.database, PostgresStore):
        return None
    from pointsman.archive.server.shared_windows import SharedWindows
    from pointsman.core.postgres import Postgres

    store = settings.database
    return SharedWindows(Postgres(store.url, program="pointsman archive limits", connections=2, schema=store.schema))


def serve(runner: ToolRunner) -> None:
    """Serve over stdin and stdout until the input ends."""
    try:
        StdioServer(runner, *_private_streams()).run()
    finally:
        runner.close()


def _private_streams() -> tuple[int, int]:
    """Move stdin and stdout to other descriptors, so that tools and children can neither read nor write the wire.

    Descriptor 0 becomes the null device, and 1 becomes stderr.
    """
    reading, writing = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no stderr
        os.dup2(null, 1)
    os.close(null)
    return reading, writing


@dataclass(slots=True, eq=False)
class _Pending:
    """A tool call whose answer is due. `settled`: answered, cancelled or abandoned."""

    id: RequestId
    settled: bool = False


class StdioServer:
    """Serves one client over two file descriptors."""

    def __init__(self, runner: ToolRunner, reading: int, writing: int, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._runner = runner
        self._reading = reading
        self._writing = writing
        self._max_line_bytes = max_line_bytes
        self._session = Session([*runner.tools.values()])
        self._workers = Workers()
        self._lock = threading.Lock()  # of `_pending`
        self._write_lock = threading.Lock()
        self._pending: dict[RequestId, _Pending] = {}

    def run(self) -> None:
        """Return when the input ends; then the calls that still run are answered with an error."""
        lines = LineAssembler(self._max_line_bytes, self._too_long)
        while data := self._read():
            for line in lines.feed(data):
                self._receive(line)
        for line in lines.feed(b"\n"):  # the last line may lack its newline
            self._receive(line)
        self._workers.close()
        for call in [*self._pending.values()]:
            if self._settle(call):
                self._fail(call.id, ProtocolError(CONNECTION_CLOSED, "Connection closed"))

    def _read(self) -> bytes:
        try:
            return os.read(self._reading, _READ_BYTES)
        except OSError:
            return b""  # same as the end of the input

    def _receive(self, line: Line) -> None:
        if not line.strip():
            return
        try:
            message = wire.decode(line)
        except wire.InvalidJsonError as error:
            self._refuse(line[:HEAD_BYTES], line[-TAIL_BYTES:], ProtocolError(PARSE_ERROR, f"Not JSON: {error}"))
            return
        method, params = _method_of(message)
        if method is None:
            logger.warning("dropped a line that is neither a JSON-RPC request nor a notification")
        elif type(message.get("id")) in (str, int):
            self._answer(message["id"], method, params)
        elif method == "notifications/cancelled":
            self._cancel((params or {}).get("requestId"))
        else:
            self._session.notify(method)

    def _answer(self, request_id: RequestId, method: str, params: Json | None) -> None:
        try:
            answer = self._session.answer(method, params)
        except ProtocolError as error:
            self._fail(request_id, error)
            return
        if isinstance(answer, ToolCall):
            self._start(request_id, answer)
        else:
            self._write({"jsonrpc": "2.0", "id": request_id, "result": answer})

    def _start(self, request_id: RequestId, call: ToolCall) -> None:
        if len(self._pending) >= MAX_PENDING:
            self._fail(request_id, ProtocolError(INTERNAL_ERROR, f"{MAX_PENDING} calls are waiting. Try again later."))
            return
        pending = _Pending(request_id)
        with self._lock:
            self._pending[_key(request_id)] = pending
        self._workers.start(call.name, lambda: self._run(pending, call))

    def _run(self, pending: _Pending, call: ToolCall) -> None:
        """On a worker thread."""
        if pending.settled:
            return  # cancelled while it waited
        answer = self._session.result_of(self._runner.call(call.name, call.arguments, call.caller))
        if self._settle(pending):
            self._write({"jsonrpc": "2.0", "id": pending.id, "result": answer})

    def _cancel(self, request_id: object) -> None:
        """A cancelled call gets no answer. Its thread stays busy until the tool returns."""
        pending = self._pending.get(_key(request_id)) if isinstance(request_id, str | int) else None
        if pending is not None:
            self._settle(pending)

    def _settle(self, call: _Pending) -> bool:
        """False: it is settled already."""
        with self._lock:
            settled, call.settled = call.settled, True
            if self._pending.get(_key(call.id)) is call:  # a client may have used the id again
                del self._pending[_key(call.id)]
        return not settled

    def _too_long(self, head: bytes, tail: bytes) -> None:
        if tail:
            message = f"The message has more than {self._max_line_bytes} bytes. Send less."
            self._refuse(head, tail, ProtocolError(INVALID_REQUEST, message))

    def _refuse(self, head: Line, tail: Line, error: ProtocolError) -> None:
        """Answer a line that was not decoded, if its id can be found."""
        request_id = id_of_undecoded(head, tail)
        if request_id is None:
            logger.warning("dropped a line: %s", error)
        else:
            self._fail(request_id, error)

    def _fail(self, request_id: RequestId, error: ProtocolError) -> None:
        data = {} if error.data is None else {"data": error.data}
        self._write(
            {"jsonrpc": "2.0", "id": request_id, "error": {"code": error.code, "message": error.message, **data}}
        )

    def _write(self, message: Json) -> None:
        rest = memoryview(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
        with self._write_lock, suppress(OSError):  # the client has closed its end
            while rest:
                rest = rest[os.write(self._writing, rest) :]


def _method_of(message: object) -> tuple[str | None, Json | None]:
    """The method and the parameters of a request or notification; (None, None) if it is neither."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None, None
    method, params = message.get("method"), message.get("params")
    return (method, params) if isinstance(method, str) and isinstance(params, dict | None) else (None, None)


def _key(request_id: RequestId) -> RequestId:
    """Some clients cancel request 7 as "7"."""
    return (
        int(request_id) if isinstance(request_id, str) and request_id.isascii() and request_id.isdigit() else request_id
    )


class Workers:
    """A bounded thread pool: a slow tool delays neither the protocol nor the other tools."""

    def __init__(self, threads: int = THREADS, of_one_tool: int = THREADS_OF_ONE_TOOL) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tool")
        self._of_one_tool = of_one_tool
        self._lock = threading.Lock()
        self._running: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, deque[Callable[[], None]]] = defaultdict(deque)

    def start(self, tool: str, work: Callable[[], None]) -> None:
        """Run `work`, which does not raise, as soon as the tool has a free thread."""
        with self._lock:
            if self._running[tool] >= self._of_one_tool:
                self._waiting[tool].append(work)
                return
            self._running[tool] += 1
        self._pool.submit(self._run, tool, work)

    def close(self) -> None:
        """Start nothing more. The interpreter waits for what runs."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, tool: str, work: Callable[[], None] | None) -> None:
        while work is not None:
            work()
            with self._lock:
                work = self._waiting[tool].popleft() if self._waiting[tool] else None
                if work is None:
                    self._running[tool] -= 1
