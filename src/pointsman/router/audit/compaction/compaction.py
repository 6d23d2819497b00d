"""Opens the audit with the daemon, moves the journal into the database in the background, and deletes old rows."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pointsman.config.model import Audit, CurrentConfig
from pointsman.core.model import WallClock
from pointsman.router.audit.compaction.move_process import MoveProcess
from pointsman.router.audit.database import FILE, NewerSchemaError, open_to_read
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.kept import READ_ERRORS, RowWriter, journal_bytes, move
from pointsman.router.audit.log import AuditLog, Observer
from pointsman.router.audit.segments import FOLDER, list_segments
from pointsman.router.audit.store import Store
from pointsman.router.serving.tasks import TaskSet

COMPACTION = "audit compaction"
MOVE_EVERY_S = 5.0
MOVE_SHARED_EVERY_S = 2.0  # others see our rows only after that
LONG_SEGMENTS = 2  # with the one in use; while a thread moves one, for 20 ms, calls take four times as long
TRIM_EVERY_S = 600.0
KEEP_ALL_S = 3600.0  # after a start, during which no row is deleted for its age
_DAY_MS = 86_400_000
_MOVER_LOCK = "mover.lock"  # in the journal's folder
_BELIEVED_AFTER_S = 86_400.0  # long enough to notice a wrong clock; a correct one must win eventually

logger = logging.getLogger(__name__)


@asynccontextmanager
async def auditing(
    state_dir: Path,
    current: CurrentConfig,
    *,
    tasks: TaskSet | None = None,
    observers: Sequence[Observer] = (),
    wall: WallClock = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    every_s: float | None = None,
    writer: RowWriter | None = None,
    shared: bool = False,
) -> AsyncGenerator[AuditLog]:
    """Open the audit for one run of the daemon. It uses the settings in `current`, so that a reload takes effect.

    `writer`: where the rows of several gateways are kept, instead of the state folder's database. Seqs are then the
    time in microseconds, so that the rows of all are in order. `shared`: other replicas write to the same journal
    folder, and to the same database.
    """
    journal: Journal
    if writer is not None:
        journal = Journal(state_dir / FOLDER, lowest_seq=lambda: int(wall() * 1_000_000), replica=writer.replica)
    elif shared:
        from pointsman.router.audit.shared_journal import SharedJournal

        journal = SharedJournal(state_dir / FOLDER, seen_seq=await asyncio.to_thread(last_seq_in, state_dir / FILE))
    else:
        journal = Journal(state_dir / FOLDER, seen_seq=await asyncio.to_thread(last_seq_in, state_dir / FILE))
    log = AuditLog(journal, current, observers=observers, wall=wall, monotonic=monotonic)
    log.open()
    store = Store(state_dir / FILE) if writer is None else writer
    process = None if store.mover_environment is None else MoveProcess(state_dir, store.mover_environment)
    age = AgeClock(wall, monotonic)
    compactor = _Compactor(log, journal, store, process, state_dir / FOLDER, current, age, monotonic, shared=shared)
    stopping = asyncio.Event()
    tasks = tasks or TaskSet()
    interval_s = every_s or (MOVE_EVERY_S if writer is None else MOVE_SHARED_EVERY_S)
    tasks.start(COMPACTION, lambda: compactor.run(stopping, interval_s))
    try:
        yield log
    finally:
        stopping.set()  # not a cancel, which would close the database under the running thread
        if process is not None:
            process.interrupt()
        await tasks.join(COMPACTION)
        if process is not None:
            process.close()
        store.close()
        log.close()


def last_seq_in(database: Path) -> int:
    """Return the highest seq in the database; 0 if it cannot be read, since the journal's last segment has it, too."""
    try:
        connection = open_to_read(database)
        if connection is None:
            return 0
        try:
            return int(connection.execute("SELECT max(seq) FROM audit").fetchone()[0] or 0)
        finally:
            connection.close()
    except (sqlite3.Error, NewerSchemaError):
        return 0


class _Compactor:
    def __init__(
        self,
        log: AuditLog,
        journal: Journal,
        store: RowWriter,
        process: MoveProcess | None,
        folder: Path,
        current: CurrentConfig,
        age: AgeClock,
        monotonic: Callable[[], float],
        *,
        shared: bool,
    ) -> None:
        self._shared = shared
        self._log = log
        self._journal = journal
        self._store = store
        self._process = process
        self._folder = folder
        self._current = current
        self._age = age
        self._age_known = False
        self._monotonic = monotonic
        self._started_at = monotonic()
        self._trimmed_at = float("-inf")
        self._logged = ""  # the error that was logged last
        self._added_before = 0  # the database took no rows

    async def run(self, stopping: asyncio.Event, every_s: float) -> None:
        while True:
            self._log.housekeep()
            if not self._log.rows_held_back:
                self._added_before = self._added
            try:
                await asyncio.to_thread(self._move, self._journal.position)
            except READ_ERRORS as error:
                self._log_once(error)
                self._log.rows_held_back = True
            else:
                if self._log.rows_held_back:
                    moved = self._added - self._added_before
                    logger.warning("the state database takes audit rows again; %d moved from the journal", moved)
                self._logged = ""
                self._log.rows_held_back = False
            self._bound_journal()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), every_s)
            if stopping.is_set():
                return

    def _move(self, position: tuple[str, int] | None) -> None:
        if not self._shared:
            self._compact(position)
            return
        with _try_lock(self._folder / _MOVER_LOCK) as alone:
            if alone:
                self._compact(position)
            else:  # another replica moves what has ended, and trims
                move(self._store, self._folder, position, other_runs=False)

    def _compact(self, position: tuple[str, int] | None) -> None:
        if self._log.rows_held_back:
            self._store.newest_ms(other_than="")  # raises before a process is started in vain
        if self._process is not None:
            if position is not None and len(list_segments(self._folder)) > LONG_SEGMENTS:
                self._process.move(position)
            else:
                self._process.reap()
        move(self._store, self._folder, position)  # the rest, which is all unless the journal is long
        self._store.interrupt_lost()
        if not self._age_known:
            self._age.start_from(self._store.newest_ms(other_than=position[0] if position else ""))
            self._age_known = True
        now = self._monotonic()
        if now - self._trimmed_at >= TRIM_EVERY_S:
            self._trim(self._current.config.audit, fresh=now - self._started_at < KEEP_ALL_S)
            self._trimmed_at = now

    def _trim(self, settings: Audit, *, fresh: bool) -> None:
        if fresh:
            # Leaves time to correct a wrong clock or limit. Only a database that would fill the disk is trimmed.
            self._store.trim(older_than_ms=0, max_bytes=2 * settings.max_bytes)
        else:
            oldest_ms = self._age.now_ms() - settings.max_days * _DAY_MS
            self._store.trim(older_than_ms=oldest_ms, max_bytes=settings.max_bytes)

    def _bound_journal(self) -> None:
        """Refuse calls while the journal is too large: it grows as long as the database takes no rows."""
        limit = self._current.config.audit.journal_bytes
        full = self._log.rows_held_back and journal_bytes(self._folder) >= limit
        if full and not self._log.journal_full:
            logger.error(
                "the audit journal has reached audit.journal_bytes (%d bytes); calls are refused until the state "
                "database takes rows again",
                limit,
            )
        elif self._log.journal_full and not full:
            logger.warning("the audit journal has room again; calls are accepted")
        self._log.journal_full = full

    @property
    def _added(self) -> int:
        """Rows that this process and its mover have committed."""
        return self._store.added + (self._process.added if self._process is not None else 0)

    def _log_once(self, error: Exception) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            logger.error("audit rows stay in the journal: could not write them to the state database: %s", error)


@contextlib.contextmanager
def _try_lock(path: Path) -> Iterator[bool]:
    """Yield whether this process has the lock for the block."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


class AgeClock:
    """The time by which rows are too old: the system clock, unless it jumps.

    After a jump of more than a day, the newest row plus the time elapsed since is used for one more day, so that a
    wrong clock deletes no rows.
    """

    def __init__(self, wall: WallClock, monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._known: tuple[float, float] | None = None  # a time in ms, and the monotonic time at that moment
        self._doubted_at: float | None = None

    def start_from(self, newest_ms: int | None) -> None:
        """Take the newest row of earlier runs as the start time of this one; None if there is no row."""
        if newest_ms is not None:
            self._known = newest_ms, self._monotonic()
        self.now_ms()

    def now_ms(self) -> int:
        clock_ms, at = self._wall() * 1000, self._monotonic()
        known_ms, known_at = self._known or (clock_ms, at)
        expected_ms = known_ms + (at - known_at) * 1000
        if abs(clock_ms - expected_ms) > _DAY_MS:
            if self._doubted_at is None:
                self._doubted_at = at
                self._warn((clock_ms - expected_ms) / _DAY_MS)
            if at - self._doubted_at < _BELIEVED_AFTER_S:
                return int(min(clock_ms, expected_ms))  # the earlier one keeps more rows
        self._known, self._doubted_at = (clock_ms, at), None
        return int(clock_ms)

    def _warn(self, days: float) -> None:
        logger.warning(
            "the system clock is %.0f days %s the newest audit row; check the clock. No audit rows are deleted by "
            "this clock for a day",
            abs(days),
            "ahead of" if days > 0 else "behind",
        )
