"""`workers: N`: a parent that starts N daemons on one port, and serves no request itself.

The workers are replicas on one state folder. Each is a fork of the parent, which never runs an event loop or a thread,
and listens on the same address with SO_REUSEPORT. A pair of sockets connects it with the parent: the worker says how it
is, the parent when to stop. The end of the parent is the end of that connection, and of the worker.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NoReturn

import msgspec
from msgspec.structs import replace

from pointsman.config.errors import ConfigError
from pointsman.config.model import GatewayConfig
from pointsman.router.launch import Launch
from pointsman.router.run import serve
from pointsman.router.serving.process import run_event_loop
from pointsman.router.serving.service_manager import ServiceManager
from pointsman.router.serving.socket import ListenError, reserve
from pointsman.router.serving.state_folder import StateFolderError, workers_folder
from pointsman.router.serving.tasks import Backoff, DaemonError

FIRST_DELAY_S: Final = 0.25  # before a worker that ended is started again, as with servers
LONGEST_DELAY_S: Final = 60.0
STEADY_S: Final = 60.0  # a worker that ran this long resets the backoff
_MOST_BYTES: Final = 64 << 10  # of a message between parent and worker
_MOST_CHARS: Final = 4096  # of a text in it
_STOP, _END = b"stop", b"end"
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

logger = logging.getLogger(__name__)


class WorkersError(Exception):
    """The workers cannot be started. `str(error)` is shown to the operator."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker tells its parent; each message has one of these."""

    ready: str = ""  # the URL of /mcp
    page: str = ""  # a link that signs a browser in
    summary: str = ""
    failed: str = ""  # why it ends
    drained: bool = False
    alive: bool = False  # for the watchdog


def serve_with_workers(launch: Launch) -> None:
    """Serve with `launch.config.workers` processes until SIGTERM or SIGINT.

    Raises:
        StateFolderError, ListenError, ConfigError: as `run.serve` does.
        WorkersError: a worker did not get ready, or this system cannot divide a port.
    """
    if sys.platform != "linux":
        raise WorkersError("`workers` needs Linux, which divides the connections of a port. Set `workers: 1`.")
    with ExitStack() as stack:
        stack.enter_context(workers_folder(launch.state_dir))
        listen = launch.config.listen
        port: int = stack.enter_context(reserve(listen.host, listen.port)).getsockname()[1]
        if launch.prepare(launch.config):
            launch = replace(launch, config=launch.load())
        parent = Parent(_as_workers(launch, port), launch.config.workers)
        stack.enter_context(_signals(parent))
        parent.run()


def _as_workers(launch: Launch, port: int) -> Launch:
    """The launch of each worker: on the port that is held, and as a replica."""

    def adapted(config: GatewayConfig) -> GatewayConfig:
        listen = config.listen.model_copy(update={"port": port})
        state = config.state.model_copy(update={"replicas": True})
        return config.model_copy(update={"listen": listen, "state": state})

    return replace(launch, config=adapted(launch.config), load=lambda: adapted(launch.load()), worker=True)


@contextmanager
def _signals(parent: Parent) -> Iterator[None]:
    """Wake the parent at each signal that it handles."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    parent.watch_signals(read)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)  # before the handlers, which forget what comes
    before = {number: signal.signal(number, lambda *_: None) for number in _HANDLED}
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)


@dataclass(eq=False)
class _Worker:
    number: int
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_DELAY_S, LONGEST_DELAY_S))
    pid: int = 0  # 0: it does not run
    link: socket.socket | None = None
    began: float = 0.0
    due: float | None = None  # when it is started again
    ready: bool = False
    drained: bool = False
    heard: float = 0.0  # when it last said that it is alive
    reason: str = ""  # why it ends, in its own words

    def tell(self, word: bytes) -> None:
        if self.link is not None:
            with suppress(OSError):  # it has ended; its exit is noticed as well
                self.link.send(word)


class Parent:
    """Starts workers, restarts those that end, and passes signals on. One thread, no event loop: it forks."""

    def __init__(self, launch: Launch, count: int) -> None:
        self._launch = launch
        self._manager = launch.manager
        self._workers = [_Worker(number) for number in range(1, count + 1)]
        self._selector = selectors.DefaultSelector()
        self._signals = -1
        self._up = False  # all workers have been ready
        self._stopping = False
        self._failure = ""  # why the first start failed
        self._page = ""
        self._summary = ""
        self._watched = time.monotonic()

    def watch_signals(self, wakeup: int) -> None:
        self._signals = wakeup
        self._selector.register(wakeup, selectors.EVENT_READ)

    def run(self) -> None:
        """Return when all workers have ended after a signal. Raises WorkersError if the first start failed."""
        gc.collect()
        gc.freeze()  # a collection in a worker would copy the pages that all of them share
        for worker in self._workers:
            if not self._stopping:  # the one before could not be started
                self._start(worker)
        while self._living or not self._stopping:
            for key, _ in self._selector.select(self._patience_s()):
                if key.fd == self._signals:
                    self._handle_signals()
                elif key.data is not None:
                    self._listen(key.data)
            if not self._stopping:
                self._start_due()
                self._watch()
        if self._failure:
            raise WorkersError(self._failure)

    @property
    def _living(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.pid]

    def _patience_s(self) -> float | None:
        waits = [max(0.0, worker.due - time.monotonic()) for worker in self._workers if worker.due is not None]
        if self._manager.watchdog_s:
            waits.append(self._manager.watchdog_s / 2)
        return min(waits, default=None)

    def _watch(self) -> None:
        """Say that this process is alive, and kill a worker that has not said it in the time of the watchdog."""
        limit_s, now, before = self._manager.watchdog_s, time.monotonic(), self._watched
        if not limit_s:
            return
        self._manager.alive()
        self._watched = now
        for worker in self._living:
            if now - before > limit_s:  # this process was stopped itself
                worker.heard = now
            if worker.ready and now - worker.heard > limit_s:
                worker.reason = f"it has not answered for {limit_s:g} s"
                os.kill(worker.pid, signal.SIGKILL)

    # ------------------------------------------------------------------ start and end of a worker

    def _start(self, worker: _Worker) -> None:
        again = worker.began > 0
        worker.ready, worker.drained, worker.reason = False, False, ""
        worker.due, worker.began = None, time.monotonic()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            worker.pid = os.fork()
        except OSError as error:  # too many processes, or no memory
            ours.close()
            theirs.close()
            self._not_running(worker, f"could not be started: {error.strerror}")
            return
        if worker.pid == 0:
            ours.close()
            self._become_worker(theirs, again=again)
        theirs.close()
        worker.link = ours
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _become_worker(self, link: socket.socket, *, again: bool) -> NoReturn:
        """In the child: drop what belongs to the parent, and serve."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _HANDLED:
                signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
            self._selector.close()
            for other in self._workers:
                if other.link is not None:
                    other.link.close()
            code = run_worker(self._launch, link, again=again)
        except BaseException:
            logger.exception("a worker failed")
        finally:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _start_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.due is not None and worker.due <= now:
                self._start(worker)

    def _reap(self) -> None:
        for worker in self._living:
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._listen(worker)  # its last words
                self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, code: int) -> None:
        pid, worker.pid = worker.pid, 0
        if worker.link is not None:
            self._selector.unregister(worker.link)
            worker.link.close()
            worker.link = None
        how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
        self._not_running(worker, f"(process {pid}) {how}")

    def _not_running(self, worker: _Worker, what: str) -> None:
        """Start a worker again in a while, unless all of them stop or have not been ready yet."""
        if self._stopping:
            self._end_if_all_drained()
        elif not self._up:
            unsaid = f"Worker {worker.number} {what} before it was ready; the log has the reason."
            self._failure = worker.reason or unsaid
            self._stop()
        else:
            if time.monotonic() - worker.began >= STEADY_S:
                worker.backoff.reset()
            delay_s = worker.backoff.next_s()
            worker.due = time.monotonic() + delay_s
            reason = f": {worker.reason}" if worker.reason else ""
            logger.warning("worker %d %s%s; it is started again in %g s", worker.number, what, reason, delay_s)

    # ------------------------------------------------------------------ what workers say

    def _listen(self, worker: _Worker) -> None:
        while worker.link is not None:
            try:
                message = worker.link.recv(_MOST_BYTES, socket.MSG_DONTWAIT)
            except OSError:
                return  # there is nothing more
            if not message:
                return  # it ends; its exit tells
            self._handle(worker, msgspec.json.decode(message, type=Told))

    def _handle(self, worker: _Worker, told: Told) -> None:
        worker.reason = told.failed or worker.reason
        self._page = self._page or told.page
        if told.alive or told.ready:
            worker.heard = time.monotonic()
        if told.ready:
            worker.ready = True
            self._announce(told.ready)
        if told.summary and not self._summary:
            self._summary = told.summary
            self._launch.summary(told.summary)
            self._manager.status(f"{len(self._workers)} workers with {told.summary}")
        if told.drained:
            worker.drained = True
            self._end_if_all_drained()

    def _announce(self, url: str) -> None:
        """Say that the gateway is ready, once all workers are."""
        if self._up or not all(worker.ready for worker in self._workers):
            return
        self._up = True
        self._manager.ready(f"ready on {url}")
        self._launch.ready(url)
        pids = ", ".join(str(worker.pid) for worker in self._workers)
        logger.info("%d workers are ready (processes %s)", len(self._workers), pids)
        if self._page and self._launch.page is not None:
            self._launch.page(self._page)

    def _end_if_all_drained(self) -> None:
        """Let workers end their servers. One that serves the others has to wait for them, if all of them stop."""
        waiting = [worker for worker in self._living if not worker.drained]
        if self._stopping and waiting:
            return
        for worker in self._living:
            if worker.drained:
                worker.tell(_END)

    # ------------------------------------------------------------------ signals

    def _handle_signals(self) -> None:
        for number in os.read(self._signals, 256):
            if number in (signal.SIGTERM, signal.SIGINT):
                if self._stopping:
                    self._exit_at_once(number)
                self._stop()
            elif number == signal.SIGHUP:
                self._reload()
        self._reap()

    def _stop(self) -> None:
        self._stopping = True
        self._manager.stopping()
        for worker in self._workers:
            worker.due = None
            worker.tell(_STOP)

    def _exit_at_once(self, number: int) -> NoReturn:
        logger.warning("second signal: exiting immediately")
        for worker in self._living:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        os._exit(128 + number)

    def _reload(self) -> None:
        with self._manager.reloading():
            for worker in self._living:
                if worker.ready:  # one that starts reads the file anyway
                    os.kill(worker.pid, signal.SIGHUP)


# ------------------------------------------------------------------ in the worker


def run_worker(launch: Launch, link: socket.socket, *, again: bool) -> int:
    """Serve as one of several, and return the exit code. `again`: the configuration may have changed since."""
    try:
        if again:
            launch = replace(launch, config=launch.load())
        run_event_loop(_serve(launch, link))
    except (StateFolderError, ListenError, DaemonError, ConfigError) as error:
        _tell(link, Told(failed=str(error)[:_MOST_CHARS]))
        return 1
    return 0


async def _serve(launch: Launch, link: socket.socket) -> None:
    stop, end = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    link.setblocking(False)

    def told() -> None:
        try:
            word = link.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        stop.set()
        if word == _END:
            end.set()
        elif not word:  # the parent has ended
            loop.remove_reader(link)
            end.set()

    async def drained() -> None:
        _tell(link, Told(drained=True))
        await end.wait()

    loop.add_reader(link, told)
    # The parent counts signals. A service manager may send them to all processes, so a second one means nothing here.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    own = replace(
        launch,
        ready=lambda url: _tell(link, Told(ready=url)),
        summary=lambda line: _tell(link, Told(summary=line[:_MOST_CHARS])),
        page=(lambda url: _tell(link, Told(page=url))) if launch.page is not None else None,
        prepare=lambda config: False,
        manager=_Watched(link, launch.manager.watchdog_s),
        drained=drained,
    )
    await serve(own, stop)


class _Watched(ServiceManager):
    """What a worker has instead of the service manager: it says to the parent that it is alive."""

    def __init__(self, link: socket.socket, watchdog_s: float) -> None:
        super().__init__("", watchdog_s)
        self._link = link

    def alive(self) -> None:
        _tell(self._link, Told(alive=True))


def _tell(link: socket.socket, told: Told) -> None:
    with suppress(OSError):  # the parent has ended
        link.send(msgspec.json.encode(told))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
