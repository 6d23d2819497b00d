"""Opens the audit with the daemon, moves the journal into the database in the background, and deletes old rows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pointsman.config.model import Audit, CurrentConfig
from pointsman.core.model import WallClock
from pointsman.router.audit.database import FILE, NewerSchemaError, open_to_read
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.log import AuditLog, Observer
from pointsman.router.audit.segments import FOLDER
from pointsman.router.audit.store import Store
from pointsman.router.serving.tasks import TaskSet

COMPACTION = "audit compaction"
MOVE_EVERY_S = 5.0
TRIM_EVERY_S = 600.0
KEEP_ALL_S = 3600.0  # after a start, during which no row is deleted for its age
_DAY_MS = 86_400_000
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
    every_s: float = MOVE_EVERY_S,
) -> AsyncGenerator[AuditLog]:
    """Open the audit for one run of the daemon. It uses the settings in `current`, so that a reload takes effect."""
    seen = await asyncio.to_thread(last_seq_in, state_dir / FILE)
    journal = Journal(state_dir / FOLDER, seen_seq=seen)
    log = AuditLog(journal, current, observers=observers, wall=wall, monotonic=monotonic)
    log.open()
    store = Store(state_dir / FILE)
    compactor = _Compactor(log, journal, store, state_dir / FOLDER, current, AgeClock(wall, monotonic), monotonic)
    stopping = asyncio.Event()
    tasks = tasks or TaskSet()
    tasks.start(COMPACTION, lambda: compactor.run(stopping, every_s))
    try:
        yield log
    finally:
        stopping.set()  # not a cancel, which would close the database under the running thread
        await tasks.join(COMPACTION)
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
        store: Store,
        folder: Path,
        current: CurrentConfig,
        age: AgeClock,
        monotonic: Callable[[], float],
    ) -> None:
        self._log = log
        self._journal = journal
        self._store = store
        self._folder = folder
        self._current = current
        self._age = age
        self._age_known = False
        self._monotonic = monotonic
        self._started_at = monotonic()
        self._trimmed_at = float("-inf")
        self._logged = ""  # the error that was logged last

    async def run(self, stopping: asyncio.Event, every_s: float) -> None:
        while True:
            self._log.housekeep()
            try:
                await asyncio.to_thread(self._move, self._journal.position)
            except (sqlite3.Error, OSError, NewerSchemaError) as error:
                self._log_once(error)
                self._log.rows_held_back = True
            else:
                self._logged = ""
                self._log.rows_held_back = False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), every_s)
            if stopping.is_set():
                return

    def _move(self, position: tuple[str, int] | None) -> None:
        self._store.move(self._folder, position)
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

    def _log_once(self, error: Exception) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            logger.error("audit rows stay in the journal: could not write them to the state database: %s", error)


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
