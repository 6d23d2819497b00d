"""The audit's life: opened with the daemon, and a task beside it that moves the journal into the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pointsman.config.model import Audit
from pointsman.core.model import WallClock
from pointsman.router.audit.age import AgeClock
from pointsman.router.audit.database import FILE, NewerSchemaError, open_to_read
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.log import AuditLog, Observer
from pointsman.router.audit.segments import FOLDER
from pointsman.router.audit.store import Store
from pointsman.router.serving.tasks import TaskSet

MOVER = "audit mover"
MOVE_EVERY_S = 5.0
TRIM_EVERY_S = 600.0
KEEP_ALL_S = 3600.0  # after a start nothing is deleted for so long
_DAY_MS = 86_400_000

logger = logging.getLogger(__name__)


@asynccontextmanager
async def auditing(
    state_dir: Path,
    settings: Callable[[], Audit],
    *,
    tasks: TaskSet | None = None,
    observers: Sequence[Observer] = (),
    wall: WallClock = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    every_s: float = MOVE_EVERY_S,
    bytes_per_s: Callable[[], float] | None = None,
) -> AsyncGenerator[AuditLog]:
    """The audit of one run of the daemon. `settings` is asked each time, so that a reload holds at once.

    `bytes_per_s`: what one token may add to it.
    """
    seen = await asyncio.to_thread(last_seq_in, state_dir / FILE)
    journal = Journal(state_dir / FOLDER, seen_seq=seen)
    log = AuditLog(
        journal,
        arguments=lambda: settings().arguments,
        observers=observers,
        wall=wall,
        monotonic=monotonic,
        bytes_per_s=bytes_per_s,
    )
    log.open()
    store = Store(state_dir / FILE)
    mover = _Compactor(log, journal, store, state_dir / FOLDER, settings, AgeClock(wall, monotonic), monotonic)
    leaving = asyncio.Event()
    tasks = tasks or TaskSet()
    tasks.start(MOVER, lambda: mover.run(leaving, every_s))
    try:
        yield log
    finally:
        leaving.set()  # in place of a cancel, which would leave the thread alone with the database
        await tasks.join(MOVER)
        store.close()
        log.close()


def last_seq_in(database: Path) -> int:
    """The highest seq in the database, 0 where it cannot be read: the journal's last segment knows it as well."""
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
        settings: Callable[[], Audit],
        age: AgeClock,
        monotonic: Callable[[], float],
    ) -> None:
        self._log = log
        self._journal = journal
        self._store = store
        self._folder = folder
        self._settings = settings
        self._age = age
        self._age_known = False
        self._monotonic = monotonic
        self._started_at = monotonic()
        self._trimmed_at = float("-inf")
        self._complaint = ""

    async def run(self, leaving: asyncio.Event, every_s: float) -> None:
        while True:
            self._log.housekeep()
            try:
                await asyncio.to_thread(self._move, self._journal.position)
            except (sqlite3.Error, OSError, NewerSchemaError) as error:
                self._complain(error)
                self._log.rows_held_back = True
            else:
                self._complaint = ""
                self._log.rows_held_back = False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(leaving.wait(), every_s)
            if leaving.is_set():
                return

    def _move(self, position: tuple[str, int] | None) -> None:
        self._store.move(self._folder, position)
        if not self._age_known:
            self._age.start_from(self._store.newest_ms(other_than=position[0] if position else ""))
            self._age_known = True
        now = self._monotonic()
        if now - self._trimmed_at >= TRIM_EVERY_S:
            self._trim(self._settings(), fresh=now - self._started_at < KEEP_ALL_S)
            self._trimmed_at = now

    def _trim(self, settings: Audit, *, fresh: bool) -> None:
        if fresh:
            # A wrong clock or limit can still be corrected. Only a database that would fill the disk is cut.
            self._store.trim(older_than_ms=0, max_bytes=2 * settings.max_bytes)
        else:
            oldest_ms = self._age.now_ms() - settings.max_days * _DAY_MS
            self._store.trim(older_than_ms=oldest_ms, max_bytes=settings.max_bytes)

    def _complain(self, error: Exception) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            logger.error("audit rows stay in the journal for now, the state database cannot take them: %s", error)
