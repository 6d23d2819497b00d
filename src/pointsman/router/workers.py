"""`workers: N`: a parent that starts N daemons on one port, and serves no request itself.

The workers are replicas on one state folder. Each is a fork of the parent, which never runs an event loop or a thread,
and listens on the same address with SO_REUSEPORT. A pair of sockets connects it with the parent: the worker says how it
is, the parent when to stop. The end of the parent is the end of that connection, and of the worker.
"""

from __future__ import annotations

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

from pointsman import __version__
from pointsman.config.errors import ConfigError
from pointsman.config.model import GatewayConfig
from pointsman.router.daemon import GRACE_S
from pointsman.router.launch import Launch
from pointsman.router.serving.log_file import PlainLogFile, logged_plainly
from pointsman.router.serving.reload import keeping_started, without_revoked
from pointsman.router.serving.socket import reserve
from pointsman.router.serving.state_folder import workers_folder
from pointsman.router.serving.tasks import Backoff
from pointsman.router.serving.workers_file import WorkerNote, note_of, remove_note, write_note
from pointsman.router.worker import BEAT_S, END, MOST_BYTES, STOP, Told, run_worker

FIRST_DELAY_S: Final = 0.25  # before a worker that ended is started again, as with servers
LONGEST_DELAY_S: Final = 60.0
STEADY_S: Final = 60.0  # a worker that ran this long resets the backoff
HANG_S = 60.0  # a worker that is silent for longer is replaced, unless a service manager has a watchdog of its own
STOP_MARGIN_S: Final = 2.0  # for a worker that stops, beyond the time for its calls; it speaks more often then
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

logger = logging.getLogger(__name__)


class WorkersError(Exception):
    """The workers cannot be started. `str(error)` is shown to the operator."""


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
        if launch.stderr is not None:
            launch.stderr.configure(launch.config.log.format)
        log_file = stack.enter_context(logged_plainly(launch.state_dir, launch.config.log))
        parent = Parent(_as_workers(launch, port), launch.config.workers, log_file)
        stack.enter_context(_signals(parent))
        try:
            parent.run()
        except WorkersError as error:
            log_file.say(str(error))
            raise
        finally:
            log_file.say("pointsman has ended")


def _as_workers(launch: Launch, port: int) -> Launch:
    """The launch of each worker: on the port that is held, and as a replica."""

    def adapted(config: GatewayConfig) -> GatewayConfig:
        listen = config.listen.model_copy(update={"port": port})
        state = config.state.model_copy(update={"replicas": True})
        return config.model_copy(update={"listen": listen, "state": state})

    return replace(launch, config=adapted(launch.config), load=lambda: adapted(launch.load()))


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
    ended: str = ""  # how and why it last ended
    next_start: float = 0.0  # `due` on the wall clock, for people

    def tell(self, word: bytes) -> None:
        if self.link is not None:
            with suppress(OSError):  # it has ended; its exit is noticed as well
                self.link.send(word)


class Parent:
    """Starts workers, restarts those that end, and passes signals on. One thread, no event loop: it forks."""

    def __init__(self, launch: Launch, count: int, log_file: PlainLogFile) -> None:
        self._launch = launch  # with the last valid configuration
        self._began = launch.config
        self._outdated = False  # the workers have another configuration
        self._manager = launch.manager
        self._log_file = log_file
        self._workers = [_Worker(number) for number in range(1, count + 1)]
        self._selector = selectors.DefaultSelector()
        self._signals = -1
        self._up = False  # all workers have been ready
        self._stopping = False
        self._stopped = 0.0  # when the workers were told to stop
        self._failure = ""  # why the first start failed
        self._url = ""
        self._page = ""  # the link of the worker that made the first one
        self._page_shown = False
        self._summary = ""
        self._silence_s = self._manager.watchdog_s or HANG_S
        self._watched = time.monotonic()
        self._note = note_of(os.getpid(), launch.config_path, self._silence_s)  # as it was written last
        self._note_failed = False

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
        self._write_note()
        while self._living or not self._stopping:
            for key, _ in self._selector.select(self._patience_s()):
                if key.fd == self._signals:
                    self._handle_signals()
                elif key.data is not None:
                    self._listen(key.data)
            if self._outdated:
                self._read_configuration()
            if not self._stopping:
                self._start_due()
            self._watch()
            self._write_note()
        if self._failure:
            raise WorkersError(self._failure)

    @property
    def _living(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.pid]

    @property
    def _limit_s(self) -> float:
        """How long a worker may be silent."""
        return max(self._silence_s, HANG_S) if self._stopping else self._silence_s

    def _patience_s(self) -> float:
        """How long nothing is to be done here: until a worker is to be started, or has been silent for too long."""
        starts = [worker.due for worker in self._workers if worker.due is not None]
        ends = [worker.heard + self._limit_s for worker in self._living if worker.ready]
        longest_s = BEAT_S if self._stopping else self._silence_s / 2
        return min((longest_s, *(max(0.0, due - time.monotonic()) for due in (*starts, *ends))))

    def _watch(self) -> None:
        """Say that this process is alive, and kill a worker that has been silent for too long."""
        limit_s, now, before = self._limit_s, time.monotonic(), self._watched
        if not self._stopping and self._manager.watchdog_s:
            self._manager.alive()
        self._watched = now
        for worker in self._living:
            if now - before > (STOP_MARGIN_S if self._stopping else limit_s):  # this process was stopped itself
                worker.heard = now
            if worker.ready and now - worker.heard >= limit_s:
                self._kill(worker, f"it has not answered for {limit_s:g} s")
            elif self._hinders_stop(worker, now):
                within = f"it has not drained within {self._stop_s:g} s"
                self._kill(worker, f"{within}, and has been silent for {STOP_MARGIN_S:g} s")

    @property
    def _stop_s(self) -> float:
        """How long a worker may take to drain, even if it is silent."""
        return self._launch.config.listen.drain_for(replica=False) + GRACE_S + STOP_MARGIN_S

    def _hinders_stop(self, worker: _Worker, now: float) -> bool:
        """Whether the others wait for a worker that hangs. One that drains for longer still says that it is alive."""
        if not self._stopping or worker.drained or now - self._stopped < self._stop_s:
            return False
        return now - max(worker.heard, self._stopped) >= STOP_MARGIN_S

    def _kill(self, worker: _Worker, reason: str) -> None:
        worker.reason, worker.heard = reason, time.monotonic()
        logger.error("worker %d (process %d) is killed: %s", worker.number, worker.pid, reason)
        os.kill(worker.pid, signal.SIGKILL)

    def _write_note(self) -> None:
        """Let the owner's commands know how the workers are, if that has changed."""
        told = tuple(
            WorkerNote(worker.number, worker.pid, worker.ready and bool(worker.pid), worker.ended, worker.next_start)
            for worker in self._workers
        )
        note = replace(self._note, url=self._url, workers=told)
        if self._stopping or note == self._note:
            return
        self._note = note
        try:
            write_note(self._launch.state_dir, note)
            self._note_failed = False
        except OSError as error:
            if not self._note_failed:
                logger.warning("could not note for `pointsman status` how the workers are: %s", error.strerror)
            self._note_failed = True

    # ------------------------------------------------------------------ start and end of a worker

    def _start(self, worker: _Worker) -> None:
        again = worker.began > 0
        worker.ready, worker.drained, worker.reason = False, False, ""
        worker.due, worker.began, worker.next_start = None, time.monotonic(), 0.0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            worker.pid = os.fork()
        except OSError as error:  # too many processes, or no memory
            ours.close()
            theirs.close()
            worker.ended = f"it could not be started: {error.strerror}"
            self._not_running(worker, f"could not be started: {error.strerror}")
            return
        if worker.pid == 0:
            ours.close()
            self._become_worker(theirs, worker.number, again=again)
        theirs.close()
        worker.link = ours
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _become_worker(self, link: socket.socket, number: int, *, again: bool) -> NoReturn:
        """In the child: drop what belongs to the parent, and serve."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for handled in _HANDLED:
                signal.signal(handled, signal.SIG_IGN if handled == signal.SIGHUP else signal.SIG_DFL)
            self._selector.close()
            logging.getLogger().removeHandler(self._log_file)
            self._log_file.close()
            for other in self._workers:
                if other.link is not None:
                    other.link.close()
            if self._launch.stderr is not None:
                self._launch.stderr.worker = number
            launch = replace(self._launch, worker=number)
            if again:  # the link to the page was printed at the first start
                launch = replace(launch, began=self._began, page=None)
            code = run_worker(launch, link, self._silence_s)
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
        worker.ended = f"process {pid} {how}"
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
            worker.due, worker.next_start = time.monotonic() + delay_s, time.time() + delay_s
            reason = f": {worker.reason}" if worker.reason else ""
            worker.ended += " ".join(reason.split()).rstrip(".")
            logger.warning("worker %d %s%s; it is started again in %g s", worker.number, what, reason, delay_s)

    # ------------------------------------------------------------------ what workers say

    def _listen(self, worker: _Worker) -> None:
        while worker.link is not None:
            try:
                message = worker.link.recv(MOST_BYTES, socket.MSG_DONTWAIT)
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
        self._show_page()
        if told.summary and not self._summary:
            self._summary = told.summary
            self._launch.summary(told.summary)
            self._manager.status(f"{len(self._workers)} workers with {told.summary}")
        self._outdated |= told.applied
        if told.drained and not worker.drained:
            worker.drained = True
            self._end_if_all_drained()

    def _read_configuration(self) -> None:
        """Keep what the workers have read, for one that is started again while the file is invalid."""
        self._outdated = False
        before = config = self._launch.config
        try:
            config = keeping_started(self._began, self._launch.load())
        except ConfigError:
            with suppress(ConfigError):  # as the workers, which have withdrawn them
                config = without_revoked(before, self._launch.config_path)
        except Exception:  # whatever it is: a worker that is started again reads the file itself
            logger.exception("could not read the configuration for workers that are started again")
        self._launch = replace(self._launch, config=config)
        self._log_file.configure(config.log)
        if self._launch.stderr is not None:
            self._launch.stderr.configure(config.log.format)

    def _announce(self, url: str) -> None:
        """Say that the gateway is ready, once all workers are."""
        if self._up or not all(worker.ready for worker in self._workers):
            return
        self._up, self._url = True, url
        self._manager.ready(f"ready on {url}")
        self._launch.ready(url)
        self._log_file.say(f"pointsman {__version__} ready on {url} (process {os.getpid()}, with workers)")
        pids = ", ".join(str(worker.pid) for worker in self._workers)
        logger.info("%d workers are ready (processes %s)", len(self._workers), pids)

    def _show_page(self) -> None:
        """Print a link to the page once, after the ready line. Workers send theirs after they have said `ready`."""
        if self._up and self._page and not self._page_shown and self._launch.page is not None:
            self._page_shown = True
            self._launch.page(self._page)

    def _end_if_all_drained(self) -> None:
        """Let workers end their servers. One that serves the others has to wait for them, if all of them stop."""
        waiting = [worker for worker in self._living if not worker.drained]
        if self._stopping and waiting:
            return
        for worker in self._living:
            if worker.drained:
                worker.tell(END)

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
        self._stopping, self._stopped = True, time.monotonic()
        self._watched = self._stopped
        self._manager.stopping()
        with suppress(OSError):  # without this process, it is not believed
            remove_note(self._launch.state_dir)
        for worker in self._workers:
            worker.due = None
            worker.tell(STOP)

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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
